//! The one place that maps a model file into memory. What the bytes mean is `gguf`'s.
#![expect(unsafe_code, reason = "a file mapping is unsafe by nature: the file is not ours alone")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps the file at `path` for reading.
pub(crate) fn map_file(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // SAFETY: the mapping is read-only and private, and lives only while a model is loaded: every
    // tensor is copied out before it is used. Pulled files are replaced by rename, never written in
    // place; a stranger who cuts the file in that second kills this child process, not the daemon.
    unsafe { Mmap::map(&file) }
}
