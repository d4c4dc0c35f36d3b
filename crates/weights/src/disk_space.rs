//! Check of the available disk space before a download.

use std::path::Path;

use crate::fault::WeightsFault;

/// Fails if fewer bytes are available.
pub(crate) fn require(folder: &Path, needed_bytes: u64) -> Result<(), WeightsFault> {
    let free_bytes = available_bytes(folder)?;
    if free_bytes < needed_bytes {
        return Err(WeightsFault::DiskFull { path: folder.to_owned(), free_bytes, needed_bytes });
    }
    Ok(())
}

/// Returns the bytes available to this user.
pub(crate) fn available_bytes(folder: &Path) -> Result<u64, WeightsFault> {
    let stat = rustix::fs::statvfs(folder).map_err(std::io::Error::from);
    let stat = stat.map_err(WeightsFault::file("read the free space of", folder))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
