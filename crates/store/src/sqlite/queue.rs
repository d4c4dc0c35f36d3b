//! Bounded FIFO queue of tasks for the writer thread. Batches commit in the order of `enqueue`; a full queue refuses.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{
    ChangeWrite, CommitListener, FileChange, NewChanges, StoreFault, Timestamp, ValueChange, ValueWrite,
};
use tokio::sync::oneshot;

use crate::batch::{PreparedBatch, refusal};

/// Maximum number of queued tasks.
const TASKS_MAX: usize = 65_536;
/// Maximum size of all queued batches.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// Maximum number of tasks in one commit.
const GROUP_TASKS_MAX: usize = 1024;
/// Size at which a group is closed, so that one commit takes milliseconds.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// A task for the writer thread.
pub(super) enum WriteTask {
    Append(QueuedBatch),
    WriteValue(QueuedValueWrite),
    RecordChanges(QueuedChangeWrite),
    PruneTurns { before: Timestamp, pruned: u64, reply: oneshot::Sender<Result<u64, StoreFault>> },
}

/// A batch with the channel on which its caller awaits the commit.
pub(super) struct QueuedBatch {
    pub(super) batch: PreparedBatch,
    pub(super) reply: oneshot::Sender<Result<(), StoreFault>>,
}

/// A write to the key-value store, with the channel on which its caller awaits the commit.
pub(super) struct QueuedValueWrite {
    pub(super) write: ValueWrite,
    pub(super) reply: oneshot::Sender<Result<bool, StoreFault>>,
}

/// File changes to record, with the channel on which their caller awaits the commit.
pub(super) struct QueuedChangeWrite {
    pub(super) write: ChangeWrite,
    pub(super) reply: oneshot::Sender<Result<(), StoreFault>>,
}

impl WriteTask {
    fn bytes(&self) -> usize {
        match self {
            WriteTask::Append(queued) => queued.batch.bytes,
            WriteTask::WriteValue(queued) => match &queued.write.change {
                ValueChange::Store { json, .. } => json.len(),
                ValueChange::Delete => 0,
            },
            WriteTask::RecordChanges(queued) => match &queued.write.changes {
                NewChanges::Recorded(changes) => changes.iter().map(FileChange::bytes).sum(),
                NewChanges::NotUndoable(_) => 0,
            },
            WriteTask::PruneTurns { .. } => 0,
        }
    }

    fn refuse(self, fault: StoreFault) {
        // The send fails if the caller dropped its future, and then no reply is needed.
        match self {
            WriteTask::Append(queued) => drop(queued.reply.send(Err(fault))),
            WriteTask::WriteValue(queued) => drop(queued.reply.send(Err(fault))),
            WriteTask::RecordChanges(queued) => drop(queued.reply.send(Err(fault))),
            WriteTask::PruneTurns { reply, .. } => drop(reply.send(Err(fault))),
        }
    }
}

/// Queue shared by the callers and the writer thread.
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
    /// A poisoned lock is safe to use: no code that can panic runs under it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a task to the queue.
    ///
    /// # Errors
    /// When the queue is full or closed, or the store has failed.
    pub(super) fn enqueue(&self, task: WriteTask) -> Result<(), StoreFault> {
        let mut state = self.state();
        if let Some(why) = &state.failure {
            return Err(StoreFault::Failed(why.clone()));
        }
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.tasks.len() >= TASKS_MAX {
            return Err(StoreFault::Full(format!("write queue full: {TASKS_MAX} tasks")));
        }
        let bytes = state.bytes.saturating_add(task.bytes());
        if bytes > QUEUE_BYTES_MAX {
            return Err(StoreFault::Full(format!("write queue full: {} MiB", QUEUE_BYTES_MAX >> 20)));
        }
        state.bytes = bytes;
        state.tasks.push_back(task);
        let was_empty = state.tasks.len() == 1;
        drop(state);
        if was_empty {
            self.task_available.notify_one();
        }
        Ok(())
    }

    /// Enqueues a partly done task again. A closed queue accepts it too, since the task was enqueued before.
    pub(super) fn requeue(&self, task: WriteTask) {
        let mut state = self.state();
        match state.failure.clone() {
            Some(why) => task.refuse(StoreFault::Failed(why)),
            None => state.tasks.push_back(task),
        }
    }

    /// Blocks until tasks are queued and dequeues a group of them; `None` when the queue is closed and empty.
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
            let Some(task) = state.tasks.pop_front() else { break };
            bytes += task.bytes();
            group.push(task);
        }
        state.bytes -= bytes;
        Some(group)
    }

    /// Closes the queue to callers. The receiver resolves when the writer has stopped.
    pub(super) fn close(&self) -> oneshot::Receiver<()> {
        let (stopped, receiver) = oneshot::channel();
        let mut state = self.state();
        state.is_closed = true;
        if !state.has_stopped {
            state.stop_waiters.push(stopped);
        }
        drop(state);
        self.task_available.notify_one();
        receiver
    }

    /// Marks the store as failed: refuses all queued and later tasks, and notifies the listener. Only the first cause
    /// counts.
    pub(super) fn fail(&self, why: &str) {
        let mut state = self.state();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(why.to_owned());
        state.bytes = 0;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        if let Some(listener) = self.listener() {
            listener.store_failed(why);
        }
        for task in tasks {
            task.refuse(StoreFault::Failed(why.to_owned()));
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Returns why the store failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// Records that the writer has stopped, and refuses the remaining tasks.
    pub(super) fn mark_stopped(&self) {
        let mut state = self.state();
        state.has_stopped = true;
        state.is_closed = true;
        let tasks = std::mem::take(&mut state.tasks);
        let stop_waiters = std::mem::take(&mut state.stop_waiters);
        drop(state);
        // The listener may hold the store, which holds this queue: break the cycle.
        drop(self.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
        tasks.into_iter().for_each(|task| task.refuse(refusal::closed()));
        for waiter in stop_waiters {
            // The send fails if the caller dropped its future.
            let _ = waiter.send(());
        }
        self.writer_stopped.notify_all();
    }

    /// Blocks until the writer has stopped; returns false on timeout.
    pub(super) fn wait_until_stopped(&self, timeout: Duration) -> bool {
        let state = self.state();
        let waited = self.writer_stopped.wait_timeout_while(state, timeout, |state| !state.has_stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_stopped
    }

    pub(super) fn set_listener(&self, listener: Arc<dyn CommitListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Returns the current commit listener.
    pub(super) fn listener(&self) -> Option<Arc<dyn CommitListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
