//! Replaces a file's content atomically: writes a temporary file with an unguessable name in the same directory, syncs
//! it, then renames it over the old file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::readable_file::FileContent;
use super::stale_files::{name_of_only_copy, temporary_name};
use super::version::FileVersion;
use super::writable_file::{Content, LockedTarget};
use super::{PermittedPath, ResolvedFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// Maximum size of what one call copies: a file or directory, or a file to append to.
pub(super) const COPY_BYTES_MAX: u64 = 100 << 20;

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
        let temporary = self.prepare(content, entropy, stop)?;
        self.record_replacement(&temporary.name)?;
        // The last point of cancellation: the rename publishes the new content.
        stop.check()?;
        temporary.persist()?;
        self.sync()
    }

    /// Writes the new content to a temporary file, to be renamed to the target.
    pub(crate) fn prepare<'a>(
        &'a self,
        content: &Content<'_>,
        entropy: &dyn Entropy,
        stop: &CancelFlag,
    ) -> Result<TemporaryFile<'a>, ToolOutcome> {
        let path = self.path;
        let to_outcome = |fault: io::Error| path.io_outcome(&fault);
        let old = self.find()?;
        if let Some(old) = &old {
            check_replaceable(path, old)?;
        }
        let mut temporary = TemporaryFile::create(self, old.as_ref(), entropy)?;
        if let Some(old) = old.as_ref().filter(|_| content.is_appended) {
            copy_content(path, old, &mut temporary.file, stop)?;
        }
        for chunk in content.text.as_bytes().chunks(CHUNK_BYTES) {
            stop.check()?;
            temporary.file.write_all(chunk).map_err(to_outcome)?;
        }
        temporary.file.sync_all().map_err(to_outcome)?;
        Ok(temporary)
    }

    /// Copies a file to the target.
    pub(crate) fn copy_from(
        &self,
        source: FileContent,
        overwrite: bool,
        entropy: &dyn Entropy,
        stop: &CancelFlag,
    ) -> Result<u64, ToolOutcome> {
        let path = self.path;
        let to_outcome = |fault: io::Error| path.io_outcome(&fault);
        let old = self.find()?;
        match &old {
            Some(_) if !overwrite => return Err(self.rename_outcome(Errno::EXIST)),
            Some(old) => check_replaceable(path, old)?,
            None => {}
        }
        let mode = source.mode().map_err(to_outcome)?;
        let mut temporary = TemporaryFile::create_with_mode(self, old.as_ref(), mode, entropy)?;
        let mut source = source.0.take(COPY_BYTES_MAX + 1);
        let bytes = copy_chunks(&mut source, &mut temporary.file, stop, to_outcome)?;
        if bytes > COPY_BYTES_MAX {
            return Err(too_long("the file"));
        }
        temporary.file.sync_all().map_err(to_outcome)?;
        self.record_replacement(&temporary.name)?;
        stop.check()?;
        let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        temporary.rename(flags).map_err(|errno| self.rename_outcome(errno))?;
        self.sync()?;
        Ok(bytes)
    }

    /// Fails unless the file is still the version that was read; none if there was no file.
    pub(crate) fn check_version(&self, expected: Option<&FileVersion>) -> Result<(), ToolOutcome> {
        let current = self.find()?.map(|file| FileVersion::from_stat(file.stat()));
        if current.as_ref() == expected { Ok(()) } else { Err(self.changed_meanwhile()) }
    }

    /// Removes the file, if it is still the version that was read.
    pub(crate) fn remove_version<'a>(
        &'a self,
        expected: Option<&FileVersion>,
        entropy: &dyn Entropy,
    ) -> Result<PublishedChange<'a>, ToolOutcome> {
        self.check_version(expected)?;
        let old = temporary_name(entropy)?;
        let directory = &self.target.directory;
        let renamed = rustix::fs::renameat(directory, self.file_name(), directory, &old);
        renamed.map_err(|errno| self.path.errno_outcome(errno))?;
        Ok(PublishedChange { target: self, old: Some(old) })
    }

    /// Gives the file a second, temporary name. Without hard links, as on FAT, it has no other name until the new file is
    /// renamed to it.
    fn set_aside(&self, entropy: &dyn Entropy) -> Result<String, ToolOutcome> {
        let old = temporary_name(entropy)?;
        let directory = &self.target.directory;
        let linked = rustix::fs::linkat(directory, self.file_name(), directory, &old, AtFlags::empty());
        if linked.is_ok() {
            return Ok(old);
        }
        let old = name_of_only_copy(entropy)?;
        rustix::fs::renameat(directory, self.file_name(), directory, &old)
            .map_err(|errno| self.path.errno_outcome(errno))?;
        Ok(old)
    }

    fn changed_meanwhile(&self) -> ToolOutcome {
        let requested = &self.path.requested_path;
        execution_failed(format!("{requested} was changed meanwhile; read it again, then repeat the call"))
    }
}

