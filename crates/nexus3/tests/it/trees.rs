//! Trees of agents: nobody does more than those above may grant, whatever is asked for, whenever it is asked, and whoever
//! is gone by then.

mod budgets;
mod ceilings;
mod children;
mod permission_reasons;
mod first_messages;
mod narrowing;
mod orphans;
mod steering;
mod storm;
mod subtrees;
mod temporary;
mod wait_graph;

use serde_json::json;

use crate::support::Stage;
use crate::support::folder::Folder;

/// A trusted agent and a sandboxed child of it, both in this folder.
fn lead_and_child(stage: &Stage, folder: &Folder) {
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.text() }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
}
