//! A few threads that read, each with a connection of its own that cannot write. Every question is one short
//! transaction, so that none keeps the write-ahead log from being emptied.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use agent::outside::StoreFault;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::queries::read_fault;
use crate::batch::refusal;

/// Threads that read.
pub(super) const READER_THREADS: usize = 3;
/// Questions that may wait.
const QUERIES_QUEUED_MAX: usize = 16_384;

type QueryJob = Box<dyn FnOnce(&Connection) + Send>;

/// The line of questions before the readers.
#[derive(Default)]
pub(super) struct ReaderPool {
    state: Mutex<State>,
    job_available: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<QueryJob>,
    is_closed: bool,
}

impl ReaderPool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question in line.
    ///
    /// # Errors
    /// When the line is too long or closed.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreFault>>, StoreFault> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.jobs.len() >= QUERIES_QUEUED_MAX {
            return Err(StoreFault::Full(format!("{QUERIES_QUEUED_MAX} questions wait already")));
        }
        state.jobs.push_back(Box::new(move |db| {
            if !reply.is_closed() {
                drop(reply.send(in_read_transaction(db, query)));
            }
        }));
        drop(state);
        self.job_available.notify_one();
        Ok(answer)
    }

    /// Starts one thread for each connection.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        self: &Arc<Self>,
        connections: Vec<Connection>,
    ) -> std::io::Result<Vec<JoinHandle<()>>> {
        let start = |db: Connection| {
            let readers = Arc::clone(self);
            std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || readers.run_jobs(&db))
        };
        connections.into_iter().map(start).collect()
    }

    /// Answers what is in line, and takes nothing more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.job_available.notify_all();
    }

    fn run_jobs(&self, db: &Connection) {
        while let Some(question) = self.next_job() {
            // A question that panics is its own failure: its asker finds the answer closed.
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| question(db)));
            if asked.is_err() {
                tracing::error!("a question to the store panicked");
            }
        }
    }

    fn next_job(&self) -> Option<QueryJob> {
        let mut state = self.state();
        loop {
            if let Some(question) = state.jobs.pop_front() {
                return Some(question);
            }
            if state.is_closed {
                return None;
            }
            state = self.job_available.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Everything a question reads is of one moment, and the moment ends with it.
fn in_read_transaction<T>(
    db: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let moment = db.unchecked_transaction().map_err(|error| read_fault(&error))?;
    query(&moment)
}
