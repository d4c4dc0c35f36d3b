//! The directory that a file is written to, opened beneath the allowed root. Creates missing directories one by one,
//! each relative to the handle of its parent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use agent::ToolOutcome;
use agent::permission::{FilePath, RootedPath};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::entry::EntryKind;
use super::protected::is_protected;
use super::{
    BaseDirectory, PermittedPath, ResolvedFile, RootDirectory, open_at, path_denied, proc_fd_path,
    split_parent,
};
use crate::definition::execution_failed;

/// Maximum depth of a path whose directories are created.
const DEPTH_MAX: usize = 128;

/// An open directory and a file name in it: a rename to it stays beneath the allowed root.
pub(super) struct TargetDirectory {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) file_name: String,
    pub(super) created: CreatedDirectories,
}

/// Directories that a call has created, each with its parent. On drop, those that are empty are removed: a call that
/// fails leaves none behind.
#[derive(Default)]
pub(super) struct CreatedDirectories(Vec<(Arc<OwnedFd>, String)>);

impl CreatedDirectories {
    /// Takes the directories that a later target of the same call has created.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Whether the call has created none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The directories, each with its parent, the outermost first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Arc<OwnedFd>, String)> {
        self.0.iter()
    }

    /// Creates a directory; succeeds if another process just created it.
    fn create(&mut self, parent: &Arc<OwnedFd>, name: &str) -> Result<(), Errno> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => self.0.push((Arc::clone(parent), name.to_owned())),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Retains them, even if they are empty.
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedDirectories {
    fn drop(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

impl TargetDirectory {
    fn open(&self) -> Result<OwnedFd, Errno> {
        let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        open_at(self.directory.as_fd(), &self.file_name, OFlags::PATH, resolve_flags)
    }

    /// Syncs the directory's entries to disk. Skipped for unreadable directories and for file systems that do not
    /// support it.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(proc_fd_path(self.directory.as_fd()), flags, Mode::empty()) {
            Ok(directory) => rustix::fs::fsync(directory).or_else(|errno| match errno {
                Errno::INVAL => Ok(()),
                errno => Err(errno),
            }),
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl PermittedPath {
    /// Opens the directory of the file to write, after resolving links. Creates missing directories.
    pub(super) fn open_target(&self) -> Result<TargetDirectory, ToolOutcome> {
        let target = self.open_target_entry()?;
        let is_link = !self.rooted.relative.is_empty() && matches!(target.open(), Err(Errno::LOOP));
        if is_link { self.open_link_target(&self.open_base()?) } else { Ok(target) }
    }

    /// Opens the directory of the entry to write, which may be a link itself. Creates missing directories.
    pub(super) fn open_target_entry(&self) -> Result<TargetDirectory, ToolOutcome> {
        self.check_writable()?;
        let base = self.open_base()?;
        let RootedPath { root, relative } = &self.rooted;
        if relative.is_empty() {
            if base.path == *root {
                let text = format!("{} is a directory, not a regular file", self.requested_path);
                return Err(execution_failed(text));
            }
            let (parent, name) = split_parent(root.as_str());
            let directory = base.open(parent).map_err(|errno| self.errno_outcome(errno))?;
            return self.checked_target(directory, name, CreatedDirectories::default());
        }
        self.open_target_at(&base, relative)
    }

    /// Opens the directory of an entry, which may be a link itself; none if the directory does not exist.
    pub(super) fn open_existing(&self) -> Result<Option<TargetDirectory>, ToolOutcome> {
        self.check_writable()?;
        let base = self.open_base()?;
        let RootedPath { root, relative } = &self.rooted;
        let opened = if relative.is_empty() {
            let (parent, name) = split_parent(root.as_str());
            base.open(parent).map(|directory| (directory, name))
        } else {
            let (parent, name) = split_parent(relative);
            self.open_root(&base).and_then(|root| match parent {
                "" => Ok((root.directory, name)),
                parent => {
                    let opened = root.open(parent, OFlags::PATH | OFlags::DIRECTORY)?;
                    Ok((Arc::new(opened), name))
                }
            })
        };
        match opened {
            Ok((directory, name)) => {
                self.checked_target(directory, name, CreatedDirectories::default()).map(Some)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// Opens the directory of an existing entry, which may be a link itself. Creates nothing.
    pub(super) fn open_entry(&self) -> Result<TargetDirectory, ToolOutcome> {
        self.check_writable()?;
        let base = self.open_base()?;
        let relative = &self.rooted.relative;
        if relative.is_empty() {
            let requested = &self.requested_path;
            return Err(execution_failed(format!(
                "{requested} was granted itself: only its contents can be changed"
            )));
        }
        let to_outcome = |errno| self.errno_outcome(errno);
        let root = self.open_root(&base).map_err(to_outcome)?;
        let (parent, name) = split_parent(relative);
        let directory = match parent {
            "" => root.directory,
            parent => Arc::new(root.open(parent, OFlags::PATH | OFlags::DIRECTORY).map_err(to_outcome)?),
        };
        self.checked_target(directory, name, CreatedDirectories::default())
    }

    /// Creates a directory with the missing ones above it. Returns whether it is new.
    pub(super) fn create_directory(&self) -> Result<bool, ToolOutcome> {
        self.check_writable()?;
        if let Some(found) = self.find()? {
            let is_directory = EntryKind::from_mode(found.stat().st_mode) == EntryKind::Directory;
            let text = || format!("{} exists and is not a directory", self.requested_path);
            return if is_directory { Ok(false) } else { Err(execution_failed(text())) };
        }
        let base = self.open_base()?;
        let (_, created) = self.open_or_create_parent(&base, &self.rooted.relative)?;
        self.record_directories(&created)?;
        created.keep();
        Ok(true)
    }

    /// The path of an entry by the real path of its directory.
    pub(super) fn real_entry_path(&self, entry: &TargetDirectory) -> Result<String, ToolOutcome> {
        let directory = self.real_path(entry.directory.as_fd())?;
        Ok(format!("{}/{}", directory.as_str().trim_end_matches('/'), entry.file_name))
    }

    /// Opens the current file at the target, which is not a link.
    pub(super) fn find_target_file(
        &self,
        target: &TargetDirectory,
    ) -> Result<Option<ResolvedFile>, ToolOutcome> {
        match target.open() {
            Ok(handle) => self.inspect(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// Resolves a link, so that the write replaces its target and leaves the link. The target is found by path, so it
    /// is accepted only if it is still the same file.
    fn open_link_target(&self, base: &BaseDirectory) -> Result<TargetDirectory, ToolOutcome> {
        let file = self.find()?.ok_or_else(|| path_denied(&self.requested_path))?;
        let relative =
            self.rooted.root.relative_path(&file.real_path).filter(|relative| !relative.is_empty());
        let target = self.open_target_at(base, relative.ok_or_else(|| path_denied(&self.requested_path))?)?;
        match self.find_target_file(&target)? {
            Some(found) if found.is_same_file(&file) => Ok(target),
            _ => Err(self.errno_outcome(Errno::AGAIN)),
        }
    }

    fn open_target_at(&self, base: &BaseDirectory, relative: &str) -> Result<TargetDirectory, ToolOutcome> {
        let (parent, name) = split_parent(relative);
        let (directory, created) = self.open_or_create_parent(base, parent)?;
        self.checked_target(directory, name, created)
    }

    /// Checks the path by its text, before any directory is created.
    fn check_writable(&self) -> Result<(), ToolOutcome> {
        let RootedPath { root, relative } = &self.rooted;
        let path = if relative.is_empty() { root.clone() } else { self.resolve_below(root, relative)? };
        self.check_write_path(&path)
    }

    fn resolve_below(&self, root: &FilePath, relative: &str) -> Result<FilePath, ToolOutcome> {
        FilePath::resolve(relative, root).map_err(|_| path_denied(&self.requested_path))
    }

    fn check_write_path(&self, real: &FilePath) -> Result<(), ToolOutcome> {
        if is_protected(real.as_str()) {
            let why = "agents write no .git, no editor settings, no shell start files and no credentials";
            let text = format!("Permission denied: {} is protected: {why}", self.requested_path);
            return Err(ToolOutcome::Denied(text));
        }
        if self.is_blocked(real) { Err(path_denied(&self.requested_path)) } else { Ok(()) }
    }

    fn checked_target(
        &self,
        directory: Arc<OwnedFd>,
        name: &str,
        created: CreatedDirectories,
    ) -> Result<TargetDirectory, ToolOutcome> {
        self.check_write_in(directory.as_fd(), name)?;
        Ok(TargetDirectory { directory, file_name: name.to_owned(), created })
    }

    /// Checks a file name by the real path of its directory.
    fn check_write_in(&self, directory: BorrowedFd<'_>, name: &str) -> Result<(), ToolOutcome> {
        let parent_path = self.real_path(directory)?;
        let real = FilePath::resolve(name, &parent_path).map_err(|_| path_denied(&self.requested_path))?;
        self.check_write_path(&real)?;
        self.check_alias(directory, &parent_path)
    }

    /// Opens a directory below the root, or creates it.
    fn open_or_create_parent(
        &self,
        base: &BaseDirectory,
        parent: &str,
    ) -> Result<(Arc<OwnedFd>, CreatedDirectories), ToolOutcome> {
        let mut created = CreatedDirectories::default();
        let root = self.open_or_create_root(base, &mut created)?;
        let directory = match parent {
            "" => root.directory,
            parent => match root.open(parent, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(directory) => Arc::new(directory),
                Err(Errno::NOENT) => self.create_directories(&root, parent, &mut created)?,
                Err(errno) => return Err(self.errno_outcome(errno)),
            },
        };
        Ok((directory, created))
    }

    /// Opens the allowed root; creates it if only its last component is missing.
    fn open_or_create_root(
        &self,
        base: &BaseDirectory,
        created: &mut CreatedDirectories,
    ) -> Result<RootDirectory, ToolOutcome> {
        let opened = self.open_root(base).or_else(|errno| {
            if errno != Errno::NOENT {
                return Err(errno);
            }
            let (parent, name) = split_parent(self.rooted.root.as_str());
            created.create(&base.open(parent)?, name)?;
            self.open_root(base)
        });
        opened.map_err(|errno| self.errno_outcome(errno))
    }

    fn create_directories(
        &self,
        root: &RootDirectory,
        parent: &str,
        created: &mut CreatedDirectories,
    ) -> Result<Arc<OwnedFd>, ToolOutcome> {
        if parent.split('/').count() > DEPTH_MAX {
            let requested = &self.requested_path;
            return Err(execution_failed(format!("{requested}: more than {DEPTH_MAX} directories deep")));
        }
        let to_outcome = |errno| self.errno_outcome(errno);
        let mut current = Arc::clone(&root.directory);
        for (end, name) in path_components(parent) {
            let open_next = || root.open(&parent[..end], OFlags::PATH | OFlags::DIRECTORY);
            let next = match open_next() {
                Ok(directory) => directory,
                Err(Errno::NOENT) => {
                    self.check_write_in(current.as_fd(), name)?;
                    created.create(&current, name).map_err(to_outcome)?;
                    open_next().map_err(to_outcome)?
                }
                Err(errno) => return Err(to_outcome(errno)),
            };
            current = Arc::new(next);
        }
        Ok(current)
    }
}

/// The directories of a relative path: the end offset of each in the text, and its name.
fn path_components(path: &str) -> impl Iterator<Item = (usize, &str)> {
    path.split('/').scan(0, |end, name| {
        *end += name.len();
        let component = (*end, name);
        *end += 1;
        Some(component)
    })
}
