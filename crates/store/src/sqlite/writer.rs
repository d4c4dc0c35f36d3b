//! Writer thread: dequeues a group of batches, commits them in one transaction, notifies the listener, then replies.
//! A full disk refuses the group and the thread continues; an unknown commit outcome fails the store for good.

use std::sync::Arc;
use std::thread::JoinHandle;

use agent::outside::{JournalEntry, StoreFault, Timestamp};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use tokio::sync::oneshot;

use super::Durability;
use super::checkpoint::{CheckpointAction, Checkpointer, run_checkpoint};
use super::database_file::DatabaseFile;
use super::disk_error::DiskError;
use super::failpoints::{FailpointSite, Failpoints, InjectedFault};
use super::file_changes::record_changes;
use super::high_water_mark::{HighWaterMark, HighWaterMarkFile};
use super::live_files::{LiveFiles, LostFile};
use super::queue::{QueuedBatch, QueuedChangeWrite, QueuedValueWrite, WriteQueue, WriteTask};
use super::reader_pool::ReaderPool;
use super::transaction_writer::{EntryPosition, JournalHead, TransactionWriter, WriteError};
use super::values::write_value;
use crate::batch::PreparedBatch;
use crate::digest::DatabaseId;

/// Maximum number of turns pruned in one transaction.
const TURNS_PRUNED_MAX: u32 = 256;

/// Resources the writer thread owns, released in order when it stops.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) head: JournalHead,
    pub(super) context: WriterContext,
    pub(super) readers: Arc<ReaderPool>,
    pub(super) reader_threads: Vec<JoinHandle<()>>,
    /// The locked database file, closed after the last connection: closing it releases SQLite's POSIX locks too.
    pub(super) file: Arc<DatabaseFile>,
}

/// The writer's state besides its connection.
pub(super) struct WriterContext {
    pub(super) queue: Arc<WriteQueue>,
    pub(super) database: DatabaseId,
    pub(super) durability: Durability,
    pub(super) failpoints: Failpoints,
    pub(super) high_water_mark: HighWaterMarkFile,
    pub(super) checkpointer: Checkpointer,
    pub(super) live_files: LiveFiles,
    /// Whether the store has failed because its write-ahead log was moved or removed.
    pub(super) is_wal_detached: bool,
}

/// Main loop of the writer thread.
struct WriterLoop<'a> {
    db: &'a Connection,
    transaction_writer: TransactionWriter<'a>,
    context: &'a mut WriterContext,
}

/// Why a group was not committed.
enum CommitFailure {
    Disk(DiskError),
    /// A batch without savepoint failed after writing some rows: the group is retried with a savepoint for each batch.
    NeedsSavepoints,
}

impl From<rusqlite::Error> for CommitFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Disk(DiskError::classify(&error))
    }
}

/// The tasks that one transaction commits.
#[derive(Default)]
struct Group {
    batches: Vec<QueuedBatch>,
    /// Written after the batches.
    values: Vec<QueuedValueWrite>,
    /// Written after the batches.
    changes: Vec<QueuedChangeWrite>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.values.is_empty() && self.changes.is_empty()
    }
}

/// Outcome of each task of a group.
#[derive(Default)]
struct Outcomes {
    batches: Vec<Result<Vec<EntryPosition>, StoreFault>>,
    values: Vec<Result<bool, StoreFault>>,
    changes: Vec<Result<(), StoreFault>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    /// Only for batches that may be refused after writing some rows.
    WhereNeeded,
    Everywhere,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(self) -> std::io::Result<()> {
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        let stop_guard = StopGuard(Arc::clone(&self.context.queue));
        match TransactionWriter::new(self.head, &self.db) {
            Ok(transaction_writer) => {
                WriterLoop { db: &self.db, transaction_writer, context: &mut self.context }.run();
            }
            Err(error) => stop_guard.0.fail(&format!("the database cannot be written: {error}")),
        }
        self.shut_down();
        drop(stop_guard);
    }

    /// Checkpoints the WAL and closes the database. A failed store is not checkpointed, because its cached pages may
    /// differ from those on disk; but a WAL that is only moved or removed is, because no other process will find it.
    fn shut_down(mut self) {
        self.readers.close();
        for thread in self.reader_threads.drain(..) {
            // A panic of a reader must not become one of the writer.
            drop(thread.join());
        }
        self.context.checkpointer.stop();
        let is_healthy = !self.context.queue.has_failed();
        if (is_healthy || self.context.is_wal_detached)
            && let Err(error) = run_checkpoint(&self.db, CheckpointMode::TRUNCATE)
        {
            tracing::warn!(
                ?error,
                "final checkpoint failed; SQLite recovers the write-ahead log at the next start"
            );
        }
        if let Err(error) = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !is_healthy) {
            tracing::warn!(%error, "cannot configure the checkpoint on close");
        }
        drop(self.db);
        drop(self.file);
    }
}

