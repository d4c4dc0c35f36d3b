//! Files beneath an allowed folder. To decide and to open are one system call on the folder's handle, so that neither a
//! link nor a rename between the two can lead out of it. No path is looked up first and opened later.

mod seat;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, Permit, RootedPath};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub(crate) use seat::Seat;

use crate::definition::execution_failed;

/// One file of a call: the folder that allows it, what is closed, and what the model called it.
pub(crate) struct Place {
    rooted: RootedPath,
    blocked: Vec<FilePath>,
    given: String,
}

/// A file that is there. Its handle neither reads nor writes yet: opening a device can already do something.
pub(crate) struct Found {
    handle: OwnedFd,
    real: FilePath,
    stat: Stat,
}

/// Tries before the kernel's "something was renamed meanwhile" is believed.
const OPEN_TRIES: usize = 64;

/// The longest path that is repeated to the model.
const SHOWN_CHARS_MAX: usize = 200;

impl Place {
    /// The only file of a call.
    pub(crate) fn only(permit: Permit, given: &str) -> Result<Self, ToolOutcome> {
        let rooted = permit.files.into_iter().next();
        let given = shown(given);
        let rooted = rooted.ok_or_else(|| path_denied(&given))?;
        Ok(Self { rooted, blocked: permit.blocked, given })
    }

    /// The path as the model wrote it, not too long.
    pub(crate) fn given(&self) -> &str {
        &self.given
    }

    /// Finds the file, following links that stay beneath the folder.
    pub(crate) fn find(&self) -> Result<Option<Found>, ToolOutcome> {
        let opened = self.base().and_then(|base| base.open(&base.rest, OFlags::PATH));
        match opened {
            Ok(handle) => self.look(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.trouble(errno)),
        }
    }

    /// What to tell the model about an error.
    pub(crate) fn trouble(&self, errno: Errno) -> ToolOutcome {
        match errno {
            Errno::XDEV | Errno::LOOP => path_denied(&self.given),
            Errno::NOENT => self.missing(),
            Errno::AGAIN => execution_failed(format!("{}: folders were renamed meanwhile; try again", self.given)),
            errno => execution_failed(format!("{}: {}", self.given, std::io::Error::from(errno))),
        }
    }

    pub(crate) fn missing(&self) -> ToolOutcome {
        execution_failed(format!("File not found: {}", self.given))
    }

    fn base(&self) -> Result<Base, Errno> {
        let RootedPath { root, relative: rest } = &self.rooted;
        // Nothing is outside of `/`: there links may be absolute.
        let bound = if root.as_str() == "/" { ResolveFlags::IN_ROOT } else { ResolveFlags::BENEATH };
        match open_folder(root.as_str()) {
            Ok(folder) if rest.is_empty() => Ok(Base { folder, rest: ".".to_owned(), bound }),
            Ok(folder) => Ok(Base { folder, rest: rest.clone(), bound }),
            Err(Errno::NOTDIR | Errno::NOENT) if rest.is_empty() => {
                let (parent, name) = split(root.as_str());
                let bound = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                Ok(Base { folder: open_folder(parent)?, rest: name.to_owned(), bound })
            }
            Err(errno) => Err(errno),
        }
    }

    /// A handle is judged by where it really is: a link may have led into a closed folder.
    fn look(&self, handle: OwnedFd) -> Result<Found, ToolOutcome> {
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.trouble(errno))?;
        let real = self.real_path(handle.as_fd())?;
        if self.is_blocked(&real) || is_of_process(handle.as_fd(), &real) {
            return Err(path_denied(&self.given));
        }
        Ok(Found { handle, real, stat })
    }

    fn is_blocked(&self, real: &FilePath) -> bool {
        // The kernel's mark for a name that was taken away since. A file may also just be called so.
        let before = real.as_str().strip_suffix(" (deleted)").unwrap_or(real.as_str());
        let before = FilePath::resolve(before, &FilePath::root());
        let is_in = |path: &FilePath| self.blocked.iter().any(|blocked| blocked.contains(path));
        is_in(real) || before.is_ok_and(|before| is_in(&before))
    }

    /// Where a handle is. A place that cannot be said in text cannot be judged, and is closed.
    fn real_path(&self, handle: BorrowedFd<'_>) -> Result<FilePath, ToolOutcome> {
        let link = rustix::fs::readlink(own_path(handle), Vec::new()).map_err(|errno| self.trouble(errno))?;
        let text = link.to_str().ok().filter(|text| text.starts_with('/'));
        let path = text.and_then(|text| FilePath::resolve(text, &FilePath::root()).ok());
        path.ok_or_else(|| path_denied(&self.given))
    }
}

impl Found {
    /// Says what it is when it is no regular file.
    pub(crate) fn regular(&self, place: &Place) -> Result<(), ToolOutcome> {
        let what = match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Directory => "a directory",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something else",
        };
        Err(execution_failed(format!("{} is {what}, not a regular file", place.given)))
    }

    /// Opens the very file that was found.
    pub(crate) fn open(&self, access: OFlags) -> Result<File, Errno> {
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(own_path(self.handle.as_fd()), flags, Mode::empty()).map(File::from)
    }

    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    fn is_same(&self, other: &Found) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (other.stat.st_dev, other.stat.st_ino)
    }
}

/// An open folder and what is wanted in it.
struct Base {
    folder: OwnedFd,
    rest: String,
    bound: ResolveFlags,
}

impl Base {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_at(self.folder.as_fd(), path, flags, self.bound)
    }
}

/// The allowed folder itself: its path was found without links, and one that is there now was put there since.
fn open_folder(path: &str) -> Result<OwnedFd, Errno> {
    open_at(CWD, path, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
}

fn open_at(folder: BorrowedFd<'_>, path: &str, flags: OFlags, bound: ResolveFlags) -> Result<OwnedFd, Errno> {
    let bound = bound | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), bound);
    let mut opened = open();
    for _ in 1..OPEN_TRIES {
        match opened {
            Err(Errno::AGAIN | Errno::INTR) => opened = open(),
            opened => return opened,
        }
    }
    opened
}

/// The files of a running process hold its environment, and with it the daemon's keys.
fn is_of_process(handle: BorrowedFd<'_>, real: &FilePath) -> bool {
    let is_proc =
        rustix::fs::fstatfs(handle).map_or(true, |stat| stat.f_type == rustix::fs::PROC_SUPER_MAGIC);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_proc && real.as_str().split('/').any(is_number)
}

fn own_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

fn path_denied(given: &str) -> ToolOutcome {
    ToolOutcome::Denied(format!("Permission denied: Path not in allowed directories: {given}"))
}

/// Folder and name; an absolute path keeps its first slash.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => ("", path),
    }
}

fn shown(given: &str) -> String {
    match given.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &given[..cut]),
        None => given.to_owned(),
    }
}
