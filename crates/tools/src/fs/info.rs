//! `fs.info`: describes a file.

use agent::ToolClass;
use agent::outside::CallSite;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::beneath_root::{EntryKind, ReadableFile};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json, execution_failed};
use crate::effects::FileRead;

pub(crate) struct Info;

/// Returns type, size, time of the last change and mode of a file or directory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file or directory, relative to your working directory or absolute.
    path: String,
}

impl ToolDefinition for Info {
    type Input = Input;
    type Effects = FileRead;
    const NAME: &'static str = "fs.info";
    const ALIASES: &'static [&'static str] = &["file_info"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileRead, String> {
        FileRead::new(&input.path, site)
    }

    async fn run(input: Input, file: ReadableFile, _call: Invocation) -> ToolResult {
        run_blocking(move |_stop| {
            let found = file.describe()?;
            let modified = Timestamp::from_second(found.modified_s).map_err(execution_failed)?;
            compact_json(&json!({
                "bytes": found.bytes,
                "mode": format!("{:04o}", found.mode),
                "modified": modified.to_string(),
                "path": input.path,
                "type": type_name(found.kind),
            }))
        })
        .await
    }
}

fn type_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Pipe => "pipe",
        EntryKind::Socket => "socket",
        EntryKind::Device => "device",
        EntryKind::Other => "other",
    }
}
