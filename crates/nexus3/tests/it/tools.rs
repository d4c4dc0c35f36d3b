//! Tools through real turns: the model calls, the daemon judges and runs, the model reads the result.

mod blocked_paths;
mod calls;
mod files;
mod offered_tools;
mod pure;

use serde_json::json;

use crate::support::Fixture;
use crate::support::folder::TestDirectory;

/// An agent of this preset in this folder.
fn fixture_with(preset: &str, folder: &TestDirectory) -> Fixture {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "preset": preset, "cwd": folder.path_str() }));
    stage
}

/// What came of one call.
fn tool_result(stage: &Fixture, call: &str) -> String {
    let said = stage.send_text("worker", call);
    said.strip_prefix("tool said: ").unwrap_or_else(|| panic!("{call}: {said}")).to_owned()
}
