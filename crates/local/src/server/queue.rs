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
pub(super) trait Waiting {
    /// Whether nobody wants the answer any more.
    fn is_gone(&self) -> bool;
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// As many wait as may.
    Full,
    /// This client has taken its share of the places.
    ShareTaken,
    /// No job is taken any more.
    Closed,
}

/// The lines.
pub(super) struct FairQueue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    places_max: usize,
}

struct State<J> {
    lines: HashMap<Client, VecDeque<J>>,
    /// Clients with a line, the next one first.
    turns: VecDeque<Client>,
    is_closed: bool,
}

impl<J: Waiting> FairQueue<J> {
    pub(super) fn new(places_max: usize) -> Self {
        let state = State { lines: HashMap::new(), turns: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), places_max: places_max.max(1) }
    }

    /// Takes a job at the end of its client's line.
    pub(super) fn push(&self, client: Client, job: J) -> Result<(), NoPlace> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(NoPlace::Closed);
        }
        if state.waiting() >= self.places_max || state.line(&client) >= self.share_max() {
            state.forget_gone();
        }
        if state.waiting() >= self.places_max {
            return Err(NoPlace::Full);
        }
        if state.line(&client) >= self.share_max() {
            return Err(NoPlace::ShareTaken);
        }
        match state.lines.get_mut(&client) {
            Some(line) => line.push_back(job),
            None => {
                state.lines.insert(client.clone(), VecDeque::from([job]));
                state.turns.push_back(client);
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
                Some(job) if job.is_gone() => {}
                Some(job) => return Some(job),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes no more jobs and gives back those that wait.
    pub(super) fn close(&self) -> Vec<J> {
        let mut state = self.lock();
        state.is_closed = true;
        state.turns.clear();
        self.changed.notify_all();
        state.lines.drain().flat_map(|(_, line)| line).collect()
    }

    /// How many jobs wait that somebody still wants.
    pub(super) fn waiting(&self) -> usize {
        let mut state = self.lock();
        state.forget_gone();
        state.waiting()
    }

    /// One client may hold half of the places, so that there is room for the next.
    fn share_max(&self) -> usize {
        self.places_max.div_ceil(2)
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Waiting> State<J> {
    fn waiting(&self) -> usize {
        self.lines.values().map(VecDeque::len).sum()
    }

    fn line(&self, client: &Client) -> usize {
        self.lines.get(client).map_or(0, VecDeque::len)
    }

    fn next(&mut self) -> Option<J> {
        let client = self.turns.pop_front()?;
        let line = self.lines.get_mut(&client)?;
        let job = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        job
    }

    fn forget_gone(&mut self) {
        self.lines.retain(|_, line| {
            line.retain(|job| !job.is_gone());
            !line.is_empty()
        });
        let lines = &self.lines;
        self.turns.retain(|client| lines.contains_key(client));
    }
}
