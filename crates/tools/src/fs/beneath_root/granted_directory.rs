//! Opens granted directories, each only if it still is the one that was granted. The handle is held as long as a call
//! uses it and no longer: it would keep the file system from being unmounted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use agent::permission::{DirectoryIdentity, FilePath};
use rustix::fs::{AtFlags, CWD, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::{open_at, split_parent};

/// The path of a granted directory does not lead to it any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced;

/// Opens a granted directory, if its path still leads to it.
pub(super) fn open_granted(identity: &DirectoryIdentity) -> Result<Arc<OwnedFd>, Replaced> {
    let directory = open_directory(identity.path.as_str()).map_err(|_| Replaced)?;
    let current = identify(directory.as_fd(), identity.path.clone()).map_err(|_| Replaced)?;
    if current == *identity { Ok(Arc::new(directory)) } else { Err(Replaced) }
}

/// The identity of the directory at a path, or of the nearest existing one above it.
pub(crate) fn identify_directory(path: &FilePath) -> Option<DirectoryIdentity> {
    let mut text = path.as_str();
    loop {
        match open_directory(text) {
            Ok(directory) => {
                let path = FilePath::resolve(text, &FilePath::root()).ok()?;
                return identify(directory.as_fd(), path).ok();
            }
            Err(Errno::NOENT | Errno::NOTDIR) if text != "/" => text = split_parent(text).0,
            Err(_) => return None,
        }
    }
}

/// Opens a directory by its path without symbolic links: the path was resolved when it was granted, so a link in it is
/// newer.
pub(super) fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    open_at(CWD, path, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
}

fn identify(directory: BorrowedFd<'_>, path: FilePath) -> Result<DirectoryIdentity, Errno> {
    let stat = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
    let (seconds, nanoseconds) = (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec));
    let is_born_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(DirectoryIdentity {
        path,
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        born_ns: is_born_known.then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &std::path::Path) -> DirectoryIdentity {
        let path = path.canonicalize().unwrap();
        identify_directory(&FilePath::resolve(path.to_str().unwrap(), &FilePath::root()).unwrap()).unwrap()
    }

    #[test]
    fn new_directory_with_the_inode_of_the_granted_one_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let (directory, other) = (base.path().join("a"), base.path().join("b"));
        std::fs::create_dir(&directory).unwrap();
        let granted = identity(&directory);
        assert!(open_granted(&granted).is_ok());
        // Until the clock of the file system has advanced.
        while granted.born_ns.is_some() {
            std::fs::create_dir(&other).unwrap();
            if identity(&other).born_ns != granted.born_ns {
                break;
            }
            std::fs::remove_dir(&other).unwrap();
        }
        std::fs::remove_dir(&directory).unwrap();
        assert_eq!(open_granted(&granted).err(), Some(Replaced), "removed");
        // File systems give a free inode number to the next directory.
        std::fs::create_dir(&directory).unwrap();
        assert_eq!(open_granted(&granted).err(), Some(Replaced), "{:?}", identity(&directory));
    }

    #[test]
    fn missing_directory_and_file_have_the_identity_above_them() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("file"), "").unwrap();
        let real = base.path().canonicalize().unwrap();
        for name in ["missing", "missing/deep", "file", "file/x"] {
            let path = FilePath::resolve(real.join(name).to_str().unwrap(), &FilePath::root()).unwrap();
            assert_eq!(identify_directory(&path), Some(identity(base.path())), "{name}");
        }
    }
}
