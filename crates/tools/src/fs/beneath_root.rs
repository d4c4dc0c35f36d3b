//! Opens files beneath an allowed directory. Permission check and open are one system call (`openat2`) on the
//! directory's handle, so that no symbolic link and no concurrent rename can escape it. No path is checked first and
//! opened later. The only module through which tools reach files: tidy forbids file APIs outside it.

mod append;
mod blocked;
mod checked_tree;
mod copy_tree;
mod directory_handle;
mod entry;
mod granted_directory;
mod protected;
#[cfg(test)]
mod races;
mod readable_file;
mod recording;
mod remove;
mod replace;
mod repository;
mod restore;
mod stale_files;
mod target_directory;
mod version;
mod walk;
mod writable_file;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use agent::ToolOutcome;
use agent::outside::{ChangeRecorder, Unrecorded};
use agent::permission::{DirectoryIdentity, FilePath, FilePermit, RootedPath};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub(crate) use blocked::{Hiding, hiding_of, is_blocked_alias};
pub(crate) use directory_handle::DirectoryHandle;
pub(crate) use entry::EntryKind;
pub(crate) use granted_directory::identify_directory;
pub(crate) use protected::is_credential;
pub(crate) use readable_file::{ReadableFile, binary_file, is_binary};
pub(crate) use recording::record_all;
pub(crate) use remove::RemovableEntry;
pub(crate) use replace::{PublishedChange, TemporaryFile};
pub(crate) use repository::{ReadableRepository, RepositoryDirectories};
pub(crate) use restore::restore;
pub(crate) use version::FileVersion;
pub(crate) use walk::{ReadableTree, WalkEntry, WalkOptions, WalkReport};
pub(crate) use writable_file::{Content, LockedTarget, WritableFile};

use self::granted_directory::{open_directory, open_granted};
use crate::definition::execution_failed;

/// The permitted path of a call: its root directory, the blocked directories, the identities of the granted ones, and
/// the path as the model wrote it.
struct PermittedPath {
    rooted: RootedPath,
    blocked: Vec<FilePath>,
    identities: Vec<DirectoryIdentity>,
    requested_path: String,
    /// Records changes before they take effect.
    changes: Arc<dyn ChangeRecorder>,
}

/// An existing file. Its handle is opened with `O_PATH`: opening a device for reading can already have side effects.
struct ResolvedFile {
    handle: OwnedFd,
    real_path: FilePath,
    stat: Stat,
}

/// Attempts before `EAGAIN`, the kernel's report of a concurrent rename, is returned.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// Maximum length of a path in messages to the model.
const DISPLAY_CHARS_MAX: usize = 200;

impl PermittedPath {
    /// The permitted file, or a denial if there is none.
    fn new(file: Option<&FilePermit>, requested: &str) -> Result<Self, ToolOutcome> {
        let requested_path = truncate_for_display(requested);
        let file = file.cloned().ok_or_else(|| path_denied(&requested_path))?;
        let FilePermit { path, blocked, identities } = file;
        Ok(Self { rooted: path, blocked, identities, requested_path, changes: Arc::new(Unrecorded) })
    }

