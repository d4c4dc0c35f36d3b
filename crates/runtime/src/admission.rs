//! The way in for turns: counts those that are open, refuses beyond the limits, and lets a stop wait for the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent::{Fault, FaultKind};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::limits::{Limits, RETRY_AFTER_MS};

/// Shared by the pool and all its agents.
#[derive(Debug)]
pub(crate) struct Admission {
    tracker: TaskTracker,
    open_count: Arc<AtomicUsize>,
    open_max: usize,
    closed: AtomicBool,
    /// One permit per turn that runs; waiting turns get them in order.
    pub(crate) slots: Arc<Semaphore>,
    /// Cancelled when open turns have to end now.
    pub(crate) abort: CancellationToken,
}

/// A turn's place, from the moment it is accepted to its end.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    _agent_count: CountGuard,
    _pool_count: CountGuard,
    /// Given back last: who has waited for it finds the counts at zero.
    _tracked: TaskTrackerToken,
}

/// One of as many as a limit allows; counts until it is dropped.
#[derive(Debug)]
struct CountGuard {
    count: Arc<AtomicUsize>,
}

impl CountGuard {
    /// None when the limit is reached. One step, so that two who come at once cannot both be the last.
    fn try_acquire(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let one_more = |open| (open < max).then_some(open + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
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
            abort: CancellationToken::new(),
        }
    }

    /// Lets a turn in, or says why not.
    pub(crate) fn admit(
        &self,
        agent_open: &Arc<AtomicUsize>,
        agent_max: usize,
    ) -> Result<AdmissionPermit, Fault> {
        if self.closed.load(Ordering::Acquire) {
            return Err(shutting_down());
        }
        let in_pool = CountGuard::try_acquire(&self.open_count, self.open_max)
            .ok_or_else(|| Fault::new(busy(), format!("busy: {} turns are open", self.open_max)))?;
        let at_agent = CountGuard::try_acquire(agent_open, agent_max)
            .ok_or_else(|| Fault::new(busy(), format!("busy: {agent_max} turns are open at this agent")))?;
        Ok(AdmissionPermit { _agent_count: at_agent, _pool_count: in_pool, _tracked: self.tracker.token() })
    }

    /// Lets a turn in that was let in before: nothing that was accepted is refused later.
    pub(crate) fn readmit(&self, agent_open: &Arc<AtomicUsize>) -> AdmissionPermit {
        let counted = |count: &Arc<AtomicUsize>| {
            count.fetch_add(1, Ordering::AcqRel);
            CountGuard { count: Arc::clone(count) }
        };
        let (at_agent, in_pool) = (counted(agent_open), counted(&self.open_count));
        AdmissionPermit { _agent_count: at_agent, _pool_count: in_pool, _tracked: self.tracker.token() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many turns are open.
    pub(crate) fn open_turns(&self) -> usize {
        self.open_count.load(Ordering::Acquire)
    }

    /// Refuses turns from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.tracker.close();
    }

    /// Waits until no turn is open. Only after [`Turnstile::close`].
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
