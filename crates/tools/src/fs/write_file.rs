//! `fs.write_file`: writes a text file atomically.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::{Content, WritableFile};
use super::write::{WRITE_ARGUMENT_BYTES_MAX, write_effects, write_result};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::FileWrite;

pub(crate) struct WriteFile;

/// Writes a text file atomically: readers never see a partial file. Creates missing directories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// The new content, at most 10 MiB.
    content: String,
    /// Whether to append to the old content.
    #[schemars(extend("default" = false))]
    append: Option<bool>,
}

impl ToolDefinition for WriteFile {
    type Input = Input;
    type Effects = FileWrite;
    const NAME: &'static str = "fs.write_file";
    const ALIASES: &'static [&'static str] = &["write_file"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const ARGUMENT_BYTES_MAX: usize = WRITE_ARGUMENT_BYTES_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileWrite, String> {
        write_effects(&input.path, &input.content, site)
    }

    async fn run(input: Input, file: WritableFile, call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let content = Content { text: &input.content, is_appended: input.append.unwrap_or(false) };
            file.lock()?.replace(&content, &*call.dependencies.entropy, stop)?;
            write_result(input.content.len(), &input.path)
        })
        .await
    }
}
