//! The one thread that writes: takes what waits, writes it in one transaction, commits once, and answers all. When the
//! disk is full it answers so and goes on; when nobody knows what the disk has kept, it never writes again.

use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;

use agent::outside::{JournalEntry, Moment, StoreFault};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use tokio::sync::oneshot;

use super::Durability;
use super::checkpoint::{Checkpointer, Due, move_pages};
use super::failpoints::{Edge, Failpoints, Pretence};
use super::line::{Line, Task, Waiting};
use super::mark::{Mark, MarkFile};
use super::place::LockFile;
use super::readers::Readers;
use super::scribe::{Head, Place, Scribe, Setback};
use super::trouble::Trouble;
use crate::call::Call;
use crate::digest::DatabaseId;

/// Turns that are forgotten in one transaction.
const FORGET_AT_ONCE: u32 = 256;

/// What the writer begins with.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) head: Head,
    pub(super) hand: Hand,
    pub(super) readers: Arc<Readers>,
    pub(super) reader_threads: Vec<JoinHandle<()>>,
    /// The database, closed after the last connection: whoever closes it gives up SQLite's locks on it.
    pub(super) file: Arc<File>,
    /// Held until everything is closed.
    pub(super) lock: LockFile,
}

/// What the writer has beside its connection.
pub(super) struct Hand {
    pub(super) line: Arc<Line>,
    pub(super) database: DatabaseId,
    pub(super) durability: Durability,
    pub(super) failpoints: Failpoints,
    pub(super) mark: MarkFile,
    pub(super) checkpointer: Checkpointer,
}

/// The writer at work.
struct Work<'a> {
    db: &'a Connection,
    scribe: Scribe<'a>,
    hand: &'a mut Hand,
}

/// Why a group was not committed.
enum Failure {
    Trouble(Trouble),
    /// A call failed outside a savepoint after something of it was written: the group is written again, with one for
    /// each call.
    Again,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Trouble(Trouble::of(&error))
    }
}

