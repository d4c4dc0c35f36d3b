//! `agent_status`: returns the status of another agent.

use agent::outside::CallSite;
use agent::permission::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::json_types::{AgentIdArgument, StatusOutput};
use super::{fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

pub(crate) struct Status;

/// Returns another agent's status: whether it is working, queued turns, context length.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to query.
    agent_id: AgentIdArgument,
}

impl ToolDefinition for Status {
    type Input = Input;
    const NAME: &'static str = "agent_status";
    const ALIASES: &'static [&'static str] = &["nexus_status"];

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        Ok(vec![reach_effect(&input.agent_id, site)])
    }

    async fn run(input: Input, call: Invocation) -> ToolResult {
        let status = call.context.peers.status(input.agent_id.0).await.map_err(fault_outcome)?;
        compact_json(&StatusOutput::from(status))
    }
}
