//! The folder of weights: what is there, what has begun to come, and the changes to it. A file is under its name only
//! when it is whole and its sum is right.

#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{CatalogEntry, ModelKind};
use crate::checksum::{Checksum, ChecksumHasher};
use crate::fault::{FailedAttempt, FetchFault, WeightsFault};
use crate::fetch::{self, Job};
use crate::lock::Lock;
use crate::manifest::{self, Manifest, ResumeState};
use crate::model_id::ModelId;
use crate::options::PullOptions;
use crate::partial_download::{PartialDownload, PartialDownloadPaths};
use crate::progress::{PullProgress, PullStep, Reporter};
use crate::source::DownloadSource;

/// The folder of weights.
#[derive(Debug, Clone)]
pub struct ModelDirectory {
    folder: PathBuf,
}

/// Weights that are to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSpec {
    /// Their name on the shelf.
    pub id: ModelId,
    /// Chat or embedder.
    pub kind: ModelKind,
    /// The size, when known.
    pub bytes: Option<u64>,
    /// The sum, when known.
    pub checksum: Option<Checksum>,
    /// The licence, when known.
    pub licence: Option<String>,
    /// Where they may come from, the first that works.
    pub sources: Vec<DownloadSource>,
}

impl PullSpec {
    /// What a user names: any source, under a name of its own or one made of the file's.
    ///
    /// # Errors
    /// When the file is of no kind that we know, or gives no name.
    pub fn from_source(
        source: DownloadSource,
        name: Option<&str>,
        sum: Option<Checksum>,
    ) -> Result<Self, WeightsFault> {
        let file = source.file_name();
        let kind = ModelKind::from_file_name(&file).ok_or_else(|| WeightsFault::InvalidSource {
            text: source.to_string(),
            why: "its file must end in .gguf (a chat model) or .onnx (an embedder)",
        })?;
        let id = name.map_or_else(|| ModelId::from_file_name(&file), str::parse)?;
        Ok(Self { id, kind, bytes: None, checksum: sum, licence: None, sources: vec![source] })
    }

    /// A model of the catalog, from this file only.
    #[must_use]
    pub fn from_file(entry: &CatalogEntry, file: PathBuf) -> Self {
        Self { sources: vec![DownloadSource::File(file)], ..Self::from(entry) }
    }
}

impl From<&CatalogEntry> for PullSpec {
    fn from(entry: &CatalogEntry) -> Self {
        Self {
            id: entry.id.clone(),
            kind: entry.kind,
            bytes: Some(entry.bytes),
            checksum: Some(entry.checksum),
            licence: Some(entry.licence.to_owned()),
            sources: entry.sources.clone(),
        }
    }
}

/// Weights that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModel {
    /// Their name.
    pub id: ModelId,
    /// Chat or embedder.
    pub kind: ModelKind,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its sum when it was pulled.
    pub checksum: Checksum,
    /// Where it came from.
    pub source: String,
    /// Its licence, when known.
    pub licence: Option<String>,
    /// When it was pulled, as `2026-01-31T10:30:00Z`.
    pub pulled_at: String,
}

/// One thing on the shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEntry {
    /// Whole.
    Ready(InstalledModel),
    /// On its way; the next pull goes on from here.
    Partial {
        /// Its name.
        id: ModelId,
        /// What is there of it.
        synced_bytes: u64,
        /// The size of the whole, when known.
        total_bytes: Option<u64>,
        /// Where it comes from.
        source: String,
    },
    /// Not as it was pulled.
    Broken {
        /// Its name.
        id: ModelId,
        /// What is wrong.
        why: String,
    },
}

impl ModelEntry {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &ModelId {
        match self {
            Self::Ready(pulled) => &pulled.id,
            Self::Partial { id, .. } | Self::Broken { id, .. } => id,
        }
    }
}