/// Checks that the old file is writable, which a rename does not check.
fn check_replaceable(path: &PermittedPath, old: &ResolvedFile) -> Result<(), ToolOutcome> {
    old.require_regular(path)?;
    old.open(OFlags::WRONLY).map_err(|errno| path.errno_outcome(errno))?;
    Ok(())
}

fn copy_content(
    path: &PermittedPath,
    old: &ResolvedFile,
    new: &mut File,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let old = old.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
    let to_outcome = |fault: io::Error| path.io_outcome(&fault);
    let copied = copy_chunks(&mut old.take(COPY_BYTES_MAX + 1), new, stop, to_outcome)?;
    if copied > COPY_BYTES_MAX { Err(too_long(&path.requested_path)) } else { Ok(()) }
}

/// Copies a file in parts, with checks for cancellation. Returns the number of bytes.
pub(super) fn copy_chunks(
    source: &mut impl Read,
    new: &mut File,
    stop: &CancelFlag,
    to_outcome: impl Fn(io::Error) -> ToolOutcome,
) -> Result<u64, ToolOutcome> {
    let mut bytes = 0;
    loop {
        stop.check()?;
        match io::copy(&mut source.take(CHUNK_BYTES as u64), new).map_err(&to_outcome)? {
            0 => return Ok(bytes),
            copied => bytes += copied,
        }
    }
}

pub(super) fn too_long(what: &str) -> ToolOutcome {
    execution_failed(format!("{what} is longer than {COPY_BYTES_MAX} bytes"))
}

/// A temporary file with the new content. Dropping it unpersisted deletes it.
pub(crate) struct TemporaryFile<'a> {
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
        Self::create_with_mode(target, old, 0o666, entropy)
    }

    /// Creates it with the owner and mode of the old file, or with this mode.
    pub(super) fn create_with_mode(
        target: &'a LockedTarget<'a>,
        old: Option<&ResolvedFile>,
        mode: u32,
        entropy: &dyn Entropy,
    ) -> Result<Self, ToolOutcome> {
        let name = temporary_name(entropy)?;
        // A file that others may not read must not be readable even for a moment.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { mode });
        let to_outcome = |errno| target.path.errno_outcome(errno);
        let file = target.create(&name, OFlags::WRONLY, mode).map_err(to_outcome)?;
        let temporary = Self { target, name, file, is_persisted: false };
        if let Some(old) = old {
            copy_owner_and_mode(&temporary.file, old.stat()).map_err(to_outcome)?;
        }
        Ok(temporary)
    }

    /// Records that it will replace the target.
    pub(crate) fn record(&self) -> Result<(), ToolOutcome> {
        self.target.record_replacement(&self.name)
    }

    /// Its name in the directory of the target.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The open file.
    pub(super) fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    fn persist(self) -> Result<(), ToolOutcome> {
        let path = self.target.path;
        self.rename(RenameFlags::empty()).map_err(|errno| path.io_outcome(&errno.into()))
    }

    /// Renames it to the target, if that is still the version that was read; none if there was no file.
    pub(crate) fn persist_over(self, expected: Option<&FileVersion>) -> Result<(), ToolOutcome> {
        let target = self.target;
        target.check_version(expected)?;
        let flags = if expected.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        self.rename(flags).map_err(|errno| match errno {
            Errno::EXIST => target.changed_meanwhile(),
            errno => target.path.io_outcome(&errno.into()),
        })?;
        target.sync()
    }

    /// Renames it to the target like `persist_over`, so that it can be undone. Does not sync the directory.
    pub(crate) fn publish(
        self,
        expected: Option<&FileVersion>,
        entropy: &dyn Entropy,
    ) -> Result<PublishedChange<'a>, ToolOutcome> {
        let target = self.target;
        target.check_version(expected)?;
        let mut change = PublishedChange { target, old: None };
        let flags = match expected {
            Some(_) => {
                change.old = Some(target.set_aside(entropy)?);
                RenameFlags::empty()
            }
            None => RenameFlags::NOREPLACE,
        };
        if let Err(errno) = self.rename(flags) {
            if change.old.is_some() {
                change.undo();
            }
            return Err(target.rename_outcome(errno));
        }
        Ok(change)
    }

    fn rename(mut self, flags: RenameFlags) -> Result<(), Errno> {
        self.target.rename_to_target(&self.name, flags)?;
        self.is_persisted = true;
        Ok(())
    }
}

