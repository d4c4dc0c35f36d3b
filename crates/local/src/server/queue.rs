//! Who is next: a line for each client, one job of each line in turn, so that a client with many jobs delays the others by
//! one job at a time. Bounded in all, and a single line in its share.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whose job it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// The root of the agent tree that asks.
    Root(String),
    /// A connection that named no root.
    Connection(u64),
}

/// What waits.
pub(super) trait QueuedJob {
    /// Whether nobody wants the answer any more.
    fn is_abandoned(&self) -> bool;
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueRejection {
    /// As many wait as may.
    Full,
    /// This client has taken its share of the places.
    ClientShareFull,
    /// No job is taken any more.
    Closed,
}

/// The lines.
pub(super) struct FairQueue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    jobs_max: usize,
}

struct State<J> {
    queues: HashMap<Client, VecDeque<J>>,
    /// Clients with a line, the next one first.
    rotation: VecDeque<Client>,
    is_closed: bool,
}

impl<J: QueuedJob> FairQueue<J> {
    pub(super) fn new(places_max: usize) -> Self {
        let state = State { queues: HashMap::new(), rotation: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), jobs_max: places_max.max(1) }
    }

    /// Takes a job at the end of its client's line.
    pub(super) fn push(&self, client: Client, job: J) -> Result<(), QueueRejection> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(QueueRejection::Closed);
        }
        if state.queued_jobs() >= self.jobs_max || state.client_jobs(&client) >= self.client_jobs_max() {
            state.remove_abandoned();
        }
        if state.queued_jobs() >= self.jobs_max {
            return Err(QueueRejection::Full);
        }
        if state.client_jobs(&client) >= self.client_jobs_max() {
            return Err(QueueRejection::ClientShareFull);
        }
        match state.queues.get_mut(&client) {
            Some(line) => line.push_back(job),
            None => {
                state.queues.insert(client.clone(), VecDeque::from([job]));
                state.rotation.push_back(client);
            }
        }
        self.changed.notify_one();
        Ok(())
    }

    /// The next job that somebody still wants; waits for one. None when the queue is closed.
    pub(super) fn pop(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            match state.next() {
                Some(job) if job.is_abandoned() => {}
                Some(job) => return Some(job),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes no more jobs and gives back those that wait.
    pub(super) fn close(&self) -> Vec<J> {
        let mut state = self.lock();
        state.is_closed = true;
        state.rotation.clear();
        self.changed.notify_all();
        state.queues.drain().flat_map(|(_, line)| line).collect()
    }

    /// How many jobs wait that somebody still wants.
    pub(super) fn queued_jobs(&self) -> usize {
        let mut state = self.lock();
        state.remove_abandoned();
        state.queued_jobs()
    }

    /// One client may hold half of the places, so that there is room for the next.
    fn client_jobs_max(&self) -> usize {
        self.jobs_max.div_ceil(2)
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: QueuedJob> State<J> {
    fn queued_jobs(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    fn client_jobs(&self, client: &Client) -> usize {
        self.queues.get(client).map_or(0, VecDeque::len)
    }

    fn next(&mut self) -> Option<J> {
        let client = self.rotation.pop_front()?;
        let line = self.queues.get_mut(&client)?;
        let job = line.pop_front();
        if line.is_empty() {
            self.queues.remove(&client);
        } else {
            self.rotation.push_back(client);
        }
        job
    }

    fn remove_abandoned(&mut self) {
        self.queues.retain(|_, line| {
            line.retain(|job| !job.is_abandoned());
            !line.is_empty()
        });
        let lines = &self.queues;
        self.rotation.retain(|client| lines.contains_key(client));
    }
}
