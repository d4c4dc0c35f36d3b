//! The version of a file's content, to notice changes by other programs between reading and writing.

use std::os::fd::AsFd;

use rustix::fs::Stat;
use rustix::io::Errno;

/// What tells two versions of a file apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    bytes: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl FileVersion {
    /// The version of an open file.
    pub(super) fn read(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(|stat| Self::from_stat(&stat))
    }

    pub(super) fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}
