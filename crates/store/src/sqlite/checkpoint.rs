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

use super::disk_error::DiskError;

/// Pages in the log after which they are moved.
const CHECKPOINT_PAGES: usize = 1000;
/// A log larger than this is told of: somebody reads for too long, or the disk does not take it.
const WARNING_PAGES: usize = (64 << 20) / PAGE_BYTES;
const PAGE_BYTES: usize = 4096;

/// Moves pages beside the writer.
pub(super) struct Checkpointer {
    /// None when it has to end.
    requests: Option<Sender<()>>,
    results: Receiver<Result<(), DiskError>>,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    wal_size: WalSize,
}

/// What the writer has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckpointAction {
    Nothing,
    /// Ask for most of the log to be moved.
    Start,
    /// Move the rest.
    Finish,
    /// Most of it was not moved.
    Failed(DiskError),
}

impl Checkpointer {
    /// Listens to the commits of the writer's connection, and has pages moved by the other one. The file is the
    /// database's own: SQLite forces it to the disk only when the whole log was moved, and then the writer would wait.
    pub(super) fn start(
        writer: &mut Connection,
        own: Connection,
        file: Arc<File>,
    ) -> Result<Self, StartFault> {
        let size = WalSize::observe(writer).map_err(StartFault::Sql)?;
        let (ask, asked) = channel();
        let (tell, moved) = channel();
        let serve = move || {
            while asked.recv().is_ok() {
                let moved = run_checkpoint(&own, CheckpointMode::PASSIVE).and_then(|_| {
                    let forced = file.sync_data();
                    forced.map_err(|error| {
                        DiskError::Broken(format!("the disk did not take the database: {error}"))
                    })
                });
                if tell.send(moved).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(StartFault::Io)?);
        Ok(Self { requests: Some(ask), results: moved, thread, is_running: false, wal_size: size })
    }

    /// What is to be done after a commit.
    pub(super) fn next_action(&mut self) -> CheckpointAction {
        if !self.is_running {
            return if self.wal_size.is_checkpoint_due() {
                CheckpointAction::Start
            } else {
                CheckpointAction::Nothing
            };
        }
        match self.results.try_recv() {
            Err(TryRecvError::Empty) => CheckpointAction::Nothing,
            Err(TryRecvError::Disconnected) => {
                self.is_running = false;
                CheckpointAction::Failed(DiskError::Broken("the checkpointer has fallen".to_owned()))
            }
            Ok(moved) => {
                self.is_running = false;
                match moved {
                    Ok(()) => CheckpointAction::Finish,
                    Err(trouble) => CheckpointAction::Failed(trouble),
                }
            }
        }
    }

    /// Has most of the log moved.
    pub(super) fn request(&mut self) {
        // Whether it hears is found out by whoever waits for its answer.
        let _ = self.requests.as_ref().map(|ask| ask.send(()));
        self.is_running = true;
    }

    /// Notes whether the log is empty now.
    pub(super) fn record_result(&mut self, is_all: bool) {
        self.wal_size.record_result(is_all);
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.requests = None;
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
pub(super) fn run_checkpoint(db: &Connection, mode: CheckpointMode) -> Result<bool, DiskError> {
    let (pages, moved) =
        db.wal_checkpoint_v2(DEFAULT_NAME, mode).map_err(|error| DiskError::classify(&error))?;
    Ok(moved >= pages)
}

/// How large the log is, and what was done about it.
struct WalSize {
    pages: Arc<AtomicUsize>,
    next_checkpoint: usize,
    next_warning: usize,
}

impl WalSize {
    fn observe(db: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&pages);
        db.wal_hook(Some(move |_: &mut Wal, pages: std::ffi::c_int| {
            heard.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, next_checkpoint: CHECKPOINT_PAGES, next_warning: WARNING_PAGES })
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    fn is_checkpoint_due(&self) -> bool {
        self.pages() >= self.next_checkpoint
    }

    /// A log that could not be emptied is tried again when it has grown by as much.
    fn record_result(&mut self, is_all: bool) {
        let pages = self.pages();
        if is_all {
            (self.next_checkpoint, self.next_warning) = (CHECKPOINT_PAGES, WARNING_PAGES);
            return;
        }
        self.next_checkpoint = pages + CHECKPOINT_PAGES;
        if pages >= self.next_warning {
            self.next_warning = pages * 2;
            let mebibytes = (pages * PAGE_BYTES) >> 20;
            tracing::warn!(mebibytes, "the write-ahead log grows: a reader keeps it from being emptied");
        }
    }
}
