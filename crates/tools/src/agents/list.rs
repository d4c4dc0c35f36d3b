//! `agent_list`: the agent that asks and those below it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refused;
use super::words::StatusWords;
use crate::define::{Answer, Call, Define, compact};

pub(crate) struct List;

/// Lists you and the agents below you, oldest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {}

#[derive(Serialize)]
struct Output {
    agents: Vec<StatusWords>,
}

impl Define for List {
    type Input = Input;
    const NAME: &'static str = "agent_list";

    async fn run(_input: Input, call: Call) -> Answer {
        let agents = call.leave.peers.list().await.map_err(refused)?;
        let agents = agents.into_iter().map(StatusWords::from).collect();
        compact(&Output { agents })
    }
}
