//! Thread pool for queries. Each thread has its own read-only connection, and each query runs in one short transaction,
//! so that none blocks a checkpoint of the write-ahead log.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use agent::outside::StoreFault;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::queries::read_fault;
use crate::batch::refusal;

/// Number of reader threads.
pub(super) const READER_THREADS: usize = 3;
/// Maximum number of queued queries.
const QUERIES_QUEUED_MAX: usize = 16_384;

type QueryJob = Box<dyn FnOnce(&Connection) + Send>;

/// Job queue of the reader threads.
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

    /// Enqueues a query.
    ///
    /// # Errors
    /// When the queue is full or closed.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreFault>>, StoreFault> {
        let (reply, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.jobs.len() >= QUERIES_QUEUED_MAX {
            return Err(StoreFault::Full(format!("read queue full: {QUERIES_QUEUED_MAX} queries")));
        }
        state.jobs.push_back(Box::new(move |db| {
            if !reply.is_closed() {
                drop(reply.send(in_read_transaction(db, query)));
            }
        }));
        drop(state);
        self.job_available.notify_one();
        Ok(receiver)
    }

    /// Starts one thread for each connection.
    ///
    /// # Errors
    /// When a thread cannot be spawned.
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

    /// Closes the queue. The threads finish the queued queries, then stop.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.job_available.notify_all();
    }

    fn run_jobs(&self, db: &Connection) {
        while let Some(job) = self.next_job() {
            // A query that panics fails alone: its caller finds the reply channel closed.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(db)));
            if outcome.is_err() {
                tracing::error!("a store query panicked");
            }
        }
    }

    fn next_job(&self) -> Option<QueryJob> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.job_available.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs a query in one read transaction, so that it sees a single snapshot.
fn in_read_transaction<T>(
    db: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let transaction = db.unchecked_transaction().map_err(|error| read_fault(&error))?;
    query(&transaction)
}
