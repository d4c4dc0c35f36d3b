//! `fs.append_file`: appends to a text file.

use agent::outside::CallSite;
use agent::permission::Effect;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::append::append;
use super::beneath_root::PermittedPath;
use super::{CONTENT_BYTES_MAX, resolve_path};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

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

#[derive(Serialize)]
struct Output<'a> {
    bytes_written: usize,
    path: &'a str,
    success: bool,
}

impl ToolDefinition for AppendFile {
    type Input = Input;
    const NAME: &'static str = "fs.append_file";
    const ALIASES: &'static [&'static str] = &["append_file"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    /// Enough for content of maximum size with every line end and quote escaped to two characters.
    const ARGUMENT_BYTES_MAX: usize = 2 * CONTENT_BYTES_MAX + (64 << 10);

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        if input.content.len() > CONTENT_BYTES_MAX {
            return Err(format!("Invalid input: field `content`: longer than {CONTENT_BYTES_MAX} bytes"));
        }
        Ok(vec![Effect::Write(resolve_path(&input.path, site)?)])
    }

    async fn run(input: Input, call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let path = PermittedPath::from_permit(call.context.permit, &input.path)?;
            let on_new_line = input.newline.unwrap_or(true);
            let bytes_written = append(&path, input.content, on_new_line, &*call.dependencies.entropy, stop)?;
            compact_json(&Output { bytes_written, path: &input.path, success: true })
        })
        .await
    }
}
