//! `set_permissions` counts from the next tool call on: for the agent, and for everybody below it, also in the middle of a
//! turn.

use serde_json::{Value, json};

use super::lead_and_child;
use crate::support::callers::{call_as, permission_denied, result_as};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{Fixture, agent_path};

const NO_READ: &str = "Permission denied: Tool 'fs.read_file' is disabled by permission policy";

/// Holds a turn of `agent`, lets the test do something, and then has the same turn call a tool.
fn call_mid_turn(stage: &Fixture, agent: &str, meanwhile: impl FnOnce(), call: &str) -> String {
    let open = stage.start_send(agent, "!hold gate", "r");
    stage.model.wait_stalled(1);
    meanwhile();
    let steered = stage.daemon.call_result(&agent_path(agent), "steer", json!({ "content": call }));
    assert_eq!(steered["steered"], true, "{steered}");
    stage.model.release("gate");
    let content = open.next_result()["content"].take();
    content.as_str().unwrap().strip_prefix(" released gatetool said: ").expect("one turn").to_owned()
}

/// The names of the tools that the model was offered last.
fn offered_tools(stage: &Fixture) -> Vec<Value> {
    let last = stage.model.requests().pop().unwrap();
    last.body["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect()
}

#[test]
fn narrowing_a_parent_denies_the_next_call_of_a_childs_running_turn() {
    let stage = Fixture::start();
    let folder = TestDirectory::with_files(&[("a.txt", "text")]);
    lead_and_child(&stage, &folder);
    assert_eq!(stage.send_text("child", &read_file_script("a.txt")), "tool said: text");
    assert!(offered_tools(&stage).contains(&json!("fs_read_file")));
    let narrow = || drop(stage.set_permissions("lead", json!({ "disable_tools": ["read_file"] })));
    assert_eq!(call_mid_turn(&stage, "child", narrow, &read_file_script("a.txt")), NO_READ);
    assert!(!offered_tools(&stage).contains(&json!("fs_read_file")), "a tool that is denied is not offered");
    stage.set_permissions("lead", json!({ "disable_tools": [] }));
    assert_eq!(
        stage.send_text("child", &read_file_script("a.txt")),
        "tool said: text",
        "what is given back is there again"
    );
}

#[test]
fn narrowing_reaches_three_levels_down_and_the_folders_too() {
    let stage = Fixture::start();
    let folder = TestDirectory::with_files(&[("in/a.txt", "text")]);
    let all = json!(["trusted", "sandboxed"]);
    stage.create_with(
        json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "may_create": all }),
    );
    stage.create_with(json!({ "agent_id": "middle", "preset": "trusted", "parent_agent_id": "lead" }));
    stage.create_with(json!({
        "agent_id": "leaf", "parent_agent_id": "middle", "cwd": "in", "allowed_write_paths": ["."],
    }));
    assert!(stage.send_text("leaf", &write_file_script("b.txt", "b")).contains("\"success\":true"));
    let narrow = || drop(stage.set_permissions("lead", json!({ "allowed_write_paths": ["elsewhere"] })));
    let said = call_mid_turn(&stage, "leaf", narrow, &write_file_script("c.txt", "c"));
    let at = folder.path_of("in/c.txt");
    let text =
        format!("Permission denied: cannot write '{at}': Path outside allowed directories. Allowed: nowhere");
    assert_eq!(said, text);
    assert_eq!(folder.read("in/c.txt"), None);
    assert_eq!(stage.agent("leaf")["agent"]["write_paths"], json!([]));
}

#[test]
fn an_agent_that_loses_its_preset_in_a_turn_has_lost_it() {
    let stage = Fixture::start();
    let folder = TestDirectory::with_files(&[("a.txt", "text")]);
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    let narrow = || drop(stage.set_permissions("lead", json!({ "preset": "sandboxed" })));
    let said = call_mid_turn(&stage, "lead", narrow, r#"!tool agent_create {"agent_id":"child"}"#);
    assert_eq!(said, "Permission denied: Tool 'agent_create' is disabled by permission policy");
    assert_eq!(stage.permissions("lead")["preset"], "sandboxed");
    stage.set_permissions("lead", json!({ "preset": "trusted" }));
    assert!(stage.send_text("lead", &write_file_script("a.txt", "new")).contains("\"success\":true"));
    assert_eq!(folder.read("a.txt").as_deref(), Some("new"));
}

#[test]
fn what_is_not_named_stays_as_it_is() {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    stage.create_with(json!({
        "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "disable_tools": ["echo"],
        "allowed_write_paths": ["out"], "budget": { "turns": 9, "tokens": 900 },
    }));
    let before = stage.permissions("lead");
    assert_eq!(stage.set_permissions("lead", json!({})), before);
    let changed = stage.set_permissions("lead", json!({ "budget": { "turns": 8 } }));
    assert_eq!(changed["may"], before["may"]);
    assert_eq!(stage.resource_usage("lead", "turns")[0], 8);
    assert_eq!(stage.resource_usage("lead", "tokens")[0], 900);
    let changed =
        stage.set_permissions("lead", json!({ "disable_tools": ["hash.sha256"], "unlimited": ["tokens"] }));
    assert_eq!(changed["may"]["tools"], json!({ "all_but": ["hash.sha256"] }), "the list is the whole list");
    assert_eq!(changed["may"]["write"], json!([folder.path_of("out")]));
    assert_eq!(stage.resource_usage("lead", "tokens")[0], json!(null));
    assert_eq!(changed, stage.permissions("lead"), "the answer is what counts from now on");
}

#[test]
fn permissions_are_set_by_admins_and_ancestors_and_by_nobody_else() {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    let lead =
        stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    let child = stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let sister = stage.create_with(json!({ "agent_id": "sister", "parent_agent_id": "lead" }));
    let narrow = json!({ "disable_tools": ["echo"] });
    for (who, token, whom) in [
        ("child", &child, "child"),
        ("child", &child, "lead"),
        ("sister", &sister, "child"),
        ("lead", &lead, "lead"),
    ] {
        let response = call_as(&stage.daemon, token, &agent_path(whom), "set_permissions", narrow.clone());
        let text = format!("Agent '{who}' is not authorized to call set_permissions on '{whom}'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    result_as(&stage.daemon, &lead, &agent_path("child"), "set_permissions", narrow);
    let said = stage.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(said, "tool said: Permission denied: Tool 'echo' is disabled by permission policy");
    let wider = json!({ "preset": "trusted" });
    let response = call_as(&stage.daemon, &lead, &agent_path("child"), "set_permissions", wider);
    assert_eq!(response["error"], permission_denied("Requested preset 'trusted' exceeds parent ceiling"));
}
