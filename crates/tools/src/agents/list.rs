//! `agent_list`: lists the calling agent and its descendants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault_outcome;
use super::json_types::StatusOutput;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

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
    const NAME: &'static str = "agent_list";

    async fn run(_input: Input, call: Invocation) -> ToolResult {
        let agents = call.context.peers.list().await.map_err(fault_outcome)?;
        let agents = agents.into_iter().map(StatusOutput::from).collect();
        compact_json(&Output { agents })
    }
}
