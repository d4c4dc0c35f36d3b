//! File tools. `beneath_root.rs` opens files without leaving the directory that permits them.

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

/// Maximum size of the content read or written by one call.
const CONTENT_BYTES_MAX: usize = 10 << 20;

/// Resolves a path as a model wrote it. `~` and `file://` have no special meaning.
fn resolve_path(path: &str, site: &CallSite<'_>) -> Result<FilePath, String> {
    FilePath::resolve(path, site.cwd).map_err(|fault| format!("Invalid input: field `path`: {fault}"))
}

/// Reads a regular file of at most `bytes_max` bytes.
pub(crate) fn read_bytes(requested: &str, permit: Permit, bytes_max: usize) -> Result<Vec<u8>, ToolOutcome> {
    let path = PermittedPath::from_permit(permit, requested)?;
    let found = path.find()?.ok_or_else(|| path.not_found())?;
    found.require_regular(&path)?;
    let file = found.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
    let mut bytes = Vec::new();
    let read = file.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|fault| execution_failed(format!("{}: {fault}", path.requested_path())))?;
    if bytes.len() > bytes_max {
        return Err(execution_failed(format!("{} has more than {bytes_max} bytes", path.requested_path())));
    }
    Ok(bytes)
}
