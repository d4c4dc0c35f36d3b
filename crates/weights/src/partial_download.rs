//! The file that grows: weights on their way, summed up while they are written, with a journal of what is safe.
//! Blocking; whoever feeds it runs it on a thread of its own.

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

/// How much is read at once.
const BLOCK_BYTES: usize = 1 << 17;

/// Where the part of a model is.
#[derive(Debug, Clone)]
pub(crate) struct PartialDownloadPaths {
    pub(crate) folder: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) resume_state: PathBuf,
    /// For as long as anybody writes: also a thread that outlives the pull it worked for.
    pub(crate) _lock: Arc<Lock>,
}

/// What others may see of a part while a thread works on it, and how they end that.
#[derive(Debug, Default)]
pub(crate) struct WorkMonitor {
    pub(crate) bytes: AtomicU64,
    pub(crate) cancel: CancellationToken,
}

/// Weights on their way.
pub(crate) struct PartialDownload {
    paths: PartialDownloadPaths,
    file: File,
    hasher: ChecksumHasher,
    bytes: u64,
    sync_every_bytes: u64,
    pub(crate) resume_state: ResumeState,
}

impl PartialDownload {
    /// Goes on from what the journal says is safe, or begins anew when it tells of another source.
    pub(crate) fn open(
        paths: PartialDownloadPaths,
        source: &str,
        keep_every_bytes: u64,
        watch: &WorkMonitor,
    ) -> Result<Self, FetchFault> {
        let begun: Option<ResumeState> = manifest::read_json(&paths.resume_state);
        let begun = begun.filter(|journal| journal.source == source);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&paths.data);
        let file = open.map_err(WeightsFault::file("write", &paths.data))?;
        let fresh = || ResumeState { source: source.to_owned(), ..ResumeState::default() };
        let mut part = Self {
            paths,
            file,
            hasher: ChecksumHasher::default(),
            bytes: 0,
            sync_every_bytes: keep_every_bytes,
            resume_state: fresh(),
        };
        let length = part.file.metadata().map_err(part.io_fault("read"))?.len();
        match begun {
            Some(journal) if journal.synced_bytes > 0 && journal.synced_bytes <= length => {
                part.resume_state = journal;
                part.rehash(watch)?;
            }
            _ => part.restart()?,
        }
        Ok(part)
    }

    /// Throws away what is there.
    pub(crate) fn restart(&mut self) -> Result<(), FetchFault> {
        self.resume_state =
            ResumeState { source: std::mem::take(&mut self.resume_state.source), ..ResumeState::default() };
        self.rewind_to_synced()
    }

    /// Throws away what came after the last time that something was made safe, and sums the rest up again.
    fn rewind_to_synced(&mut self) -> Result<(), FetchFault> {
        self.rehash(&WorkMonitor::default())?;
        manifest::write_json_atomic(&self.paths.resume_state, &self.resume_state).map_err(FetchFault::from)
    }

    fn rehash(&mut self, watch: &WorkMonitor) -> Result<(), FetchFault> {
        let kept_bytes = self.resume_state.synced_bytes;
        self.hasher = ChecksumHasher::default();
        self.bytes = 0;
        let back = self.file.set_len(kept_bytes).and_then(|()| self.file.rewind());
        back.map_err(self.io_fault("write"))?;
        let mut block = vec![0; BLOCK_BYTES];
        while self.bytes < kept_bytes {
            if watch.cancel.is_cancelled() {
                return Err(FetchFault::Cancelled);
            }
            let read = self.file.read(&mut block).map_err(self.io_fault("read"))?;
            if read == 0 {
                break;
            }
            self.hasher.update(&block[..read]);
            self.bytes += read as u64;
            watch.bytes.store(self.bytes, Ordering::Relaxed);
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

    /// Makes safe what has come, when it is worth it.
    pub(crate) fn sync_if_due(&mut self) -> Result<(), FetchFault> {
        if self.bytes - self.resume_state.synced_bytes < self.sync_every_bytes {
            return Ok(());
        }
        self.sync()
    }

    /// Makes safe what has come: the next pull goes on from here, also after a power cut.
    pub(crate) fn sync(&mut self) -> Result<(), FetchFault> {
        self.file.sync_data().map_err(self.io_fault("write"))?;
        self.resume_state.synced_bytes = self.bytes;
        manifest::write_json_atomic(&self.paths.resume_state, &self.resume_state)?;
        Ok(())
    }

    /// When it was last written to; moving it does not change that.
    pub(crate) fn modified_ns(&self) -> Result<Option<i64>, FetchFault> {
        self.file.metadata().map(|metadata| manifest::modified_ns(&metadata)).map_err(self.io_fault("read"))
    }

    /// Copies from a reader, and refuses more than `limit_bytes`; gives how many came.
    pub(crate) fn copy_from(
        &mut self,
        from: &mut dyn Read,
        limit_bytes: u64,
        watch: &WorkMonitor,
    ) -> Result<u64, FetchFault> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut came = 0_u64;
        loop {
            if watch.cancel.is_cancelled() {
                return Err(FetchFault::Cancelled);
            }
            let read = match from.read(&mut block) {
                Ok(0) => return Ok(came),
                Ok(read) => read,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
                Err(fault) => return Err(FetchFault::source_failed(format!("it cannot be read: {fault}"))),
            };
            came += read as u64;
            if came > limit_bytes {
                return Err(FetchFault::ContentMismatch(format!(
                    "it holds more than the {limit_bytes} bytes it should"
                )));
            }
            self.write(&block[..read])?;
            watch.bytes.store(self.bytes, Ordering::Relaxed);
        }
    }

    /// Whether the file begins like this.
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

    /// Makes it lasting and moves it to its place.
    pub(crate) fn install_as(self, place: &std::path::Path) -> Result<(), FetchFault> {
        self.file.sync_all().map_err(self.io_fault("write"))?;
        fs::rename(&self.paths.data, place).map_err(WeightsFault::file("write", place))?;
        manifest::sync_folder(&self.paths.folder)?;
        manifest::remove_if_exists(&self.paths.resume_state)?;
        Ok(())
    }

    /// Leaves it to the next pull: what is safe stays, the rest gives its room back.
    pub(crate) fn suspend(self) -> Result<(), FetchFault> {
        if self.resume_state.synced_bytes == 0 {
            return self.discard();
        }
        self.file.set_len(self.resume_state.synced_bytes).map_err(self.io_fault("write"))
    }

    /// Removes it: what came is not what was wanted.
    pub(crate) fn discard(self) -> Result<(), FetchFault> {
        manifest::remove_if_exists(&self.paths.resume_state)?;
        manifest::remove_if_exists(&self.paths.data)?;
        Ok(())
    }

    /// Says a full disk as such.
    fn io_fault(&self, what: &'static str) -> impl Fn(io::Error) -> FetchFault + use<> {
        let (path, folder) = (self.paths.data.clone(), self.paths.folder.clone());
        let rest = self.resume_state.total_bytes.map(|total| total.saturating_sub(self.bytes));
        let needed_bytes = rest.unwrap_or(BLOCK_BYTES as u64);
        move |fault| {
            let full = matches!(fault.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            FetchFault::Local(match full {
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
