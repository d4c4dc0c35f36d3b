//! `fs.copy`: copies a file.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::beneath_root::{ReadableFile, WritableFile};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::FileCopy;

pub(crate) struct Copy;

/// Copies a file of at most 100 MiB, with its mode. Creates missing directories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    from: String,
    /// The new file, including the name, relative to your working directory or absolute.
    to: String,
    /// Whether to replace an existing file.
    #[schemars(extend("default" = false))]
    overwrite: Option<bool>,
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
            let source = from.open()?;
            let overwrite = input.overwrite.unwrap_or(false);
            let bytes = to.lock()?.copy_from(source, overwrite, &*call.dependencies.entropy, stop)?;
            compact_json(
                &json!({"bytes_written": bytes, "from": input.from, "success": true, "to": input.to}),
            )
        })
        .await
    }
}
