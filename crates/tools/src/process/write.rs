//! `process.write`: writes to the standard input of a background process.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::ProcessInput;

pub(crate) struct Write;

/// Writes text to the standard input of a background process.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The id from `process.start`.
    id: String,
    /// The text, with its line break: most programs read whole lines.
    text: String,
    /// Whether to close the input afterwards: the program reads end of file.
    #[serde(default)]
    close: bool,
}

impl ToolDefinition for Write {
    type Input = Input;
    type Effects = ProcessInput;
    const NAME: &'static str = "process.write";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<ProcessInput, String> {
        Ok(ProcessInput::new(&input.id, site))
    }

    async fn run(input: Input, _handle: (), call: Invocation) -> ToolResult {
        let process = call.dependencies.commands.processes().require(call.agent, &input.id)?;
        process.write(&input.text).await.map_err(execution_failed)?;
        if input.close {
            process.close_input();
        }
        Ok(json!({ "bytes_written": input.text.len() }).to_string())
    }
}
