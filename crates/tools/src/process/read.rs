//! `process.read`: new output and state of a background process.

use std::time::Duration;

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::background::Awaited;
use super::result;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::NoEffects;

pub(crate) struct Read;

/// Returns what a background process has printed since the last read, and whether it still runs. Waits a while for output
/// if there is none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The id from `process.start`.
    id: String,
    /// How long to wait: 5 seconds by default, at most 60. 0 does not wait.
    #[schemars(extend("default" = 5))]
    wait_secs: Option<u64>,
    /// What to wait for: `output` by default, or `exit`.
    #[serde(default)]
    wait_for: WaitFor,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum WaitFor {
    #[default]
    Output,
    Exit,
}

const WAIT_SECS_DEFAULT: u64 = 5;
const WAIT_SECS_MAX: u64 = 60;

impl ToolDefinition for Read {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "process.read";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    /// Repeated after a crash, it finds that the process has ended with the daemon.
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = (WAIT_SECS_MAX + 15) * 1000;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(input: Input, _handle: (), call: Invocation) -> ToolResult {
        let process = call.dependencies.commands.processes().require(call.agent, &input.id)?;
        let awaited = match input.wait_for {
            WaitFor::Output => Awaited::Output,
            WaitFor::Exit => Awaited::Exit,
        };
        let seconds = input.wait_secs.unwrap_or(WAIT_SECS_DEFAULT).min(WAIT_SECS_MAX);
        process.wait(awaited, Duration::from_secs(seconds)).await;
        result::format(process.take_progress())
    }
}
