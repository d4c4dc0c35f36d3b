//! The line of work before the writer: whoever joins it is in order from then on. It is bounded, and says so.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{CommitListener, StoreFault, Timestamp};
use tokio::sync::oneshot;

use crate::batch::{PreparedBatch, refusal};

/// Calls that may wait.
const TASKS_MAX: usize = 65_536;
/// Bytes that may wait.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// Calls that share one commit.
const GROUP_TASKS_MAX: usize = 1024;
/// Bytes that share one commit, so that it takes milliseconds.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// One thing for the writer to do.
pub(super) enum WriteTask {
    Append(QueuedBatch),
    PruneTurns { before: Timestamp, pruned: u64, reply: oneshot::Sender<Result<u64, StoreFault>> },
}

/// A call whose caller waits.
pub(super) struct QueuedBatch {
    pub(super) batch: PreparedBatch,
    pub(super) reply: oneshot::Sender<Result<(), StoreFault>>,
}

impl WriteTask {
    fn bytes(&self) -> usize {
        match self {
            WriteTask::Append(waiting) => waiting.batch.bytes,
            WriteTask::PruneTurns { .. } => 0,
        }
    }

    fn refuse(self, fault: StoreFault) {
        // A caller that no longer waits needs no answer.
        match self {
            WriteTask::Append(waiting) => drop(waiting.reply.send(Err(fault))),
            WriteTask::PruneTurns { reply, .. } => drop(reply.send(Err(fault))),
        }
    }
}

/// What callers and the writer share.
#[derive(Default)]
pub(super) struct WriteQueue {
    state: Mutex<State>,
    task_available: Condvar,
    writer_stopped: Condvar,
    listener: Mutex<Option<Arc<dyn CommitListener>>>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<WriteTask>,
    bytes: usize,
    is_closed: bool,
    failure: Option<String>,
    has_stopped: bool,
    stop_waiters: Vec<oneshot::Sender<()>>,
}

impl WriteQueue {
    /// Nothing that panics runs under these locks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work at the end of the line.
    ///
    /// # Errors
    /// When the line is too long, closed or broken.
    pub(super) fn enqueue(&self, work: WriteTask) -> Result<(), StoreFault> {
        let mut state = self.state();
        if let Some(why) = &state.failure {
            return Err(StoreFault::Failed(why.clone()));
        }
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.tasks.len() >= TASKS_MAX {
            return Err(StoreFault::Full(format!("{TASKS_MAX} calls wait already")));
        }
        let bytes = state.bytes.saturating_add(work.bytes());
        if bytes > QUEUE_BYTES_MAX {
            return Err(StoreFault::Full(format!("more than {} MiB would wait", QUEUE_BYTES_MAX >> 20)));
        }
        state.bytes = bytes;
        state.tasks.push_back(work);
        let was_empty = state.tasks.len() == 1;
        drop(state);
        if was_empty {
            self.task_available.notify_one();
        }
        Ok(())
    }

    /// Puts back work that is only half done. It was in line before, so a closed line takes it too.
    pub(super) fn requeue(&self, work: WriteTask) {
        let mut state = self.state();
        match state.failure.clone() {
            Some(why) => work.refuse(StoreFault::Failed(why)),
            None => state.tasks.push_back(work),
        }
    }

    /// Waits for work and takes what is there, up to a group; nothing when the line is closed and empty.
    pub(super) fn dequeue_group(&self) -> Option<Vec<WriteTask>> {
        let mut state = self.state();
        while state.tasks.is_empty() {
            if state.is_closed {
                return None;
            }
            state = self.task_available.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while group.len() < GROUP_TASKS_MAX && bytes < GROUP_BYTES_MAX {
            let Some(work) = state.tasks.pop_front() else { break };
            bytes += work.bytes();
            group.push(work);
        }
        state.bytes -= bytes;
        Some(group)
    }

    /// Takes nothing more from outside. The answer comes when the writer has ended.
    pub(super) fn close(&self) -> oneshot::Receiver<()> {
        let (ended, waiting) = oneshot::channel();
        let mut state = self.state();
        state.is_closed = true;
        if !state.has_stopped {
            state.stop_waiters.push(ended);
        }
        drop(state);
        self.task_available.notify_one();
        waiting
    }

    /// Everything in line and everything to come is refused. Only the first reason counts, and is told.
    pub(super) fn fail(&self, why: &str) {
        let mut state = self.state();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(why.to_owned());
        state.bytes = 0;
        let work = std::mem::take(&mut state.tasks);
        drop(state);
        if let Some(watcher) = self.listener() {
            watcher.store_failed(why);
        }
        for work in work {
            work.refuse(StoreFault::Failed(why.to_owned()));
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Why nothing more is taken.
    pub(super) fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// The writer has ended; whatever it left in line is refused.
    pub(super) fn mark_stopped(&self) {
        let mut state = self.state();
        state.has_stopped = true;
        state.is_closed = true;
        let work = std::mem::take(&mut state.tasks);
        let waiting = std::mem::take(&mut state.stop_waiters);
        drop(state);
        // A watcher may hold the store that holds this line.
        drop(self.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
        work.into_iter().for_each(|work| work.refuse(refusal::closed()));
        for waiting in waiting {
            // Whoever no longer waits needs no answer.
            let _ = waiting.send(());
        }
        self.writer_stopped.notify_all();
    }

    /// Waits for the end of the writer; says whether it came in time.
    pub(super) fn wait_until_stopped(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self.writer_stopped.wait_timeout_while(state, time, |state| !state.has_stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_stopped
    }

    pub(super) fn set_listener(&self, watcher: Arc<dyn CommitListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Whoever hears of what is kept now.
    pub(super) fn listener(&self) -> Option<Arc<dyn CommitListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
