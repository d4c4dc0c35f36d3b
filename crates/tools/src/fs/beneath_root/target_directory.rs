//! Where a file is written: a name in a folder whose handle is open beneath the allowed one. Folders that are missing are
//! made one by one, each in the handle of the one before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, RootedPath};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{
    PermittedPath, ResolvedFile, RootDirectory, open_at, open_directory, path_denied, proc_fd_path,
    split_parent,
};
use crate::definition::execution_failed;
use crate::fs::protected::is_protected;

/// A name in a folder that is open: what is renamed to it is beneath the allowed folder.
pub(crate) struct TargetDirectory {
    pub(crate) directory: OwnedFd,
    pub(crate) file_name: String,
}

impl TargetDirectory {
    fn open(&self) -> Result<OwnedFd, Errno> {
        let bound = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        open_at(self.directory.as_fd(), &self.file_name, OFlags::PATH, bound)
    }

    /// Returns when the folder's names are on the disk. Neither a folder that may not be read nor some file systems
    /// can be asked for it.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(proc_fd_path(self.directory.as_fd()), flags, Mode::empty()) {
            Ok(folder) => rustix::fs::fsync(folder).or_else(|errno| match errno {
                Errno::INVAL => Ok(()),
                errno => Err(errno),
            }),
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl PermittedPath {
    /// Opens the folder that a file is to be written in, at the end of all links. Folders that are missing are made.
    pub(crate) fn open_target(&self) -> Result<TargetDirectory, ToolOutcome> {
        self.check_writable()?;
        let RootedPath { root, relative: rest } = &self.rooted;
        if rest.is_empty() {
            let (parent, name) = split_parent(root.as_str());
            let folder = open_directory(parent).map_err(|errno| self.errno_outcome(errno))?;
            return self.checked_target(folder, name);
        }
        let seat = self.open_target_at(rest)?;
        if matches!(seat.open(), Err(Errno::LOOP)) { self.open_link_target() } else { Ok(seat) }
    }

    /// Finds what has the seat now. It is no link.
    pub(crate) fn find_target_file(
        &self,
        seat: &TargetDirectory,
    ) -> Result<Option<ResolvedFile>, ToolOutcome> {
        match seat.open() {
            Ok(handle) => self.inspect(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// A link stays, and what it leads to is replaced. Where that is was said in text: the seat found by it is only
    /// good when the same file has it.
    fn open_link_target(&self) -> Result<TargetDirectory, ToolOutcome> {
        let target = self.find()?.ok_or_else(|| path_denied(&self.requested_path))?;
        let rest = self.rooted.root.relative_path(&target.real_path).filter(|rest| !rest.is_empty());
        let seat = self.open_target_at(rest.ok_or_else(|| path_denied(&self.requested_path))?)?;
        match self.find_target_file(&seat)? {
            Some(found) if found.is_same_file(&target) => Ok(seat),
            _ => Err(self.errno_outcome(Errno::AGAIN)),
        }
    }

    fn open_target_at(&self, rest: &str) -> Result<TargetDirectory, ToolOutcome> {
        let (parent, name) = split_parent(rest);
        self.checked_target(self.open_or_create_parent(parent)?, name)
    }

    /// Judges the path by its text, before anything is made.
    fn check_writable(&self) -> Result<(), ToolOutcome> {
        let RootedPath { root, relative: rest } = &self.rooted;
        let path = if rest.is_empty() { root.clone() } else { self.resolve_below(root, rest)? };
        self.check_write_path(&path)
    }

    fn resolve_below(&self, root: &FilePath, rest: &str) -> Result<FilePath, ToolOutcome> {
        FilePath::resolve(rest, root).map_err(|_| path_denied(&self.requested_path))
    }

    fn check_write_path(&self, real: &FilePath) -> Result<(), ToolOutcome> {
        if is_protected(real.as_str()) {
            let why = "agents write no .git, no editor settings and no shell start files";
            let text = format!("Permission denied: {} is protected: {why}", self.requested_path);
            return Err(ToolOutcome::Denied(text));
        }
        if self.is_blocked(real) { Err(path_denied(&self.requested_path)) } else { Ok(()) }
    }

    fn checked_target(&self, folder: OwnedFd, name: &str) -> Result<TargetDirectory, ToolOutcome> {
        self.check_write_in(folder.as_fd(), name)?;
        Ok(TargetDirectory { directory: folder, file_name: name.to_owned() })
    }

    /// Judges a name in a folder by where the folder really is.
    fn check_write_in(&self, folder: BorrowedFd<'_>, name: &str) -> Result<(), ToolOutcome> {
        let within = self.real_path(folder)?;
        let real = FilePath::resolve(name, &within).map_err(|_| path_denied(&self.requested_path))?;
        self.check_write_path(&real)
    }

    fn open_or_create_parent(&self, parent: &str) -> Result<OwnedFd, ToolOutcome> {
        let root = self.open_or_create_root()?;
        if parent.is_empty() {
            return Ok(root.directory);
        }
        match root.open(parent, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => Ok(folder),
            Err(Errno::NOENT) => self.create_directories(&root, parent),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// The allowed folder; when only it is missing, it is made.
    fn open_or_create_root(&self) -> Result<RootDirectory, ToolOutcome> {
        let opened = self.open_root().or_else(|errno| {
            if errno != Errno::NOENT {
                return Err(errno);
            }
            let (parent, name) = split_parent(self.rooted.root.as_str());
            create_directory(open_directory(parent)?.as_fd(), name)?;
            self.open_root()
        });
        opened.map_err(|errno| self.errno_outcome(errno))
    }

    fn create_directories(&self, root: &RootDirectory, parent: &str) -> Result<OwnedFd, ToolOutcome> {
        let trouble = |errno| self.errno_outcome(errno);
        let mut here = root
            .directory
            .try_clone()
            .map_err(|fault| execution_failed(format!("{}: {fault}", self.requested_path)))?;
        for (end, name) in path_components(parent) {
            let step = || root.open(&parent[..end], OFlags::PATH | OFlags::DIRECTORY);
            here = match step() {
                Ok(folder) => folder,
                Err(Errno::NOENT) => {
                    self.check_write_in(here.as_fd(), name)?;
                    create_directory(here.as_fd(), name).map_err(trouble)?;
                    step().map_err(trouble)?
                }
                Err(errno) => return Err(trouble(errno)),
            };
        }
        Ok(here)
    }
}

/// Makes a folder, unless somebody else just did.
fn create_directory(within: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(within, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// The folders on the way to a relative path: where each ends in the text, and its name.
fn path_components(path: &str) -> impl Iterator<Item = (usize, &str)> {
    path.split('/').scan(0, |end, name| {
        *end += name.len();
        let step = (*end, name);
        *end += 1;
        Some(step)
    })
}
