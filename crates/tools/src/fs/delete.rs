//! `fs.delete`: deletes a file or directory.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::beneath_root::RemovableEntry;
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::FileRemoval;

pub(crate) struct Delete;

/// Deletes a file, a link (not its target) or a directory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file or directory, relative to your working directory or absolute.
    path: String,
    /// Whether to delete a directory with its contents.
    #[schemars(extend("default" = false))]
    recursive: Option<bool>,
}

impl ToolDefinition for Delete {
    type Input = Input;
    type Effects = FileRemoval;
    const NAME: &'static str = "fs.delete";
    const ALIASES: &'static [&'static str] = &[];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileRemoval, String> {
        FileRemoval::new(&input.path, site)
    }

    async fn run(input: Input, entry: RemovableEntry, _call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let deleted = entry.remove(input.recursive.unwrap_or(false), stop)?;
            compact_json(&json!({"deleted": deleted, "path": input.path, "success": true}))
        })
        .await
    }
}
