//! Trees of agents: nobody does more than those above may grant, whatever is asked for, whenever it is asked, and whoever
//! is gone by then.

mod budgets;
mod ceilings;
mod children;
mod concurrent_calls;
mod initial_messages;
mod narrowing;
mod orphans;
mod permission_reasons;
mod steering;
mod subtrees;
mod temporary;
mod wait_graph;

use serde_json::json;

use crate::support::Fixture;
use crate::support::folder::TestDirectory;

/// A trusted agent and a sandboxed child of it, both in this folder.
fn lead_and_child(stage: &Fixture, folder: &TestDirectory) {
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
}
