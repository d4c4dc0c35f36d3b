//! The file that grows: weights on their way, summed up while they are written, with a journal of what is safe.
//! Blocking; whoever feeds it runs it on a thread of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::fault::{FetchFault, WeightsFault};
use crate::lock::Lock;
use crate::record::{self, Journal};
use crate::space;
use crate::sum::{Sum, Summing};

/// How much is read at once.
const BLOCK_BYTES: usize = 1 << 17;

/// Where the part of a model is.
#[derive(Debug, Clone)]
pub(crate) struct PartPaths {
    pub(crate) folder: PathBuf,
    pub(crate) part: PathBuf,
    pub(crate) journal: PathBuf,
    /// For as long as anybody writes: also a thread that outlives the pull it worked for.
    pub(crate) _lock: Arc<Lock>,
}

/// What others may see of a part while a thread works on it, and how they end that.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) bytes: AtomicU64,
    pub(crate) cancel: CancellationToken,
}

/// Weights on their way.
pub(crate) struct Part {
    paths: PartPaths,
    file: File,
    summing: Summing,
    bytes: u64,
    keep_every_bytes: u64,
    pub(crate) journal: Journal,
}

impl Part {
    /// Goes on from what the journal says is safe, or begins anew when it tells of another source.
    pub(crate) fn open(
        paths: PartPaths,
        source: &str,
        keep_every_bytes: u64,
        watch: &Watch,
    ) -> Result<Self, FetchFault> {
        let begun: Option<Journal> = record::read(&paths.journal);
        let begun = begun.filter(|journal| journal.source == source);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&paths.part);
        let file = open.map_err(WeightsFault::file("write", &paths.part))?;
        let fresh = || Journal { source: source.to_owned(), ..Journal::default() };
        let mut part =
            Self { paths, file, summing: Summing::default(), bytes: 0, keep_every_bytes, journal: fresh() };
        let length = part.file.metadata().map_err(part.cannot("read"))?.len();
        match begun {
            Some(journal) if journal.kept_bytes > 0 && journal.kept_bytes <= length => {
                part.journal = journal;
                part.reread(watch)?;
            }
            _ => part.begin_again()?,
        }
        Ok(part)
    }

    /// Throws away what is there.
    pub(crate) fn begin_again(&mut self) -> Result<(), FetchFault> {
        self.journal = Journal { source: std::mem::take(&mut self.journal.source), ..Journal::default() };
        self.back_to_kept()
    }

    /// Throws away what came after the last time that something was made safe, and sums the rest up again.
    fn back_to_kept(&mut self) -> Result<(), FetchFault> {
        self.reread(&Watch::default())?;
        record::write(&self.paths.journal, &self.journal).map_err(FetchFault::from)
    }

    fn reread(&mut self, watch: &Watch) -> Result<(), FetchFault> {
        let kept_bytes = self.journal.kept_bytes;
        self.summing = Summing::default();
        self.bytes = 0;
        let back = self.file.set_len(kept_bytes).and_then(|()| self.file.rewind());
        back.map_err(self.cannot("write"))?;
        let mut block = vec![0; BLOCK_BYTES];
        while self.bytes < kept_bytes {
            if watch.cancel.is_cancelled() {
                return Err(FetchFault::Cancelled);
            }
            let read = self.file.read(&mut block).map_err(self.cannot("read"))?;
            if read == 0 {
                break;
            }
            self.summing.add(&block[..read]);
            self.bytes += read as u64;
            watch.bytes.store(self.bytes, Ordering::Relaxed);
        }
        self.file.seek(SeekFrom::Start(self.bytes)).map_err(self.cannot("read"))?;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn sum(&self) -> Sum {
        self.summing.sum()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FetchFault> {
        self.file.write_all(bytes).map_err(self.cannot("write"))?;
        self.summing.add(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes safe what has come, when it is worth it.
    pub(crate) fn keep_now_and_then(&mut self) -> Result<(), FetchFault> {
        if self.bytes - self.journal.kept_bytes < self.keep_every_bytes {
            return Ok(());
        }
        self.keep()
    }

    /// Makes safe what has come: the next pull goes on from here, also after a power cut.
    pub(crate) fn keep(&mut self) -> Result<(), FetchFault> {
        self.file.sync_data().map_err(self.cannot("write"))?;
        self.journal.kept_bytes = self.bytes;
        record::write(&self.paths.journal, &self.journal)?;
        Ok(())
    }

    /// When it was last written to; moving it does not change that.
    pub(crate) fn written_ns(&self) -> Result<Option<i64>, FetchFault> {
        self.file.metadata().map(|metadata| record::written_ns(&metadata)).map_err(self.cannot("read"))
    }

    /// Copies from a reader, and refuses more than `limit_bytes`; gives how many came.
    pub(crate) fn fill(
        &mut self,
        from: &mut dyn Read,
        limit_bytes: u64,
        watch: &Watch,
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
                Err(fault) => return Err(FetchFault::source(format!("it cannot be read: {fault}"))),
            };
            came += read as u64;
            if came > limit_bytes {
                return Err(FetchFault::Wrong(format!(
                    "it holds more than the {limit_bytes} bytes it should"
                )));
            }
            self.write(&block[..read])?;
            watch.bytes.store(self.bytes, Ordering::Relaxed);
        }
    }

    /// Whether the file begins like this.
    pub(crate) fn begins_with(&mut self, magic: &[u8]) -> Result<bool, FetchFault> {
        let mut first = Vec::new();
        let read = self.file.rewind().and_then(|()| {
            let mut file = &self.file;
            Read::by_ref(&mut file).take(magic.len() as u64).read_to_end(&mut first)
        });
        read.map_err(self.cannot("read"))?;
        self.file.seek(SeekFrom::Start(self.bytes)).map_err(self.cannot("read"))?;
        Ok(first == magic)
    }

    /// Makes it lasting and moves it to its place.
    pub(crate) fn settle(self, place: &std::path::Path) -> Result<(), FetchFault> {
        self.file.sync_all().map_err(self.cannot("write"))?;
        fs::rename(&self.paths.part, place).map_err(WeightsFault::file("write", place))?;
        record::sync_folder(&self.paths.folder)?;
        record::remove(&self.paths.journal)?;
        Ok(())
    }

    /// Leaves it to the next pull: what is safe stays, the rest gives its room back.
    pub(crate) fn leave(self) -> Result<(), FetchFault> {
        if self.journal.kept_bytes == 0 {
            return self.discard();
        }
        self.file.set_len(self.journal.kept_bytes).map_err(self.cannot("write"))
    }

    /// Removes it: what came is not what was wanted.
    pub(crate) fn discard(self) -> Result<(), FetchFault> {
        record::remove(&self.paths.journal)?;
        record::remove(&self.paths.part)?;
        Ok(())
    }

    /// Says a full disk as such.
    fn cannot(&self, what: &'static str) -> impl Fn(io::Error) -> FetchFault + use<> {
        let (path, folder) = (self.paths.part.clone(), self.paths.folder.clone());
        let rest = self.journal.total_bytes.map(|total| total.saturating_sub(self.bytes));
        let needed_bytes = rest.unwrap_or(BLOCK_BYTES as u64);
        move |fault| {
            let full = matches!(fault.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            FetchFault::Here(match full {
                true => WeightsFault::DiskFull {
                    free_bytes: space::free(&folder).unwrap_or_default(),
                    path: folder.clone(),
                    needed_bytes,
                },
                false => WeightsFault::file(what, &path)(fault),
            })
        }
    }
}
