//! What the tools that write text files share: limits, effects and result.

use agent::outside::CallSite;
use serde::Serialize;

use super::CONTENT_BYTES_MAX;
use crate::definition::{ToolResult, compact_json};
use crate::effects::FileWrite;

/// Maximum length of the arguments: enough for content of maximum size with every line end and quote escaped to two
/// characters.
pub(super) const WRITE_ARGUMENT_BYTES_MAX: usize = 2 * CONTENT_BYTES_MAX + (64 << 10);

#[derive(Serialize)]
struct Output<'a> {
    bytes_written: usize,
    path: &'a str,
    success: bool,
}

/// The effects of writing this content.
pub(super) fn write_effects(path: &str, content: &str, site: &CallSite<'_>) -> Result<FileWrite, String> {
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!("Invalid input: field `content`: longer than {CONTENT_BYTES_MAX} bytes"));
    }
    FileWrite::new(path, site)
}

/// The result of a write.
pub(super) fn write_result(bytes_written: usize, path: &str) -> ToolResult {
    compact_json(&Output { bytes_written, path, success: true })
}
