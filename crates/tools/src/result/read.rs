//! `result.read`: reads a chunk of a truncated tool result.

use std::sync::Arc;

use agent::ToolClass;
use agent::outside::{CachedResults, CallSite};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::ResultRead;

pub(crate) struct Read;

/// Reads a part of a tool result that was truncated.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The handle in the truncation note.
    handle: String,
    /// The first byte to read.
    offset: usize,
    /// How many bytes to read: 8000 by default, at most 64000.
    limit: Option<usize>,
}

const BYTES_DEFAULT: usize = 8_000;
const BYTES_MAX: usize = 64_000;

impl ToolDefinition for Read {
    type Input = Input;
    type Effects = ResultRead;
    const NAME: &'static str = "result.read";
    const ALIASES: &'static [&'static str] = &["read_result"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<ResultRead, String> {
        Ok(ResultRead)
    }

    async fn run(input: Input, results: Arc<dyn CachedResults>, _call: Invocation) -> ToolResult {
        let limit = input.limit.unwrap_or(BYTES_DEFAULT).clamp(1, BYTES_MAX);
        let chunk = results.read(&input.handle, input.offset, limit).map_err(execution_failed)?;
        let end = chunk.offset + chunk.text.len();
        Ok(format!("{}\n[bytes {} to {end} of {}]", chunk.text, chunk.offset, chunk.bytes_total))
    }
}
