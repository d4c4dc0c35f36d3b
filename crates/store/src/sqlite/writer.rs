//! The one thread that writes: takes what waits, writes it in one transaction, commits once, and answers all. When the
//! disk is full it answers so and goes on; when nobody knows what the disk has kept, it never writes again.

use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;

use agent::outside::{JournalEntry, StoreFault, Timestamp};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use tokio::sync::oneshot;

use super::Durability;
use super::checkpoint::{CheckpointAction, Checkpointer, run_checkpoint};
use super::disk_error::DiskError;
use super::failpoints::{FailpointSite, Failpoints, InjectedFault};
use super::high_water_mark::{HighWaterMark, HighWaterMarkFile};
use super::lock_file::LockFile;
use super::queue::{QueuedBatch, WriteQueue, WriteTask};
use super::reader_pool::ReaderPool;
use super::transaction_writer::{EntryPosition, JournalHead, TransactionWriter, WriteError};
use crate::batch::PreparedBatch;
use crate::digest::DatabaseId;

/// Turns that are forgotten in one transaction.
const TURNS_PRUNED_MAX: u32 = 256;

/// What the writer begins with.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) head: JournalHead,
    pub(super) context: WriterContext,
    pub(super) readers: Arc<ReaderPool>,
    pub(super) reader_threads: Vec<JoinHandle<()>>,
    /// The database, closed after the last connection: whoever closes it gives up SQLite's locks on it.
    pub(super) file: Arc<File>,
    /// Held until everything is closed.
    pub(super) lock: LockFile,
}

/// What the writer has beside its connection.
pub(super) struct WriterContext {
    pub(super) queue: Arc<WriteQueue>,
    pub(super) database: DatabaseId,
    pub(super) durability: Durability,
    pub(super) failpoints: Failpoints,
    pub(super) high_water_mark: HighWaterMarkFile,
    pub(super) checkpointer: Checkpointer,
}

/// The writer at work.
struct WriterLoop<'a> {
    db: &'a Connection,
    transaction_writer: TransactionWriter<'a>,
    context: &'a mut WriterContext,
}

/// Why a group was not committed.
enum CommitFailure {
    Disk(DiskError),
    /// A call failed outside a savepoint after something of it was written: the group is written again, with one for
    /// each call.
    NeedsSavepoints,
}

impl From<rusqlite::Error> for CommitFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Disk(DiskError::classify(&error))
    }
}

/// What came of each call of a group.
type Outcomes = Vec<Result<Vec<EntryPosition>, StoreFault>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    /// For calls that may be refused after something of them was written.
    WhereNeeded,
    Everywhere,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(self) -> std::io::Result<()> {
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        let fallen = StopGuard(Arc::clone(&self.context.queue));
        match TransactionWriter::new(self.head, &self.db) {
            Ok(scribe) => {
                WriterLoop { db: &self.db, transaction_writer: scribe, context: &mut self.context }.run()
            }
            Err(error) => fallen.0.fail(&format!("the database cannot be written: {error}")),
        }
        self.shut_down();
        drop(fallen);
    }

    /// Moves everything into the database and lets go of it. A store that has failed is left as it is: its pages in
    /// memory may not be those on the disk.
    fn shut_down(mut self) {
        self.readers.close();
        for thread in self.reader_threads.drain(..) {
            // A reader that panicked is no reason to do so here.
            drop(thread.join());
        }
        self.context.checkpointer.stop();
        let is_well = !self.context.queue.has_failed();
        if is_well && let Err(trouble) = run_checkpoint(&self.db, CheckpointMode::TRUNCATE) {
            tracing::warn!(?trouble, "the write-ahead log stays; it is read again at the next start");
        }
        if let Err(error) = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !is_well) {
            tracing::warn!(%error, "the database may be closed in another way than it should");
        }
        drop(self.db);
        drop(self.file);
        drop(self.lock);
    }
}

