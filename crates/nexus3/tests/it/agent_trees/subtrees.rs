//! Destroying takes everybody below along: open sends are answered, models are left, and the rest of the daemon does not
//! notice.

use serde_json::json;

use crate::support::callers::{post_as, result_as};
use crate::support::{Fixture, agent_ids, agent_path};

/// lead > (left > leaf, right), and a stranger; all trusted where they have children.
fn create_tree(stage: &Fixture) -> Vec<String> {
    let all = json!(["trusted", "sandboxed"]);
    [
        json!({ "agent_id": "lead", "preset": "trusted", "may_create": all }),
        json!({ "agent_id": "left", "preset": "trusted", "parent_agent_id": "lead", "may_create": all }),
        json!({ "agent_id": "leaf", "parent_agent_id": "left" }),
        json!({ "agent_id": "right", "parent_agent_id": "lead" }),
        json!({ "agent_id": "stranger" }),
    ]
    .into_iter()
    .map(|params| stage.create_with(params))
    .collect()
}

#[test]
fn a_destroyed_agent_takes_its_subtree_and_open_sends_are_answered() {
    let stage = Fixture::start();
    let tokens = create_tree(&stage);
    let open: Vec<_> =
        ["lead", "left", "leaf", "right"].iter().map(|name| stage.start_send(name, "!stall", "r")).collect();
    let stays = stage.start_send("stranger", "!hold on", "r");
    stage.model.wait_stalled(5);
    let waiting = stage.enqueue_send("leaf", "later", "later");
    let gone = stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead" }));
    assert_eq!(gone, json!({ "success": true, "agent_id": "lead" }));
    for calls in open.iter().chain([&waiting]) {
        assert_eq!(calls.next_result()["cancelled"], true);
    }
    stage.model.wait_aborted(4);
    assert_eq!(agent_ids(&stage.daemon), ["stranger"]);
    for token in &tokens[..4] {
        let answer = post_as(&stage.daemon, token, &[], "/", "list_agents", json!({}));
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (403, &json!("Invalid API key")));
    }
    stage.model.release("on");
    assert_eq!(stays.next_result()["content"], " released on");
    assert_eq!(stage.model.aborted(), 4);
    assert_eq!(recreate_tree(&stage), ["stranger", "lead", "left"]);
}

/// The names are free at once.
fn recreate_tree(stage: &Fixture) -> Vec<String> {
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    stage.create_with(json!({ "agent_id": "left", "parent_agent_id": "lead" }));
    assert_eq!(stage.context("left")["message_count"], 0);
    agent_ids(&stage.daemon)
}

#[test]
fn a_branch_goes_alone() {
    let stage = Fixture::start();
    let tokens = create_tree(&stage);
    let gone = result_as(&stage.daemon, &tokens[0], "/", "destroy_agent", json!({ "agent_id": "left" }));
    assert_eq!(gone["success"], true);
    assert_eq!(agent_ids(&stage.daemon), ["lead", "right", "stranger"]);
    assert_eq!(stage.agent("lead")["children"], json!(["right"]));
    assert_eq!(stage.send("right", "hi")["content"], "echo: hi");
}

#[test]
fn an_agent_destroys_its_children_by_tool_and_nobody_else() {
    let stage = Fixture::start();
    create_tree(&stage);
    let destroy = |who: &str, whom: &str| {
        stage.send_text(who, &format!("!tool agent_destroy {{\"agent_id\":\"{whom}\"}}"))
    };
    assert_eq!(destroy("lead", "leaf"), r#"tool said: {"agent_id":"leaf","success":true}"#);
    let said = destroy("left", "lead");
    assert_eq!(said, "tool said: Permission denied: Agent 'left' is not authorized to destroy 'lead'");
    for whom in ["right", "stranger", "nobody"] {
        let text = format!(
            "tool said: Permission denied: cannot target agent '{whom}'; allowed: parent and child agents"
        );
        assert_eq!(destroy("left", whom), text);
    }
    let said = destroy("lead", "lead");
    assert_eq!(said, "tool said: Permission denied: 'lead' cannot target itself");
    assert_eq!(agent_ids(&stage.daemon), ["lead", "left", "right", "stranger"]);
}

#[test]
fn a_parent_that_waits_for_a_destroyed_child_goes_on() {
    let stage = Fixture::start();
    create_tree(&stage);
    let open = stage.start_send("lead", r#"!tool agent_send {"agent_id":"left","content":"!stall"}"#, "r");
    stage.model.wait_stalled(1);
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "left" }));
    let content = open.next_result()["content"].take();
    let said = content.as_str().unwrap();
    assert!(said.starts_with("tool said: {\"cancelled\":true,\"content\":\"\""), "{said}");
    assert_eq!(stage.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn an_agent_that_destroys_itself_over_http_takes_its_children_along() {
    let stage = Fixture::start();
    let tokens = create_tree(&stage);
    let gone = result_as(&stage.daemon, &tokens[1], "/", "destroy_agent", json!({ "agent_id": "left" }));
    assert_eq!(gone["success"], true);
    assert_eq!(agent_ids(&stage.daemon), ["lead", "right", "stranger"]);
    let answer = stage.daemon.post(&agent_path("leaf"), &[], b"{}");
    assert_eq!(answer.status, 404);
}
