//! Copies a directory: builds the copy under a temporary name beside its target, then renames it. Links are copied as
//! links. Cancelled and failed copies are removed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::checked_tree::{CheckedTree, TreeAction};
use super::entry::{EntryKind, EntryStat, open_listing, open_regular};
use super::replace::{COPY_BYTES_MAX, copy_chunks, too_long};
use super::stale_files::temporary_name;
use super::writable_file::LockedTarget;
use super::{PermittedPath, ReadableFile, ResolvedFile, WritableFile, proc_fd_path};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// What a call copied.
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    /// The number of entries, if it was a directory.
    pub(crate) entries: Option<usize>,
}

impl ReadableFile {
    /// Copies the file or directory to a target.
    pub(crate) fn copy_to(
        &self,
        target: &WritableFile,
        overwrite: bool,
        entropy: &dyn Entropy,
        stop: &CancelFlag,
    ) -> Result<Copied, ToolOutcome> {
        let Self(path) = self;
        let found = path.find()?.ok_or_else(|| path.not_found())?;
        if EntryKind::from_mode(found.stat().st_mode) == EntryKind::Directory {
            return copy_directory(path, &found, &target.lock()?, entropy, stop);
        }
        let source = self.open_found(&found)?;
        if source.size() > COPY_BYTES_MAX {
            return Err(too_long(&path.requested_path));
        }
        let bytes = target.lock()?.copy_from(source, overwrite, entropy, stop)?;
        Ok(Copied { bytes, entries: None })
    }
}

fn copy_directory(
    path: &PermittedPath,
    found: &ResolvedFile,
    target: &LockedTarget<'_>,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<Copied, ToolOutcome> {
    let requested = &target.path.requested_path;
    let mut tree = CheckedTree::of_source(path, found, stop)?;
    let target_path = target.path.real_entry_path(&target.target)?;
    if target_path.strip_prefix(&tree.real).is_some_and(|below| below.is_empty() || below.starts_with('/')) {
        return Err(execution_failed(format!("{requested}: a directory cannot be copied into itself")));
    }
    if target.find()?.is_some() {
        return Err(execution_failed(format!("{requested} exists; a directory is copied to a new path")));
    }
    tree.target = Some(target_path);
    let source = tree.open_directory(found.handle.as_fd(), ".")?;
    let temporary = TemporaryDirectory::create(target, &source, entropy)?;
    let mut copy = TreeCopy { path, target, directories: vec![temporary.open()?], bytes: 0, stop };
    tree.visit(Some(&source), &mut copy)?;
    let bytes = copy.bytes;
    temporary.publish(stop)?;
    Ok(Copied { bytes, entries: Some(tree.entries) })
}

/// The incomplete copy beside its target. Dropping it unpublished removes it.
struct TemporaryDirectory<'a> {
    target: &'a LockedTarget<'a>,
    name: String,
    is_published: bool,
}

impl<'a> TemporaryDirectory<'a> {
    fn create(
        target: &'a LockedTarget<'a>,
        source: &OwnedFd,
        entropy: &dyn Entropy,
    ) -> Result<Self, ToolOutcome> {
        let name = temporary_name(entropy)?;
        create_directory(&target.target.directory, &name, source)
            .map_err(|errno| target.path.errno_outcome(errno))?;
        Ok(Self { target, name, is_published: false })
    }

    fn open(&self) -> Result<OwnedFd, ToolOutcome> {
        let target = self.target;
        open_listing(target.target.directory.as_fd(), &self.name)
            .map_err(|errno| target.path.errno_outcome(errno))
    }

    fn publish(mut self, stop: &CancelFlag) -> Result<(), ToolOutcome> {
        let target = self.target;
        // One call for all files of the copy.
        rustix::fs::syncfs(self.open()?).map_err(|errno| target.path.errno_outcome(errno))?;
        target.record_replacement(&self.name)?;
        stop.check()?;
        target
            .rename_to_target(&self.name, RenameFlags::NOREPLACE)
            .map_err(|errno| target.rename_outcome(errno))?;
        self.is_published = true;
        target.sync()
    }
}

impl Drop for TemporaryDirectory<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            let directory = proc_fd_path(self.target.target.directory.as_fd());
            let _ = std::fs::remove_dir_all(format!("{directory}/{}", self.name));
        }
    }
}

/// Copies the entries of a tree.
struct TreeCopy<'a> {
    path: &'a PermittedPath,
    target: &'a LockedTarget<'a>,
    /// The open directories of the copy, innermost last.
    directories: Vec<OwnedFd>,
    bytes: u64,
    stop: &'a CancelFlag,
}

impl TreeCopy<'_> {
    /// The innermost directory.
    fn current(&self) -> Result<&OwnedFd, ToolOutcome> {
        self.directories.last().ok_or_else(|| self.path.not_found())
    }

    fn copy_file(&mut self, directory: &OwnedFd, name: &str, stat: &EntryStat) -> Result<(), ToolOutcome> {
        let (source, opened) =
            open_regular(directory.as_fd(), name).map_err(|errno| self.path.errno_outcome(errno))?;
        if opened.id != stat.id {
            return Err(self.path.errno_outcome(Errno::AGAIN));
        }
        let to_outcome = |fault: io::Error| self.target.path.io_outcome(&fault);
        let mode = Mode::from_raw_mode(stat.mode & 0o777);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let new = rustix::fs::openat(self.current()?, name, flags, mode);
        let mut new = new.map(File::from).map_err(|errno| to_outcome(errno.into()))?;
        let mut source = source.take(COPY_BYTES_MAX + 1 - self.bytes);
        self.bytes += copy_chunks(&mut source, &mut new, self.stop, to_outcome)?;
        if self.bytes > COPY_BYTES_MAX { Err(too_long(&self.path.requested_path)) } else { Ok(()) }
    }

    fn copy_link(&self, directory: &OwnedFd, name: &str) -> Result<(), ToolOutcome> {
        let copied = rustix::fs::readlinkat(directory, name, Vec::new());
        let content = copied.map_err(|errno| self.path.errno_outcome(errno))?;
        rustix::fs::symlinkat(&content, self.current()?, name)
            .map_err(|errno| self.target.path.errno_outcome(errno))
    }
}

impl TreeAction for TreeCopy<'_> {
    fn enter(&mut self, directory: &OwnedFd, name: &str) -> Result<(), ToolOutcome> {
        let to_outcome = |errno| self.target.path.errno_outcome(errno);
        create_directory(self.current()?, name, directory).map_err(to_outcome)?;
        let created = open_listing(self.current()?.as_fd(), name).map_err(to_outcome)?;
        self.directories.push(created);
        Ok(())
    }

    fn leaf(&mut self, directory: &OwnedFd, name: &str, stat: &EntryStat) -> Result<(), ToolOutcome> {
        match stat.kind {
            EntryKind::Link => self.copy_link(directory, name),
            _ => self.copy_file(directory, name, stat),
        }
    }

    fn leave(&mut self, _parent: &OwnedFd, _name: &str) -> Result<(), ToolOutcome> {
        self.directories.pop();
        Ok(())
    }
}

/// Creates a directory with the mode of another one, but always open to its owner.
fn create_directory(parent: &OwnedFd, name: &str, like: &OwnedFd) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(like)?.st_mode & 0o777 | 0o700;
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode))
}
