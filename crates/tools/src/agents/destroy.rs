//! `agent_destroy`: destroys another agent.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_types::AgentIdArgument;
use super::{fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentChange, AgentEffects, PeersHandle};

pub(crate) struct Destroy;

/// Destroys an agent and its descendants. `success` is false if there is no such agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to destroy.
    agent_id: AgentIdArgument,
}

#[derive(Serialize)]
struct Output {
    agent_id: String,
    success: bool,
}

impl ToolDefinition for Destroy {
    type Input = Input;
    type Effects = AgentChange;
    const NAME: &'static str = "agent_destroy";
    const ALIASES: &'static [&'static str] = &["nexus_destroy"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<AgentChange, String> {
        Ok(AgentEffects(vec![reach_effect(&input.agent_id, site)]))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let agent_id = input.agent_id.0.to_string();
        let success = peers.destroy(input.agent_id.0).await.map_err(fault_outcome)?;
        compact_json(&Output { agent_id, success })
    }
}
