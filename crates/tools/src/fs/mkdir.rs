//! `fs.mkdir`: creates a directory.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::beneath_root::WritableFile;
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::FileWrite;

pub(crate) struct MakeDirectory;

/// Creates a directory, and missing directories above it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The directory, relative to your working directory or absolute.
    path: String,
}

impl ToolDefinition for MakeDirectory {
    type Input = Input;
    type Effects = FileWrite;
    const NAME: &'static str = "fs.mkdir";
    const ALIASES: &'static [&'static str] = &["mkdir"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileWrite, String> {
        FileWrite::new(&input.path, site)
    }

    async fn run(input: Input, directory: WritableFile, _call: Invocation) -> ToolResult {
        run_blocking(move |_stop| {
            let created = directory.create_directory()?;
            compact_json(&json!({"created": created, "path": input.path, "success": true}))
        })
        .await
    }
}
