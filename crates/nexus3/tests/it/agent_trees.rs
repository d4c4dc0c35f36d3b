//! Trees of agents: no agent does more than its ancestors may grant, with any parameters, at any time, and also after
//! an ancestor is destroyed.

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

/// Creates a trusted agent and a sandboxed child, both with this working directory.
fn create_lead_and_child(fixture: &Fixture, folder: &TestDirectory) {
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
}
