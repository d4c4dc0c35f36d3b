//! Fair job queue: a queue per client, served round-robin, so that a client with many jobs delays others by one job at
//! a time. The total is bounded, and so is each client's share.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Owner of a job, for fairness.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// Root agent of the caller's tree.
    Root(String),
    /// Connection of a request that named no root.
    Connection(u64),
}

/// A job that can wait in a queue.
pub(super) trait QueuedJob {
    /// Whether the client has disconnected.
    fn is_abandoned(&self) -> bool;
}

/// Why a job was not enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueRejection {
    /// The queue is full.
    Full,
    /// The client has reached its share of the queue.
    ClientShareFull,
    /// The queue is closed.
    Closed,
}

/// Bounded multi-producer queue with round-robin fairness over clients.
pub(super) struct FairQueue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    jobs_max: usize,
}

struct State<J> {
    queues: HashMap<Client, VecDeque<J>>,
    /// Clients with queued jobs, the next one first.
    rotation: VecDeque<Client>,
    is_closed: bool,
}

impl<J: QueuedJob> FairQueue<J> {
    pub(super) fn new(jobs_max: usize) -> Self {
        let state = State { queues: HashMap::new(), rotation: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), jobs_max: jobs_max.max(1) }
    }

    /// Enqueues a job for its client.
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
            Some(jobs) => jobs.push_back(job),
            None => {
                state.queues.insert(client.clone(), VecDeque::from([job]));
                state.rotation.push_back(client);
            }
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Dequeues the next job, skipping abandoned ones; blocks until there is one. `None` when the queue is closed.
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

    /// Closes the queue and returns the queued jobs.
    pub(super) fn close(&self) -> Vec<J> {
        let mut state = self.lock();
        state.is_closed = true;
        state.rotation.clear();
        self.changed.notify_all();
        state.queues.drain().flat_map(|(_, jobs)| jobs).collect()
    }

    /// Number of queued jobs that are not abandoned.
    pub(super) fn queued_jobs(&self) -> usize {
        let mut state = self.lock();
        state.remove_abandoned();
        state.queued_jobs()
    }

    /// Most queued jobs of one client: half of the queue, so that other clients can still enqueue.
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
        let jobs = self.queues.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.queues.remove(&client);
        } else {
            self.rotation.push_back(client);
        }
        job
    }

    fn remove_abandoned(&mut self) {
        self.queues.retain(|_, jobs| {
            jobs.retain(|job| !job.is_abandoned());
            !jobs.is_empty()
        });
        let queues = &self.queues;
        self.rotation.retain(|client| queues.contains_key(client));
    }
}
