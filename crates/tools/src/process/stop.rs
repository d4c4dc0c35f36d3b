//! `process.stop`: ends a background process with all its descendants.

use std::time::Duration;

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::background::Awaited;
use super::result;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::NoEffects;

pub(crate) struct Stop;

/// Stops a background process and all that it started: by SIGTERM, and two seconds later by SIGKILL. Returns its last
/// output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The id from `process.start`.
    id: String,
}

/// Longer than the supervisor waits for killed processes.
const END_TIME_MAX: Duration = Duration::from_secs(15);

impl ToolDefinition for Stop {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "process.stop";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(input: Input, _handle: (), call: Invocation) -> ToolResult {
        let process = call.dependencies.commands.processes().require(call.agent, &input.id)?;
        process.terminate();
        process.wait(Awaited::Exit, END_TIME_MAX).await;
        result::format(process.take_progress())
    }
}