    /// Resolves the file, following symbolic links that stay beneath the root.
    fn find(&self) -> Result<Option<ResolvedFile>, ToolOutcome> {
        let base = self.open_base()?;
        let opened = self.open_root(&base).and_then(|root| root.open(&root.relative, OFlags::PATH));
        match opened {
            Ok(handle) => self.inspect(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    /// The outcome for an error of a system call.
    fn errno_outcome(&self, errno: Errno) -> ToolOutcome {
        match errno {
            Errno::XDEV | Errno::LOOP => path_denied(&self.requested_path),
            Errno::NOENT => self.not_found(),
            Errno::AGAIN => execution_failed(format!(
                "{}: a directory was renamed concurrently; try again",
                self.requested_path
            )),
            errno => self.io_outcome(&errno.into()),
        }
    }

    /// The outcome for an error on the open file.
    fn io_outcome(&self, fault: &std::io::Error) -> ToolOutcome {
        execution_failed(format!("{}: {fault}", self.requested_path))
    }

    fn credential_denied(&self) -> ToolOutcome {
        ToolOutcome::Denied(format!(
            "Permission denied: {} is protected: it contains credentials; ask the user for what you need from it",
            self.requested_path
        ))
    }

    fn not_found(&self) -> ToolOutcome {
        execution_failed(format!("File not found: {}", self.requested_path))
    }

    /// Opens the innermost granted directory at or above the root, after checking that it and those above it are still
    /// the granted ones. Everything else is opened relative to its handle.
    fn open_base(&self) -> Result<BaseDirectory, ToolOutcome> {
        let mut base = None;
        for identity in &self.identities {
            let directory = open_granted(identity).map_err(|_| replaced(&identity.path))?;
            base = Some(BaseDirectory { directory, path: identity.path.clone() });
        }
        base.map_or_else(|| BaseDirectory::root().map_err(|errno| self.errno_outcome(errno)), Ok)
    }

    fn open_root(&self, base: &BaseDirectory) -> Result<RootDirectory, Errno> {
        let RootedPath { root, relative } = &self.rooted;
        // Nothing is outside `/`: there absolute links are allowed.
        let resolve_flags = if root.as_str() == "/" { ResolveFlags::IN_ROOT } else { ResolveFlags::BENEATH };
        match base.open(root.as_str()) {
            Ok(directory) if relative.is_empty() => {
                Ok(RootDirectory { directory, relative: ".".to_owned(), resolve_flags })
            }
            Ok(directory) => Ok(RootDirectory { directory, relative: relative.clone(), resolve_flags }),
            Err(Errno::NOTDIR | Errno::NOENT) if relative.is_empty() => {
                let (parent, name) = split_parent(root.as_str());
                let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                Ok(RootDirectory { directory: base.open(parent)?, relative: name.to_owned(), resolve_flags })
            }
            Err(errno) => Err(errno),
        }
    }

    /// Checks where a handle really is: a link may lead into a blocked directory.
    fn inspect(&self, handle: OwnedFd) -> Result<ResolvedFile, ToolOutcome> {
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.errno_outcome(errno))?;
        let real = self.real_path(handle.as_fd())?;
        if self.is_blocked(&real) || is_process_file(handle.as_fd(), &real) {
            return Err(path_denied(&self.requested_path));
        }
        if is_credential(real.as_str()) {
            return Err(self.credential_denied());
        }
        self.check_alias(handle.as_fd(), &real)?;
        Ok(ResolvedFile { handle, real_path: real, stat })
    }

    /// Denies a file that is in a blocked directory under another name.
    fn check_alias(&self, handle: BorrowedFd<'_>, real: &FilePath) -> Result<(), ToolOutcome> {
        match is_blocked_alias(handle, real, &self.blocked) {
            Ok(false) => Ok(()),
            Ok(true) => Err(path_denied(&self.requested_path)),
            Err(errno) => Err(self.errno_outcome(errno)),
        }
    }

    fn is_blocked(&self, real: &FilePath) -> bool {
        // The kernel appends this suffix to the path of a deleted file. A file name may also end with it.
        let before = real.as_str().strip_suffix(" (deleted)").unwrap_or(real.as_str());
        let before = FilePath::resolve(before, &FilePath::root());
        let is_in = |path: &FilePath| self.blocked.iter().any(|blocked| blocked.contains(path));
        is_in(real) || before.is_ok_and(|before| is_in(&before))
    }

    /// The real path of a handle. A path that is not UTF-8 cannot be checked, and is denied.
    fn real_path(&self, handle: BorrowedFd<'_>) -> Result<FilePath, ToolOutcome> {
        real_path(handle).ok_or_else(|| path_denied(&self.requested_path))
    }
}

impl ResolvedFile {
    /// Fails, naming the file type, unless this is a regular file.
    fn require_regular(&self, path: &PermittedPath) -> Result<(), ToolOutcome> {
        let kind = EntryKind::from_mode(self.stat.st_mode);
        if kind == EntryKind::File {
            return Ok(());
        }
        let text = format!("{} is {}, not a regular file", path.requested_path, kind.description());
        Err(execution_failed(text))
    }

    /// Opens the same file that was resolved, via its handle.
    fn open(&self, access: OFlags) -> Result<File, Errno> {
        reopen(self.handle.as_fd(), access)
    }

    fn stat(&self) -> &Stat {
        &self.stat
    }

    fn is_same_file(&self, other: &ResolvedFile) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (other.stat.st_dev, other.stat.st_ino)
    }
}

/// An open directory at or above the root, with its path.
struct BaseDirectory {
    directory: Arc<OwnedFd>,
    path: FilePath,
}

impl BaseDirectory {
    fn root() -> Result<Self, Errno> {
        let path = FilePath::root();
        Ok(Self { directory: Arc::new(open_directory(path.as_str())?), path })
    }

