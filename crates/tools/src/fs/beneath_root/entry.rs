//! The entries of an open directory, each described by one system call that follows no link.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::blocked::FileId;
use super::open_at;

/// Maximum number of entries that are read from one directory.
pub(super) const DIRECTORY_ENTRIES_MAX: usize = 100_000;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Link,
    Pipe,
    Socket,
    Device,
    Other,
}

impl EntryKind {
    pub(crate) fn from_mode(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            FileType::Fifo => EntryKind::Pipe,
            FileType::Socket => EntryKind::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => EntryKind::Device,
            FileType::Unknown => EntryKind::Other,
        }
    }

    /// The type with its article, for messages.
    pub(crate) fn description(self) -> &'static str {
        match self {
            EntryKind::File => "a regular file",
            EntryKind::Directory => "a directory",
            EntryKind::Link => "a symbolic link",
            EntryKind::Pipe => "a named pipe",
            EntryKind::Socket => "a socket",
            EntryKind::Device => "a device",
            EntryKind::Other => "something else",
        }
    }
}

/// What the file system says about an entry.
#[derive(Debug, Clone)]
pub(crate) struct EntryStat {
    pub(crate) kind: EntryKind,
    pub(crate) bytes: u64,
    pub(super) mode: u32,
    pub(super) id: FileId,
    pub(super) links: u32,
    /// The mount that it is on; none if the kernel does not tell.
    pub(super) mount: Option<u64>,
}

impl EntryStat {
    /// Describes an entry of a directory; with an empty name the handle itself.
    pub(super) fn read(directory: BorrowedFd<'_>, name: &str) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        Ok(Self {
            kind: EntryKind::from_mode(u32::from(stat.stx_mode)),
            bytes: stat.stx_size,
            mode: u32::from(stat.stx_mode),
            id: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            links: stat.stx_nlink,
            mount: (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id),
        })
    }
}

/// The names in a directory, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EntryNames {
    pub(super) names: Vec<String>,
    /// How many names are not UTF-8: no path can name them.
    pub(super) unnamable: usize,
    /// Whether the directory has more entries than are read.
    pub(super) is_truncated: bool,
}

impl EntryNames {
    /// Reads an open directory.
    pub(super) fn read(directory: &OwnedFd) -> Result<Self, Errno> {
        let mut entries = Self::default();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                _ if entries.names.len() + entries.unnamable == DIRECTORY_ENTRIES_MAX => {
                    entries.is_truncated = true;
                    break;
                }
                Ok(name) => entries.names.push(name.to_owned()),
                Err(_) => entries.unnamable += 1,
            }
        }
        entries.names.sort_unstable();
        Ok(entries)
    }
}

/// Opens a directory for listing, relative to a handle. The last component is not followed if it is a link.
pub(super) fn open_listing(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    open_at(
        directory,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY,
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

/// Opens a regular file of a directory for reading. Nothing else is opened: that can have side effects.
pub(super) fn open_regular(directory: BorrowedFd<'_>, name: &str) -> Result<(File, EntryStat), Errno> {
    let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let handle = open_at(directory, name, OFlags::PATH, resolve_flags)?;
    let stat = EntryStat::read(handle.as_fd(), "")?;
    if stat.kind != EntryKind::File {
        return Err(Errno::INVAL);
    }
    Ok((super::reopen(handle.as_fd(), OFlags::RDONLY)?, stat))
}
