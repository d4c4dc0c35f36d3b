//! Tools for other agents. They act through the peers of the agent that calls; who may be reached was judged before.

mod cancel;
mod create;
mod destroy;
mod json_types;
mod list;
mod send;
mod status;

pub(crate) use cancel::Cancel;
pub(crate) use create::Create;
pub(crate) use destroy::Destroy;
pub(crate) use list::List;
pub(crate) use send::Send;
pub(crate) use status::Status;

use agent::outside::CallSite;
use agent::permission::Effect;
use agent::{Fault, FaultKind, ToolOutcome};

use json_types::AgentIdArgument;

/// How long a tool may run that waits for another agent's turn.
const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// What a call touches that is for another agent.
fn reach_effect(name: &AgentIdArgument, scene: &CallSite<'_>) -> Effect {
    Effect::Reach(name.0.clone(), (scene.relation_to)(&name.0))
}

fn fault_outcome(fault: Fault) -> ToolOutcome {
    let text = fault.public.into_owned();
    match fault.kind {
        FaultKind::Denied => ToolOutcome::Denied(format!("Permission denied: {text}")),
        _ => ToolOutcome::Failed(text),
    }
}
