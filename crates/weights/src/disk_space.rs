//! Whether the disk has room, before it is filled.

use std::path::Path;

use crate::fault::WeightsFault;

/// Refuses when fewer bytes than these are free for us.
pub(crate) fn require(folder: &Path, needed_bytes: u64) -> Result<(), WeightsFault> {
    let free_bytes = available_bytes(folder)?;
    if free_bytes < needed_bytes {
        return Err(WeightsFault::DiskFull { path: folder.to_owned(), free_bytes, needed_bytes });
    }
    Ok(())
}

/// What is free for us.
pub(crate) fn available_bytes(folder: &Path) -> Result<u64, WeightsFault> {
    let told = rustix::fs::statvfs(folder).map_err(std::io::Error::from);
    let told = told.map_err(WeightsFault::file("look at the disk of", folder))?;
    Ok(told.f_bavail.saturating_mul(told.f_frsize))
}
