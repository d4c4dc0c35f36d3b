//! `agent_status`: another agent in numbers.

use agent::outside::CallSite;
use agent::permission::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::json_types::{AgentIdArgument, StatusOutput};
use super::{fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

pub(crate) struct Status;

/// Says what another agent is doing: whether it works, what waits, how long its context is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to look at.
    agent_id: AgentIdArgument,
}

impl ToolDefinition for Status {
    type Input = Input;
    const NAME: &'static str = "agent_status";
    const ALIASES: &'static [&'static str] = &["nexus_status"];

    fn effects(input: &Input, scene: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        Ok(vec![reach_effect(&input.agent_id, scene)])
    }

    async fn run(input: Input, call: Invocation) -> ToolResult {
        let status = call.context.peers.status(input.agent_id.0).await.map_err(fault_outcome)?;
        compact_json(&StatusOutput::from(status))
    }
}
