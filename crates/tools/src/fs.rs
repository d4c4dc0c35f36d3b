//! File tools. `beneath_root.rs` opens files without leaving the directory that permits them.

mod append_file;
mod beneath_root;
mod read_file;
mod write;
mod write_file;

pub(crate) use append_file::AppendFile;
pub(crate) use beneath_root::{ReadableFile, WritableFile};
pub(crate) use read_file::ReadFile;
pub(crate) use write_file::WriteFile;

/// Maximum size of the content read or written by one call.
const CONTENT_BYTES_MAX: usize = 10 << 20;