/// What came of each call of a group.
type Outcomes = Vec<Result<Vec<Place>, StoreFault>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    /// For calls that may be refused after something of them was written.
    WhereNeeded,
    Everywhere,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(self) -> std::io::Result<()> {
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || self.live()).map(drop)
    }

    fn live(mut self) {
        let fallen = Fallen(Arc::clone(&self.hand.line));
        match Scribe::at(self.head, &self.db) {
            Ok(scribe) => Work { db: &self.db, scribe, hand: &mut self.hand }.go_on(),
            Err(error) => fallen.0.fail(&format!("the database cannot be written: {error}")),
        }
        self.finish();
        drop(fallen);
    }

    /// Moves everything into the database and lets go of it. A store that has failed is left as it is: its pages in
    /// memory may not be those on the disk.
    fn finish(mut self) {
        self.readers.close();
        for thread in self.reader_threads.drain(..) {
            // A reader that panicked is no reason to do so here.
            drop(thread.join());
        }
        self.hand.checkpointer.stop();
        let is_well = !self.hand.line.has_failed();
        if is_well && let Err(trouble) = move_pages(&self.db, CheckpointMode::TRUNCATE) {
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

impl Work<'_> {
    /// Until the line is closed and empty.
    fn go_on(&mut self) {
        while let Some(group) = self.hand.line.take() {
            let mut calls = Vec::with_capacity(group.len());
            let mut forgets = Vec::new();
            for work in group {
                match work {
                    Task::Append(waiting) => calls.push(waiting),
                    Task::Forget { before, forgotten, reply } => forgets.push((before, forgotten, reply)),
                }
            }
            self.keep(calls);
            forgets.into_iter().for_each(|(before, forgotten, reply)| self.forget(before, forgotten, reply));
            self.checkpoint_when_due();
        }
        self.hand.checkpointer.stop();
        if !self.hand.line.has_failed() {
            match self.pretence_of_checkpoint() {
                None => self.checkpoint(CheckpointMode::PASSIVE),
                Some(trouble) => self.not_moved(trouble),
            }
        }
    }

    /// Writes a group, tells the watcher, and answers: whoever has an answer finds it in the stream of events.
    fn keep(&mut self, group: Vec<Waiting>) {
        if group.is_empty() {
            return;
        }
        let before = self.scribe.head();
        let outcomes = match self.commit(&group) {
            Ok(outcomes) => outcomes,
            Err(trouble) => {
                self.take_back(before);
                return self.refuse(group, trouble);
            }
        };
        if self.scribe.head() != before && self.hand.durability == Durability::Full {
            self.write_mark();
        }
        // The commit is done: there is nothing to pretend, and an abort or a delay has happened.
        let _ = self.hand.failpoints.pass(Edge::CommitAfter, &kinds(&group));
        let mut entries = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for (waiting, outcome) in group.into_iter().zip(outcomes) {
            answers.push((waiting.reply, outcome.map(|places| fill(&mut entries, waiting.call, &places))));
        }
        if let Some(watcher) = self.hand.line.listener().filter(|_| !entries.is_empty()) {
            watcher.committed(&entries);
        }
        // A caller that no longer waits needs no answer.
        answers.into_iter().for_each(|(reply, answer)| drop(reply.send(answer)));
    }

    fn commit(&mut self, group: &[Waiting]) -> Result<Outcomes, Trouble> {
        let before = self.scribe.head();
        match self.try_commit(group, Savepoints::WhereNeeded) {
            Ok(outcomes) => return Ok(outcomes),
            Err(Failure::Trouble(trouble)) => return Err(trouble),
            Err(Failure::Again) => self.take_back(before),
        }
        self.try_commit(group, Savepoints::Everywhere).map_err(|failure| match failure {
            Failure::Trouble(trouble) => trouble,
            Failure::Again => Trouble::Broken("a rule was broken outside a savepoint".to_owned()),
        })
    }

    fn try_commit(&mut self, group: &[Waiting], savepoints: Savepoints) -> Result<Outcomes, Failure> {
        run(self.db, "BEGIN IMMEDIATE")?;
        let mut outcomes = Vec::with_capacity(group.len());
        for waiting in group {
            outcomes.push(if savepoints == Savepoints::Everywhere || waiting.call.may_fail_late() {
                self.write_guarded(&waiting.call)?
            } else {
                self.write_plain(&waiting.call)?
            });
        }
        match self.hand.failpoints.pass(Edge::CommitBefore, &kinds(group)) {
            None => {}
            Some(Pretence::Full) => return Err(Failure::Trouble(Trouble::Full("a failpoint".to_owned()))),
            Some(Pretence::Fsync) => return Err(Failure::Trouble(Trouble::Broken("a failpoint".to_owned()))),
        }
        run(self.db, "COMMIT")?;
        Ok(outcomes)
    }

    /// A call that is refused before anything of it was written, if it is refused.
    fn write_plain(&mut self, call: &Call) -> Result<Result<Vec<Place>, StoreFault>, Failure> {
        let before = self.db.total_changes();
        match self.scribe.write(call) {
            Ok(places) => Ok(Ok(places)),
            Err(Setback::Refused(_)) if self.db.total_changes() != before => Err(Failure::Again),
            Err(Setback::Refused(fault)) => Ok(Err(fault)),
            Err(Setback::Failed(error)) => match Trouble::of(&error) {
                Trouble::Rule(_) => Err(Failure::Again),
                trouble => Err(Failure::Trouble(trouble)),
            },
        }
    }

    fn write_guarded(&mut self, call: &Call) -> Result<Result<Vec<Place>, StoreFault>, Failure> {
        let before = self.scribe.head();
        run(self.db, "SAVEPOINT one_call")?;
        let fault = match self.scribe.write(call) {
            Ok(places) => {
                run(self.db, "RELEASE one_call")?;
                return Ok(Ok(places));
            }
            Err(Setback::Refused(fault)) => fault,
            Err(Setback::Failed(error)) => match Trouble::of(&error) {
                Trouble::Rule(rule) => StoreFault::Corrupt(rule),
                trouble => return Err(Failure::Trouble(trouble)),
            },
        };
        run(self.db, "ROLLBACK TO one_call")?;
        run(self.db, "RELEASE one_call")?;
        self.scribe.go_back(before);
        Ok(Err(fault))
    }

    /// Ends what is left of a transaction that failed.
    fn take_back(&mut self, head: Head) {
        if !self.db.is_autocommit()
            && let Err(error) = run(self.db, "ROLLBACK")
        {
            tracing::error!(%error, "a transaction cannot be rolled back");
            self.hand.line.fail("a transaction cannot be rolled back");
        }
        self.scribe.go_back(head);
    }

    fn refuse(&self, group: Vec<Waiting>, trouble: Trouble) {
        let fault = match trouble {
            Trouble::Full(why) => {
                tracing::warn!(why, calls = group.len(), "nothing was kept");
                StoreFault::Full(why)
            }
            Trouble::Rule(why) => StoreFault::Corrupt(why),
            Trouble::Broken(why) => {
                tracing::error!(why, "the store has failed; nothing more is kept");
                self.hand.line.fail(&why);
                StoreFault::Failed(why)
            }
        };
        group.into_iter().for_each(|waiting| drop(waiting.reply.send(Err(fault.clone()))));
    }

    /// Forgets a few turns, and joins the line again when there are more.
    fn forget(&mut self, before: Moment, forgotten: u64, reply: oneshot::Sender<Result<u64, StoreFault>>) {
        if let Some(why) = self.hand.line.failure() {
            return drop(reply.send(Err(StoreFault::Failed(why))));
        }
        let deleted = self.db.prepare_cached(
            "DELETE FROM turns WHERE accepted IN (SELECT accepted FROM turns WHERE ended_at < ?1 LIMIT ?2)",
        );
        let deleted = deleted.and_then(|mut delete| delete.execute((before.0, FORGET_AT_ONCE)));
        match deleted.map_err(|error| Trouble::of(&error)) {
            Ok(0) => drop(reply.send(Ok(forgotten))),
            Ok(some) => {
                let forgotten = forgotten + some as u64;
                self.hand.line.join_again(Task::Forget { before, forgotten, reply });
            }
            Err(Trouble::Full(why)) => drop(reply.send(Err(StoreFault::Full(why)))),
            Err(Trouble::Rule(why)) => drop(reply.send(Err(StoreFault::Corrupt(why)))),
            Err(Trouble::Broken(why)) => {
                self.hand.line.fail(&why);
                drop(reply.send(Err(StoreFault::Failed(why))));
            }
        }
    }

    /// After the answers, so that none waits for it.
    fn checkpoint_when_due(&mut self) {
        if self.hand.line.has_failed() {
            return;
        }
        match self.hand.checkpointer.due() {
            Due::Nothing => {}
            Due::Most => match self.pretence_of_checkpoint() {
                None => self.hand.checkpointer.ask(),
                Some(trouble) => self.not_moved(trouble),
            },
            Due::Rest => self.checkpoint(CheckpointMode::PASSIVE),
            Due::Failed(trouble) => self.not_moved(trouble),
        }
    }

    fn pretence_of_checkpoint(&mut self) -> Option<Trouble> {
        match self.hand.failpoints.pass(Edge::CheckpointBefore, &std::iter::empty())? {
            Pretence::Full => Some(Trouble::Full("a failpoint".to_owned())),
            Pretence::Fsync => Some(Trouble::Broken("a failpoint".to_owned())),
        }
    }

    fn checkpoint(&mut self, mode: CheckpointMode) {
        match move_pages(self.db, mode) {
            Ok(is_all) => {
                self.hand.checkpointer.note(is_all);
                if is_all && self.hand.durability == Durability::Normal {
                    self.write_mark();
                }
            }
            Err(trouble) => self.not_moved(trouble),
        }
    }

    /// A full disk may have room later; anything else is the end.
    fn not_moved(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Full(why) | Trouble::Rule(why) => {
                tracing::warn!(why, "the write-ahead log was not moved into the database");
                self.hand.checkpointer.note(false);
            }
            Trouble::Broken(why) => {
                tracing::error!(why, "the store has failed; nothing more is kept");
                self.hand.line.fail(&why);
            }
        }
    }

    fn write_mark(&self) {
        let Head { sequence, hash } = self.scribe.head();
        if let Err(error) = self.hand.mark.write(&Mark { database: self.hand.database, sequence, hash }) {
            // The mark guards against others; what is committed is committed without it.
            tracing::warn!(%error, "the mark of the journal cannot be written");
        }
    }
}

/// Says that the writer has ended, however it did.
struct Fallen(Arc<Line>);

impl Drop for Fallen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the writer of the store panicked");
            self.0.fail("the writer panicked");
        }
        self.0.end();
    }
}

fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute(()).map(drop)
}

fn kinds(group: &[Waiting]) -> impl Iterator<Item = &'static str> + Clone + '_ {
    let records = group.iter().flat_map(|waiting| &waiting.call.parts).flat_map(|part| &part.append.records);
    records.map(agent::journal::Record::kind)
}

/// Turns the records of a call into entries at their places.
fn fill(entries: &mut Vec<Arc<JournalEntry>>, call: Call, places: &[Place]) {
    let mut places = places.iter();
    for part in call.parts {
        let append = part.append;
        let (agent, at) = (append.agent, append.at);
        entries.extend(append.records.into_iter().zip(&mut places).map(|(record, place)| {
            let Place { sequence, number } = *place;
            Arc::new(JournalEntry { sequence, agent, agent_id: append.agent_id.clone(), agent_sequence: number, at, record })
        }));
    }
}