impl WriterLoop<'_> {
    /// Processes groups until the queue is closed and empty.
    fn run(&mut self) {
        while let Some(tasks) = self.context.queue.dequeue_group() {
            let mut group = Group::default();
            let mut prunings = Vec::new();
            for task in tasks {
                match task {
                    WriteTask::Append(batch) => group.batches.push(batch),
                    WriteTask::WriteValue(write) => group.values.push(write),
                    WriteTask::RecordChanges(write) => group.changes.push(write),
                    WriteTask::PruneTurns { before, pruned, reply } => prunings.push((before, pruned, reply)),
                }
            }
            self.commit_and_publish(group);
            for (before, pruned, reply) in prunings {
                self.prune_turns(before, pruned, reply);
            }
            self.checkpoint_if_due();
        }
        self.context.checkpointer.stop();
        if !self.context.queue.has_failed() {
            match self.injected_checkpoint_error() {
                None => self.checkpoint(CheckpointMode::PASSIVE),
                Some(error) => self.handle_checkpoint_error(error),
            }
        }
    }

    /// Commits a group, notifies the listener, then replies: a caller with a reply finds its entries among the events.
    fn commit_and_publish(&mut self, group: Group) {
        if group.is_empty() {
            return;
        }
        let before = self.transaction_writer.head();
        let outcomes = match self.commit(&group) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.roll_back(before);
                return self.refuse_group(group, error);
            }
        };
        if self.transaction_writer.head() != before && self.context.durability == Durability::Full {
            self.write_high_water_mark();
        }
        // After the commit only an abort or a delay can be injected, and `hit` has executed it.
        let _ = self.context.failpoints.hit(FailpointSite::CommitAfter, &record_kinds(&group));
        let mut entries = Vec::new();
        let mut replies = Vec::with_capacity(group.batches.len());
        for (queued, outcome) in group.batches.into_iter().zip(outcomes.batches) {
            replies.push((
                queued.reply,
                outcome.map(|positions| collect_entries(&mut entries, queued.batch, &positions)),
            ));
        }
        if let Some(listener) = self.context.queue.listener().filter(|_| !entries.is_empty()) {
            listener.committed(&entries);
        }
        // A send fails if the caller dropped its future, and then no reply is needed.
        replies.into_iter().for_each(|(reply, outcome)| drop(reply.send(outcome)));
        let values = group.values.into_iter().zip(outcomes.values);
        values.for_each(|(queued, outcome)| drop(queued.reply.send(outcome)));
        let changes = group.changes.into_iter().zip(outcomes.changes);
        changes.for_each(|(queued, outcome)| drop(queued.reply.send(outcome)));
    }

    fn commit(&mut self, group: &Group) -> Result<Outcomes, DiskError> {
        let before = self.transaction_writer.head();
        match self.try_commit(group, Savepoints::WhereNeeded) {
            Ok(outcomes) => return Ok(outcomes),
            Err(CommitFailure::Disk(error)) => return Err(error),
            Err(CommitFailure::NeedsSavepoints) => self.roll_back(before),
        }
        self.try_commit(group, Savepoints::Everywhere).map_err(|failure| match failure {
            CommitFailure::Disk(error) => error,
            CommitFailure::NeedsSavepoints => {
                DiskError::Broken("constraint violated outside a savepoint".to_owned())
            }
        })
    }

    fn try_commit(&mut self, group: &Group, savepoints: Savepoints) -> Result<Outcomes, CommitFailure> {
        execute(self.db, "BEGIN IMMEDIATE")?;
        let mut outcomes = Outcomes::default();
        for queued in &group.batches {
            outcomes.batches.push(
                if savepoints == Savepoints::Everywhere || queued.batch.needs_savepoint() {
                    self.write_in_savepoint(&queued.batch)?
                } else {
                    self.write_without_savepoint(&queued.batch)?
                },
            );
        }
        for queued in &group.values {
            outcomes.values.push(refusal_of(write_value(self.db, &queued.write))?);
        }
        for queued in &group.changes {
            outcomes.changes.push(refusal_of(record_changes(self.db, &queued.write))?);
        }
        match self.context.failpoints.hit(FailpointSite::CommitBefore, &record_kinds(group)) {
            None => {}
            Some(InjectedFault::DiskFull) => {
                return Err(CommitFailure::Disk(DiskError::Full("a failpoint".to_owned())));
            }
            Some(InjectedFault::FsyncFailed) => {
                return Err(CommitFailure::Disk(DiskError::Broken("a failpoint".to_owned())));
            }
        }
        self.check_files()?;
        execute(self.db, "COMMIT")?;
        Ok(outcomes)
    }

    /// Checks that a commit would be found again: SQLite does not notice when its files are moved or truncated.
    fn check_files(&mut self) -> Result<(), CommitFailure> {
        let context = &mut *self.context;
        context.live_files.check(context.checkpointer.wal_pages()).map_err(|lost| {
            context.is_wal_detached = matches!(lost, LostFile::WalDetached(_));
            let (LostFile::WalDetached(why) | LostFile::Pages(why)) = lost;
            CommitFailure::Disk(DiskError::Broken(why))
        })
    }

    /// Writes a batch that is expected to be refused, if at all, before any of its rows is written.
    fn write_without_savepoint(
        &mut self,
        batch: &PreparedBatch,
    ) -> Result<Result<Vec<EntryPosition>, StoreFault>, CommitFailure> {
        let before = self.db.total_changes();
        match self.transaction_writer.write_batch(batch) {
            Ok(positions) => Ok(Ok(positions)),
            Err(WriteError::Refused(_)) if self.db.total_changes() != before => {
                Err(CommitFailure::NeedsSavepoints)
            }
            Err(WriteError::Refused(fault)) => Ok(Err(fault)),
            Err(WriteError::Sqlite(error)) => match DiskError::classify(&error) {
                DiskError::ConstraintViolation(_) => Err(CommitFailure::NeedsSavepoints),
                error => Err(CommitFailure::Disk(error)),
            },
        }
    }

    fn write_in_savepoint(
        &mut self,
        batch: &PreparedBatch,
    ) -> Result<Result<Vec<EntryPosition>, StoreFault>, CommitFailure> {
        let before = self.transaction_writer.head();
        execute(self.db, "SAVEPOINT one_batch")?;
        let fault = match self.transaction_writer.write_batch(batch) {
            Ok(positions) => {
                execute(self.db, "RELEASE one_batch")?;
                return Ok(Ok(positions));
            }
            Err(WriteError::Refused(fault)) => fault,
            Err(WriteError::Sqlite(error)) => match DiskError::classify(&error) {
                DiskError::ConstraintViolation(why) => StoreFault::Corrupt(why),
                error => return Err(CommitFailure::Disk(error)),
            },
        };
        execute(self.db, "ROLLBACK TO one_batch")?;
        execute(self.db, "RELEASE one_batch")?;
        self.transaction_writer.reset_to(before);
        Ok(Err(fault))
    }

    /// Rolls back an open transaction after a failure.
    fn roll_back(&mut self, head: JournalHead) {
        if !self.db.is_autocommit()
            && let Err(error) = execute(self.db, "ROLLBACK")
        {
            tracing::error!(%error, "rollback failed");
            self.context.queue.fail("rollback failed");
        }
        self.transaction_writer.reset_to(head);
    }

    fn refuse_group(&self, group: Group, error: DiskError) {
        let fault = match error {
            DiskError::Full(why) => {
                tracing::warn!(why, batches = group.batches.len(), "commit refused; nothing was saved");
                StoreFault::Full(why)
            }
            DiskError::ConstraintViolation(why) => StoreFault::Corrupt(why),
            DiskError::Broken(why) => {
                tracing::error!(why, "commit failed; the store accepts no more writes: restart the daemon");
                self.context.queue.fail(&why);
                StoreFault::Failed(why)
            }
        };
        group.batches.into_iter().for_each(|queued| drop(queued.reply.send(Err(fault.clone()))));
        group.values.into_iter().for_each(|queued| drop(queued.reply.send(Err(fault.clone()))));
        group.changes.into_iter().for_each(|queued| drop(queued.reply.send(Err(fault.clone()))));
    }

    /// Prunes a limited number of turns, and enqueues the task again until none is left to prune.
    fn prune_turns(
        &mut self,
        before: Timestamp,
        pruned: u64,
        reply: oneshot::Sender<Result<u64, StoreFault>>,
    ) {
        if let Some(why) = self.context.queue.failure() {
            return drop(reply.send(Err(StoreFault::Failed(why))));
        }
        let deleted = self.db.prepare_cached(
            "DELETE FROM turns WHERE accepted IN (SELECT accepted FROM turns WHERE ended_at < ?1 LIMIT ?2)",
        );
        let deleted = deleted.and_then(|mut delete| delete.execute((before.0, TURNS_PRUNED_MAX)));
        match deleted.map_err(|error| DiskError::classify(&error)) {
            Ok(0) => drop(reply.send(Ok(pruned))),
            Ok(count) => {
                let pruned = pruned + count as u64;
                self.context.queue.requeue(WriteTask::PruneTurns { before, pruned, reply });
            }
            Err(DiskError::Full(why)) => drop(reply.send(Err(StoreFault::Full(why)))),
            Err(DiskError::ConstraintViolation(why)) => drop(reply.send(Err(StoreFault::Corrupt(why)))),
            Err(DiskError::Broken(why)) => {
                self.context.queue.fail(&why);
                drop(reply.send(Err(StoreFault::Failed(why))));
            }
        }
    }

    /// Advances a due checkpoint. Runs after the replies, so that none waits for it.
    fn checkpoint_if_due(&mut self) {
        if self.context.queue.has_failed() {
            return;
        }
        match self.context.checkpointer.next_action() {
            CheckpointAction::Nothing => {}
            CheckpointAction::Start => match self.injected_checkpoint_error() {
                None => self.context.checkpointer.request(),
                Some(error) => self.handle_checkpoint_error(error),
            },
            CheckpointAction::Finish => self.checkpoint(CheckpointMode::PASSIVE),
            CheckpointAction::Failed(error) => self.handle_checkpoint_error(error),
        }
    }

    fn injected_checkpoint_error(&mut self) -> Option<DiskError> {
        match self.context.failpoints.hit(FailpointSite::CheckpointBefore, &std::iter::empty())? {
            InjectedFault::DiskFull => Some(DiskError::Full("a failpoint".to_owned())),
            InjectedFault::FsyncFailed => Some(DiskError::Broken("a failpoint".to_owned())),
        }
    }

    fn checkpoint(&mut self, mode: CheckpointMode) {
        match run_checkpoint(self.db, mode) {
            Ok(is_complete) => {
                self.context.checkpointer.record_result(is_complete);
                if is_complete && self.context.durability == Durability::Normal {
                    self.write_high_water_mark();
                }
            }
            Err(error) => self.handle_checkpoint_error(error),
        }
    }

    /// Retries later after a temporary error; a permanent one fails the store.
    fn handle_checkpoint_error(&mut self, error: DiskError) {
        match error {
            DiskError::Full(why) | DiskError::ConstraintViolation(why) => {
                tracing::warn!(why, "checkpoint failed; it is retried when the write-ahead log has grown");
                self.context.checkpointer.record_result(false);
            }
            DiskError::Broken(why) => {
                tracing::error!(
                    why,
                    "checkpoint failed; the store accepts no more writes: restart the daemon"
                );
                self.context.queue.fail(&why);
            }
        }
    }

    fn write_high_water_mark(&self) {
        let JournalHead { sequence, hash } = self.transaction_writer.head();
        if let Err(error) = self.context.high_water_mark.write(&HighWaterMark {
            database: self.context.database,
            sequence,
            hash,
        }) {
            // The mark only detects later tampering with the WAL; the commit is durable without it.
            tracing::warn!(%error, "cannot write the journal's high-water mark");
        }
    }
}