impl ModelDirectory {
    /// Opens the folder, and makes it, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made or closed to others.
    pub fn open(folder: &Path) -> Result<Self, WeightsFault> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(WeightsFault::file("make", folder))?;
        let metadata = fs::metadata(folder).map_err(WeightsFault::file("read", folder))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let closed = fs::set_permissions(folder, Permissions::from_mode(0o700));
            closed.map_err(WeightsFault::file("close to others", folder))?;
        }
        Ok(Self::at(folder))
    }

    /// The folder as it is, made by nobody: for looking only.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Everything that is there, sorted by name.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<ModelEntry>, WeightsFault> {
        let entries = match fs::read_dir(&self.folder) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(WeightsFault::file("read", &self.folder))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter_map(|name| {
            let stem = name.strip_suffix(".part.json").or_else(|| name.strip_suffix(".json"))?;
            stem.parse::<ModelId>().ok()
        });
        let ids: std::collections::BTreeSet<ModelId> = ids.collect();
        Ok(ids.into_iter().filter_map(|id| self.entry(&id)).collect())
    }

    /// The weights of this name, when they are whole.
    #[must_use]
    pub fn find(&self, id: &ModelId) -> Option<InstalledModel> {
        match self.entry(id) {
            Some(ModelEntry::Ready(pulled)) => Some(pulled),
            _ => None,
        }
    }

    /// What is there under this name.
    #[must_use]
    pub fn entry(&self, id: &ModelId) -> Option<ModelEntry> {
        let record: Option<Manifest> = manifest::read_json(&self.file_path(id, "json"));
        if let Some(pulled) = record.as_ref().and_then(|record| self.check_installed(id, record)) {
            return Some(ModelEntry::Ready(pulled));
        }
        let journal: Option<ResumeState> = manifest::read_json(&self.file_path(id, "part.json"));
        if let Some(journal) = journal.filter(|_| self.file_path(id, "part").is_file()) {
            let ResumeState { source, synced_bytes: kept_bytes, total_bytes, .. } = journal;
            return Some(ModelEntry::Partial {
                id: id.clone(),
                synced_bytes: kept_bytes,
                total_bytes,
                source,
            });
        }
        let why = match record {
            Some(record) => format!("{} is missing or has another size", record.file),
            None if self.file_path(id, "json").exists() => "its record cannot be read".to_owned(),
            None => return None,
        };
        Some(ModelEntry::Broken { id: id.clone(), why })
    }

    fn check_installed(&self, id: &ModelId, record: &Manifest) -> Option<InstalledModel> {
        let kind = ModelKind::from_file_name(&record.file)?;
        let path = self.file_path(id, kind.extension());
        // A record names the file beside it and no other.
        let same_name = path.file_name().is_some_and(|name| *name == *record.file);
        let metadata = fs::metadata(&path).ok()?;
        if !same_name || !metadata.is_file() || metadata.len() != record.bytes {
            return None;
        }
        Some(InstalledModel {
            id: id.clone(),
            kind,
            path,
            bytes: record.bytes,
            checksum: record.sha256,
            source: record.source.clone(),
            licence: record.licence.clone(),
            pulled_at: record.pulled_at.clone(),
        })
    }

    fn file_path(&self, id: &ModelId, ending: &str) -> PathBuf {
        self.folder.join(format!("{id}.{ending}"))
    }

    /// Brings weights from the first source that works, and tells how far it is. What is there already is kept: a pull
    /// that ended in the middle goes on, one that is done comes back at once.
    ///
    /// # Errors
    /// When every source fails, the disk is full, somebody else is at it, or the caller ends it.
    pub async fn pull(
        &self,
        wanted: &PullSpec,
        options: &PullOptions,
        progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<InstalledModel, WeightsFault> {
        let lock = Arc::new(Lock::acquire(&self.file_path(&wanted.id, "lock"), &wanted.id)?);
        match self.find(&wanted.id) {
            Some(there) if wanted.checksum == Some(there.checksum) => {
                let (shelf, path) = (self.clone(), there.path.clone());
                let checking = tokio::task::spawn_blocking(move || shelf.check(&path));
                checking.await.map_err(|_| WeightsFault::TaskFailed(there.id.clone()))??;
                return Ok(there);
            }
            Some(there) => return Err(WeightsFault::NameTaken { id: there.id, checksum: there.checksum }),
            None => {}
        }
        let mut reporter = Reporter::new(progress, wanted.bytes);
        let mut attempts = Vec::new();
        for source in self.sources_in_order(wanted) {
            reporter.start_source(source.to_string());
            match self.pull_from(source, wanted, options, &lock, &mut reporter).await {
                Ok(pulled) => return Ok(pulled),
                Err(FetchFault::Local(fault)) => return Err(fault),
                Err(FetchFault::Cancelled) => return Err(WeightsFault::Cancelled(wanted.id.clone())),
                Err(FetchFault::SourceFailed(why) | FetchFault::ContentMismatch(why)) => {
                    let source = source.to_string();
                    reporter.report_step(PullStep::Failed { source: source.clone(), why: why.clone() });
                    attempts.push(FailedAttempt { source, why });
                }
            }
        }
        Err(WeightsFault::AllFailed { id: wanted.id.clone(), attempts })
    }

    /// The source that an earlier pull began with comes first.
    fn sources_in_order<'w>(&self, wanted: &'w PullSpec) -> Vec<&'w DownloadSource> {
        let journal: Option<ResumeState> = manifest::read_json(&self.file_path(&wanted.id, "part.json"));
        let begun = journal.filter(|journal| journal.synced_bytes > 0).map(|journal| journal.source);
        let mut sources: Vec<&DownloadSource> = wanted.sources.iter().collect();
        sources.sort_by_key(|source| begun.as_ref() != Some(&source.to_string()));
        sources
    }

    async fn pull_from(
        &self,
        source: &DownloadSource,
        wanted: &PullSpec,
        options: &PullOptions,
        lock: &Arc<Lock>,
        reporter: &mut Reporter<'_>,
    ) -> Result<InstalledModel, FetchFault> {
        let paths = PartialDownloadPaths {
            folder: self.folder.clone(),
            data: self.file_path(&wanted.id, "part"),
            resume_state: self.file_path(&wanted.id, "part.json"),
            _lock: Arc::clone(lock),
        };
        let scratch = self.file_path(&wanted.id, "wheels");
        let stop = options.cancel.child_token();
        let _guard = stop.clone().drop_guard();
        let job = Job {
            spec: wanted,
            options,
            cancel: stop,
            paths,
            scratch: scratch.clone(),
            source_text: source.to_string(),
        };
        let fetched = fetch::fetch(source, &job, reporter).await;
        // The next pull clears it too.
        let _ = fs::remove_dir_all(&scratch);
        let part = fetched?;
        let (shelf, wanted, source) = (self.clone(), wanted.clone(), job.source_text);
        let id = wanted.id.clone();
        let accepting = tokio::task::spawn_blocking(move || shelf.install(&wanted, source, part));
        accepting.await.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(id)))?
    }

    /// Puts the file under its name, once it is what was wanted.
    fn install(
        &self,
        wanted: &PullSpec,
        source: String,
        mut part: PartialDownload,
    ) -> Result<InstalledModel, FetchFault> {
        let (bytes, sum) = (part.bytes(), part.checksum());
        let expected = wanted.checksum.or(part.resume_state.reported_checksum);
        let wrong = if let Some(wanted) = wanted.bytes.filter(|wanted| *wanted != bytes) {
            Some(format!("{bytes} bytes came and it should be {wanted}"))
        } else if let Some(expected) = expected.filter(|expected| *expected != sum) {
            Some(format!("its sha256 is {sum} and should be {expected}"))
        } else if !part.starts_with(magic_bytes(wanted.kind))? {
            Some(format!("it is no .{} file", wanted.kind.extension()))
        } else {
            None
        };
        if let Some(why) = wrong {
            part.discard()?;
            return Err(FetchFault::ContentMismatch(format!("{why}; what came was removed")));
        }
        let place = self.file_path(&wanted.id, wanted.kind.extension());
        let record = Manifest {
            id: wanted.id.to_string(),
            file: format!("{}.{}", wanted.id, wanted.kind.extension()),
            bytes,
            sha256: sum,
            source,
            licence: wanted.licence.clone(),
            pulled_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            modified_ns: part.modified_ns()?,
        };
        // First the record: a crash between the two leaves a whole part, which the next pull only has to check.
        part.sync()?;
        manifest::write_json_atomic(&self.file_path(&wanted.id, "json"), &record)?;
        part.install_as(&place)?;
        let broken =
            || FetchFault::Local(WeightsFault::Modified { path: place, why: "it has vanished".to_owned() });
        self.check_installed(&wanted.id, &record).ok_or_else(broken)
    }

    /// Reads the file again and compares its sum with the one it had when it was pulled.
    ///
    /// # Errors
    /// When it is not there, or is another.
    pub async fn verify(&self, id: &ModelId) -> Result<InstalledModel, WeightsFault> {
        let pulled = match self.entry(id) {
            Some(ModelEntry::Ready(pulled)) => pulled,
            Some(ModelEntry::Broken { why, .. }) => {
                return Err(WeightsFault::Modified { path: self.folder.clone(), why });
            }
            Some(ModelEntry::Partial { .. }) | None => return Err(WeightsFault::NotInstalled(id.clone())),
        };
        let path = pulled.path.clone();
        let reading = tokio::task::spawn_blocking(move || verify_file(&path, pulled.checksum));
        reading.await.map_err(|_| WeightsFault::TaskFailed(id.clone()))??;
        Ok(pulled)
    }

    /// Whether a file may be used: one of the shelf must be what was pulled. It is read again only when it was written to
    /// since its sum was last right; files that lie elsewhere are as their owner wants them.
    ///
    /// # Errors
    /// When it was changed, or cannot be read.
    pub fn check(&self, file: &Path) -> Result<(), WeightsFault> {
        let Some(id) = self.model_id_of(file) else { return Ok(()) };
        let place = self.file_path(&id, "json");
        let Some(record) = manifest::read_json::<Manifest>(&place) else { return Ok(()) };
        // Somebody may have put a file of another kind beside it.
        if file.file_name().is_none_or(|name| *name != *record.file) {
            return Ok(());
        }
        let metadata = fs::metadata(file).map_err(WeightsFault::file("read", file))?;
        let written_ns = manifest::modified_ns(&metadata);
        if metadata.len() == record.bytes && written_ns.is_some() && written_ns == record.modified_ns {
            return Ok(());
        }
        verify_file(file, record.sha256)?;
        // The next one need not read it again. Whoever changes the shelf meanwhile comes first.
        let lock = Lock::acquire(&self.file_path(&id, "lock"), &id);
        if lock.is_ok() && manifest::read_json::<Manifest>(&place).as_ref() == Some(&record) {
            let _ = manifest::write_json_atomic(&place, &Manifest { modified_ns: written_ns, ..record });
        }
        Ok(())
    }

    /// Which weights of the shelf a file is.
    fn model_id_of(&self, file: &Path) -> Option<ModelId> {
        let folder = file.parent()?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let folder = fs::canonicalize(folder).ok()?;
        let is_here = fs::canonicalize(&self.folder).is_ok_and(|own| own == folder);
        is_here.then(|| file.file_stem()?.to_str()?.parse().ok()).flatten()
    }

    /// Removes everything of this name, also what has only begun to come; gives the bytes that are free now.
    ///
    /// # Errors
    /// When there is nothing, or somebody pulls it.
    pub fn remove(&self, id: &ModelId) -> Result<u64, WeightsFault> {
        if self.entry(id).is_none() {
            return Err(WeightsFault::NotInstalled(id.clone()));
        }
        let _lock = Lock::acquire(&self.file_path(id, "lock"), id)?;
        let mut freed_bytes = 0;
        // The record goes first: without it, nobody takes what is left for whole.
        for ending in ["json", "gguf", "onnx", "part.json", "part"] {
            let path = self.file_path(id, ending);
            freed_bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
            manifest::remove_if_exists(&path)?;
        }
        let _ = fs::remove_dir_all(self.file_path(id, "wheels"));
        manifest::sync_folder(&self.folder)?;
        Ok(freed_bytes)
    }
}

/// How the files of a kind begin.
fn magic_bytes(kind: ModelKind) -> &'static [u8] {
    match kind {
        ModelKind::Chat => b"GGUF",
        // The first field of the message, its version.
        ModelKind::Embedder => &[0x08],
    }
}

/// Reads a file and compares its sum with the one it should have.
fn verify_file(path: &Path, expected: Checksum) -> Result<(), WeightsFault> {
    let sum = file_checksum(path)?;
    if sum == expected {
        return Ok(());
    }
    let why = format!("its sha256 is {sum} and was {expected}");
    Err(WeightsFault::Modified { path: path.to_owned(), why })
}

fn file_checksum(path: &Path) -> Result<Checksum, WeightsFault> {
    use std::io::Read as _;

    let cannot = WeightsFault::file("read", path);
    let mut file = fs::File::open(path).map_err(&cannot)?;
    let (mut summing, mut block) = (ChecksumHasher::default(), vec![0; 1 << 17]);
    loop {
        match file.read(&mut block).map_err(&cannot)? {
            0 => return Ok(summing.checksum()),
            read => summing.update(&block[..read]),
        }
    }
}
