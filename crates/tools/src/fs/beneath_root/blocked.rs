//! Whether an open file or directory is in a blocked directory under another name. The real path of a handle shows this
//! for symbolic links, but not for hard links and second mounts; there device and inode are compared.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent::permission::FilePath;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;

use super::entry::{EntryKind, EntryStat};
use super::{open_directory, split_parent};

/// Maximum number of files in a blocked directory that are compared. Beyond it, every file that may be one of them counts
/// as blocked.
const ENTRIES_MAX: usize = 20_000;

/// Maximum number of directories from a file up to `/`.
const ANCESTORS_MAX: usize = 2_048;

/// A file on its device.
pub(super) type FileId = (u64, u64);

/// The blocked files and directories of a call. Everything in a directory is read once, when the first file needs the
/// comparison.
pub(super) struct BlockedFiles(Vec<BlockedEntry>);

struct BlockedEntry {
    handle: OwnedFd,
    id: FileId,
    mount: Option<u64>,
    /// Nothing for a file.
    contents: OnceCell<Contents>,
}

/// The files in a blocked directory.
enum Contents {
    Files(HashSet<FileId>),
    /// More than are compared.
    TooMany,
}

/// Whether a file or directory, or a directory above it, is one of the blocked directories or in one of them. `real` is
/// its real path.
pub(crate) fn is_blocked_alias(
    handle: BorrowedFd<'_>,
    real: &FilePath,
    blocked: &[FilePath],
) -> Result<bool, Errno> {
    BlockedFiles::open(blocked)?.contain(handle, real)
}

impl BlockedFiles {
    /// Opens the blocked files and directories that exist. A link blocks what it leads to now.
    pub(super) fn open(blocked: &[FilePath]) -> Result<Self, Errno> {
        let mut entries = Vec::with_capacity(blocked.len());
        for path in blocked {
            let handle = match rustix::fs::open(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened?,
            };
            let stat = rustix::fs::fstat(&handle)?;
            let (id, mount) = (file_id(&stat), mount_id(handle.as_fd())?);
            let nothing = || OnceCell::from(Contents::Files(HashSet::new()));
            let contents = if is_directory(&stat) { OnceCell::new() } else { nothing() };
            entries.push(BlockedEntry { handle, id, mount, contents });
        }
        Ok(Self(entries))
    }

