//! Tools for files. How a file is opened without leaving the folder that allows it is in `beneath.rs`.

mod append;
mod append_file;
mod beneath;
mod protected;
mod read_file;
mod replace;
mod write_file;

pub(crate) use append_file::AppendFile;
pub(crate) use read_file::ReadFile;
pub(crate) use write_file::WriteFile;

use agent::outside::Scene;
use agent::permission::FilePath;

/// The most that is read or written at once.
const CONTENT_BYTES_MAX: usize = 10 << 20;

/// Reads a path as a model wrote it. `~` and `file://` are names like any other.
fn resolved(path: &str, scene: &Scene<'_>) -> Result<FilePath, String> {
    FilePath::resolve(path, scene.cwd).map_err(|fault| format!("Invalid input: field `path`: {fault}"))
}
