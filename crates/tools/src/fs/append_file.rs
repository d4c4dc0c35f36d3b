//! `fs.append_file`: appends to a text file.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::WritableFile;
use super::write::{WRITE_ARGUMENT_BYTES_MAX, write_effects, write_result};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::FileWrite;

pub(crate) struct AppendFile;

/// Appends to a text file. Creates the file and missing directories. Never rewrites old content.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// The content to append, at most 10 MiB.
    content: String,
    /// Whether to start on a new line if the file does not end with one.
    #[schemars(extend("default" = true))]
    newline: Option<bool>,
}

impl ToolDefinition for AppendFile {
    type Input = Input;
    type Effects = FileWrite;
    const NAME: &'static str = "fs.append_file";
    const ALIASES: &'static [&'static str] = &["append_file"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const ARGUMENT_BYTES_MAX: usize = WRITE_ARGUMENT_BYTES_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileWrite, String> {
        write_effects(&input.path, &input.content, site)
    }

    async fn run(input: Input, file: WritableFile, call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let on_new_line = input.newline.unwrap_or(true);
            let entropy = &*call.dependencies.entropy;
            write_result(file.lock()?.append(input.content, on_new_line, entropy, stop)?, &input.path)
        })
        .await
    }
}
