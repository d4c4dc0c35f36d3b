//! Fair request queue and circuit breaker of one provider. Bounds the concurrent requests, keeps one queue per agent
//! tree and serves the tree with the fewest running requests first. Sending and retrying is left to `remote`.

mod retry_budget;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::journal::Serial;
use agent::{Fault, FaultKind};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use self::state::QueueState;
use crate::error_class::{ErrorClass, ModelError};
use crate::retry_policy::HasFallback;

/// Longest wait for a permit while the circuit is closed.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(600);

/// Retry delay reported to the client when no better one is known.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(5);

/// Limits of one provider's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Most requests in flight.
    pub(crate) concurrency: usize,
    /// Most queued requests; one more is rejected as busy.
    pub(crate) queued_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { concurrency: 256, queued_max: 8_192 }
    }
}

/// Outcome of one attempt, as it affects the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The server responded, possibly with a refusal.
    Available,
    /// The server did not respond or reported an internal error, with its retry delay if given.
    Unavailable(Option<Duration>),
    /// The server is overloaded or rate-limits, with its retry delay if given.
    RateLimited(Option<Duration>),
}

/// Longest wait of a request for the cool-down of a provider to end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CoolDownMax {
    /// From the moment of the check, for requests not sent yet: time spent in the queue does not count.
    For(Duration),
    /// Until a fixed time.
    Until(Instant),
}

impl CoolDownMax {
    pub(crate) fn deadline(self) -> Instant {
        match self {
            Self::For(time) => Instant::now() + time,
            Self::Until(deadline) => deadline,
        }
    }
}

/// Admission of one provider's requests.
#[derive(Debug)]
pub(crate) struct FairQueue {
    name: String,
    state: Mutex<QueueState>,
    /// Notifies waiting requests that the end of the cool-down has changed.
    cool_down_changed: watch::Sender<()>,
}

impl FairQueue {
    pub(crate) fn new(name: &str, limits: QueueLimits) -> Arc<Self> {
        let state = Mutex::new(QueueState::new(limits, Instant::now()));
        Arc::new(Self { name: name.to_owned(), state, cool_down_changed: watch::Sender::new(()) })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. Fails at once if the circuit stays open beyond `cool_down_max`; with a fallback, it also
    /// fails when the wait behind the probes of a recovering provider exceeds that limit. Dropping the future leaves
    /// the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        root: Serial,
        cool_down_max: CoolDownMax,
        has_fallback: HasFallback,
    ) -> Result<QueuePermit, ModelError> {
        let mut cool_down_changes = self.cool_down_changed.subscribe();
        let (permit_sender, mut permit) = oneshot::channel();
        let ticket = self.state().enqueue(root, permit_sender).ok_or_else(|| self.queue_full_error())?;
        let _dequeue_guard = DequeueOnDrop { queue: self, root, ticket };
        self.grant_permits();
        let queue_deadline = Instant::now() + QUEUE_WAIT_MAX;
        let fallback_deadline = (has_fallback == HasFallback::Yes).then(|| cool_down_max.deadline());
        loop {
            let (open_until, is_recovering) = {
                let state = self.state();
                (state.circuit_open_until(), state.is_recovering())
            };
            let fallback_deadline = fallback_deadline.filter(|_| is_recovering && open_until.is_none());
            if permit.is_empty() && open_until.is_some_and(|until| until > cool_down_max.deadline()) {
                return Err(self.circuit_open_error(open_until));
            }
            tokio::select! {
                biased;
                granted = &mut permit => return granted.map_err(|_| self.queue_full_error()),
                () = tokio::time::sleep_until(open_until.or(fallback_deadline).unwrap_or(queue_deadline)) => {
                    match (open_until, fallback_deadline) {
                        (Some(_), _) => self.grant_permits(),
                        (None, Some(_)) if self.state().is_recovering() => return Err(self.circuit_open_error(None)),
                        (None, Some(_)) => {}
                        (None, None) => return Err(self.queue_full_error()),
                    }
                }
                changed = cool_down_changes.changed() => if changed.is_err() { return Err(self.queue_full_error()) },
            }
        }
    }

    /// Grants permits to queued requests up to the current limit.
    fn grant_permits(self: &Arc<Self>) {
        loop {
            let Some((root, generation, permit_sender)) = self.state().grant_next(Instant::now()) else {
                return;
            };
            // If the request has left the queue meanwhile, the unsent permit is dropped and thereby released.
            let _ = permit_sender.send(QueuePermit { queue: Arc::clone(self), root, generation });
        }
    }

    /// Credits the retry budget with a tenth of a retry for a new request.
    pub(crate) fn record_request(&self) {
        self.state().budget.deposit();
    }

    /// Consumes one retry from the budget; false when retries would exceed a tenth of all requests.
    pub(crate) fn withdraw_retry(&self) -> bool {
        self.state().budget.withdraw(Instant::now())
    }

    fn record_outcome(self: &Arc<Self>, generation: u64, outcome: RequestOutcome) {
        let opened_until = {
            let mut state = self.state();
            let before = state.circuit_open_until();
            state.record_outcome(generation, outcome, Instant::now());
            state.circuit_open_until().filter(|until| before != Some(*until))
        };
        if let Some(until) = opened_until {
            let wait_ms = until.saturating_duration_since(Instant::now()).as_millis();
            tracing::warn!(
                provider = self.name,
                "circuit open for {}: next probe in {wait_ms} ms",
                self.name
            );
            self.cool_down_changed.send_replace(());
        }
        self.grant_permits();
    }

    /// Error of a request that found the queue full or waited too long for a permit.
    fn queue_full_error(&self) -> ModelError {
        let text = format!("Too many requests are queued for {}; try again later.", self.name);
        ModelError::new(ErrorClass::NotSent, busy_fault(text, RETRY_AFTER_DEFAULT))
    }

    fn circuit_open_error(&self, until: Option<Instant>) -> ModelError {
        let wait = until.map_or(RETRY_AFTER_DEFAULT, |until| until.saturating_duration_since(Instant::now()));
        let seconds = wait.as_secs_f64().ceil();
        let text = format!("{} is unavailable or rate-limited; next attempt in {seconds} s.", self.name);
        ModelError::new(ErrorClass::NotSent, busy_fault(text, wait))
    }
}

fn busy_fault(text: String, wait: Duration) -> Fault {
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Fault::new(FaultKind::Busy { retry_after_ms }, text)
}

/// Guard that removes a request from the queue when its `acquire` future is dropped.
struct DequeueOnDrop<'g> {
    queue: &'g Arc<FairQueue>,
    root: Serial,
    ticket: u64,
}

impl Drop for DequeueOnDrop<'_> {
    fn drop(&mut self) {
        self.queue.state().dequeue(self.root, self.ticket);
    }
}

/// Permit for one request in flight; dropping it admits the next request.
#[derive(Debug)]
pub(crate) struct QueuePermit {
    queue: Arc<FairQueue>,
    root: Serial,
    generation: u64,
}

impl QueuePermit {
    /// Reports the outcome of the attempt to the circuit breaker.
    pub(crate) fn record_outcome(&self, outcome: RequestOutcome) {
        self.queue.record_outcome(self.generation, outcome);
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.queue.state().release(self.root, self.generation);
        self.queue.grant_permits();
    }
}