    /// Whether an open file, or a directory above it, is blocked.
    pub(super) fn contain(&self, handle: BorrowedFd<'_>, real: &FilePath) -> Result<bool, Errno> {
        let mut ancestry = None;
        for entry in &self.0 {
            // On one mount a file has one path, unless it has other links.
            let own = mount_id(handle)?;
            if own.is_some() && own == entry.mount && !has_other_links(handle)? {
                continue;
            }
            let ids = match &mut ancestry {
                Some(ids) => ids,
                none => none.insert(file_and_ancestor_ids(handle, real)?),
            };
            if entry.contains_any(ids)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an entry is blocked, of a directory that is not.
    pub(super) fn contain_entry(&self, entry: &EntryStat) -> Result<bool, Errno> {
        for blocked in &self.0 {
            let is_link_free = entry.links == 1 || entry.kind == EntryKind::Directory;
            let is_same_mount = entry.mount.is_some() && entry.mount == blocked.mount;
            let is_blocked = if is_same_mount && is_link_free {
                entry.id == blocked.id
            } else {
                blocked.contains_any(&[entry.id])?
            };
            if is_blocked {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl BlockedEntry {
    /// Whether the entry, or anything in it, is one of these files.
    fn contains_any(&self, ids: &[FileId]) -> Result<bool, Errno> {
        if ids.contains(&self.id) {
            return Ok(true);
        }
        let contents = match self.contents.get() {
            Some(contents) => contents,
            None => {
                let contents = read_contents(&self.handle)?;
                self.contents.get_or_init(|| contents)
            }
        };
        Ok(match contents {
            Contents::Files(files) => ids.iter().any(|id| files.contains(id)),
            Contents::TooMany => true,
        })
    }
}

/// The mount that a handle was opened through; none if the kernel, before 5.8, does not tell.
pub(super) fn mount_id(handle: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let stat = rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok((stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id))
}

fn has_other_links(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(handle)?;
    Ok(stat.st_nlink > 1 && !is_directory(&stat))
}

/// The file and the directories above it. The walk goes from handle to handle: no rename makes it leave out a directory.
fn file_and_ancestor_ids(handle: BorrowedFd<'_>, real: &FilePath) -> Result<Vec<FileId>, Errno> {
    let stat = rustix::fs::fstat(handle)?;
    let mut ids = vec![file_id(&stat)];
    let mut current = if is_directory(&stat) {
        open_parent(handle)?
    } else {
        let (parent, name) = split_parent(real.as_str());
        let parent = open_directory(parent)?;
        let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if file_id(&found) != ids[0] {
            return Err(Errno::AGAIN);
        }
        parent
    };
    let mut below = None;
    while ids.len() < ANCESTORS_MAX {
        let here = (file_id(&rustix::fs::fstat(&current)?), mount_id(current.as_fd())?);
        // Only `/` is its own parent. A directory that is mounted in itself has another mount.
        if below == Some(here) {
            return Ok(ids);
        }
        ids.push(here.0);
        below = Some(here);
        current = open_parent(current.as_fd())?;
    }
    Err(Errno::NAMETOOLONG)
}

fn open_parent(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// How well a blocked file or directory can be hidden from a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hiding {
    /// By hiding its path.
    ByPath,
    /// There is nothing to hide.
    Missing,
    /// It is a symbolic link, over which nothing can be mounted. What it leads to is blocked by its own path.
    Link,
    /// It is or contains a file with several hard links, or more files than are looked at: other paths may lead to it.
    HasOtherNames,
}

/// How a blocked file or directory can be hidden.
pub(crate) fn hiding_of(path: &FilePath) -> Result<Hiding, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::open(path.as_str(), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Hiding::Missing),
        opened => opened?,
    };
    let is_linked = |stat: &Stat| stat.st_nlink > 1 && !is_directory(stat);
    let stat = rustix::fs::fstat(&handle)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return Ok(Hiding::Link);
    }
    let mut has_other_names = is_linked(&stat);
    if is_directory(&stat) {
        let is_complete = visit_contents(&handle, |stat| has_other_names |= is_linked(stat))?;
        has_other_names |= !is_complete;
    }
    Ok(if has_other_names { Hiding::HasOtherNames } else { Hiding::ByPath })
}

/// Everything in a directory.
fn read_contents(root: &OwnedFd) -> Result<Contents, Errno> {
    let mut files = HashSet::new();
    let is_complete = visit_contents(root, |stat| {
        files.insert(file_id(stat));
    })?;
    Ok(if is_complete { Contents::Files(files) } else { Contents::TooMany })
}

/// Visits everything in a directory; false if there is more than the limit.
fn visit_contents(root: &OwnedFd, mut visit: impl FnMut(&Stat)) -> Result<bool, Errno> {
    let mut entries_left = ENTRIES_MAX;
    // Paths, because the handles of many directories could exceed the limit of open files.
    let mut pending = vec![PathBuf::from(".")];
    while let Some(path) = pending.pop() {
        let directory = match open_listable(root, &path) {
            // The daemon cannot list it.
            Err(Errno::ACCESS) => continue,
            opened => opened,
        };
        let Some(directory) = optional(directory)? else { continue };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(left) = entries_left.checked_sub(1) else { return Ok(false) };
            entries_left = left;
            // Not by its entry, which has the inode below a mount.
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(stat) = optional(found)? else { continue };
            visit(&stat);
            if is_directory(&stat) {
                pending.push(path.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
    Ok(true)
}

fn open_listable(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve_flags)
}

/// None for a file that was removed or replaced meanwhile.
fn optional<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
