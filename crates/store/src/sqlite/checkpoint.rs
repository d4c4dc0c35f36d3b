//! Checkpoints of the write-ahead log. A separate thread with its own connection copies most pages into the database,
//! so that no commit waits for it; the writer copies the few added meanwhile, after which SQLite reuses the WAL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME};

use super::database_file::DatabaseFile;
use super::disk_error::DiskError;

/// WAL size in pages that triggers a checkpoint.
const CHECKPOINT_PAGES: usize = 1000;
/// WAL size in pages that is logged as a warning: a reader holds its snapshot too long, or checkpoints fail.
const WARNING_PAGES: usize = (64 << 20) / PAGE_BYTES;
pub(super) const PAGE_BYTES: usize = 4096;

/// Handle to the checkpoint thread.
pub(super) struct Checkpointer {
    /// Dropped to stop the thread.
    requests: Option<Sender<()>>,
    results: Receiver<Result<(), DiskError>>,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    wal_size: WalSize,
}

/// The writer's next step of a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckpointAction {
    Nothing,
    /// Request a checkpoint from the thread.
    Start,
    /// Checkpoint the remaining pages.
    Finish,
    /// The thread's checkpoint failed.
    Failed(DiskError),
}

impl Checkpointer {
    /// Starts the thread, which checkpoints on its own connection, and observes the WAL size on the writer's. The
    /// thread syncs the database file itself: SQLite syncs it only when the whole WAL was copied, so the writer, which
    /// copies the rest, would wait for the sync of all pages.
    pub(super) fn start(
        writer: &mut Connection,
        checkpoint_db: Connection,
        file: Arc<DatabaseFile>,
    ) -> Result<Self, StartFault> {
        let wal_size = WalSize::observe(writer).map_err(StartFault::Sql)?;
        let (requests, request_receiver) = channel();
        let (result_sender, results) = channel();
        let serve = move || {
            while request_receiver.recv().is_ok() {
                let result = run_checkpoint(&checkpoint_db, CheckpointMode::PASSIVE).and_then(|_| {
                    let synced = file.sync_data();
                    synced
                        .map_err(|error| DiskError::Broken(format!("fsync of the database failed: {error}")))
                });
                if result_sender.send(result).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(StartFault::Io)?);
        Ok(Self { requests: Some(requests), results, thread, is_running: false, wal_size })
    }

    /// Returns what the writer has to do after a commit.
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
                CheckpointAction::Failed(DiskError::Broken("the checkpoint thread panicked".to_owned()))
            }
            Ok(result) => {
                self.is_running = false;
                match result {
                    Ok(()) => CheckpointAction::Finish,
                    Err(error) => CheckpointAction::Failed(error),
                }
            }
        }
    }

    /// Requests a checkpoint from the thread.
    pub(super) fn request(&mut self) {
        // If the thread is gone, `next_action` finds the result channel disconnected.
        let _ = self.requests.as_ref().map(|requests| requests.send(()));
        self.is_running = true;
    }

    /// Number of pages in the WAL after the writer's last commit; zero before the first.
    pub(super) fn wal_pages(&self) -> usize {
        self.wal_size.pages()
    }

    /// Records whether a checkpoint copied all pages.
    pub(super) fn record_result(&mut self, is_complete: bool) {
        self.wal_size.record_result(is_complete);
    }

    /// Stops the thread and joins it.
    pub(super) fn stop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the checkpoint thread must not become one of the writer.
            drop(thread.join());
        }
    }
}

/// Why the checkpoint thread cannot start.
pub(super) enum StartFault {
    Io(std::io::Error),
    Sql(rusqlite::Error),
}

/// Runs a checkpoint; returns whether it copied all pages.
pub(super) fn run_checkpoint(db: &Connection, mode: CheckpointMode) -> Result<bool, DiskError> {
    let (pages, copied) =
        db.wal_checkpoint_v2(DEFAULT_NAME, mode).map_err(|error| DiskError::classify(&error))?;
    Ok(copied >= pages)
}

/// Current size of the WAL, and the sizes of the next checkpoint and warning.
struct WalSize {
    pages: Arc<AtomicUsize>,
    next_checkpoint: usize,
    next_warning: usize,
}

impl WalSize {
    fn observe(db: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicUsize::new(0));
        let observed = Arc::clone(&pages);
        db.wal_hook(Some(move |_: &mut Wal, pages: std::ffi::c_int| {
            observed.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
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

    /// After an incomplete checkpoint, the next one is due when the WAL has grown by another `CHECKPOINT_PAGES`.
    fn record_result(&mut self, is_complete: bool) {
        let pages = self.pages();
        if is_complete {
            (self.next_checkpoint, self.next_warning) = (CHECKPOINT_PAGES, WARNING_PAGES);
            return;
        }
        self.next_checkpoint = pages + CHECKPOINT_PAGES;
        if pages >= self.next_warning {
            self.next_warning = pages * 2;
            let mebibytes = (pages * PAGE_BYTES) >> 20;
            tracing::warn!(
                mebibytes,
                "the write-ahead log grows: a long read transaction blocks the checkpoint"
            );
        }
    }
}
