//! Store in one SQLite file: one writer thread commits all queued batches together, a few reader threads answer
//! queries. [`schema`] defines the tables; [`opening`] opens the file and refuses damaged or foreign ones.

mod checkpoint;
mod checksums;
mod database_file;
mod disk_error;
mod failpoints;
mod file_changes;
mod files;
mod folder;
mod high_water_mark;
mod live_files;
mod maintenance;
mod migrate;
mod opening;
mod queries;
mod queue;
mod reader_pool;
mod schema;
mod startup_check;
mod transaction_writer;
mod values;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, ChangeWrite, CommitListener, EntryRange, FileChangeStore, IndexRow, JournalBounds,
    JournalEntry, KeyRange, KeyValueStore, Namespace, Store, StoreFault, StoredAgent, StoredTurn,
    StoredValue, Timestamp, TurnChanges, ValueWrite,
};
use tokio::sync::oneshot;

use self::queue::{QueuedBatch, QueuedChangeWrite, QueuedValueWrite, WriteQueue, WriteTask};
use self::reader_pool::ReaderPool;
use crate::batch::{PreparedBatch, refusal};

pub(crate) use self::maintenance::SqliteMaintenance;
pub(crate) use self::opening::{SqliteOpenFault, open};

/// Options to open a SQLite store.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The database file. Its folder must exist; companion files (`-wal`, `-shm`, `.mark`)
    /// are created next to it.
    pub path: PathBuf,
    /// When a commit counts as durable.
    pub durability: Durability,
    /// Faults to inject in tests: `edge[:kind][@n]=action[,…]`. A release build rejects any.
    pub failpoints: Option<String>,
}

impl SqliteOptions {
    /// Returns the default options for a file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), durability: Durability::Full, failpoints: None }
    }
}

/// When a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A commit survives power loss: fsync at every commit.
    #[default]
    Full,
    /// A commit survives the end of the process; power loss may drop the last seconds, never earlier commits.
    Normal,
}

/// How long `drop` waits for the writer thread when `close` was not awaited.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// A durable [`Store`] in a SQLite file.
pub(crate) struct SqliteStore {
    queue: Arc<WriteQueue>,
    readers: Arc<ReaderPool>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreFault>> {
        reply_future(self.readers.submit(query))
    }
}

/// Resolves to the reply of an enqueued task, or to a refusal when the task was rejected or its thread has stopped.
fn reply_future<T: Send + 'static>(
    enqueued: Result<oneshot::Receiver<Result<T, StoreFault>>, StoreFault>,
) -> BoxFuture<'static, Result<T, StoreFault>> {
    match enqueued {
        Err(fault) => Box::pin(std::future::ready(Err(fault))),
        Ok(reply) => Box::pin(async move { reply.await.unwrap_or_else(|_| Err(refusal::closed())) }),
    }
}

impl KeyValueStore for SqliteStore {
    fn write_value(&self, write: ValueWrite) -> BoxFuture<'static, Result<bool, StoreFault>> {
        let (reply, receiver) = oneshot::channel();
        let enqueued = self.queue.enqueue(WriteTask::WriteValue(QueuedValueWrite { write, reply }));
        reply_future(enqueued.map(|()| receiver))
    }

    fn value(
        &self,
        namespace: Namespace,
        key: String,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<StoredValue>, StoreFault>> {
        self.query(move |db| values::value(db, namespace, &key, at))
    }

    fn keys(&self, range: KeyRange) -> BoxFuture<'_, Result<Vec<String>, StoreFault>> {
        self.query(move |db| values::keys(db, &range))
    }
}

impl FileChangeStore for SqliteStore {
    fn record_changes(&self, write: ChangeWrite) -> BoxFuture<'static, Result<(), StoreFault>> {
        let (reply, receiver) = oneshot::channel();
        let enqueued = self.queue.enqueue(WriteTask::RecordChanges(QueuedChangeWrite { write, reply }));
        reply_future(enqueued.map(|()| receiver))
    }

    fn turn_changes(
        &self,
        agent: Serial,
        turn: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<TurnChanges>, StoreFault>> {
        self.query(move |db| file_changes::turn_changes(db, agent, turn))
    }
}

impl Store for SqliteStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        reply_future(PreparedBatch::prepare(appends).and_then(|batch| {
            let (reply, receiver) = oneshot::channel();
            self.queue.enqueue(WriteTask::Append(QueuedBatch { batch, reply }))?;
            Ok(receiver)
        }))
    }

    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>> {
        self.query(queries::index)
    }

    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>> {
        self.query(queries::last_serial)
    }

    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>> {
        self.query(move |db| queries::agents(db, &serials))
    }

    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>> {
        self.query(move |db| queries::history(db, agent))
    }

    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>> {
        self.query(queries::agents_with_open_turns)
    }

    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>> {
        self.query(move |db| queries::turn(db, agent, &request_id))
    }

    fn read(&self, range: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        self.query(move |db| queries::read(db, range))
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        self.query(queries::bounds)
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        let (reply, receiver) = oneshot::channel();
        let enqueued = self.queue.enqueue(WriteTask::PruneTurns { before, pruned: 0, reply });
        reply_future(enqueued.map(|()| receiver))
    }

    fn set_listener(&self, listener: Arc<dyn CommitListener>) {
        self.queue.set_listener(listener);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let stopped = self.queue.close();
        Box::pin(async move {
            // The writer has stopped whether it sent the signal or dropped the sender.
            let _ = stopped.await;
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.queue.close());
        if !self.queue.wait_until_stopped(DROP_TIMEOUT) {
            tracing::warn!("store dropped while still writing; its lock is released when the writer stops");
        }
        self.readers.close();
    }
}
