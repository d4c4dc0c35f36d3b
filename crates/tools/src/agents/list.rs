//! `agent_list`: lists the calling agent and its descendants.

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault_outcome;
use super::json_types::StatusOutput;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentEffects, AgentQuery, PeersHandle};

pub(crate) struct List;

/// Lists you and your descendants, oldest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {}

#[derive(Serialize)]
struct Output {
    agents: Vec<StatusOutput>,
}

impl ToolDefinition for List {
    type Input = Input;
    type Effects = AgentQuery;
    const NAME: &'static str = "agent_list";
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<AgentQuery, String> {
        Ok(AgentEffects(Vec::new()))
    }

    async fn run(_input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let agents = peers.list().await.map_err(fault_outcome)?;
        let agents = agents.into_iter().map(StatusOutput::from).collect();
        compact_json(&Output { agents })
    }
}
