//! Replaces a file's content atomically: writes a temporary file with an unguessable name in the same directory, syncs
//! it, then renames it over the old file.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};

use super::beneath_root::{PermittedPath, ResolvedFile, TargetDirectory};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// The content to write.
pub(super) struct Content<'a> {
    pub(super) text: &'a str,
    /// Whether it is appended to the old content.
    pub(super) is_appended: bool,
}

/// Maximum size of a file to append to: it is copied.
const OLD_BYTES_MAX: u64 = 100 << 20;

/// Bytes written between two checks for cancellation.
const CHUNK_BYTES: usize = 1 << 20;

/// Locks for replacing files. An append reads, then replaces; without the lock two appends to one file would lose the
/// first one's content. All files share a few locks: a collision only delays.
static FILE_LOCKS: [Mutex<()>; 32] = [const { Mutex::new(()) }; 32];

pub(super) fn replace(
    path: &PermittedPath,
    content: &Content<'_>,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let target = path.open_target()?;
    let _lock = lock_target(path, &target)?;
    replace_locked(path, &target, content, entropy, stop)
}

/// Replaces the file. The caller holds the target's lock.
pub(super) fn replace_locked(
    path: &PermittedPath,
    target: &TargetDirectory,
    content: &Content<'_>,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let old = path.find_target_file(target)?;
    if let Some(old) = &old {
        check_replaceable(path, old)?;
    }
    let mut temporary = TemporaryFile::create(path, target, old.as_ref(), entropy)?;
    let to_outcome = |fault: io::Error| execution_failed(format!("{}: {fault}", path.requested_path()));
    if let Some(old) = old.as_ref().filter(|_| content.is_appended) {
        let old = old.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
        let copied = io::copy(&mut old.take(OLD_BYTES_MAX + 1), &mut temporary.file).map_err(to_outcome)?;
        if copied > OLD_BYTES_MAX {
            return Err(execution_failed(format!(
                "{} is longer than {OLD_BYTES_MAX} bytes",
                path.requested_path()
            )));
        }
    }
    for chunk in content.text.as_bytes().chunks(CHUNK_BYTES) {
        stop.check()?;
        temporary.file.write_all(chunk).map_err(to_outcome)?;
    }
    temporary.file.sync_all().map_err(to_outcome)?;
    // The last point of cancellation: the rename publishes the new content.
    stop.check()?;
    temporary.persist().map_err(to_outcome)?;
    target.sync().map_err(|errno| path.errno_outcome(errno))
}

pub(super) fn lock_target(
    path: &PermittedPath,
    target: &TargetDirectory,
) -> Result<MutexGuard<'static, ()>, ToolOutcome> {
    let directory = rustix::fs::fstat(&target.directory).map_err(|errno| path.errno_outcome(errno))?;
    let mut hasher = DefaultHasher::new();
    (directory.st_dev, directory.st_ino, &target.file_name).hash(&mut hasher);
    let count = FILE_LOCKS.len() as u64;
    let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
    // The mutex guards no data, so a poisoned one is fine.
    Ok(FILE_LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner))
}

/// Checks that the old file is writable, which a rename does not check.
fn check_replaceable(path: &PermittedPath, old: &ResolvedFile) -> Result<(), ToolOutcome> {
    old.require_regular(path)?;
    old.open(OFlags::WRONLY).map_err(|errno| path.errno_outcome(errno))?;
    Ok(())
}

/// A temporary file with the new content. Dropping it unpersisted deletes it.
struct TemporaryFile<'a> {
    target: &'a TargetDirectory,
    name: String,
    file: File,
    is_persisted: bool,
}

impl<'a> TemporaryFile<'a> {
    fn create(
        path: &PermittedPath,
        target: &'a TargetDirectory,
        old: Option<&ResolvedFile>,
        entropy: &dyn Entropy,
    ) -> Result<Self, ToolOutcome> {
        let mut random = [0; 16];
        entropy.fill(&mut random).map_err(|fault| execution_failed(fault.public))?;
        let name = format!(".nexus3-{:032x}.tmp", u128::from_be_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A file that others may not read must not be readable even for a moment.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let to_outcome = |errno| path.errno_outcome(errno);
        let file = rustix::fs::openat(&target.directory, &name, flags, mode).map_err(to_outcome)?;
        let temporary = Self { target, name, file: File::from(file), is_persisted: false };
        if let Some(old) = old {
            copy_owner_and_mode(&temporary.file, old.stat()).map_err(to_outcome)?;
        }
        Ok(temporary)
    }

    fn persist(mut self) -> io::Result<()> {
        let directory = &self.target.directory;
        rustix::fs::renameat(directory, &self.name, directory, &self.target.file_name)?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.is_persisted {
            // There is no caller to report an error to, and the name is recognizable as temporary.
            let _ = rustix::fs::unlinkat(&self.target.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Copies the old file's mode, and its owner as far as permitted, to the new file. Drops the set-id bits: they were
/// granted to the old content.
fn copy_owner_and_mode(new: &File, old: &Stat) -> rustix::io::Result<()> {
    let owner = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    let _ = rustix::fs::fchown(new.as_fd(), Some(owner.0), Some(owner.1));
    rustix::fs::fchmod(new.as_fd(), Mode::from_raw_mode(old.st_mode & 0o777))
}

#[cfg(test)]
mod tests {
    use agent::Fault;
    use agent::permission::{FilePath, Permit, RootedPath};

    use super::*;

    struct ZeroEntropy;

    impl Entropy for ZeroEntropy {
        fn fill(&self, _bytes: &mut [u8]) -> Result<(), Fault> {
            Ok(())
        }
    }

    #[test]
    fn cancelled_write_changes_nothing() {
        let directory = tempfile::TempDir::new().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "old").unwrap();
        let root = FilePath::resolve(real.to_str().unwrap(), &FilePath::root()).unwrap();
        let files = vec![RootedPath { root, relative: "file".to_owned() }];
        let path = PermittedPath::from_permit(Permit { files, blocked: Vec::new() }, "file").unwrap();
        for is_appended in [false, true] {
            let content = Content { text: "", is_appended };
            let outcome = replace(&path, &content, &ZeroEntropy, &CancelFlag::cancelled()).unwrap_err();
            assert_eq!(outcome.text(), "Execution failed: the call was cancelled");
        }
        assert_eq!(std::fs::read_to_string(real.join("file")).unwrap(), "old");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 1);
    }
}
