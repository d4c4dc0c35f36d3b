//! `agent_destroy`: ends another agent.

use agent::outside::Scene;
use agent::permission::Effect;
use agent::{Pace, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::AgentName;
use super::{reached, refused};
use crate::define::{Answer, Call, Define, compact};

pub(crate) struct Destroy;

/// Destroys an agent and its children. `success` is false when there is none of that name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to destroy.
    agent_id: AgentName,
}

#[derive(Serialize)]
struct Output {
    agent_id: String,
    success: bool,
}

impl Define for Destroy {
    type Input = Input;
    const NAME: &'static str = "agent_destroy";
    const ALIASES: &'static [&'static str] = &["nexus_destroy"];
    const PACE: Pace = Pace::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, scene: &Scene<'_>) -> Result<Vec<Effect>, String> {
        Ok(vec![reached(&input.agent_id, scene)])
    }

    async fn run(input: Input, call: Call) -> Answer {
        let agent_id = input.agent_id.0.to_string();
        let success = call.leave.peers.destroy(input.agent_id.0).await.map_err(refused)?;
        compact(&Output { agent_id, success })
    }
}
