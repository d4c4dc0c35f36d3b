//! Puts new content in a file's place: whole or not at all. It is written under a name nobody can guess, beside the
//! old file, and renamed when it is on the disk.

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

/// What is written.
pub(super) struct Content<'a> {
    pub(super) text: &'a str,
    /// Whether the old content stays before it.
    pub(super) is_appended: bool,
}

/// The longest file that is appended to: it is copied.
const OLD_BYTES_MAX: u64 = 100 << 20;

/// Between two looks at whether somebody still waits.
const CHUNK_BYTES: usize = 1 << 20;

/// An append reads, then replaces. Two of them on one file would lose what the first wrote, so whoever replaces a file
/// holds its lock. A few locks for all files: two files that share one wait for each other, nothing more.
static FILE_LOCKS: [Mutex<()>; 32] = [const { Mutex::new(()) }; 32];

pub(super) fn replace(
    place: &PermittedPath,
    content: &Content<'_>,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let seat = place.open_target()?;
    let _lock = lock_target(place, &seat)?;
    replace_locked(place, &seat, content, entropy, stop)
}

/// Whoever calls it holds the seat's lock.
pub(super) fn replace_locked(
    place: &PermittedPath,
    seat: &TargetDirectory,
    content: &Content<'_>,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let old = place.find_target_file(seat)?;
    if let Some(old) = &old {
        check_replaceable(place, old)?;
    }
    let mut draft = TemporaryFile::create(place, seat, old.as_ref(), entropy)?;
    let tell = |fault: io::Error| execution_failed(format!("{}: {fault}", place.requested_path()));
    if let Some(old) = old.as_ref().filter(|_| content.is_appended) {
        let old = old.open(OFlags::RDONLY).map_err(|errno| place.errno_outcome(errno))?;
        let copied = io::copy(&mut old.take(OLD_BYTES_MAX + 1), &mut draft.file).map_err(tell)?;
        if copied > OLD_BYTES_MAX {
            return Err(execution_failed(format!(
                "{} is longer than {OLD_BYTES_MAX} bytes",
                place.requested_path()
            )));
        }
    }
    for chunk in content.text.as_bytes().chunks(CHUNK_BYTES) {
        stop.check()?;
        draft.file.write_all(chunk).map_err(tell)?;
    }
    draft.file.sync_all().map_err(tell)?;
    // The last moment to turn back: from here on the new content is there.
    stop.check()?;
    draft.persist().map_err(tell)?;
    seat.sync().map_err(|errno| place.errno_outcome(errno))
}

pub(super) fn lock_target(
    place: &PermittedPath,
    seat: &TargetDirectory,
) -> Result<MutexGuard<'static, ()>, ToolOutcome> {
    let folder = rustix::fs::fstat(&seat.directory).map_err(|errno| place.errno_outcome(errno))?;
    let mut hasher = DefaultHasher::new();
    (folder.st_dev, folder.st_ino, &seat.file_name).hash(&mut hasher);
    let count = FILE_LOCKS.len() as u64;
    let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
    // A lock guards no data: one that was left by a panic is as good as any.
    Ok(FILE_LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner))
}

/// A rename asks nobody whether the old file may be written, so it is asked here.
fn check_replaceable(place: &PermittedPath, old: &ResolvedFile) -> Result<(), ToolOutcome> {
    old.require_regular(place)?;
    old.open(OFlags::WRONLY).map_err(|errno| place.errno_outcome(errno))?;
    Ok(())
}

/// Content that is not there yet. Dropping it leaves nothing behind.
struct TemporaryFile<'a> {
    target: &'a TargetDirectory,
    name: String,
    file: File,
    is_persisted: bool,
}

impl<'a> TemporaryFile<'a> {
    fn create(
        place: &PermittedPath,
        seat: &'a TargetDirectory,
        old: Option<&ResolvedFile>,
        entropy: &dyn Entropy,
    ) -> Result<Self, ToolOutcome> {
        let mut random = [0; 16];
        entropy.fill(&mut random).map_err(|fault| execution_failed(fault.public))?;
        let name = format!(".nexus3-{:032x}.tmp", u128::from_be_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A file that was closed to others may not be open to them even for a moment.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let trouble = |errno| place.errno_outcome(errno);
        let file = rustix::fs::openat(&seat.directory, &name, flags, mode).map_err(trouble)?;
        let draft = Self { target: seat, name, file: File::from(file), is_persisted: false };
        if let Some(old) = old {
            copy_owner_and_mode(&draft.file, old.stat()).map_err(trouble)?;
        }
        Ok(draft)
    }

    fn persist(mut self) -> io::Result<()> {
        let folder = &self.target.directory;
        rustix::fs::renameat(folder, &self.name, folder, &self.target.file_name)?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.is_persisted {
            // Nobody is left to tell, and the name cannot be taken for anything else.
            let _ = rustix::fs::unlinkat(&self.target.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Gives a new file the old one's owner, as far as that is ours to give, and mode. Rights to act as the owner are not
/// kept: whoever gave them gave them to the old content.
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
    fn a_write_that_nobody_waits_for_changes_nothing() {
        let folder = tempfile::TempDir::new().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "old").unwrap();
        let root = FilePath::resolve(real.to_str().unwrap(), &FilePath::root()).unwrap();
        let files = vec![RootedPath { root, relative: "file".to_owned() }];
        let place = PermittedPath::from_permit(Permit { files, blocked: Vec::new() }, "file").unwrap();
        for is_appended in [false, true] {
            let content = Content { text: "", is_appended };
            let stopped = replace(&place, &content, &ZeroEntropy, &CancelFlag::cancelled()).unwrap_err();
            assert_eq!(stopped.text(), "Execution failed: nobody waits for it any more");
        }
        assert_eq!(std::fs::read_to_string(real.join("file")).unwrap(), "old");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 1);
    }
}
