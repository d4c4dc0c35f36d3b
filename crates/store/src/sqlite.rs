//! A store in one SQLite file: one thread writes, with one commit for all that waits; a few threads read. What is in
//! the file is in [`schema`]; how it is opened and what is refused, in [`opening`].

mod checkpoint;
mod checksums;
mod disk_error;
mod failpoints;
mod files;
mod high_water_mark;
mod lock_file;
mod migrate;
mod opening;
mod queries;
mod queue;
mod reader_pool;
mod schema;
mod startup_check;
mod transaction_writer;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, CommitListener, EntryRange, IndexRow, JournalBounds, JournalEntry, Store, StoreFault,
    StoredAgent, StoredTurn, Timestamp,
};
use tokio::sync::oneshot;

use self::queue::{QueuedBatch, WriteQueue, WriteTask};
use self::reader_pool::ReaderPool;
use crate::batch::{PreparedBatch, refusal};

pub(crate) use self::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum, turn_checksum};
pub(crate) use self::files::StoreFiles;
pub(crate) use self::files::parent_folder;
pub(crate) use self::high_water_mark::HighWaterMark;
pub use self::opening::{OpenFault, open};
pub(crate) use self::opening::{open_immutable, open_reader};
pub(crate) use self::schema::{current_version, schema_problems};
pub(crate) use self::startup_check::{
    DatabaseState, EntryRow, SELECT_ENTRIES, database_id, inspect_database, read_entry_row,
};

/// Where a store is, and how it is kept.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The database file. Its folder has to be there; files beside it bear its name and an ending.
    pub path: PathBuf,
    /// What "kept" means.
    pub durability: Durability,
    /// Where to fail on purpose, for tests: `edge[:kind][@n]=action[,…]`. A release build refuses any.
    pub failpoints: Option<String>,
}

impl SqliteOptions {
    /// The usual options for a file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), durability: Durability::Full, failpoints: None }
    }
}

/// What "kept" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It survives a power cut.
    #[default]
    Full,
    /// It survives the end of the process; a power cut may take the last seconds, never the middle.
    Normal,
}

/// How long an end that nobody waits for may take.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in a SQLite file.
pub struct SqliteStore {
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

/// What was put in line is answered, or whoever should have answered is no more.
fn reply_future<T: Send + 'static>(
    waiting: Result<oneshot::Receiver<Result<T, StoreFault>>, StoreFault>,
) -> BoxFuture<'static, Result<T, StoreFault>> {
    match waiting {
        Err(fault) => Box::pin(std::future::ready(Err(fault))),
        Ok(answer) => Box::pin(async move { answer.await.unwrap_or_else(|_| Err(refusal::closed())) }),
    }
}

impl Store for SqliteStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        reply_future(PreparedBatch::prepare(appends).and_then(|call| {
            let (reply, answer) = oneshot::channel();
            self.queue.enqueue(WriteTask::Append(QueuedBatch { batch: call, reply }))?;
            Ok(answer)
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

    fn read(&self, span: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        self.query(move |db| queries::read(db, span))
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        self.query(queries::bounds)
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        let (reply, waiting) = oneshot::channel();
        reply_future(self.queue.enqueue(WriteTask::PruneTurns { before, pruned: 0, reply }).map(|()| waiting))
    }

    fn set_listener(&self, watcher: Arc<dyn CommitListener>) {
        self.queue.set_listener(watcher);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let ended = self.queue.close();
        Box::pin(async move {
            // Whether the writer says that it has ended or falls silent, it has.
            let _ = ended.await;
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.queue.close());
        if !self.queue.wait_until_stopped(DROP_TIMEOUT) {
            tracing::warn!("the store was left while it still wrote; its lock is freed when it has ended");
        }
        self.readers.close();
    }
}
