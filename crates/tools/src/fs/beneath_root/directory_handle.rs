//! An open directory of a permit, for the sandbox of a command.

use std::os::fd::{AsFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, FilePermit};
use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{PermittedPath, open_at};
use crate::definition::execution_failed;

/// An open directory. The handle stays the permitted directory, even if its path changes.
pub(crate) struct DirectoryHandle {
    pub(crate) path: FilePath,
    pub(crate) handle: OwnedFd,
}

impl DirectoryHandle {
    /// Opens the directory of a permit; none if it does not exist.
    pub(crate) fn open(permit: &FilePermit) -> Result<Option<Self>, ToolOutcome> {
        let requested = match &*permit.path.relative {
            "" => permit.path.root.to_string(),
            relative => format!("{}/{relative}", permit.path.root.as_str().trim_end_matches('/')),
        };
        let path = PermittedPath::new(Some(permit), &requested)?;
        let Some(found) = path.find()? else { return Ok(None) };
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
            return Err(execution_failed(format!("{requested} is not a directory")));
        }
        Ok(Some(Self { path: found.real_path, handle: found.handle }))
    }

    /// Opens a file or directory below this one by a path without links; none if there is none.
    pub(crate) fn open_below(&self, relative: &str) -> Result<Option<Self>, ToolOutcome> {
        let resolve_flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let handle = match open_at(self.handle.as_fd(), relative, OFlags::PATH, resolve_flags) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            opened => {
                opened.map_err(|errno| execution_failed(format!("{}/{relative}: {errno}", self.path)))?
            }
        };
        let path = FilePath::resolve(relative, &self.path).map_err(|_| execution_failed(relative))?;
        Ok(Some(Self { path, handle }))
    }
}
