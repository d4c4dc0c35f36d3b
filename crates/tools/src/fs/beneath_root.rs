//! Files beneath an allowed folder. To decide and to open are one system call on the folder's handle, so that neither a
//! link nor a rename between the two can lead out of it. No path is looked up first and opened later.

mod target_directory;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, Permit, RootedPath};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub(crate) use target_directory::TargetDirectory;

use crate::definition::execution_failed;

/// One file of a call: the folder that allows it, what is closed, and what the model called it.
pub(crate) struct PermittedPath {
    rooted: RootedPath,
    blocked: Vec<FilePath>,
    requested_path: String,
}

/// A file that is there. Its handle neither reads nor writes yet: opening a device can already do something.
pub(crate) struct ResolvedFile {
    handle: OwnedFd,
    real_path: FilePath,
    stat: Stat,
}

/// Tries before the kernel's "something was renamed meanwhile" is believed.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// The longest path that is repeated to the model.
const DISPLAY_CHARS_MAX: usize = 200;

impl PermittedPath {
    /// The only file of a call.
    pub(crate) fn from_permit(permit: Permit, given: &str) -> Result<Self, ToolOutcome> {
        let rooted = permit.files.into_iter().next();
        let given = truncate_for_display(given);
        let rooted = rooted.ok_or_else(|| path_denied(&given))?;
        Ok(Self { rooted, blocked: permit.blocked, requested_path: given })
    }

    /// The path as the model wrote it, not too long.
    pub(crate) fn requested_path(&self) -> &str {
        &self.requested_path
    }

    /// Finds the file, following links that stay beneath the folder.
    pub(crate) fn find(&self) -> Result<Option<ResolvedFile>, ToolOutcome> {
        let opened = self.open_root().and_then(|base| base.open(&base.relative, OFlags::PATH));
        match opened {
            Ok(handle) => self.inspect(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// What to tell the model about an error.
    pub(crate) fn errno_outcome(&self, errno: Errno) -> ToolOutcome {
        match errno {
            Errno::XDEV | Errno::LOOP => path_denied(&self.requested_path),
            Errno::NOENT => self.not_found(),
            Errno::AGAIN => execution_failed(format!(
                "{}: folders were renamed meanwhile; try again",
                self.requested_path
            )),
            errno => execution_failed(format!("{}: {}", self.requested_path, std::io::Error::from(errno))),
        }
    }

    pub(crate) fn not_found(&self) -> ToolOutcome {
        execution_failed(format!("File not found: {}", self.requested_path))
    }

    fn open_root(&self) -> Result<RootDirectory, Errno> {
        let RootedPath { root, relative: rest } = &self.rooted;
        // Nothing is outside of `/`: there links may be absolute.
        let bound = if root.as_str() == "/" { ResolveFlags::IN_ROOT } else { ResolveFlags::BENEATH };
        match open_directory(root.as_str()) {
            Ok(folder) if rest.is_empty() => {
                Ok(RootDirectory { directory: folder, relative: ".".to_owned(), resolve_flags: bound })
            }
            Ok(folder) => {
                Ok(RootDirectory { directory: folder, relative: rest.clone(), resolve_flags: bound })
            }
            Err(Errno::NOTDIR | Errno::NOENT) if rest.is_empty() => {
                let (parent, name) = split_parent(root.as_str());
                let bound = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                Ok(RootDirectory {
                    directory: open_directory(parent)?,
                    relative: name.to_owned(),
                    resolve_flags: bound,
                })
            }
            Err(errno) => Err(errno),
        }
    }

    /// A handle is judged by where it really is: a link may have led into a closed folder.
    fn inspect(&self, handle: OwnedFd) -> Result<ResolvedFile, ToolOutcome> {
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.errno_outcome(errno))?;
        let real = self.real_path(handle.as_fd())?;
        if self.is_blocked(&real) || is_process_file(handle.as_fd(), &real) {
            return Err(path_denied(&self.requested_path));
        }
        Ok(ResolvedFile { handle, real_path: real, stat })
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
        let link = rustix::fs::readlink(proc_fd_path(handle), Vec::new())
            .map_err(|errno| self.errno_outcome(errno))?;
        let text = link.to_str().ok().filter(|text| text.starts_with('/'));
        let path = text.and_then(|text| FilePath::resolve(text, &FilePath::root()).ok());
        path.ok_or_else(|| path_denied(&self.requested_path))
    }
}

impl ResolvedFile {
    /// Says what it is when it is no regular file.
    pub(crate) fn require_regular(&self, place: &PermittedPath) -> Result<(), ToolOutcome> {
        let what = match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Directory => "a directory",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something else",
        };
        Err(execution_failed(format!("{} is {what}, not a regular file", place.requested_path)))
    }

    /// Opens the very file that was found.
    pub(crate) fn open(&self, access: OFlags) -> Result<File, Errno> {
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(proc_fd_path(self.handle.as_fd()), flags, Mode::empty()).map(File::from)
    }

    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    fn is_same_file(&self, other: &ResolvedFile) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (other.stat.st_dev, other.stat.st_ino)
    }
}

/// An open folder and what is wanted in it.
struct RootDirectory {
    directory: OwnedFd,
    relative: String,
    resolve_flags: ResolveFlags,
}

impl RootDirectory {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_at(self.directory.as_fd(), path, flags, self.resolve_flags)
    }
}

/// The allowed folder itself: its path was found without links, and one that is there now was put there since.
fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    open_at(CWD, path, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
}

fn open_at(folder: BorrowedFd<'_>, path: &str, flags: OFlags, bound: ResolveFlags) -> Result<OwnedFd, Errno> {
    let bound = bound | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), bound);
    let mut opened = open();
    for _ in 1..OPEN_ATTEMPTS_MAX {
        match opened {
            Err(Errno::AGAIN | Errno::INTR) => opened = open(),
            opened => return opened,
        }
    }
    opened
}

/// The files of a running process hold its environment, and with it the daemon's keys.
fn is_process_file(handle: BorrowedFd<'_>, real: &FilePath) -> bool {
    let is_proc =
        rustix::fs::fstatfs(handle).map_or(true, |stat| stat.f_type == rustix::fs::PROC_SUPER_MAGIC);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_proc && real.as_str().split('/').any(is_number)
}

fn proc_fd_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

fn path_denied(given: &str) -> ToolOutcome {
    ToolOutcome::Denied(format!("Permission denied: Path not in allowed directories: {given}"))
}

/// Folder and name; an absolute path keeps its first slash.
fn split_parent(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => ("", path),
    }
}

fn truncate_for_display(given: &str) -> String {
    match given.char_indices().nth(DISPLAY_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &given[..cut]),
        None => given.to_owned(),
    }
}
