//! Tools for files. How a file is opened without leaving the folder that allows it is in `beneath.rs`.

mod append;
mod append_file;
mod beneath_root;
mod protected;
mod read_file;
mod replace;
mod write_file;

pub(crate) use append_file::AppendFile;
pub(crate) use read_file::ReadFile;
pub(crate) use write_file::WriteFile;

use std::io::Read as _;

use agent::ToolOutcome;
use agent::outside::CallSite;
use agent::permission::{FilePath, Permit};
use rustix::fs::OFlags;

use self::beneath_root::PermittedPath;
use crate::definition::execution_failed;

/// The most that is read or written at once.
const CONTENT_BYTES_MAX: usize = 10 << 20;

/// Reads a path as a model wrote it. `~` and `file://` are names like any other.
fn resolve_path(path: &str, scene: &CallSite<'_>) -> Result<FilePath, String> {
    FilePath::resolve(path, scene.cwd).map_err(|fault| format!("Invalid input: field `path`: {fault}"))
}

/// The bytes of a regular file that has at most so many.
pub(crate) fn read_bytes(given: &str, permit: Permit, bytes_max: usize) -> Result<Vec<u8>, ToolOutcome> {
    let place = PermittedPath::from_permit(permit, given)?;
    let found = place.find()?.ok_or_else(|| place.not_found())?;
    found.require_regular(&place)?;
    let file = found.open(OFlags::RDONLY).map_err(|errno| place.errno_outcome(errno))?;
    let mut bytes = Vec::new();
    let read = file.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|fault| execution_failed(format!("{}: {fault}", place.requested_path())))?;
    if bytes.len() > bytes_max {
        return Err(execution_failed(format!("{} has more than {bytes_max} bytes", place.requested_path())));
    }
    Ok(bytes)
}
