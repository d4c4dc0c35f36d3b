//! Partial download: a file that is hashed while it is written, with a resume state that records the fsynced length.
//! All operations block; callers run them on blocking threads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::checksum::{Checksum, ChecksumHasher};
use crate::disk_space;
use crate::fault::{FetchFault, WeightsFault};
use crate::lock::Lock;
use crate::manifest::{self, ResumeState};

/// Size of the read buffer.
const BLOCK_BYTES: usize = 1 << 17;

/// Paths of a partial download.
#[derive(Debug, Clone)]
pub(crate) struct PartialDownloadPaths {
    pub(crate) folder: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) resume_state: PathBuf,
    /// Held while any thread writes, also one that outlives its pull.
    pub(crate) _lock: Arc<Lock>,
}

/// Progress and cancellation of a thread that works on a partial download.
#[derive(Debug, Default)]
pub(crate) struct WorkMonitor {
    pub(crate) bytes: AtomicU64,
    pub(crate) cancel: CancellationToken,
}

/// A partial download that is open for writing.
pub(crate) struct PartialDownload {
    paths: PartialDownloadPaths,
    file: File,
    hasher: ChecksumHasher,
    bytes: u64,
    sync_every_bytes: u64,
    pub(crate) resume_state: ResumeState,
}

impl PartialDownload {
    /// Opens the partial file and resumes at its fsynced length; starts anew if it belongs to another source.
    pub(crate) fn open(
        paths: PartialDownloadPaths,
        source: &str,
        sync_every_bytes: u64,
        monitor: &WorkMonitor,
    ) -> Result<Self, FetchFault> {
        let stored_state: Option<ResumeState> = manifest::read_json(&paths.resume_state);
        let stored_state = stored_state.filter(|resume_state| resume_state.source == source);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&paths.data);
        let file = open.map_err(WeightsFault::file("write", &paths.data))?;
        let initial_state = || ResumeState { source: source.to_owned(), ..ResumeState::default() };
        let mut partial = Self {
            paths,
            file,
            hasher: ChecksumHasher::default(),
            bytes: 0,
            sync_every_bytes,
            resume_state: initial_state(),
        };
        let length = partial.file.metadata().map_err(partial.io_fault("read"))?.len();
        match stored_state {
            Some(resume_state) if resume_state.synced_bytes > 0 && resume_state.synced_bytes <= length => {
                partial.resume_state = resume_state;
                partial.rehash(monitor)?;
            }
            _ => partial.restart()?,
        }
        Ok(partial)
    }

    /// Discards the content and starts anew.
    pub(crate) fn restart(&mut self) -> Result<(), FetchFault> {
        self.resume_state =
            ResumeState { source: std::mem::take(&mut self.resume_state.source), ..ResumeState::default() };
        self.rewind_to_synced()
    }

    /// Discards the bytes after the last fsync and rehashes the remaining ones.
    fn rewind_to_synced(&mut self) -> Result<(), FetchFault> {
        self.rehash(&WorkMonitor::default())?;
        manifest::write_json_atomic(&self.paths.resume_state, &self.resume_state).map_err(FetchFault::from)
    }

    fn rehash(&mut self, monitor: &WorkMonitor) -> Result<(), FetchFault> {
        let synced_bytes = self.resume_state.synced_bytes;
        self.hasher = ChecksumHasher::default();
        self.bytes = 0;
        let truncated = self.file.set_len(synced_bytes).and_then(|()| self.file.rewind());
        truncated.map_err(self.io_fault("write"))?;
        let mut block = vec![0; BLOCK_BYTES];
        while self.bytes < synced_bytes {
            if monitor.cancel.is_cancelled() {
                return Err(FetchFault::Cancelled);
            }
            let read = self.file.read(&mut block).map_err(self.io_fault("read"))?;
            if read == 0 {
                break;
            }
            self.hasher.update(&block[..read]);
            self.bytes += read as u64;
            monitor.bytes.store(self.bytes, Ordering::Relaxed);
        }
        self.file.seek(SeekFrom::Start(self.bytes)).map_err(self.io_fault("read"))?;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn checksum(&self) -> Checksum {
        self.hasher.checksum()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FetchFault> {
        self.file.write_all(bytes).map_err(self.io_fault("write"))?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Syncs if enough bytes were written since the last sync.
    pub(crate) fn sync_if_due(&mut self) -> Result<(), FetchFault> {
        if self.bytes - self.resume_state.synced_bytes < self.sync_every_bytes {
            return Ok(());
        }
        self.sync()
    }

    /// Fsyncs the file and stores the resume state: the next pull resumes here, even after a power failure.
    pub(crate) fn sync(&mut self) -> Result<(), FetchFault> {
        self.file.sync_data().map_err(self.io_fault("write"))?;
        self.resume_state.synced_bytes = self.bytes;
        manifest::write_json_atomic(&self.paths.resume_state, &self.resume_state)?;
        Ok(())
    }

    /// Returns the modification time, which a rename does not change.
    pub(crate) fn modified_ns(&self) -> Result<Option<i64>, FetchFault> {
        self.file.metadata().map(|metadata| manifest::modified_ns(&metadata)).map_err(self.io_fault("read"))
    }

    /// Appends from a reader, which must not yield more than `limit_bytes`; returns the number of copied bytes.
    pub(crate) fn copy_from(
        &mut self,
        from: &mut dyn Read,
        limit_bytes: u64,
        monitor: &WorkMonitor,
    ) -> Result<u64, FetchFault> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut copied_bytes = 0_u64;
        loop {
            if monitor.cancel.is_cancelled() {
                return Err(FetchFault::Cancelled);
            }
            let read = match from.read(&mut block) {
                Ok(0) => return Ok(copied_bytes),
                Ok(read) => read,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
                Err(fault) => return Err(FetchFault::source_failed(format!("it cannot be read: {fault}"))),
            };
            copied_bytes += read as u64;
            if copied_bytes > limit_bytes {
                return Err(FetchFault::ContentMismatch(format!(
                    "it is larger than the expected {limit_bytes} bytes"
                )));
            }
            self.write(&block[..read])?;
            monitor.bytes.store(self.bytes, Ordering::Relaxed);
        }
    }

    /// Whether the file starts with these bytes.
    pub(crate) fn starts_with(&mut self, magic: &[u8]) -> Result<bool, FetchFault> {
        let mut first = Vec::new();
        let read = self.file.rewind().and_then(|()| {
            let mut file = &self.file;
            Read::by_ref(&mut file).take(magic.len() as u64).read_to_end(&mut first)
        });
        read.map_err(self.io_fault("read"))?;
        self.file.seek(SeekFrom::Start(self.bytes)).map_err(self.io_fault("read"))?;
        Ok(first == magic)
    }

    /// Fsyncs the file and renames it to its final path.
    pub(crate) fn install_as(self, path: &std::path::Path) -> Result<(), FetchFault> {
        self.file.sync_all().map_err(self.io_fault("write"))?;
        fs::rename(&self.paths.data, path).map_err(WeightsFault::file("write", path))?;
        manifest::sync_folder(&self.paths.folder)?;
        manifest::remove_if_exists(&self.paths.resume_state)?;
        Ok(())
    }

    /// Truncates the file to its fsynced length, for the next pull to resume; removes it if nothing was fsynced.
    pub(crate) fn suspend(self) -> Result<(), FetchFault> {
        if self.resume_state.synced_bytes == 0 {
            return self.discard();
        }
        self.file.set_len(self.resume_state.synced_bytes).map_err(self.io_fault("write"))
    }

    /// Removes the file and its resume state.
    pub(crate) fn discard(self) -> Result<(), FetchFault> {
        manifest::remove_if_exists(&self.paths.resume_state)?;
        manifest::remove_if_exists(&self.paths.data)?;
        Ok(())
    }

    /// Converts an I/O error, with a full disk as `DiskFull`.
    fn io_fault(&self, what: &'static str) -> impl Fn(io::Error) -> FetchFault + use<> {
        let (path, folder) = (self.paths.data.clone(), self.paths.folder.clone());
        let remaining_bytes = self.resume_state.total_bytes.map(|total| total.saturating_sub(self.bytes));
        let needed_bytes = remaining_bytes.unwrap_or(BLOCK_BYTES as u64);
        move |fault| {
            let is_full = matches!(fault.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            FetchFault::Local(match is_full {
                true => WeightsFault::DiskFull {
                    free_bytes: disk_space::available_bytes(&folder).unwrap_or_default(),
                    path: folder.clone(),
                    needed_bytes,
                },
                false => WeightsFault::file(what, &path)(fault),
            })
        }
    }
}
