//! `agent_cancel`: ends a send of another agent.

use agent::outside::Scene;
use agent::permission::Effect;
use agent::{Pace, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::{AgentName, RequestIdArgument};
use super::{reached, refused};
use crate::define::{Answer, Call, Define, compact};

pub(crate) struct Cancel;

/// Cancels a message that another agent is working on or that waits there.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent that has the message.
    agent_id: AgentName,
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

impl Define for Cancel {
    type Input = Input;
    const NAME: &'static str = "agent_cancel";
    const ALIASES: &'static [&'static str] = &["nexus_cancel"];
    const PACE: Pace = Pace::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, scene: &Scene<'_>) -> Result<Vec<Effect>, String> {
        Ok(vec![reached(&input.agent_id, scene)])
    }

    async fn run(input: Input, call: Call) -> Answer {
        let request_id = input.request_id;
        let cancelled =
            call.leave.peers.cancel(input.agent_id.0, request_id.clone().into()).await.map_err(refused)?;
        let reason = (!cancelled).then_some("not_found_or_completed");
        compact(&Output { cancelled, reason, request_id })
    }
}
