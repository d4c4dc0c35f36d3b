//! `agent_status`: another agent in numbers.

use agent::outside::Scene;
use agent::permission::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::words::{AgentName, StatusWords};
use super::{reached, refused};
use crate::define::{Answer, Call, Define, compact};

pub(crate) struct Status;

/// Says what another agent is doing: whether it works, what waits, how long its context is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The agent to look at.
    agent_id: AgentName,
}

impl Define for Status {
    type Input = Input;
    const NAME: &'static str = "agent_status";
    const ALIASES: &'static [&'static str] = &["nexus_status"];

    fn effects(input: &Input, scene: &Scene<'_>) -> Result<Vec<Effect>, String> {
        Ok(vec![reached(&input.agent_id, scene)])
    }

    async fn run(input: Input, call: Call) -> Answer {
        let status = call.leave.peers.status(input.agent_id.0).await.map_err(refused)?;
        compact(&StatusWords::from(status))
    }
}
