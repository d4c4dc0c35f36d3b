//! Tools for other agents. They act through the `Peers` of the calling agent; the judge checked the access before.

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

/// Timeout of a tool that waits for another agent's turn.
const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// The effect of a call on another agent.
fn reach_effect(name: &AgentIdArgument, site: &CallSite<'_>) -> Effect {
    Effect::Reach(name.0.clone(), (site.relation_to)(&name.0))
}

fn fault_outcome(fault: Fault) -> ToolOutcome {
    let text = fault.public.into_owned();
    match fault.kind {
        FaultKind::Denied => ToolOutcome::Denied(format!("Permission denied: {text}")),
        _ => ToolOutcome::Failed(text),
    }
}
