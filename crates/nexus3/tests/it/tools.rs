//! Tools through real turns: the model calls, the daemon judges and runs, the model reads the result.

mod calls;
mod blocked_paths;
mod files;
mod offered_tools;
mod pure;

use serde_json::json;

use crate::support::Stage;
use crate::support::folder::Folder;

/// An agent of this preset in this folder.
fn stage_with(preset: &str, folder: &Folder) -> Stage {
    let stage = Stage::open();
    stage.create_with(json!({ "agent_id": "worker", "preset": preset, "cwd": folder.text() }));
    stage
}

/// What came of one call.
fn told(stage: &Stage, call: &str) -> String {
    let said = stage.said("worker", call);
    said.strip_prefix("tool said: ").unwrap_or_else(|| panic!("{call}: {said}")).to_owned()
}
