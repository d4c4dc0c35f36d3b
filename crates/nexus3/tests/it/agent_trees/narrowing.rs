//! `set_permissions` takes effect at the next tool call, for the agent and all its descendants, also during a turn.

use serde_json::{Value, json};

use super::create_lead_and_child;
use crate::support::callers::{call_as, permission_denied, result_as};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{Fixture, agent_path};

const NO_READ: &str = "Permission denied: Tool 'fs.read_file' is disabled by permission policy; remove it from disable_tools of the agent or its preset";

/// Holds a turn of `agent`, runs `meanwhile`, then steers the same turn to this tool call and returns its result.
fn call_mid_turn(fixture: &Fixture, agent: &str, meanwhile: impl FnOnce(), call: &str) -> String {
    let pending = fixture.start_send(agent, "!hold gate", "r");
    fixture.model.wait_stalled(1);
    meanwhile();
    let steered = fixture.daemon.call_result(&agent_path(agent), "steer", json!({ "content": call }));
    assert_eq!(steered["steered"], true, "{steered}");
    fixture.model.release("gate");
    let content = pending.next_result()["content"].take();
    content
        .as_str()
        .unwrap()
        .strip_prefix(" released gatetool said: ")
        .expect("the call ran in the held turn")
        .to_owned()
}

/// Names of the tools in the last model request.
fn offered_tools(fixture: &Fixture) -> Vec<Value> {
    let last = fixture.model.requests().pop().unwrap();
    last.body["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect()
}

#[test]
fn narrowing_a_parent_denies_the_childs_next_tool_call() {
    let fixture = Fixture::start();
    let folder = TestDirectory::with_files(&[("a.txt", "text")]);
    create_lead_and_child(&fixture, &folder);
    assert_eq!(fixture.send_text("child", &read_file_script("a.txt")), "tool said: text");
    assert!(offered_tools(&fixture).contains(&json!("fs_read_file")));
    let narrow = || drop(fixture.set_permissions("lead", json!({ "disable_tools": ["read_file"] })));
    assert_eq!(call_mid_turn(&fixture, "child", narrow, &read_file_script("a.txt")), NO_READ);
    assert!(!offered_tools(&fixture).contains(&json!("fs_read_file")), "a denied tool should not be offered");
    fixture.set_permissions("lead", json!({ "disable_tools": [] }));
    assert_eq!(
        fixture.send_text("child", &read_file_script("a.txt")),
        "tool said: text",
        "a tool that is enabled again should work"
    );
}

#[test]
fn narrowing_write_paths_applies_to_grandchildren() {
    let fixture = Fixture::start();
    let folder = TestDirectory::with_files(&[("in/a.txt", "text")]);
    let all = json!(["trusted", "sandboxed"]);
    fixture.create_with(
        json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "may_create": all }),
    );
    fixture.create_with(json!({ "agent_id": "middle", "preset": "trusted", "parent_agent_id": "lead" }));
    fixture.create_with(json!({
        "agent_id": "leaf", "parent_agent_id": "middle", "cwd": "in", "allowed_write_paths": ["."],
    }));
    assert!(fixture.send_text("leaf", &write_file_script("b.txt", "b")).contains("\"success\":true"));
    let narrow = || drop(fixture.set_permissions("lead", json!({ "allowed_write_paths": ["elsewhere"] })));
    let content = call_mid_turn(&fixture, "leaf", narrow, &write_file_script("c.txt", "c"));
    let at = folder.path_of("in/c.txt");
    let text = format!(
        "Permission denied: cannot write '{at}': Path outside allowed directories. Allowed: nowhere; add the directory to \
         allowed_write_paths"
    );
    assert_eq!(content, text);
    assert_eq!(folder.read("in/c.txt"), None);
    assert_eq!(fixture.agent("leaf")["agent"]["write_paths"], json!([]));
}

#[test]
fn changing_a_preset_applies_to_the_running_turn() {
    let fixture = Fixture::start();
    let folder = TestDirectory::with_files(&[("a.txt", "text")]);
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    let narrow = || drop(fixture.set_permissions("lead", json!({ "preset": "sandboxed" })));
    let content = call_mid_turn(&fixture, "lead", narrow, r#"!tool agent_create {"agent_id":"child"}"#);
    assert_eq!(
        content,
        "Permission denied: Tool 'agent_create' is disabled by permission policy; it needs may_create"
    );
    assert_eq!(fixture.permissions("lead")["preset"], "sandboxed");
    fixture.set_permissions("lead", json!({ "preset": "trusted" }));
    assert!(fixture.send_text("lead", &write_file_script("a.txt", "new")).contains("\"success\":true"));
    assert_eq!(folder.read("a.txt").as_deref(), Some("new"));
}

#[test]
fn omitted_parameters_leave_permissions_unchanged() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    fixture.create_with(json!({
        "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "disable_tools": ["echo"],
        "allowed_write_paths": ["out"], "budget": { "turns": 9, "tokens": 900 },
    }));
    let before = fixture.permissions("lead");
    assert_eq!(fixture.set_permissions("lead", json!({})), before);
    let changed = fixture.set_permissions("lead", json!({ "budget": { "turns": 8 } }));
    assert_eq!(changed["may"], before["may"]);
    assert_eq!(fixture.resource_usage("lead", "turns")[0], 8);
    assert_eq!(fixture.resource_usage("lead", "tokens")[0], 900);
    let changed =
        fixture.set_permissions("lead", json!({ "disable_tools": ["hash.sha256"], "unlimited": ["tokens"] }));
    assert_eq!(
        changed["may"]["tools"],
        json!({ "all_but": ["approvals_answer", "approvals_list", "hash.sha256"] }),
        "the list replaces the previous one"
    );
    assert_eq!(changed["may"]["write"], json!([folder.path_of("out")]));
    assert_eq!(fixture.resource_usage("lead", "tokens")[0], json!(null));
    assert_eq!(changed, fixture.permissions("lead"), "the result is the new state");
}

#[test]
fn only_admins_and_ancestors_may_set_permissions() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    let lead =
        fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    let child = fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let sister = fixture.create_with(json!({ "agent_id": "sister", "parent_agent_id": "lead" }));
    let narrow = json!({ "disable_tools": ["echo"] });
    for (caller, token, target) in [
        ("child", &child, "child"),
        ("child", &child, "lead"),
        ("sister", &sister, "child"),
        ("lead", &lead, "lead"),
    ] {
        let response =
            call_as(&fixture.daemon, token, &agent_path(target), "set_permissions", narrow.clone());
        let text = format!("Agent '{caller}' is not authorized to call set_permissions on '{target}'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    result_as(&fixture.daemon, &lead, &agent_path("child"), "set_permissions", narrow);
    let content = fixture.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: Tool 'echo' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
    );
    let wider = json!({ "preset": "trusted" });
    let response = call_as(&fixture.daemon, &lead, &agent_path("child"), "set_permissions", wider);
    assert_eq!(response["error"], permission_denied("Requested preset 'trusted' exceeds parent ceiling"));
}
