//! Memory-mapping of model files, the only unsafe code of this crate. `gguf` parses the bytes.
#![expect(unsafe_code, reason = "mapping a file is unsafe: another process may change it")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps the file at `path` read-only.
pub(crate) fn map_file(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: the mapping is read-only and private, and lives only while a model is being loaded: every tensor is
    // copied out before it is used. Downloads replace files by rename and never write in place; if another process
    // truncates the file during the load, SIGBUS ends this child process, not the daemon.
    unsafe { Mmap::map(&file) }
}
