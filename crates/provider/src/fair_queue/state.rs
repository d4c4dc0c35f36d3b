//! State of the fair queue and circuit breaker; the caller passes the time. After repeated failures the circuit opens
//! for a cool-down, then one probe is admitted, and each success doubles the concurrency limit. A retry delay from the
//! server also opens the circuit, but no probe follows it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use agent::journal::Serial;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::retry_budget::RetryBudget;
use super::{QueueLimits, QueuePermit, RequestOutcome};

/// Consecutive failures that open the circuit.
const FAILURES_MAX: u32 = 5;

const COOL_DOWN_FIRST: Duration = Duration::from_secs(1);
const COOL_DOWN_MAX: Duration = Duration::from_secs(60);

/// Most jitter added to a server's retry delay, so that not all clients return at the same moment.
const JITTER_MAX: Duration = Duration::from_secs(1);

type PermitSender = oneshot::Sender<QueuePermit>;

#[derive(Debug)]
pub(super) struct QueueState {
    limits: QueueLimits,
    pub(super) budget: RetryBudget,
    /// Trees with queued requests, least recently served first.
    order: VecDeque<Serial>,
    queues: HashMap<Serial, VecDeque<(u64, PermitSender)>>,
    queued: usize,
    last_ticket: u64,
    /// Requests in flight of this generation, by tree.
    running: HashMap<Serial, usize>,
    running_total: usize,
    /// Incremented when failures open the circuit: requests of earlier generations that still hang occupy no permit.
    generation: u64,
    /// Current concurrency limit.
    limit: usize,
    /// End of the current cool-down.
    circuit_open_until: Option<Instant>,
    consecutive_failures: u32,
    /// Cool-downs after failures since the provider was last healthy.
    cool_downs: u32,
}

impl QueueState {
    pub(super) fn new(limits: QueueLimits, now: Instant) -> Self {
        let limits = QueueLimits { concurrency: limits.concurrency.max(1), ..limits };
        Self {
            limits,
            budget: RetryBudget::new(now),
            order: VecDeque::new(),
            queues: HashMap::new(),
            queued: 0,
            last_ticket: 0,
            running: HashMap::new(),
            running_total: 0,
            generation: 0,
            limit: limits.concurrency,
            circuit_open_until: None,
            consecutive_failures: 0,
            cool_downs: 0,
        }
    }

    pub(super) fn circuit_open_until(&self) -> Option<Instant> {
        self.circuit_open_until
    }

    /// Whether the provider has not yet fully recovered from the failures that opened the circuit.
    pub(super) fn is_recovering(&self) -> bool {
        self.cool_downs > 0
    }

    /// Enqueues a request for its tree and returns its ticket; `None` when the queue is full.
    pub(super) fn enqueue(&mut self, root: Serial, permit_sender: PermitSender) -> Option<u64> {
        if self.queued >= self.limits.queued_max {
            return None;
        }
        self.last_ticket += 1;
        self.queued += 1;
        let queue = self.queues.entry(root).or_default();
        if queue.is_empty() {
            self.order.push_back(root);
        }
        queue.push_back((self.last_ticket, permit_sender));
        Some(self.last_ticket)
    }

    /// Removes a request if it is still queued.
    pub(super) fn dequeue(&mut self, root: Serial, ticket: u64) {
        let Some(queue) = self.queues.get_mut(&root) else { return };
        let before = queue.len();
        queue.retain(|(queued, _)| *queued != ticket);
        self.queued -= before - queue.len();
        self.remove_if_empty(root);
    }

    fn remove_if_empty(&mut self, root: Serial) {
        if self.queues.get(&root).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&root);
            self.order.retain(|tree| *tree != root);
        }
    }

    /// Dequeues the next request to admit, if the circuit and the limit allow one.
    pub(super) fn grant_next(&mut self, now: Instant) -> Option<(Serial, u64, PermitSender)> {
        if self.circuit_open_until.is_some_and(|until| until > now) {
            return None;
        }
        self.circuit_open_until = None;
        if self.running_total >= self.limit {
            return None;
        }
        let running = |root: &Serial| self.running.get(root).copied().unwrap_or(0);
        let index = (0..self.order.len()).min_by_key(|index| running(&self.order[*index]))?;
        let root = self.order.remove(index)?;
        self.order.push_back(root);
        let (_, permit_sender) = self.queues.get_mut(&root)?.pop_front()?;
        self.queued -= 1;
        self.remove_if_empty(root);
        *self.running.entry(root).or_default() += 1;
        self.running_total += 1;
        Some((root, self.generation, permit_sender))
    }

    /// Releases the permit of a finished request.
    pub(super) fn release(&mut self, root: Serial, generation: u64) {
        if generation != self.generation {
            return;
        }
        self.running_total = self.running_total.saturating_sub(1);
        if let Some(count) = self.running.get_mut(&root) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.running.remove(&root);
            }
        }
    }

    /// Records the outcome of an attempt. Attempts of earlier generations are ignored: they say nothing about the
    /// provider after its cool-down.
    pub(super) fn record_outcome(&mut self, generation: u64, outcome: RequestOutcome, now: Instant) {
        if generation != self.generation {
            return;
        }
        match outcome {
            RequestOutcome::Available => {
                self.consecutive_failures = 0;
                self.limit = self.limit.saturating_mul(2).min(self.limits.concurrency);
                if self.limit == self.limits.concurrency {
                    self.cool_downs = 0;
                }
            }
            RequestOutcome::Unavailable(wait) => {
                self.consecutive_failures += 1;
                self.apply_retry_after(wait, now);
                // While the provider recovers, one failure opens the circuit again.
                if self.cool_downs > 0 || self.consecutive_failures >= FAILURES_MAX {
                    self.open_circuit(now);
                }
            }
            RequestOutcome::RateLimited(wait) => {
                self.limit = (self.limit / 2).max(1);
                self.apply_retry_after(wait, now);
            }
        }
    }

    /// Starts the cool-down that the server asked for, if any.
    fn apply_retry_after(&mut self, wait: Option<Duration>, now: Instant) {
        if let Some(wait) = wait {
            let spread = wait.div_f64(10.0).min(JITTER_MAX).mul_f64(fastrand::f64());
            self.extend_cool_down(now + wait + spread);
        }
    }

    fn open_circuit(&mut self, now: Instant) {
        let longest = COOL_DOWN_FIRST.saturating_mul(1 << self.cool_downs.min(16)).min(COOL_DOWN_MAX);
        self.extend_cool_down(now + longest.mul_f64(0.5 + fastrand::f64() / 2.0));
        self.cool_downs += 1;
        self.consecutive_failures = 0;
        self.limit = 1;
        self.generation += 1;
        self.running.clear();
        self.running_total = 0;
    }

    fn extend_cool_down(&mut self, until: Instant) {
        self.circuit_open_until = self.circuit_open_until.max(Some(until));
    }
}
