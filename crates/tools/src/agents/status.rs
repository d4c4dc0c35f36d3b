//! `agent_status`: returns the status of another agent.

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::Deserialize;

use super::json_types::{AgentIdArgument, StatusOutput};
use super::{fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentEffects, AgentQuery, PeersHandle};

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
    type Effects = AgentQuery;
    const NAME: &'static str = "agent_status";
    const ALIASES: &'static [&'static str] = &["nexus_status"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<AgentQuery, String> {
        Ok(AgentEffects(vec![reach_effect(&input.agent_id, site)]))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let status = peers.status(input.agent_id.0).await.map_err(fault_outcome)?;
        compact_json(&StatusOutput::from(status))
    }
}
