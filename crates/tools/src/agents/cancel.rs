//! `agent_cancel`: cancels a message to another agent.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_types::{AgentIdArgument, RequestIdArgument};
use super::{fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentChange, AgentEffects, PeersHandle};

pub(crate) struct Cancel;

/// Cancels a running or queued message of another agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent that has the message.
    agent_id: AgentIdArgument,
    /// The `request_id` that sending the message returned.
    request_id: RequestIdArgument,
}

#[derive(Serialize)]
struct Output {
    cancelled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    request_id: RequestIdArgument,
}

impl ToolDefinition for Cancel {
    type Input = Input;
    type Effects = AgentChange;
    const NAME: &'static str = "agent_cancel";
    const ALIASES: &'static [&'static str] = &["nexus_cancel"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<AgentChange, String> {
        Ok(AgentEffects(vec![reach_effect(&input.agent_id, site)]))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let request_id = input.request_id;
        let cancelled =
            peers.cancel(input.agent_id.0, request_id.clone().into()).await.map_err(fault_outcome)?;
        let reason = (!cancelled).then_some("not_found_or_completed");
        compact_json(&Output { cancelled, reason, request_id })
    }
}
