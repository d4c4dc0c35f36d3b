//! A file that a call may write: its target directory, locked against the writes of other calls. `replace.rs` and
//! `append.rs` write the content.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::ToolOutcome;
use agent::permission::Permit;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::target_directory::TargetDirectory;
use super::{PermittedPath, ResolvedFile};

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
        let file = permit.writable.first().map(|write| write.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// Opens the target directory, creating missing directories, and locks the file against writes of other calls.
    pub(crate) fn lock(&self) -> Result<LockedTarget<'_>, ToolOutcome> {
        let Self(path) = self;
        let target = path.open_target()?;
        let lock = lock(&target).map_err(|errno| path.errno_outcome(errno))?;
        Ok(LockedTarget { path, target, _lock: lock })
    }
}

/// The directory and name of the file to write, and the lock on them.
pub(crate) struct LockedTarget<'a> {
    pub(super) path: &'a PermittedPath,
    target: TargetDirectory,
    _lock: MutexGuard<'static, ()>,
}

/// Locks for writing files. An append reads, then replaces; without the lock two appends to one file would lose the
/// first one's content. All files share a few locks: a collision only delays.
static FILE_LOCKS: [Mutex<()>; 32] = [const { Mutex::new(()) }; 32];

impl LockedTarget<'_> {
    /// Resolves the current file.
    pub(super) fn find(&self) -> Result<Option<ResolvedFile>, ToolOutcome> {
        self.path.find_target_file(&self.target)
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
    pub(super) fn rename_to_target(&self, name: &str) -> Result<(), Errno> {
        let directory = &self.target.directory;
        rustix::fs::renameat(directory, name, directory, &self.target.file_name)
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

fn lock(target: &TargetDirectory) -> Result<MutexGuard<'static, ()>, Errno> {
    let directory = rustix::fs::fstat(&target.directory)?;
    let mut hasher = DefaultHasher::new();
    (directory.st_dev, directory.st_ino, &target.file_name).hash(&mut hasher);
    let count = FILE_LOCKS.len() as u64;
    let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
    // The mutex guards no data, so a poisoned one is fine.
    Ok(FILE_LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner))
}
