//! The line of work before the writer: whoever joins it is in order from then on. It is bounded, and says so.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{Moment, StoreFault, CommitListener};
use tokio::sync::oneshot;

use crate::call::{Call, refusal};

/// Calls that may wait.
const CALLS_MAX: usize = 65_536;
/// Bytes that may wait.
const BYTES_MAX: usize = 256 << 20;
/// Calls that share one commit.
const GROUP_CALLS_MAX: usize = 1024;
/// Bytes that share one commit, so that it takes milliseconds.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// One thing for the writer to do.
pub(super) enum Task {
    Append(Waiting),
    Forget { before: Moment, forgotten: u64, reply: oneshot::Sender<Result<u64, StoreFault>> },
}

/// A call whose caller waits.
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Result<(), StoreFault>>,
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Task::Append(waiting) => waiting.call.bytes,
            Task::Forget { .. } => 0,
        }
    }

    fn refuse(self, fault: StoreFault) {
        // A caller that no longer waits needs no answer.
        match self {
            Task::Append(waiting) => drop(waiting.reply.send(Err(fault))),
            Task::Forget { reply, .. } => drop(reply.send(Err(fault))),
        }
    }
}

/// What callers and the writer share.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    arrived: Condvar,
    ended: Condvar,
    listener: Mutex<Option<Arc<dyn CommitListener>>>,
}

#[derive(Default)]
struct State {
    work: VecDeque<Task>,
    bytes: usize,
    is_closed: bool,
    broken: Option<String>,
    has_ended: bool,
    waits_for_end: Vec<oneshot::Sender<()>>,
}

impl Line {
    /// Nothing that panics runs under these locks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work at the end of the line.
    ///
    /// # Errors
    /// When the line is too long, closed or broken.
    pub(super) fn join(&self, work: Task) -> Result<(), StoreFault> {
        let mut state = self.state();
        if let Some(why) = &state.broken {
            return Err(StoreFault::Failed(why.clone()));
        }
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.work.len() >= CALLS_MAX {
            return Err(StoreFault::Full(format!("{CALLS_MAX} calls wait already")));
        }
        let bytes = state.bytes.saturating_add(work.bytes());
        if bytes > BYTES_MAX {
            return Err(StoreFault::Full(format!("more than {} MiB would wait", BYTES_MAX >> 20)));
        }
        state.bytes = bytes;
        state.work.push_back(work);
        let was_empty = state.work.len() == 1;
        drop(state);
        if was_empty {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Puts back work that is only half done. It was in line before, so a closed line takes it too.
    pub(super) fn join_again(&self, work: Task) {
        let mut state = self.state();
        match state.broken.clone() {
            Some(why) => work.refuse(StoreFault::Failed(why)),
            None => state.work.push_back(work),
        }
    }

    /// Waits for work and takes what is there, up to a group; nothing when the line is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Task>> {
        let mut state = self.state();
        while state.work.is_empty() {
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while group.len() < GROUP_CALLS_MAX && bytes < GROUP_BYTES_MAX {
            let Some(work) = state.work.pop_front() else { break };
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
        if !state.has_ended {
            state.waits_for_end.push(ended);
        }
        drop(state);
        self.arrived.notify_one();
        waiting
    }

    /// Everything in line and everything to come is refused. Only the first reason counts, and is told.
    pub(super) fn fail(&self, why: &str) {
        let mut state = self.state();
        if state.broken.is_some() {
            return;
        }
        state.broken = Some(why.to_owned());
        state.bytes = 0;
        let work = std::mem::take(&mut state.work);
        drop(state);
        if let Some(watcher) = self.listener() {
            watcher.store_failed(why);
        }
        for work in work {
            work.refuse(StoreFault::Failed(why.to_owned()));
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().broken.is_some()
    }

    /// Why nothing more is taken.
    pub(super) fn failure(&self) -> Option<String> {
        self.state().broken.clone()
    }

    /// The writer has ended; whatever it left in line is refused.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.is_closed = true;
        let work = std::mem::take(&mut state.work);
        let waiting = std::mem::take(&mut state.waits_for_end);
        drop(state);
        // A watcher may hold the store that holds this line.
        drop(self.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
        work.into_iter().for_each(|work| work.refuse(refusal::closed()));
        for waiting in waiting {
            // Whoever no longer waits needs no answer.
            let _ = waiting.send(());
        }
        self.ended.notify_all();
    }

    /// Waits for the end of the writer; says whether it came in time.
    pub(super) fn wait_for_end(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    pub(super) fn set_listener(&self, watcher: Arc<dyn CommitListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Whoever hears of what is kept now.
    pub(super) fn listener(&self) -> Option<Arc<dyn CommitListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
