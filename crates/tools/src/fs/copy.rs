//! `fs.copy`: copies a file or directory.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::beneath_root::{ReadableFile, WritableFile};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::FileCopy;

pub(crate) struct Copy;

/// Copies a file or directory of at most 100 MiB, all or nothing, with modes; links are copied as links. Creates missing
/// directories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file or directory, relative to your working directory or absolute.
    from: String,
    /// The new path, including the name, relative to your working directory or absolute.
    to: String,
    /// Whether to replace an existing file.
    #[schemars(extend("default" = false))]
    overwrite: Option<bool>,
}

#[derive(Serialize)]
struct Output<'a> {
    bytes_written: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<usize>,
    from: &'a str,
    success: bool,
    to: &'a str,
}

impl ToolDefinition for Copy {
    type Input = Input;
    type Effects = FileCopy;
    const NAME: &'static str = "fs.copy";
    const ALIASES: &'static [&'static str] = &["copy_file"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileCopy, String> {
        FileCopy::new(&input.from, &input.to, site)
    }

    async fn run(input: Input, (from, to): (ReadableFile, WritableFile), call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let overwrite = input.overwrite.unwrap_or(false);
            let copied = from.copy_to(&to, overwrite, &*call.dependencies.entropy, stop)?;
            compact_json(&Output {
                bytes_written: copied.bytes,
                entries: copied.entries,
                from: &input.from,
                success: true,
                to: &input.to,
            })
        })
        .await
    }
}
