//! The gate before one provider: how many questions may run, who is next, and whether the provider is resting. One queue
//! per agent tree; the tree with the fewest running questions goes first. What a question is is left to others.

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

/// How long a question may wait for its turn while the provider is well.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(600);

/// When to come back, where nothing better is known.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(5);

/// How much a provider is asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Questions that run at once.
    pub(crate) concurrency: usize,
    /// Questions that wait; one more is told to come back.
    pub(crate) queued_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { concurrency: 256, queued_max: 8_192 }
    }
}

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The server answered, be it with a refusal.
    Available,
    /// It did not, or said that it is broken, and perhaps for how long.
    Unavailable(Option<Duration>),
    /// It has too much to do; until then nobody asks.
    RateLimited(Option<Duration>),
}

/// How long a question waits for a provider that rests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CoolDownMax {
    /// From whenever the rest begins: time in the queue is not held against a question that was never asked.
    For(Duration),
    /// Until then.
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

/// The gate.
#[derive(Debug)]
pub(crate) struct FairQueue {
    name: String,
    state: Mutex<QueueState>,
    /// Rings when the time at which the provider may be asked has changed.
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

    /// Waits for a place. A question that would have to wait too long for a provider that rests is told so at once; and one
    /// that another model could answer is told so when it waits too long behind those that try a provider after its rest.
    /// Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        root: Serial,
        rest_max: CoolDownMax,
        behind: HasFallback,
    ) -> Result<QueuePermit, ModelError> {
        let mut bell = self.cool_down_changed.subscribe();
        let (giving, mut given) = oneshot::channel();
        let number = self.state().enqueue(root, giving).ok_or_else(|| self.queue_full_error())?;
        let _leaving = DequeueOnDrop { queue: self, root, ticket: number };
        self.grant_permits();
        let patience_ends = Instant::now() + QUEUE_WAIT_MAX;
        let hurry_ends = (behind == HasFallback::Yes).then(|| rest_max.deadline());
        loop {
            let (closed_until, is_recovering) = {
                let state = self.state();
                (state.circuit_open_until(), state.is_recovering())
            };
            let hurry_ends = hurry_ends.filter(|_| is_recovering && closed_until.is_none());
            if given.is_empty() && closed_until.is_some_and(|until| until > rest_max.deadline()) {
                return Err(self.circuit_open_error(closed_until));
            }
            tokio::select! {
                biased;
                place = &mut given => return place.map_err(|_| self.queue_full_error()),
                () = tokio::time::sleep_until(closed_until.or(hurry_ends).unwrap_or(patience_ends)) => {
                    match (closed_until, hurry_ends) {
                        (Some(_), _) => self.grant_permits(),
                        (None, Some(_)) if self.state().is_recovering() => return Err(self.circuit_open_error(None)),
                        (None, Some(_)) => {}
                        (None, None) => return Err(self.queue_full_error()),
                    }
                }
                changed = bell.changed() => if changed.is_err() { return Err(self.queue_full_error()) },
            }
        }
    }

    /// Lets in whoever may come in.
    fn grant_permits(self: &Arc<Self>) {
        loop {
            let Some((root, era, giving)) = self.state().grant_next(Instant::now()) else { return };
            // One who has left in the meantime gives the place back by dropping it.
            let _ = giving.send(QueuePermit { queue: Arc::clone(self), root, generation: era });
        }
    }

    /// A new question: it earns a tenth of a retry.
    pub(crate) fn record_request(&self) {
        self.state().budget.deposit();
    }

    /// Whether a question may be asked once more; not when retries would be more than a tenth of all questions.
    pub(crate) fn withdraw_retry(&self) -> bool {
        self.state().budget.withdraw(Instant::now())
    }

    fn record_outcome(self: &Arc<Self>, era: u64, outcome: RequestOutcome) {
        let closed = {
            let mut state = self.state();
            let before = state.circuit_open_until();
            state.record_outcome(era, outcome, Instant::now());
            state.circuit_open_until().filter(|until| before != Some(*until))
        };
        if let Some(until) = closed {
            let wait_ms = until.saturating_duration_since(Instant::now()).as_millis();
            tracing::warn!(provider = self.name, "nobody asks {} for {wait_ms} ms", self.name);
            self.cool_down_changed.send_replace(());
        }
        self.grant_permits();
    }

    fn queue_full_error(&self) -> ModelError {
        let text = format!("Too many questions wait for {}; try again later.", self.name);
        ModelError::new(ErrorClass::NotSent, busy_fault(text, RETRY_AFTER_DEFAULT))
    }

    fn circuit_open_error(&self, until: Option<Instant>) -> ModelError {
        let wait = until.map_or(RETRY_AFTER_DEFAULT, |until| until.saturating_duration_since(Instant::now()));
        let seconds = wait.as_secs_f64().ceil();
        let text =
            format!("{} has failed or wants to be left alone; it is asked again in {seconds} s.", self.name);
        ModelError::new(ErrorClass::NotSent, busy_fault(text, wait))
    }
}

fn busy_fault(text: String, wait: Duration) -> Fault {
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Fault::new(FaultKind::Busy { retry_after_ms }, text)
}

/// Takes a question out of the queue when nobody waits for it any more.
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

/// A place inside; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct QueuePermit {
    queue: Arc<FairQueue>,
    root: Serial,
    generation: u64,
}

impl QueuePermit {
    /// Says what came of the try.
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
