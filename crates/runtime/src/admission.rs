//! Admission control for turns: counts open turns, rejects turns beyond the limits, and lets a shutdown wait until all
//! have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent::{Fault, FaultKind};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::answer_budget::AnswerBudget;
use crate::limits::{Limits, RETRY_AFTER_MS};

/// Admission control, shared by the pool and its agents.
#[derive(Debug)]
pub(crate) struct Admission {
    tracker: TaskTracker,
    open_count: Arc<AtomicUsize>,
    open_max: usize,
    closed: AtomicBool,
    /// One permit per running turn; waiting turns get them in FIFO order.
    pub(crate) slots: Arc<Semaphore>,
    /// Memory of the running answers.
    pub(crate) answers: Arc<AnswerBudget>,
    /// Cancelled to abort all open turns.
    pub(crate) abort: CancellationToken,
}

/// Permit of an open turn, held from its acceptance to its end.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    _agent_count: CountGuard,
    _pool_count: CountGuard,
    /// Dropped last: when [`Admission::drained`] returns, the counts are zero.
    _tracked: TaskTrackerToken,
}

/// RAII increment of a bounded counter.
#[derive(Debug)]
struct CountGuard {
    count: Arc<AtomicUsize>,
}

impl CountGuard {
    /// Returns `None` when the limit is reached. Atomic: two concurrent calls cannot both take the last permit.
    fn try_acquire(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let increment = |open| (open < max).then_some(open + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, increment).ok()?;
        Some(Self { count: Arc::clone(count) })
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            tracker: TaskTracker::new(),
            open_count: Arc::default(),
            open_max: limits.turns_open_max,
            closed: AtomicBool::new(false),
            slots: Arc::new(Semaphore::new(limits.turns_running_max.min(Semaphore::MAX_PERMITS))),
            answers: Arc::new(AnswerBudget::new(limits)),
            abort: CancellationToken::new(),
        }
    }

    /// Admits a turn, or returns a `Busy` fault.
    pub(crate) fn admit(
        &self,
        agent_open: &Arc<AtomicUsize>,
        agent_max: usize,
    ) -> Result<AdmissionPermit, Fault> {
        if self.closed.load(Ordering::Acquire) {
            return Err(shutting_down());
        }
        let pool_count = CountGuard::try_acquire(&self.open_count, self.open_max)
            .ok_or_else(|| Fault::new(busy(), format!("busy: {} turns are open", self.open_max)))?;
        let agent_count = CountGuard::try_acquire(agent_open, agent_max)
            .ok_or_else(|| Fault::new(busy(), format!("busy: {agent_max} turns are open at this agent")))?;
        Ok(AdmissionPermit {
            _agent_count: agent_count,
            _pool_count: pool_count,
            _tracked: self.tracker.token(),
        })
    }

    /// Admits a turn recovered from the store, regardless of the limits: an accepted turn is never rejected later.
    pub(crate) fn readmit(&self, agent_open: &Arc<AtomicUsize>) -> AdmissionPermit {
        let count_anyway = |count: &Arc<AtomicUsize>| {
            count.fetch_add(1, Ordering::AcqRel);
            CountGuard { count: Arc::clone(count) }
        };
        let (agent_count, pool_count) = (count_anyway(agent_open), count_anyway(&self.open_count));
        AdmissionPermit { _agent_count: agent_count, _pool_count: pool_count, _tracked: self.tracker.token() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the number of open turns.
    pub(crate) fn open_turns(&self) -> usize {
        self.open_count.load(Ordering::Acquire)
    }

    /// Rejects new turns from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.tracker.close();
    }

    /// Waits until no turn is open. Call [`Admission::close`] first.
    pub(crate) async fn drained(&self) {
        self.tracker.wait().await;
    }
}

pub(crate) fn busy() -> FaultKind {
    FaultKind::Busy { retry_after_ms: RETRY_AFTER_MS }
}

pub(crate) fn shutting_down() -> Fault {
    Fault::new(busy(), "Server shutting down")
}
