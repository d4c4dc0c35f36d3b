//! An open directory of a permit, for the sandbox of a command.

use std::os::fd::OwnedFd;

use agent::ToolOutcome;
use agent::permission::{FilePath, FilePermit};
use rustix::fs::FileType;

use super::PermittedPath;
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
            relative => format!("{}/{relative}", permit.path.root),
        };
        let path = PermittedPath::new(Some(permit), &requested)?;
        let Some(found) = path.find()? else { return Ok(None) };
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
            return Err(execution_failed(format!("{requested} is not a directory")));
        }
        Ok(Some(Self { path: found.real_path, handle: found.handle }))
    }
}
