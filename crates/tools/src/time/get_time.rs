//! `get_time`: the current time.

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::NoEffects;
use crate::time::rfc3339;

pub(crate) struct GetTime;

/// Returns the current time in UTC: RFC 3339 text and seconds since 1970.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {}

#[derive(Serialize)]
struct Output {
    time: String,
    timestamp: i64,
    timezone: &'static str,
}

impl ToolDefinition for GetTime {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "get_time";
    const IS_OFFERED_BY_DEFAULT: bool = false;
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(_input: Input, _handle: (), call: Invocation) -> ToolResult {
        let now = call.dependencies.clock.now();
        let timestamp = now.0.div_euclid(1_000_000);
        compact_json(&Output { time: rfc3339(now)?, timestamp, timezone: "UTC" })
    }
}
