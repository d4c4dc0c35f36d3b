//! A few threads that read, each with a connection of its own that cannot write. Every question is one short
//! transaction, so that none keeps the write-ahead log from being emptied.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use agent::outside::StoreFault;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::queries::damage;
use crate::call::refusal;

/// Threads that read.
pub(super) const READERS: usize = 3;
/// Questions that may wait.
const QUESTIONS_MAX: usize = 16_384;

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// The line of questions before the readers.
#[derive(Default)]
pub(super) struct Readers {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    questions: VecDeque<Question>,
    is_closed: bool,
}

impl Readers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question in line.
    ///
    /// # Errors
    /// When the line is too long or closed.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreFault>>, StoreFault> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        if state.is_closed {
            return Err(refusal::closed());
        }
        if state.questions.len() >= QUESTIONS_MAX {
            return Err(StoreFault::Full(format!("{QUESTIONS_MAX} questions wait already")));
        }
        state.questions.push_back(Box::new(move |db| {
            if !reply.is_closed() {
                drop(reply.send(in_one_moment(db, query)));
            }
        }));
        drop(state);
        self.arrived.notify_one();
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
            std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || readers.serve(&db))
        };
        connections.into_iter().map(start).collect()
    }

    /// Answers what is in line, and takes nothing more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_all();
    }

    fn serve(&self, db: &Connection) {
        while let Some(question) = self.next() {
            // A question that panics is its own failure: its asker finds the answer closed.
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| question(db)));
            if asked.is_err() {
                tracing::error!("a question to the store panicked");
            }
        }
    }

    fn next(&self) -> Option<Question> {
        let mut state = self.state();
        loop {
            if let Some(question) = state.questions.pop_front() {
                return Some(question);
            }
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Everything a question reads is of one moment, and the moment ends with it.
fn in_one_moment<T>(
    db: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let moment = db.unchecked_transaction().map_err(|error| damage(&error))?;
    query(&moment)
}
