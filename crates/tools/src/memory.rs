//! Tools for the key-value store. They act on the namespace of the calling agent's tree.

mod delete;
mod list;
mod recall;
mod store;

use agent::{Fault, FaultKind, ToolOutcome};

use crate::definition::{ToolEntry, execution_failed, invalid_input, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] =
    &[tool::<store::Store>(), tool::<recall::Recall>(), tool::<list::List>(), tool::<delete::Delete>()];

fn fault_outcome(fault: &Fault) -> ToolOutcome {
    match fault.kind {
        FaultKind::Invalid => invalid_input(fault),
        _ => execution_failed(fault),
    }
}
