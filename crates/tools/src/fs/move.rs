//! `fs.move`: moves a file or directory.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::beneath_root::{ReadableFile, RemovableEntry, WritableFile};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::FileMove;

pub(crate) struct Move;

/// Moves or renames a file or directory. Creates missing directories.
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

impl ToolDefinition for Move {
    type Input = Input;
    type Effects = FileMove;
    const NAME: &'static str = "fs.move";
    const ALIASES: &'static [&'static str] = &["rename"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileMove, String> {
        FileMove::new(&input.from, &input.to, site)
    }

    async fn run(
        input: Input,
        (readable, from, to): (ReadableFile, RemovableEntry, WritableFile),
        _call: Invocation,
    ) -> ToolResult {
        run_blocking(move |stop| {
            from.move_to(&readable, &to, input.overwrite.unwrap_or(false), stop)?;
            compact_json(&json!({"from": input.from, "success": true, "to": input.to}))
        })
        .await
    }
}