/// Marks the queue as stopped when the writer thread ends, also by a panic.
struct StopGuard(Arc<WriteQueue>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the store's writer thread panicked; restart the daemon");
            self.0.fail("the writer thread panicked");
        }
        self.0.mark_stopped();
    }
}

fn execute(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute(()).map(drop)
}

/// The kinds of a group's records, for failpoints; a write to the key-value store is a `key_value`.
fn record_kinds(group: &Group) -> impl Iterator<Item = &'static str> + Clone + '_ {
    let appends = group.batches.iter().flat_map(|queued| &queued.batch.appends);
    let records = appends.flat_map(|prepared| &prepared.append.records).map(agent::journal::Record::kind);
    let others = group.values.iter().map(|_| "key_value").chain(group.changes.iter().map(|_| "file_changes"));
    records.chain(others)
}

/// Separates a refusal of one write from an error of the transaction.
fn refusal_of<T>(written: Result<T, WriteError>) -> Result<Result<T, StoreFault>, CommitFailure> {
    match written {
        Ok(value) => Ok(Ok(value)),
        Err(WriteError::Refused(fault)) => Ok(Err(fault)),
        Err(WriteError::Sqlite(error)) => Err(error.into()),
    }
}

/// Appends the records of a batch as journal entries at their positions.
fn collect_entries(entries: &mut Vec<Arc<JournalEntry>>, batch: PreparedBatch, positions: &[EntryPosition]) {
    let mut positions = positions.iter();
    for prepared in batch.appends {
        let append = prepared.append;
        let (agent, at) = (append.agent, append.at);
        entries.extend(append.records.into_iter().zip(&mut positions).map(|(record, position)| {
            let EntryPosition { sequence, agent_sequence } = *position;
            let agent_id = append.agent_id.clone();
            Arc::new(JournalEntry { sequence, agent, agent_id, agent_sequence, at, record })
        }));
    }
}
