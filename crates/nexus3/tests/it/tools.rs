//! Tools in complete turns: the model calls a tool, the daemon judges and runs the call, the model gets the result.

mod blocked_paths;
mod calls;
mod canaries;
mod command_line;
mod commands;
mod custom_tools;
mod files;
mod git;
mod killed_writes;
mod network;
mod offered_tools;
mod processes;
mod pure;
mod secrets;
mod undo;

use serde_json::json;

use crate::support::Fixture;
use crate::support::folder::TestDirectory;

/// A daemon with the agent `worker`, which has this preset and working directory.
fn fixture_with(preset: &str, directory: &TestDirectory) -> Fixture {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "preset": preset, "cwd": directory.path_str() }));
    fixture
}

/// Has the agent `worker` make a tool call and returns the result.
fn tool_result(fixture: &Fixture, call: &str) -> String {
    let text = fixture.send_text("worker", call);
    text.strip_prefix("tool said: ").unwrap_or_else(|| panic!("{call}: {text}")).to_owned()
}
