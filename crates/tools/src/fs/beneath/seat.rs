//! Where a file is written: a name in a folder whose handle is open beneath the allowed one. Folders that are missing are
//! made one by one, each in the handle of the one before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, RootedPath};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Base, Found, Place, open_at, open_folder, path_denied, own_path, split};
use crate::definition::execution_failed;
use crate::fs::protected::is_protected;

/// A name in a folder that is open: what is renamed to it is beneath the allowed folder.
pub(crate) struct Seat {
    pub(crate) folder: OwnedFd,
    pub(crate) name: String,
}

impl Seat {
    fn open(&self) -> Result<OwnedFd, Errno> {
        let bound = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        open_at(self.folder.as_fd(), &self.name, OFlags::PATH, bound)
    }

    /// Returns when the folder's names are on the disk. Neither a folder that may not be read nor some file systems
    /// can be asked for it.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(own_path(self.folder.as_fd()), flags, Mode::empty()) {
            Ok(folder) => rustix::fs::fsync(folder).or_else(|errno| match errno {
                Errno::INVAL => Ok(()),
                errno => Err(errno),
            }),
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Place {
    /// Opens the folder that a file is to be written in, at the end of all links. Folders that are missing are made.
    pub(crate) fn seat(&self) -> Result<Seat, ToolOutcome> {
        self.check_writable()?;
        let RootedPath { root, relative: rest } = &self.rooted;
        if rest.is_empty() {
            let (parent, name) = split(root.as_str());
            let folder = open_folder(parent).map_err(|errno| self.trouble(errno))?;
            return self.seated(folder, name);
        }
        let seat = self.seat_at(rest)?;
        if matches!(seat.open(), Err(Errno::LOOP)) { self.seat_behind_link() } else { Ok(seat) }
    }

    /// Finds what has the seat now. It is no link.
    pub(crate) fn seated_now(&self, seat: &Seat) -> Result<Option<Found>, ToolOutcome> {
        match seat.open() {
            Ok(handle) => self.look(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.trouble(errno)),
        }
    }

    /// A link stays, and what it leads to is replaced. Where that is was said in text: the seat found by it is only
    /// good when the same file has it.
    fn seat_behind_link(&self) -> Result<Seat, ToolOutcome> {
        let target = self.find()?.ok_or_else(|| path_denied(&self.given))?;
        let rest = self.rooted.root.relative_path(&target.real).filter(|rest| !rest.is_empty());
        let seat = self.seat_at(rest.ok_or_else(|| path_denied(&self.given))?)?;
        match self.seated_now(&seat)? {
            Some(found) if found.is_same(&target) => Ok(seat),
            _ => Err(self.trouble(Errno::AGAIN)),
        }
    }

    fn seat_at(&self, rest: &str) -> Result<Seat, ToolOutcome> {
        let (parent, name) = split(rest);
        self.seated(self.folder(parent)?, name)
    }

    /// Judges the path by its text, before anything is made.
    fn check_writable(&self) -> Result<(), ToolOutcome> {
        let RootedPath { root, relative: rest } = &self.rooted;
        let path = if rest.is_empty() { root.clone() } else { self.below(root, rest)? };
        self.check_write_path(&path)
    }

    fn below(&self, root: &FilePath, rest: &str) -> Result<FilePath, ToolOutcome> {
        FilePath::resolve(rest, root).map_err(|_| path_denied(&self.given))
    }

    fn check_write_path(&self, real: &FilePath) -> Result<(), ToolOutcome> {
        if is_protected(real.as_str()) {
            let why = "agents write no .git, no editor settings and no shell start files";
            let text = format!("Permission denied: {} is protected: {why}", self.given);
            return Err(ToolOutcome::Denied(text));
        }
        if self.is_blocked(real) { Err(path_denied(&self.given)) } else { Ok(()) }
    }

    fn seated(&self, folder: OwnedFd, name: &str) -> Result<Seat, ToolOutcome> {
        self.check_write_in(folder.as_fd(), name)?;
        Ok(Seat { folder, name: name.to_owned() })
    }

    /// Judges a name in a folder by where the folder really is.
    fn check_write_in(&self, folder: BorrowedFd<'_>, name: &str) -> Result<(), ToolOutcome> {
        let within = self.real_path(folder)?;
        let real = FilePath::resolve(name, &within).map_err(|_| path_denied(&self.given))?;
        self.check_write_path(&real)
    }

    fn folder(&self, parent: &str) -> Result<OwnedFd, ToolOutcome> {
        let root = self.root_made()?;
        if parent.is_empty() {
            return Ok(root.folder);
        }
        match root.open(parent, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => Ok(folder),
            Err(Errno::NOENT) => self.made(&root, parent),
            Err(errno) => Err(self.trouble(errno)),
        }
    }

    /// The allowed folder; when only it is missing, it is made.
    fn root_made(&self) -> Result<Base, ToolOutcome> {
        let opened = self.base().or_else(|errno| {
            if errno != Errno::NOENT {
                return Err(errno);
            }
            let (parent, name) = split(self.rooted.root.as_str());
            make_folder(open_folder(parent)?.as_fd(), name)?;
            self.base()
        });
        opened.map_err(|errno| self.trouble(errno))
    }

    fn made(&self, root: &Base, parent: &str) -> Result<OwnedFd, ToolOutcome> {
        let trouble = |errno| self.trouble(errno);
        let mut here = root.folder.try_clone().map_err(|fault| execution_failed(format!("{}: {fault}", self.given)))?;
        for (end, name) in steps(parent) {
            let step = || root.open(&parent[..end], OFlags::PATH | OFlags::DIRECTORY);
            here = match step() {
                Ok(folder) => folder,
                Err(Errno::NOENT) => {
                    self.check_write_in(here.as_fd(), name)?;
                    make_folder(here.as_fd(), name).map_err(trouble)?;
                    step().map_err(trouble)?
                }
                Err(errno) => return Err(trouble(errno)),
            };
        }
        Ok(here)
    }
}

/// Makes a folder, unless somebody else just did.
fn make_folder(within: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(within, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// The folders on the way to a relative path: where each ends in the text, and its name.
fn steps(path: &str) -> impl Iterator<Item = (usize, &str)> {
    path.split('/').scan(0, |end, name| {
        *end += name.len();
        let step = (*end, name);
        *end += 1;
        Some(step)
    })
}
