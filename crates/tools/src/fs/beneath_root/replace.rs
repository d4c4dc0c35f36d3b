//! Replaces a file's content atomically: writes a temporary file with an unguessable name in the same directory, syncs
//! it, then renames it over the old file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{Gid, Mode, OFlags, Stat, Uid};

use super::writable_file::{Content, LockedTarget};
use super::{PermittedPath, ResolvedFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// Maximum size of a file to append to: it is copied.
const OLD_BYTES_MAX: u64 = 100 << 20;

/// Bytes written between two checks for cancellation.
const CHUNK_BYTES: usize = 1 << 20;

impl LockedTarget<'_> {
    /// Replaces the file atomically: readers see the old content or the new one.
    pub(crate) fn replace(
        &self,
        content: &Content<'_>,
        entropy: &dyn Entropy,
        stop: &CancelFlag,
    ) -> Result<(), ToolOutcome> {
        let path = self.path;
        let to_outcome = |fault: io::Error| path.io_outcome(&fault);
        let old = self.find()?;
        if let Some(old) = &old {
            check_replaceable(path, old)?;
        }
        let mut temporary = TemporaryFile::create(self, old.as_ref(), entropy)?;
        if let Some(old) = old.as_ref().filter(|_| content.is_appended) {
            copy_content(path, old, &mut temporary.file)?;
        }
        for chunk in content.text.as_bytes().chunks(CHUNK_BYTES) {
            stop.check()?;
            temporary.file.write_all(chunk).map_err(to_outcome)?;
        }
        temporary.file.sync_all().map_err(to_outcome)?;
        // The last point of cancellation: the rename publishes the new content.
        stop.check()?;
        temporary.persist()?;
        self.sync()
    }
}

/// Checks that the old file is writable, which a rename does not check.
fn check_replaceable(path: &PermittedPath, old: &ResolvedFile) -> Result<(), ToolOutcome> {
    old.require_regular(path)?;
    old.open(OFlags::WRONLY).map_err(|errno| path.errno_outcome(errno))?;
    Ok(())
}

fn copy_content(path: &PermittedPath, old: &ResolvedFile, new: &mut File) -> Result<(), ToolOutcome> {
    let old = old.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
    let copied = io::copy(&mut old.take(OLD_BYTES_MAX + 1), new).map_err(|fault| path.io_outcome(&fault))?;
    if copied > OLD_BYTES_MAX {
        let requested = &path.requested_path;
        return Err(execution_failed(format!("{requested} is longer than {OLD_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// A temporary file with the new content. Dropping it unpersisted deletes it.
struct TemporaryFile<'a> {
    target: &'a LockedTarget<'a>,
    name: String,
    file: File,
    is_persisted: bool,
}

impl<'a> TemporaryFile<'a> {
    fn create(
        target: &'a LockedTarget<'a>,
        old: Option<&ResolvedFile>,
        entropy: &dyn Entropy,
    ) -> Result<Self, ToolOutcome> {
        let mut random = [0; 16];
        entropy.fill(&mut random).map_err(|fault| execution_failed(fault.public))?;
        let name = format!(".nexus3-{:032x}.tmp", u128::from_be_bytes(random));
        // A file that others may not read must not be readable even for a moment.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let to_outcome = |errno| target.path.errno_outcome(errno);
        let file = target.create(&name, OFlags::WRONLY, mode).map_err(to_outcome)?;
        let temporary = Self { target, name, file, is_persisted: false };
        if let Some(old) = old {
            copy_owner_and_mode(&temporary.file, old.stat()).map_err(to_outcome)?;
        }
        Ok(temporary)
    }

    fn persist(mut self) -> Result<(), ToolOutcome> {
        let renamed = self.target.rename_to_target(&self.name);
        renamed.map_err(|errno| self.target.path.io_outcome(&errno.into()))?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.is_persisted {
            self.target.remove_incomplete(&self.name);
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
    use agent::permission::{Effect, FilePath, Grant, Verdict, judge};

    use super::*;
    use crate::fs::WritableFile;

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
        let path = FilePath::resolve(real.join("file").to_str().unwrap(), &FilePath::root()).unwrap();
        let verdict = judge(&[Effect::Write(path)], &Grant::everything());
        let Verdict::Allowed(permit) = verdict else { panic!("{verdict:?}") };
        let file = WritableFile::from_permit(&permit, "file").unwrap();
        for is_appended in [false, true] {
            let content = Content { text: "", is_appended };
            let cancelled = file.lock().unwrap().replace(&content, &ZeroEntropy, &CancelFlag::cancelled());
            assert_eq!(cancelled.unwrap_err().text(), "Execution failed: the call was cancelled");
        }
        assert_eq!(std::fs::read_to_string(real.join("file")).unwrap(), "old");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 1);
    }
}
