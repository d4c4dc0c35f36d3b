//! The model directory: installed weights, partial downloads, and the operations on them. A file gets its final name
//! only when it is complete and its checksum matches.

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

/// Directory of installed weights and partial downloads.
#[derive(Debug, Clone)]
pub struct ModelDirectory {
    folder: PathBuf,
}

/// What to pull: a model and its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSpec {
    /// Id in the model directory.
    pub id: ModelId,
    /// Chat or embedder.
    pub kind: ModelKind,
    /// File size, if known.
    pub bytes: Option<u64>,
    /// SHA-256, if known.
    pub checksum: Option<Checksum>,
    /// Licence, if known.
    pub licence: Option<String>,
    /// Download sources, tried in order.
    pub sources: Vec<DownloadSource>,
}

impl PullSpec {
    /// Whether an installed model is the requested one: by its checksum if that is known, else by the content of a
    /// local file, or by the source.
    fn is_installed_as(&self, installed: &InstalledModel) -> bool {
        if let Some(checksum) = self.checksum {
            return checksum == installed.checksum;
        }
        self.sources.iter().any(|source| match source {
            DownloadSource::File(path) => file_checksum(path).is_ok_and(|found| found == installed.checksum),
            DownloadSource::Hub(_) | DownloadSource::Wheels(_) => source.to_string() == installed.source,
        })
    }

    /// Creates a spec for a user-supplied source, with the given name or one derived from the file name.
    ///
    /// # Errors
    /// When the file extension is unknown or the name is invalid.
    pub fn from_source(
        source: DownloadSource,
        name: Option<&str>,
        checksum: Option<Checksum>,
    ) -> Result<Self, WeightsFault> {
        let file = source.file_name();
        let kind = ModelKind::from_file_name(&file).ok_or_else(|| WeightsFault::InvalidSource {
            text: source.to_string(),
            why: "its file must end in .gguf (a chat model) or .onnx (an embedder)",
        })?;
        let id = name.map_or_else(|| ModelId::from_file_name(&file), str::parse)?;
        Ok(Self { id, kind, bytes: None, checksum, licence: None, sources: vec![source] })
    }

    /// Creates a spec for a catalog model from a local file only.
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

/// An installed model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModel {
    /// Model id.
    pub id: ModelId,
    /// Chat or embedder.
    pub kind: ModelKind,
    /// Path of the file.
    pub path: PathBuf,
    /// File size.
    pub bytes: u64,
    /// SHA-256 at the time of the pull.
    pub checksum: Checksum,
    /// Source it was pulled from.
    pub source: String,
    /// Licence, if known.
    pub licence: Option<String>,
    /// Time of the pull, as `2026-01-31T10:30:00Z`.
    pub pulled_at: String,
}

/// One entry of the model directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEntry {
    /// A complete model.
    Ready(InstalledModel),
    /// A partial download, which the next pull resumes.
    Partial {
        /// Model id.
        id: ModelId,
        /// Bytes downloaded and fsynced.
        synced_bytes: u64,
        /// Size of the complete file, if known.
        total_bytes: Option<u64>,
        /// Source it is pulled from.
        source: String,
    },
    /// A model whose files do not match its manifest.
    Broken {
        /// Model id.
        id: ModelId,
        /// What is wrong.
        why: String,
    },
}

impl ModelEntry {
    /// Returns the model id.
    #[must_use]
    pub fn id(&self) -> &ModelId {
        match self {
            Self::Ready(installed) => &installed.id,
            Self::Partial { id, .. } | Self::Broken { id, .. } => id,
        }
    }
}

