//! `fs.write_file`: writes a text file atomically.

use agent::outside::CallSite;
use agent::permission::Effect;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::beneath_root::PermittedPath;
use super::replace::{Content, replace};
use super::{CONTENT_BYTES_MAX, resolve_path};
use crate::blocking::run_blocking;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

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

#[derive(Serialize)]
struct Output<'a> {
    bytes_written: usize,
    path: &'a str,
    success: bool,
}

impl ToolDefinition for WriteFile {
    type Input = Input;
    const NAME: &'static str = "fs.write_file";
    const ALIASES: &'static [&'static str] = &["write_file"];
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
            let content = Content { text: &input.content, is_appended: input.append.unwrap_or(false) };
            replace(&path, &content, &*call.dependencies.entropy, stop)?;
            compact_json(&Output { bytes_written: input.content.len(), path: &input.path, success: true })
        })
        .await
    }
}