/// A written, replaced or removed file whose old state is retained until the change is complete.
pub(crate) struct PublishedChange<'a> {
    target: &'a LockedTarget<'a>,
    /// The temporary name of the old file; none if there was no file.
    old: Option<String>,
}

impl<'a> PublishedChange<'a> {
    /// A file that was removed by a rename to a temporary name.
    pub(super) fn removed(target: &'a LockedTarget<'a>, old: String) -> Self {
        Self { target, old: Some(old) }
    }

    /// Syncs the change to disk.
    pub(crate) fn sync(&self) -> Result<(), ToolOutcome> {
        self.target.sync()
    }

    /// Removes the old file. The change is complete, so an error is ignored.
    pub(crate) fn complete(self) {
        if let Some(old) = &self.old {
            self.target.remove_incomplete(old);
        }
    }

    /// Puts the old file back, or removes the new one. Needs no space on the disk. Returns whether it succeeded.
    pub(crate) fn undo(self) -> bool {
        let target = self.target;
        let directory = &target.target.directory;
        let undone = match &self.old {
            // Renaming one of two names of a file to the other does nothing, so that the first is then removed.
            Some(old) => {
                target.rename_to_target(old, RenameFlags::empty()).inspect(|()| target.remove_incomplete(old))
            }
            None => rustix::fs::unlinkat(directory, target.file_name(), AtFlags::empty()),
        };
        undone.is_ok() && target.sync().is_ok()
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
    use agent::permission::{Effect, FilePath, Grant, Permit, Verdict, judge};

    use super::*;
    use crate::fs::{ReadableFile, WritableFile};

    struct ZeroEntropy;

    impl Entropy for ZeroEntropy {
        fn fill(&self, _bytes: &mut [u8]) -> Result<(), Fault> {
            Ok(())
        }
    }

    fn permit(path: &std::path::Path) -> Permit {
        let path = FilePath::resolve(path.to_str().unwrap(), &FilePath::root()).unwrap();
        let verdict = judge(&[Effect::Read(path.clone()), Effect::Write(path)], &Grant::everything());
        let Verdict::Allowed(permit) = verdict else { panic!("{verdict:?}") };
        permit
    }

    #[test]
    fn threat_74_edit_of_a_file_that_changed_meanwhile_is_refused() {
        let directory = tempfile::TempDir::new().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let file = real.join("file");
        std::fs::write(&file, "old").unwrap();
        let permit = permit(&file);
        let (readable, writable) =
            (ReadableFile::from_permit(&permit, "file"), WritableFile::from_permit(&permit, "file"));
        let (readable, writable) = (readable.unwrap(), writable.unwrap());
        let (text, version) = readable.read_version(100).unwrap().unwrap();
        assert_eq!(text, "old");
        let change_in_place = || std::fs::write(&file, "longer").unwrap();
        let replace_file = || {
            std::fs::write(real.join("other"), "old").unwrap();
            std::fs::rename(real.join("other"), &file).unwrap();
        };
        let remove_file = || std::fs::remove_file(&file).unwrap();
        for change in [&change_in_place as &dyn Fn(), &replace_file, &remove_file] {
            let target = writable.lock().unwrap();
            let content = Content { text: "new", is_appended: false };
            let temporary = target.prepare(&content, &ZeroEntropy, &CancelFlag::new()).unwrap();
            change();
            let expected =
                "Execution failed: file was changed meanwhile; read it again, then repeat the call";
            assert_eq!(temporary.persist_over(Some(&version)).unwrap_err().text(), expected);
            assert_ne!(std::fs::read_to_string(&file).unwrap_or_default(), "new");
        }
        // A file that appears is not replaced either.
        let target = writable.lock().unwrap();
        let content = Content { text: "new", is_appended: false };
        let temporary = target.prepare(&content, &ZeroEntropy, &CancelFlag::new()).unwrap();
        std::fs::write(&file, "appeared").unwrap();
        assert!(temporary.persist_over(None).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "appeared");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn cancelled_write_changes_nothing() {
        let directory = tempfile::TempDir::new().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "old").unwrap();
        let file = WritableFile::from_permit(&permit(&real.join("file")), "file").unwrap();
        for is_appended in [false, true] {
            let content = Content { text: "", is_appended };
            let cancelled = file.lock().unwrap().replace(&content, &ZeroEntropy, &CancelFlag::cancelled());
            assert_eq!(cancelled.unwrap_err().text(), "Execution failed: the call was cancelled");
        }
        assert_eq!(std::fs::read_to_string(real.join("file")).unwrap(), "old");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 1);
    }
}
