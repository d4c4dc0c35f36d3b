//! `fs.write_file`: writes a text file, whole or not at all.

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

/// Writes a text file. Missing folders are made. The file is replaced as a whole: nobody sees half of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// What to write, at most 10 MiB.
    content: String,
    /// Whether to keep the old content and write after it.
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
    /// Room for the longest content, each line end and quote of it written as two characters.
    const ARGUMENT_BYTES_MAX: usize = 2 * CONTENT_BYTES_MAX + (64 << 10);

    fn effects(input: &Input, scene: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        if input.content.len() > CONTENT_BYTES_MAX {
            return Err(format!("Invalid input: field `content`: longer than {CONTENT_BYTES_MAX} bytes"));
        }
        Ok(vec![Effect::Write(resolve_path(&input.path, scene)?)])
    }

    async fn run(input: Input, call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let place = PermittedPath::from_permit(call.context.permit, &input.path)?;
            let content = Content { text: &input.content, is_appended: input.append.unwrap_or(false) };
            replace(&place, &content, &*call.dependencies.entropy, stop)?;
            compact_json(&Output { bytes_written: input.content.len(), path: &input.path, success: true })
        })
        .await
    }
}
