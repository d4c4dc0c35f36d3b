//! A file that a call may write: its target directory, locked against the writes of other calls. `replace.rs` and
//! `append.rs` write the content.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::ToolOutcome;
use agent::outside::{ChangeRecorder, FileState, StateDigest};
use agent::permission::Permit;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::recording::{digest_entry, digest_state};
use super::stale_files::remove_stale;
use super::target_directory::{CreatedDirectories, TargetDirectory};
use super::{PermittedPath, ResolvedFile};
use crate::definition::execution_failed;

/// The permitted file of a call that writes.
pub(crate) struct WritableFile(PermittedPath);

/// The content to write.
pub(crate) struct Content<'a> {
    pub(crate) text: &'a str,
    /// Whether it is appended to the old content.
    pub(crate) is_appended: bool,
}

impl WritableFile {
    /// The file that the permit allows to write.
    pub(crate) fn from_permit(permit: &Permit, requested: &str) -> Result<Self, ToolOutcome> {
        Self::nth_of_permit(permit, 0, requested)
    }

    /// The file of the permit's write effect with this index.
    pub(crate) fn nth_of_permit(permit: &Permit, index: usize, requested: &str) -> Result<Self, ToolOutcome> {
        let file = permit.writable.get(index).map(|write| write.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// The same file, whose changes are recorded.
    pub(crate) fn recorded_by(mut self, changes: &Arc<dyn ChangeRecorder>) -> Self {
        self.0.changes = Arc::clone(changes);
        self
    }

    /// The digest of what is at the path, which may be a link itself.
    pub(super) fn current_digest(&self) -> Result<StateDigest, ToolOutcome> {
        let Self(path) = self;
        let Some(entry) = path.open_existing()? else { return Ok(digest_state(&FileState::Absent)) };
        let digest = digest_entry(entry.directory.as_fd(), &entry.file_name);
        digest.map_err(|errno| path.errno_outcome(errno))
    }

    /// Creates a directory at the path. Returns whether it is new.
    pub(crate) fn create_directory(&self) -> Result<bool, ToolOutcome> {
        self.0.create_directory()
    }

    /// Opens the target directory, creating missing directories, and locks the file against writes of other calls.
    pub(crate) fn lock(&self) -> Result<LockedTarget<'_>, ToolOutcome> {
        let mut locked = Self::lock_all([self])?;
        locked.pop().ok_or_else(|| self.0.not_found())
    }

    /// Locks several files at once, in an order that excludes deadlocks.
    pub(crate) fn lock_all<'a>(
        files: impl IntoIterator<Item = &'a WritableFile>,
    ) -> Result<Vec<LockedTarget<'a>>, ToolOutcome> {
        Self::lock_opened(files, PermittedPath::open_target)
    }

    /// Locks several entries at once. An entry that is a link is not followed.
    pub(super) fn lock_entries<'a>(
        files: impl IntoIterator<Item = &'a WritableFile>,
    ) -> Result<Vec<LockedTarget<'a>>, ToolOutcome> {
        Self::lock_opened(files, PermittedPath::open_target_entry)
    }

    fn lock_opened<'a>(
        files: impl IntoIterator<Item = &'a WritableFile>,
        open: fn(&PermittedPath) -> Result<TargetDirectory, ToolOutcome>,
    ) -> Result<Vec<LockedTarget<'a>>, ToolOutcome> {
        let mut targets: Vec<(&PermittedPath, TargetDirectory)> = Vec::new();
        let (mut created, mut indexes) = (CreatedDirectories::default(), BTreeSet::new());
        let mut ids = HashMap::new();
        for Self(path) in files {
            let mut target = open(path)?;
            remove_stale(&target.directory, !target.created.is_empty());
            created.append(&mut target.created);
            let id = target_id(&target).map_err(|errno| path.errno_outcome(errno))?;
            indexes.insert(lock_index(&id));
            if let Some(other) = ids.insert(id, path) {
                let (first, second) = (&other.requested_path, &path.requested_path);
                return Err(execution_failed(format!(
                    "{first} and {second} are the same file; combine their hunks"
                )));
            }
            targets.push((path, target));
        }
        let lock = |index: usize| FILE_LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner);
        let locks = indexes.into_iter().map(lock).collect();
        let held = Rc::new(Held { created, _locks: locks });
        let locked = |(path, target)| LockedTarget { path, target, held: Rc::clone(&held) };
        Ok(targets.into_iter().map(locked).collect())
    }
}

/// What the targets of a call share until the last one is dropped: the directories created for them, and their locks.
struct Held {
    created: CreatedDirectories,
    _locks: Vec<MutexGuard<'static, ()>>,
}

/// The directory and name of the file to write, and the lock on them.
pub(crate) struct LockedTarget<'a> {
    pub(super) path: &'a PermittedPath,
    pub(super) target: TargetDirectory,
    held: Rc<Held>,
}

/// Locks for writing files. An append reads, then replaces; without the lock two appends to one file would lose the
/// first one's content. All files share a few locks: a collision only delays. They guard no data, so a poisoned one is fine.
static FILE_LOCKS: [Mutex<()>; 32] = [const { Mutex::new(()) }; 32];

impl LockedTarget<'_> {
    /// Resolves the current file.
    pub(super) fn find(&self) -> Result<Option<ResolvedFile>, ToolOutcome> {
        self.path.find_target_file(&self.target)
    }

    /// The directories that the call has created.
    pub(super) fn created_directories(&self) -> &CreatedDirectories {
        &self.held.created
    }

    /// The name of the file in its directory.
    pub(super) fn file_name(&self) -> &str {
        &self.target.file_name
    }

    /// Creates a file in the directory; fails if the name exists.
    pub(super) fn create(&self, name: &str, access: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.target.directory, name, flags, mode).map(File::from)
    }

    /// Renames a file of the directory to the target.
    pub(super) fn rename_to_target(&self, name: &str, flags: RenameFlags) -> Result<(), Errno> {
        let directory = &self.target.directory;
        rustix::fs::renameat_with(directory, name, directory, &self.target.file_name, flags)
    }

    /// The outcome for an error of a rename to the target.
    pub(super) fn rename_outcome(&self, errno: Errno) -> ToolOutcome {
        let requested = &self.path.requested_path;
        match errno {
            Errno::EXIST => {
                execution_failed(format!("{requested} exists; set `overwrite` to replace a file"))
            }
            Errno::INVAL => execution_failed(format!("{requested}: a directory cannot be moved into itself")),
            Errno::XDEV => {
                execution_failed(format!("{requested} is on another file system; use fs.copy and fs.delete"))
            }
            errno => self.path.errno_outcome(errno),
        }
    }

    /// Removes an incomplete file. The caller reports the error that made it incomplete, so a second one is ignored.
    pub(super) fn remove_incomplete(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.target.directory, name, AtFlags::empty());
    }

    /// Syncs the directory's entries to disk.
    pub(super) fn sync(&self) -> Result<(), ToolOutcome> {
        self.target.sync().map_err(|errno| self.path.errno_outcome(errno))
    }
}

/// Device and inode of the directory, and the name in it.
type TargetId = (u64, u64, String);

fn target_id(target: &TargetDirectory) -> Result<TargetId, Errno> {
    let directory = rustix::fs::fstat(&target.directory)?;
    Ok((directory.st_dev, directory.st_ino, target.file_name.clone()))
}

fn lock_index(id: &TargetId) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let count = FILE_LOCKS.len() as u64;
    usize::try_from(hasher.finish() % count).unwrap_or_default()
}
