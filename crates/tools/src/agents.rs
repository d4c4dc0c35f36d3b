//! Tools for other agents. They act through the `Peers` of the calling agent; the judge has already checked the access.

mod cancel;
mod create;
mod destroy;
mod json_types;
mod list;
mod send;
mod status;

use agent::outside::CallSite;
use agent::permission::Effect;
use agent::{Fault, FaultKind, ToolOutcome};

use json_types::AgentIdArgument;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[
    tool::<create::Create>(),
    tool::<send::Send>(),
    tool::<status::Status>(),
    tool::<cancel::Cancel>(),
    tool::<destroy::Destroy>(),
    tool::<list::List>(),
];

/// Timeout of a tool that waits for another agent's turn.
const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// The effect of a call on another agent.
fn reach_effect(id: &AgentIdArgument, site: &CallSite<'_>) -> Effect {
    Effect::Reach(id.0.clone(), (site.relation_to)(&id.0))
}

pub(crate) fn fault_outcome(fault: Fault) -> ToolOutcome {
    let text = fault.public.into_owned();
    match fault.kind {
        FaultKind::Denied => ToolOutcome::Denied(format!("Permission denied: {text}")),
        _ => ToolOutcome::Failed(text),
    }
}