impl WriterLoop<'_> {
    /// Until the line is closed and empty.
    fn run(&mut self) {
        while let Some(group) = self.context.queue.dequeue_group() {
            let mut calls = Vec::with_capacity(group.len());
            let mut forgets = Vec::new();
            for work in group {
                match work {
                    WriteTask::Append(waiting) => calls.push(waiting),
                    WriteTask::PruneTurns { before, pruned: forgotten, reply } => {
                        forgets.push((before, forgotten, reply))
                    }
                }
            }
            self.commit_and_publish(calls);
            forgets
                .into_iter()
                .for_each(|(before, forgotten, reply)| self.prune_turns(before, forgotten, reply));
            self.checkpoint_if_due();
        }
        self.context.checkpointer.stop();
        if !self.context.queue.has_failed() {
            match self.injected_checkpoint_error() {
                None => self.checkpoint(CheckpointMode::PASSIVE),
                Some(trouble) => self.handle_checkpoint_error(trouble),
            }
        }
    }

    /// Writes a group, tells the watcher, and answers: whoever has an answer finds it in the stream of events.
    fn commit_and_publish(&mut self, group: Vec<QueuedBatch>) {
        if group.is_empty() {
            return;
        }
        let before = self.transaction_writer.head();
        let outcomes = match self.commit(&group) {
            Ok(outcomes) => outcomes,
            Err(trouble) => {
                self.roll_back(before);
                return self.reject_group(group, trouble);
            }
        };
        if self.transaction_writer.head() != before && self.context.durability == Durability::Full {
            self.write_high_water_mark();
        }
        // The commit is done: there is nothing to pretend, and an abort or a delay has happened.
        let _ = self.context.failpoints.hit(FailpointSite::CommitAfter, &record_kinds(&group));
        let mut entries = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for (waiting, outcome) in group.into_iter().zip(outcomes) {
            answers.push((
                waiting.reply,
                outcome.map(|places| collect_entries(&mut entries, waiting.batch, &places)),
            ));
        }
        if let Some(watcher) = self.context.queue.listener().filter(|_| !entries.is_empty()) {
            watcher.committed(&entries);
        }
        // A caller that no longer waits needs no answer.
        answers.into_iter().for_each(|(reply, answer)| drop(reply.send(answer)));
    }

    fn commit(&mut self, group: &[QueuedBatch]) -> Result<Outcomes, DiskError> {
        let before = self.transaction_writer.head();
        match self.try_commit(group, Savepoints::WhereNeeded) {
            Ok(outcomes) => return Ok(outcomes),
            Err(CommitFailure::Disk(trouble)) => return Err(trouble),
            Err(CommitFailure::NeedsSavepoints) => self.roll_back(before),
        }
        self.try_commit(group, Savepoints::Everywhere).map_err(|failure| match failure {
            CommitFailure::Disk(trouble) => trouble,
            CommitFailure::NeedsSavepoints => {
                DiskError::Broken("a rule was broken outside a savepoint".to_owned())
            }
        })
    }

    fn try_commit(
        &mut self,
        group: &[QueuedBatch],
        savepoints: Savepoints,
    ) -> Result<Outcomes, CommitFailure> {
        execute(self.db, "BEGIN IMMEDIATE")?;
        let mut outcomes = Vec::with_capacity(group.len());
        for waiting in group {
            outcomes.push(if savepoints == Savepoints::Everywhere || waiting.batch.needs_savepoint() {
                self.write_in_savepoint(&waiting.batch)?
            } else {
                self.write_without_savepoint(&waiting.batch)?
            });
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
        execute(self.db, "COMMIT")?;
        Ok(outcomes)
    }

    /// A call that is refused before anything of it was written, if it is refused.
    fn write_without_savepoint(
        &mut self,
        call: &PreparedBatch,
    ) -> Result<Result<Vec<EntryPosition>, StoreFault>, CommitFailure> {
        let before = self.db.total_changes();
        match self.transaction_writer.write_batch(call) {
            Ok(places) => Ok(Ok(places)),
            Err(WriteError::Refused(_)) if self.db.total_changes() != before => {
                Err(CommitFailure::NeedsSavepoints)
            }
            Err(WriteError::Refused(fault)) => Ok(Err(fault)),
            Err(WriteError::Sqlite(error)) => match DiskError::classify(&error) {
                DiskError::ConstraintViolation(_) => Err(CommitFailure::NeedsSavepoints),
                trouble => Err(CommitFailure::Disk(trouble)),
            },
        }
    }

    fn write_in_savepoint(
        &mut self,
        call: &PreparedBatch,
    ) -> Result<Result<Vec<EntryPosition>, StoreFault>, CommitFailure> {
        let before = self.transaction_writer.head();
        execute(self.db, "SAVEPOINT one_call")?;
        let fault = match self.transaction_writer.write_batch(call) {
            Ok(places) => {
                execute(self.db, "RELEASE one_call")?;
                return Ok(Ok(places));
            }
            Err(WriteError::Refused(fault)) => fault,
            Err(WriteError::Sqlite(error)) => match DiskError::classify(&error) {
                DiskError::ConstraintViolation(rule) => StoreFault::Corrupt(rule),
                trouble => return Err(CommitFailure::Disk(trouble)),
            },
        };
        execute(self.db, "ROLLBACK TO one_call")?;
        execute(self.db, "RELEASE one_call")?;
        self.transaction_writer.reset_to(before);
        Ok(Err(fault))
    }

    /// Ends what is left of a transaction that failed.
    fn roll_back(&mut self, head: JournalHead) {
        if !self.db.is_autocommit()
            && let Err(error) = execute(self.db, "ROLLBACK")
        {
            tracing::error!(%error, "a transaction cannot be rolled back");
            self.context.queue.fail("a transaction cannot be rolled back");
        }
        self.transaction_writer.reset_to(head);
    }

    fn reject_group(&self, group: Vec<QueuedBatch>, trouble: DiskError) {
        let fault = match trouble {
            DiskError::Full(why) => {
                tracing::warn!(why, calls = group.len(), "nothing was kept");
                StoreFault::Full(why)
            }
            DiskError::ConstraintViolation(why) => StoreFault::Corrupt(why),
            DiskError::Broken(why) => {
                tracing::error!(why, "the store has failed; nothing more is kept");
                self.context.queue.fail(&why);
                StoreFault::Failed(why)
            }
        };
        group.into_iter().for_each(|waiting| drop(waiting.reply.send(Err(fault.clone()))));
    }

    /// Forgets a few turns, and joins the line again when there are more.
    fn prune_turns(
        &mut self,
        before: Timestamp,
        forgotten: u64,
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
            Ok(0) => drop(reply.send(Ok(forgotten))),
            Ok(some) => {
                let forgotten = forgotten + some as u64;
                self.context.queue.requeue(WriteTask::PruneTurns { before, pruned: forgotten, reply });
            }
            Err(DiskError::Full(why)) => drop(reply.send(Err(StoreFault::Full(why)))),
            Err(DiskError::ConstraintViolation(why)) => drop(reply.send(Err(StoreFault::Corrupt(why)))),
            Err(DiskError::Broken(why)) => {
                self.context.queue.fail(&why);
                drop(reply.send(Err(StoreFault::Failed(why))));
            }
        }
    }

    /// After the answers, so that none waits for it.
    fn checkpoint_if_due(&mut self) {
        if self.context.queue.has_failed() {
            return;
        }
        match self.context.checkpointer.next_action() {
            CheckpointAction::Nothing => {}
            CheckpointAction::Start => match self.injected_checkpoint_error() {
                None => self.context.checkpointer.request(),
                Some(trouble) => self.handle_checkpoint_error(trouble),
            },
            CheckpointAction::Finish => self.checkpoint(CheckpointMode::PASSIVE),
            CheckpointAction::Failed(trouble) => self.handle_checkpoint_error(trouble),
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
            Ok(is_all) => {
                self.context.checkpointer.record_result(is_all);
                if is_all && self.context.durability == Durability::Normal {
                    self.write_high_water_mark();
                }
            }
            Err(trouble) => self.handle_checkpoint_error(trouble),
        }
    }

    /// A full disk may have room later; anything else is the end.
    fn handle_checkpoint_error(&mut self, trouble: DiskError) {
        match trouble {
            DiskError::Full(why) | DiskError::ConstraintViolation(why) => {
                tracing::warn!(why, "the write-ahead log was not moved into the database");
                self.context.checkpointer.record_result(false);
            }
            DiskError::Broken(why) => {
                tracing::error!(why, "the store has failed; nothing more is kept");
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
            // The mark guards against others; what is committed is committed without it.
            tracing::warn!(%error, "the mark of the journal cannot be written");
        }
    }
}

/// Says that the writer has ended, however it did.
struct StopGuard(Arc<WriteQueue>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the writer of the store panicked");
            self.0.fail("the writer panicked");
        }
        self.0.mark_stopped();
    }
}

fn execute(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute(()).map(drop)
}

fn record_kinds(group: &[QueuedBatch]) -> impl Iterator<Item = &'static str> + Clone + '_ {
    let records =
        group.iter().flat_map(|waiting| &waiting.batch.appends).flat_map(|part| &part.append.records);
    records.map(agent::journal::Record::kind)
}

/// Turns the records of a call into entries at their places.
fn collect_entries(entries: &mut Vec<Arc<JournalEntry>>, call: PreparedBatch, places: &[EntryPosition]) {
    let mut places = places.iter();
    for part in call.appends {
        let append = part.append;
        let (agent, at) = (append.agent, append.at);
        entries.extend(append.records.into_iter().zip(&mut places).map(|(record, place)| {
            let EntryPosition { sequence, number } = *place;
            Arc::new(JournalEntry {
                sequence,
                agent,
                agent_id: append.agent_id.clone(),
                agent_sequence: number,
                at,
                record,
            })
        }));
    }
}
