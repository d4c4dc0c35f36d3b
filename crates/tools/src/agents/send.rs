//! `agent_send`: sends a message to another agent.

use agent::outside::CallSite;
use agent::permission::{Effect, Relation};
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::json_types::{AgentIdArgument, MessageReply};
use super::{WAIT_MS_MAX, fault_outcome, reach_effect};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentChange, AgentEffects, PeersHandle};

pub(crate) struct Send;

/// Sends a message to another agent and returns its reply.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to send to.
    agent_id: AgentIdArgument,
    /// The message.
    content: String,
    /// Whether to wait for the response, or only queue the message.
    #[schemars(extend("default" = true))]
    wait: Option<bool>,
}

impl ToolDefinition for Send {
    type Input = Input;
    type Effects = AgentChange;
    const NAME: &'static str = "agent_send";
    const ALIASES: &'static [&'static str] = &["nexus_send"];
    const CONCURRENCY: Concurrency = Concurrency::Waiting;
    const CLASS: ToolClass = ToolClass::Once;
    const TIME_MS_MAX: u64 = WAIT_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<AgentChange, String> {
        let effect = reach_effect(&input.agent_id, site);
        if input.agent_id.0 == *site.agent || matches!(effect, Effect::Reach(_, Relation::Itself)) {
            return Err("agent_send cannot target the current agent".to_owned());
        }
        Ok(AgentEffects(vec![effect]))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let response = peers.send(input.agent_id.0, input.content, input.wait.unwrap_or(true)).await;
        compact_json(&MessageReply::from(response.map_err(fault_outcome)?))
    }
}