    /// Opens a directory at or below this one, without symbolic links.
    fn open(&self, path: &str) -> Result<Arc<OwnedFd>, Errno> {
        let path = FilePath::resolve(path, &self.path).map_err(|_| Errno::INVAL)?;
        match self.path.relative_path(&path) {
            None => Err(Errno::XDEV),
            Some("") => Ok(Arc::clone(&self.directory)),
            Some(relative) => {
                let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                open_at(self.directory.as_fd(), relative, flags, resolve_flags).map(Arc::new)
            }
        }
    }
}

/// An open root directory and a path relative to it.
struct RootDirectory {
    directory: Arc<OwnedFd>,
    relative: String,
    resolve_flags: ResolveFlags,
}

impl RootDirectory {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_at(self.directory.as_fd(), path, flags, self.resolve_flags)
    }
}

fn open_at(
    directory: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    resolve_flags: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let resolve_flags = resolve_flags | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve_flags);
    let mut opened = open();
    for _ in 1..OPEN_ATTEMPTS_MAX {
        match opened {
            Err(Errno::AGAIN | Errno::INTR) => opened = open(),
            opened => return opened,
        }
    }
    opened
}

/// Opens the file of a handle.
fn reopen(handle: BorrowedFd<'_>, access: OFlags) -> Result<File, Errno> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(proc_fd_path(handle), flags, Mode::empty()).map(File::from)
}

/// Whether this is a `/proc` file of a process: these expose its environment, and thereby the daemon's API keys.
fn is_process_file(handle: BorrowedFd<'_>, real: &FilePath) -> bool {
    let is_proc =
        rustix::fs::fstatfs(handle).map_or(true, |stat| stat.f_type == rustix::fs::PROC_SUPER_MAGIC);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // Elsewhere, a second mount does not show the process in its path.
    is_proc && (!real.as_str().starts_with("/proc/") || real.as_str().split('/').any(is_number))
}

/// The real path of a handle; none if it is not UTF-8.
pub(crate) fn real_path(handle: BorrowedFd<'_>) -> Option<FilePath> {
    let link = rustix::fs::readlink(proc_fd_path(handle), Vec::new()).ok()?;
    let text = link.to_str().ok().filter(|text| text.starts_with('/'))?;
    FilePath::resolve(text, &FilePath::root()).ok()
}

fn proc_fd_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

fn path_denied(requested: &str) -> ToolOutcome {
    ToolOutcome::Denied(format!("Permission denied: Path not in allowed directories: {requested}"))
}

fn replaced(directory: &FilePath) -> ToolOutcome {
    ToolOutcome::Denied(format!(
        "Permission denied: {directory} was replaced since it was granted; put the granted directory back, or grant \
         the new one with set_permissions"
    ))
}

/// Splits a path into parent directory and name; an absolute path keeps its leading slash.
fn split_parent(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => ("", path),
    }
}

fn truncate_for_display(requested: &str) -> String {
    match requested.char_indices().nth(DISPLAY_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &requested[..cut]),
        None => requested.to_owned(),
    }
}
