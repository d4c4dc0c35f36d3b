//! `approvals_list`: the approval requests of the calling agent's descendants.

use agent::outside::{CallSite, PendingApproval, Timestamp};
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agents::fault_outcome;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{AgentEffects, AgentQuery, PeersHandle};

pub(crate) struct List;

/// Lists the tool calls of your descendants that wait for an approval, oldest first. Answer with `approvals_answer`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Wait at most this long until there is one: 0 by default, at most 300.
    #[schemars(extend("default" = 0))]
    wait_secs: Option<u64>,
}

const WAIT_SECS_MAX: u64 = 300;

#[derive(Serialize)]
struct Output {
    approvals: Vec<Approval>,
}

#[derive(Serialize)]
struct Approval {
    approval_id: String,
    agent_id: String,
    tool: String,
    arguments: String,
    effects: Vec<String>,
    reason: String,
    expires_at: Option<String>,
}

impl From<PendingApproval> for Approval {
    fn from(pending: PendingApproval) -> Self {
        let request = &pending.request;
        Self {
            approval_id: request.id.clone(),
            agent_id: pending.agent.to_string(),
            tool: request.tool.clone(),
            arguments: request.arguments.clone(),
            effects: request.effects.clone(),
            reason: request.reason.clone(),
            expires_at: format_time(request.expires_at),
        }
    }
}

fn format_time(time: Timestamp) -> Option<String> {
    jiff::Timestamp::from_microsecond(time.0).ok().map(|time| time.to_string())
}

impl ToolDefinition for List {
    type Input = Input;
    type Effects = AgentQuery;
    const NAME: &'static str = "approvals_list";
    const CONCURRENCY: Concurrency = Concurrency::Waiting;
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = (WAIT_SECS_MAX + 15) * 1000;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<AgentQuery, String> {
        Ok(AgentEffects(Vec::new()))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let wait_secs = input.wait_secs.unwrap_or(0).min(WAIT_SECS_MAX);
        let approvals = peers.approvals(wait_secs).await.map_err(fault_outcome)?;
        compact_json(&Output { approvals: approvals.into_iter().map(Approval::from).collect() })
    }
}
