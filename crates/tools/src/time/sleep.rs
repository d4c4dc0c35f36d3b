//! `sleep`: waits.

use std::time::Duration;

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::NoEffects;

pub(crate) struct Sleep;

/// Waits, for example until a process or a service is ready.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// How long to wait: from 1 to 300.
    seconds: u64,
}

const SECONDS_MAX: u64 = 300;

impl ToolDefinition for Sleep {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "sleep";
    /// A sleeping turn yields its permit, so that agents that only wait do not keep others from running.
    const CONCURRENCY: Concurrency = Concurrency::Waiting;
    const CLASS: ToolClass = ToolClass::Pure;
    /// Longer than any sleep.
    const TIME_MS_MAX: u64 = (SECONDS_MAX + 10) * 1000;

    fn effects(input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        if (1..=SECONDS_MAX).contains(&input.seconds) {
            return Ok(NoEffects);
        }
        Err(format!("Invalid input: field `seconds`: {} is not from 1 to {SECONDS_MAX}", input.seconds))
    }

    async fn run(input: Input, _handle: (), _call: Invocation) -> ToolResult {
        tokio::time::sleep(Duration::from_secs(input.seconds)).await;
        Ok(format!("Waited {} seconds", input.seconds))
    }
}
