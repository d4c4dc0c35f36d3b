//! Moves the pages of the write-ahead log into the database: most of it beside the writer, on a thread and a connection
//! of its own, so that no commit waits for it. The writer moves the few that came meanwhile; then the log begins anew.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME};

use super::trouble::Trouble;

/// Pages in the log after which they are moved.
const PAGES: usize = 1000;
/// A log larger than this is told of: somebody reads for too long, or the disk does not take it.
const PAGES_WARN: usize = (64 << 20) / PAGE_BYTES;
const PAGE_BYTES: usize = 4096;

/// Moves pages beside the writer.
pub(super) struct Checkpointer {
    /// None when it has to end.
    ask: Option<Sender<()>>,
    moved: Receiver<Result<(), Trouble>>,
    thread: Option<JoinHandle<()>>,
    is_asked: bool,
    size: LogSize,
}

/// What the writer has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Ask for most of the log to be moved.
    Most,
    /// Move the rest.
    Rest,
    /// Most of it was not moved.
    Failed(Trouble),
}

impl Checkpointer {
    /// Listens to the commits of the writer's connection, and has pages moved by the other one. The file is the
    /// database's own: SQLite forces it to the disk only when the whole log was moved, and then the writer would wait.
    pub(super) fn start(
        writer: &mut Connection,
        own: Connection,
        file: Arc<File>,
    ) -> Result<Self, StartFault> {
        let size = LogSize::of(writer).map_err(StartFault::Sql)?;
        let (ask, asked) = channel();
        let (tell, moved) = channel();
        let serve = move || {
            while asked.recv().is_ok() {
                let moved = move_pages(&own, CheckpointMode::PASSIVE).and_then(|_| {
                    let forced = file.sync_data();
                    forced.map_err(|error| {
                        Trouble::Broken(format!("the disk did not take the database: {error}"))
                    })
                });
                if tell.send(moved).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(StartFault::Io)?);
        Ok(Self { ask: Some(ask), moved, thread, is_asked: false, size })
    }

    /// What is to be done after a commit.
    pub(super) fn due(&mut self) -> Due {
        if !self.is_asked {
            return if self.size.is_due() { Due::Most } else { Due::Nothing };
        }
        match self.moved.try_recv() {
            Err(TryRecvError::Empty) => Due::Nothing,
            Err(TryRecvError::Disconnected) => {
                self.is_asked = false;
                Due::Failed(Trouble::Broken("the checkpointer has fallen".to_owned()))
            }
            Ok(moved) => {
                self.is_asked = false;
                match moved {
                    Ok(()) => Due::Rest,
                    Err(trouble) => Due::Failed(trouble),
                }
            }
        }
    }

    /// Has most of the log moved.
    pub(super) fn ask(&mut self) {
        // Whether it hears is found out by whoever waits for its answer.
        let _ = self.ask.as_ref().map(|ask| ask.send(()));
        self.is_asked = true;
    }

    /// Notes whether the log is empty now.
    pub(super) fn note(&mut self, is_all: bool) {
        self.size.note(is_all);
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // A panic there is no reason for one here.
            drop(thread.join());
        }
    }
}

/// Why it cannot start.
pub(super) enum StartFault {
    Io(std::io::Error),
    Sql(rusqlite::Error),
}

/// Moves what can be moved; whether that was everything.
pub(super) fn move_pages(db: &Connection, mode: CheckpointMode) -> Result<bool, Trouble> {
    let (pages, moved) = db.wal_checkpoint_v2(DEFAULT_NAME, mode).map_err(|error| Trouble::of(&error))?;
    Ok(moved >= pages)
}

/// How large the log is, and what was done about it.
struct LogSize {
    pages: Arc<AtomicUsize>,
    next_checkpoint: usize,
    next_warning: usize,
}

impl LogSize {
    fn of(db: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&pages);
        db.wal_hook(Some(move |_: &mut Wal, pages: std::ffi::c_int| {
            heard.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, next_checkpoint: PAGES, next_warning: PAGES_WARN })
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    fn is_due(&self) -> bool {
        self.pages() >= self.next_checkpoint
    }

    /// A log that could not be emptied is tried again when it has grown by as much.
    fn note(&mut self, is_all: bool) {
        let pages = self.pages();
        if is_all {
            (self.next_checkpoint, self.next_warning) = (PAGES, PAGES_WARN);
            return;
        }
        self.next_checkpoint = pages + PAGES;
        if pages >= self.next_warning {
            self.next_warning = pages * 2;
            let mebibytes = (pages * PAGE_BYTES) >> 20;
            tracing::warn!(mebibytes, "the write-ahead log grows: a reader keeps it from being emptied");
        }
    }
}
