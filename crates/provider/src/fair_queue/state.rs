//! What the gate knows, as a plain machine told the time: the queues, the limit, and the provider's health. A provider
//! that fails again and again is left alone; then one question tries it, and each that passes lets twice as many in.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use agent::journal::Serial;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::retry_budget::RetryBudget;
use super::{QueueLimits, QueuePermit, RequestOutcome};

/// Failures in a row after which the provider is left alone.
const FAILURES_MAX: u32 = 5;

const COOL_DOWN_FIRST: Duration = Duration::from_secs(1);
const COOL_DOWN_MAX: Duration = Duration::from_secs(60);

/// The most that is put on top of a server's own time, so that not all come back in the same moment.
const JITTER_MAX: Duration = Duration::from_secs(1);

type PermitSender = oneshot::Sender<QueuePermit>;

#[derive(Debug)]
pub(super) struct QueueState {
    limits: QueueLimits,
    pub(super) budget: RetryBudget,
    /// Trees that wait, in the order in which they were served last.
    order: VecDeque<Serial>,
    queues: HashMap<Serial, VecDeque<(u64, PermitSender)>>,
    queued: usize,
    last_ticket: u64,
    /// Questions that run, by tree, of this era.
    running: HashMap<Serial, usize>,
    running_total: usize,
    /// A rest begins a new era: what still hangs from before it takes no place.
    generation: u64,
    /// How many may run now.
    limit: usize,
    circuit_open_until: Option<Instant>,
    consecutive_failures: u32,
    /// Rests since the provider was last well.
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

    /// Whether the provider has rested and is being tried again.
    pub(super) fn is_recovering(&self) -> bool {
        self.cool_downs > 0
    }

    /// Puts a question into its tree's queue; nothing when too many wait.
    pub(super) fn enqueue(&mut self, root: Serial, giving: PermitSender) -> Option<u64> {
        if self.queued >= self.limits.queued_max {
            return None;
        }
        self.last_ticket += 1;
        self.queued += 1;
        let queue = self.queues.entry(root).or_default();
        if queue.is_empty() {
            self.order.push_back(root);
        }
        queue.push_back((self.last_ticket, giving));
        Some(self.last_ticket)
    }

    /// Takes a question out; one that was served is not there any more.
    pub(super) fn dequeue(&mut self, root: Serial, number: u64) {
        let Some(queue) = self.queues.get_mut(&root) else { return };
        let before = queue.len();
        queue.retain(|(other, _)| *other != number);
        self.queued -= before - queue.len();
        self.remove_if_empty(root);
    }

    fn remove_if_empty(&mut self, root: Serial) {
        if self.queues.get(&root).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&root);
            self.order.retain(|other| *other != root);
        }
    }

    /// Who comes in now, if anybody may.
    pub(super) fn grant_next(&mut self, now: Instant) -> Option<(Serial, u64, PermitSender)> {
        if self.circuit_open_until.is_some_and(|until| until > now) {
            return None;
        }
        self.circuit_open_until = None;
        if self.running_total >= self.limit {
            return None;
        }
        let running = |root: &Serial| self.running.get(root).copied().unwrap_or(0);
        let place = (0..self.order.len()).min_by_key(|place| running(&self.order[*place]))?;
        let root = self.order.remove(place)?;
        self.order.push_back(root);
        let (_, giving) = self.queues.get_mut(&root)?.pop_front()?;
        self.queued -= 1;
        self.remove_if_empty(root);
        *self.running.entry(root).or_default() += 1;
        self.running_total += 1;
        Some((root, self.generation, giving))
    }

    /// A question is over.
    pub(super) fn release(&mut self, root: Serial, era: u64) {
        if era != self.generation {
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

    /// What came of a try. What was asked before a rest says nothing about the time after it.
    pub(super) fn record_outcome(&mut self, era: u64, outcome: RequestOutcome, now: Instant) {
        if era != self.generation {
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
                // While it recovers, one failure is enough.
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

    /// Leaves the provider alone for as long as it wants, if it says so.
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
