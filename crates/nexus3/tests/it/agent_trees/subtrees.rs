//! Destroying an agent destroys its descendants: open sends get a response, model calls are aborted, and other agents
//! are not affected.

use serde_json::json;

use crate::support::callers::{post_as, result_as};
use crate::support::{Fixture, agent_ids, agent_path};

/// Creates lead > (left > leaf, right), and a stranger. Agents with children are trusted. Returns the tokens.
fn create_tree(fixture: &Fixture) -> Vec<String> {
    let all = json!(["trusted", "sandboxed"]);
    [
        json!({ "agent_id": "lead", "preset": "trusted", "may_create": all }),
        json!({ "agent_id": "left", "preset": "trusted", "parent_agent_id": "lead", "may_create": all }),
        json!({ "agent_id": "leaf", "parent_agent_id": "left" }),
        json!({ "agent_id": "right", "parent_agent_id": "lead" }),
        json!({ "agent_id": "stranger" }),
    ]
    .into_iter()
    .map(|params| fixture.create_with(params))
    .collect()
}

#[test]
fn destroying_a_subtree_cancels_its_open_sends() {
    let fixture = Fixture::start();
    let tokens = create_tree(&fixture);
    let pending: Vec<_> = ["lead", "left", "leaf", "right"]
        .iter()
        .map(|name| fixture.start_send(name, "!stall", "r"))
        .collect();
    let unaffected = fixture.start_send("stranger", "!hold on", "r");
    fixture.model.wait_stalled(5);
    let queued = fixture.enqueue_send("leaf", "later", "later");
    let destroyed = fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead" }));
    assert_eq!(destroyed, json!({ "success": true, "agent_id": "lead" }));
    for calls in pending.iter().chain([&queued]) {
        assert_eq!(calls.next_result()["cancelled"], true);
    }
    fixture.model.wait_aborted(4);
    assert_eq!(agent_ids(&fixture.daemon), ["stranger"]);
    for token in &tokens[..4] {
        let response = post_as(&fixture.daemon, token, &[], "/", "list_agents", json!({}));
        assert_eq!((response.status, &response.json()["error"]["message"]), (403, &json!("Invalid API key")));
    }
    fixture.model.release("on");
    assert_eq!(unaffected.next_result()["content"], " released on");
    assert_eq!(fixture.model.aborted(), 4);
    assert_eq!(recreate_tree(&fixture), ["stranger", "lead", "left"]);
}

/// Creates agents with the names of destroyed ones, which are free at once. Returns all ids.
fn recreate_tree(fixture: &Fixture) -> Vec<String> {
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "left", "parent_agent_id": "lead" }));
    assert_eq!(fixture.context("left")["message_count"], 0);
    agent_ids(&fixture.daemon)
}

#[test]
fn destroying_a_branch_leaves_the_rest_of_the_tree() {
    let fixture = Fixture::start();
    let tokens = create_tree(&fixture);
    let destroyed =
        result_as(&fixture.daemon, &tokens[0], "/", "destroy_agent", json!({ "agent_id": "left" }));
    assert_eq!(destroyed["success"], true);
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "right", "stranger"]);
    assert_eq!(fixture.agent("lead")["children"], json!(["right"]));
    assert_eq!(fixture.send("right", "hi")["content"], "echo: hi");
}

#[test]
fn agent_destroy_reaches_only_descendants() {
    let fixture = Fixture::start();
    create_tree(&fixture);
    let destroy = |caller: &str, target: &str| {
        fixture.send_text(caller, &format!("!tool agent_destroy {{\"agent_id\":\"{target}\"}}"))
    };
    assert_eq!(destroy("lead", "leaf"), r#"tool said: {"agent_id":"leaf","success":true}"#);
    let content = destroy("left", "lead");
    assert_eq!(content, "tool said: Permission denied: Agent 'left' is not authorized to destroy 'lead'");
    for target in ["right", "stranger", "missing"] {
        let text = format!(
            "tool said: Permission denied: cannot target agent '{target}'; allowed: parent and child agents"
        );
        assert_eq!(destroy("left", target), text);
    }
    let content = destroy("lead", "lead");
    assert_eq!(content, "tool said: Permission denied: 'lead' cannot target itself");
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "left", "right", "stranger"]);
}

#[test]
fn a_parent_continues_when_its_awaited_child_is_destroyed() {
    let fixture = Fixture::start();
    create_tree(&fixture);
    let pending =
        fixture.start_send("lead", r#"!tool agent_send {"agent_id":"left","content":"!stall"}"#, "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "left" }));
    let content = pending.next_result()["content"].take();
    let content = content.as_str().unwrap();
    assert!(content.starts_with("tool said: {\"cancelled\":true,\"content\":\"\""), "{content}");
    assert_eq!(fixture.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn an_agent_that_destroys_itself_destroys_its_children() {
    let fixture = Fixture::start();
    let tokens = create_tree(&fixture);
    let destroyed =
        result_as(&fixture.daemon, &tokens[1], "/", "destroy_agent", json!({ "agent_id": "left" }));
    assert_eq!(destroyed["success"], true);
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "right", "stranger"]);
    let response = fixture.daemon.post(&agent_path("leaf"), &[], b"{}");
    assert_eq!(response.status, 404);
}
