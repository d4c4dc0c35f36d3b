//! In-memory store, for tests and for embedding without a file. Its content is lost when it is dropped.

mod file_changes;
mod rows;
mod values;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, ChangeWrite, CommitListener, EntryRange, FileChangeStore, IndexRow, JournalBounds,
    JournalEntry, KeyRange, KeyValueStore, Namespace, Store, StoreFault, StoredAgent, StoredTurn,
    StoredValue, Timestamp, TurnChanges, ValueWrite,
};

use self::rows::Rows;
use crate::batch::refusal;

/// An in-memory [`Store`].
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: Rows,
    listener: Option<Arc<dyn CommitListener>>,
    is_closed: bool,
}

/// Creates an empty in-memory store.
#[must_use]
pub fn memory() -> Arc<MemoryStore> {
    Arc::default()
}

impl MemoryStore {
    /// A poisoned lock is safe to use: only a listener can panic under it, after the rows were updated.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self, appends: Vec<Append>) -> Result<(), StoreFault> {
        let mut state = self.state();
        if state.is_closed {
            return Err(refusal::closed());
        }
        let entries = state.rows.commit(appends)?;
        // Under the lock, so that the listener receives entries in order.
        if let Some(listener) = state.listener.as_ref().filter(|_| !entries.is_empty()) {
            listener.committed(&entries);
        }
        Ok(())
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MemoryStore").field("entries", &self.state().rows.bounds().last).finish()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl KeyValueStore for MemoryStore {
    fn write_value(&self, write: ValueWrite) -> BoxFuture<'static, Result<bool, StoreFault>> {
        let mut state = self.state();
        ready(if state.is_closed { Err(refusal::closed()) } else { state.rows.write_value(write) })
    }

    fn value(
        &self,
        namespace: Namespace,
        key: String,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<StoredValue>, StoreFault>> {
        ready(Ok(self.state().rows.value(namespace, &key, at)))
    }

    fn keys(&self, range: KeyRange) -> BoxFuture<'_, Result<Vec<String>, StoreFault>> {
        ready(Ok(self.state().rows.keys(&range)))
    }
}

impl FileChangeStore for MemoryStore {
    fn record_changes(&self, write: ChangeWrite) -> BoxFuture<'static, Result<(), StoreFault>> {
        let mut state = self.state();
        ready(if state.is_closed { Err(refusal::closed()) } else { state.rows.record_changes(write) })
    }

    fn turn_changes(
        &self,
        agent: Serial,
        turn: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<TurnChanges>, StoreFault>> {
        ready(Ok(self.state().rows.turn_changes(agent, turn)))
    }
}

impl Store for MemoryStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        ready(self.commit(appends))
    }

    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>> {
        ready(Ok(self.state().rows.index()))
    }

    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>> {
        ready(Ok(self.state().rows.last_serial()))
    }

    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>> {
        ready(Ok(self.state().rows.agents(&serials)))
    }

    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>> {
        ready(Ok(self.state().rows.history(agent)))
    }

    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>> {
        ready(Ok(self.state().rows.agents_with_open_turns()))
    }

    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>> {
        ready(Ok(self.state().rows.turn(agent, &request_id)))
    }

    fn read(&self, range: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        ready(Ok(self.state().rows.read(range)))
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        ready(Ok(self.state().rows.bounds()))
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        let mut state = self.state();
        ready(if state.is_closed { Err(refusal::closed()) } else { Ok(state.rows.prune_turns(before)) })
    }

    fn set_listener(&self, listener: Arc<dyn CommitListener>) {
        self.state().listener = Some(listener);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.state().is_closed = true;
        ready(())
    }
}