impl ModelDirectory {
    /// Opens the directory; creates it if needed, and restricts it to its owner.
    ///
    /// # Errors
    /// When the directory cannot be created or restricted.
    pub fn open(folder: &Path) -> Result<Self, WeightsFault> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(WeightsFault::file("create", folder))?;
        let metadata = fs::metadata(folder).map_err(WeightsFault::file("read", folder))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let restricted = fs::set_permissions(folder, Permissions::from_mode(0o700));
            restricted.map_err(WeightsFault::file("restrict the permissions of", folder))?;
        }
        Ok(Self::at(folder))
    }

    /// Refers to a directory without creating it, for reading only.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lists all entries, sorted by id.
    ///
    /// # Errors
    /// When the directory cannot be read.
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

    /// Returns the installed model with this id, if it is complete.
    #[must_use]
    pub fn find(&self, id: &ModelId) -> Option<InstalledModel> {
        match self.entry(id) {
            Some(ModelEntry::Ready(installed)) => Some(installed),
            _ => None,
        }
    }

    /// Returns the entry with this id.
    #[must_use]
    pub fn entry(&self, id: &ModelId) -> Option<ModelEntry> {
        let manifest: Option<Manifest> = manifest::read_json(&self.file_path(id, "json"));
        if let Some(installed) = manifest.as_ref().and_then(|manifest| self.check_installed(id, manifest)) {
            return Some(ModelEntry::Ready(installed));
        }
        let resume_state: Option<ResumeState> = manifest::read_json(&self.file_path(id, "part.json"));
        if let Some(resume_state) = resume_state.filter(|_| self.file_path(id, "part").is_file()) {
            let ResumeState { source, synced_bytes, total_bytes, .. } = resume_state;
            return Some(ModelEntry::Partial { id: id.clone(), synced_bytes, total_bytes, source });
        }
        let why = match manifest {
            Some(manifest) => format!("{} is missing or has another size", manifest.file),
            None if self.file_path(id, "json").exists() => "its manifest cannot be read".to_owned(),
            None => return None,
        };
        Some(ModelEntry::Broken { id: id.clone(), why })
    }

    /// Returns the installed model if its file has the name and the size of the manifest.
    fn check_installed(&self, id: &ModelId, manifest: &Manifest) -> Option<InstalledModel> {
        let kind = ModelKind::from_file_name(&manifest.file)?;
        let path = self.file_path(id, kind.extension());
        // A manifest may only name the file beside it.
        let same_name = path.file_name().is_some_and(|name| *name == *manifest.file);
        let metadata = fs::metadata(&path).ok()?;
        if !same_name || !metadata.is_file() || metadata.len() != manifest.bytes {
            return None;
        }
        Some(InstalledModel {
            id: id.clone(),
            kind,
            path,
            bytes: manifest.bytes,
            checksum: manifest.sha256,
            source: manifest.source.clone(),
            licence: manifest.licence.clone(),
            pulled_at: manifest.pulled_at.clone(),
        })
    }

    fn file_path(&self, id: &ModelId, extension: &str) -> PathBuf {
        self.folder.join(format!("{id}.{extension}"))
    }

    /// Pulls a model from the first source that succeeds and reports progress. Resumes a partial download. A model that
    /// is already installed is not downloaded again, only checked.
    ///
    /// # Errors
    /// When all sources fail, the disk is full, the model is locked, another model is installed under the id, the
    /// installed file was modified, or the caller cancels.
    pub async fn pull(
        &self,
        spec: &PullSpec,
        options: &PullOptions,
        progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<InstalledModel, WeightsFault> {
        let lock = Arc::new(Lock::acquire(&self.file_path(&spec.id, "lock"), &spec.id)?);
        if let Some(installed) = self.find(&spec.id) {
            let (directory, spec, id) = (self.clone(), spec.clone(), installed.id.clone());
            let check = tokio::task::spawn_blocking(move || {
                if !spec.is_installed_as(&installed) {
                    return Err(WeightsFault::NameTaken { id: installed.id, checksum: installed.checksum });
                }
                directory.check(&installed.path).map(|()| installed)
            });
            return check.await.map_err(|_| WeightsFault::TaskFailed(id))?;
        }
        let mut reporter = Reporter::new(progress, spec.bytes);
        let mut attempts = Vec::new();
        for source in self.sources_in_order(spec) {
            reporter.start_source(source.to_string());
            match self.pull_from(source, spec, options, &lock, &mut reporter).await {
                Ok(installed) => return Ok(installed),
                Err(FetchFault::Local(fault)) => return Err(fault),
                Err(FetchFault::Cancelled) => return Err(WeightsFault::Cancelled(spec.id.clone())),
                Err(FetchFault::SourceFailed(why) | FetchFault::ContentMismatch(why)) => {
                    let source = source.to_string();
                    reporter.report_step(PullStep::Failed { source: source.clone(), why: why.clone() });
                    attempts.push(FailedAttempt { source, why });
                }
            }
        }
        Err(WeightsFault::AllFailed { id: spec.id.clone(), attempts })
    }

    /// Returns the sources in order, with the one of a partial download first.
    fn sources_in_order<'w>(&self, spec: &'w PullSpec) -> Vec<&'w DownloadSource> {
        let resume_state: Option<ResumeState> = manifest::read_json(&self.file_path(&spec.id, "part.json"));
        let resumable_source = resume_state
            .filter(|resume_state| resume_state.synced_bytes > 0)
            .map(|resume_state| resume_state.source);
        let mut sources: Vec<&DownloadSource> = spec.sources.iter().collect();
        sources.sort_by_key(|source| resumable_source.as_ref() != Some(&source.to_string()));
        sources
    }

    async fn pull_from(
        &self,
        source: &DownloadSource,
        spec: &PullSpec,
        options: &PullOptions,
        lock: &Arc<Lock>,
        reporter: &mut Reporter<'_>,
    ) -> Result<InstalledModel, FetchFault> {
        let paths = PartialDownloadPaths {
            folder: self.folder.clone(),
            data: self.file_path(&spec.id, "part"),
            resume_state: self.file_path(&spec.id, "part.json"),
            _lock: Arc::clone(lock),
        };
        let scratch = self.file_path(&spec.id, "wheels");
        let cancel = options.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let job =
            Job { spec, options, cancel, paths, scratch: scratch.clone(), source_text: source.to_string() };
        let fetched = fetch::fetch(source, &job, reporter).await;
        // An error is ignored: the next pull removes the directory too.
        let _ = fs::remove_dir_all(&scratch);
        let partial = fetched?;
        let (directory, spec, source) = (self.clone(), spec.clone(), job.source_text);
        let id = spec.id.clone();
        let install = tokio::task::spawn_blocking(move || directory.install(&spec, source, partial));
        install.await.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(id)))?
    }

    /// Verifies the partial download, writes its manifest and renames it to its final name.
    fn install(
        &self,
        spec: &PullSpec,
        source: String,
        mut partial: PartialDownload,
    ) -> Result<InstalledModel, FetchFault> {
        let (bytes, checksum) = (partial.bytes(), partial.checksum());
        let expected = spec.checksum.or(partial.resume_state.reported_checksum);
        let mismatch = if let Some(expected_bytes) = spec.bytes.filter(|expected| *expected != bytes) {
            Some(format!("it has {bytes} bytes and should have {expected_bytes}"))
        } else if let Some(expected) = expected.filter(|expected| *expected != checksum) {
            Some(format!("its sha256 is {checksum} and should be {expected}"))
        } else if !partial.starts_with(magic_bytes(spec.kind))? {
            Some(format!("it is not a .{} file", spec.kind.extension()))
        } else {
            None
        };
        if let Some(why) = mismatch {
            partial.discard()?;
            return Err(FetchFault::ContentMismatch(format!("{why}; the download was removed")));
        }
        let path = self.file_path(&spec.id, spec.kind.extension());
        let manifest = Manifest {
            id: spec.id.to_string(),
            file: format!("{}.{}", spec.id, spec.kind.extension()),
            bytes,
            sha256: checksum,
            source,
            licence: spec.licence.clone(),
            pulled_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            modified_ns: partial.modified_ns()?,
        };
        // Write the manifest first: a crash before the rename leaves a complete partial file, which the next pull only
        // has to verify.
        partial.sync()?;
        manifest::write_json_atomic(&self.file_path(&spec.id, "json"), &manifest)?;
        partial.install_as(&path)?;
        let vanished =
            || FetchFault::Local(WeightsFault::Modified { path, why: "it has disappeared".to_owned() });
        self.check_installed(&spec.id, &manifest).ok_or_else(vanished)
    }

    /// Verifies the checksum of an installed model.
    ///
    /// # Errors
    /// When the model is not installed or its file was modified.
    pub async fn verify(&self, id: &ModelId) -> Result<InstalledModel, WeightsFault> {
        let installed = match self.entry(id) {
            Some(ModelEntry::Ready(installed)) => installed,
            Some(ModelEntry::Broken { why, .. }) => {
                return Err(WeightsFault::Modified { path: self.folder.clone(), why });
            }
            Some(ModelEntry::Partial { .. }) | None => return Err(WeightsFault::NotInstalled(id.clone())),
        };
        let path = installed.path.clone();
        let verification = tokio::task::spawn_blocking(move || verify_file(&path, installed.checksum));
        verification.await.map_err(|_| WeightsFault::TaskFailed(id.clone()))??;
        Ok(installed)
    }

    /// Checks a file before use. A file of this directory must match its manifest; its checksum is verified only if the
    /// modification time has changed since the last verification. Files elsewhere are not checked.
    ///
    /// # Errors
    /// When the file was modified or cannot be read.
    pub fn check(&self, file: &Path) -> Result<(), WeightsFault> {
        let Some(id) = self.model_id_of(file) else { return Ok(()) };
        let manifest_path = self.file_path(&id, "json");
        let Some(manifest) = manifest::read_json::<Manifest>(&manifest_path) else { return Ok(()) };
        // The user may have added a file of another kind with the same stem.
        if file.file_name().is_none_or(|name| *name != *manifest.file) {
            return Ok(());
        }
        let metadata = fs::metadata(file).map_err(WeightsFault::file("read", file))?;
        let modified_ns = manifest::modified_ns(&metadata);
        if metadata.len() == manifest.bytes && modified_ns.is_some() && modified_ns == manifest.modified_ns {
            return Ok(());
        }
        verify_file(file, manifest.sha256)?;
        // Store the time so that the next check is fast, unless another process is changing the model.
        let lock = Lock::acquire(&self.file_path(&id, "lock"), &id);
        if lock.is_ok() && manifest::read_json::<Manifest>(&manifest_path).as_ref() == Some(&manifest) {
            let _ = manifest::write_json_atomic(&manifest_path, &Manifest { modified_ns, ..manifest });
        }
        Ok(())
    }

    /// Returns the model id of a file in this directory.
    fn model_id_of(&self, file: &Path) -> Option<ModelId> {
        let folder = file.parent()?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let folder = fs::canonicalize(folder).ok()?;
        let is_here = fs::canonicalize(&self.folder).is_ok_and(|own| own == folder);
        is_here.then(|| file.file_stem()?.to_str()?.parse().ok()).flatten()
    }

    /// Removes a model with all its files, including a partial download; returns the freed bytes.
    ///
    /// # Errors
    /// When the model is not installed, or is locked.
    pub fn remove(&self, id: &ModelId) -> Result<u64, WeightsFault> {
        if self.entry(id).is_none() {
            return Err(WeightsFault::NotInstalled(id.clone()));
        }
        let _lock = Lock::acquire(&self.file_path(id, "lock"), id)?;
        let mut freed_bytes = 0;
        // Remove the manifest first: without it, leftover files do not count as an installed model.
        for extension in ["json", "gguf", "onnx", "part.json", "part"] {
            let path = self.file_path(id, extension);
            freed_bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
            manifest::remove_if_exists(&path)?;
        }
        let _ = fs::remove_dir_all(self.file_path(id, "wheels"));
        manifest::sync_folder(&self.folder)?;
        Ok(freed_bytes)
    }
}

/// Returns the first bytes of files of this kind.
fn magic_bytes(kind: ModelKind) -> &'static [u8] {
    match kind {
        ModelKind::Chat => b"GGUF",
        // The tag of the first protobuf field, the IR version.
        ModelKind::Embedder => &[0x08],
    }
}

/// Verifies the checksum of a file.
fn verify_file(path: &Path, expected: Checksum) -> Result<(), WeightsFault> {
    let checksum = file_checksum(path)?;
    if checksum == expected {
        return Ok(());
    }
    let why = format!("its sha256 is {checksum} and was {expected}");
    Err(WeightsFault::Modified { path: path.to_owned(), why })
}

fn file_checksum(path: &Path) -> Result<Checksum, WeightsFault> {
    use std::io::Read as _;

    let read_fault = WeightsFault::file("read", path);
    let mut file = fs::File::open(path).map_err(&read_fault)?;
    let (mut hasher, mut block) = (ChecksumHasher::default(), vec![0; 1 << 17]);
    loop {
        match file.read(&mut block).map_err(&read_fault)? {
            0 => return Ok(hasher.checksum()),
            read => hasher.update(&block[..read]),
        }
    }
}
