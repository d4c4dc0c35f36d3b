//! Agents that wait for each other with `agent_send`: cancelling the waiting turn cancels the awaited one, a deadlock
//! is refused at once, and a waiting turn holds no permit.

use serde_json::{Value, json};

use super::create_lead_and_child;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::assert_all_valid;
use crate::support::{Fixture, agent_path, wait_until};

fn agent_send_script(to: &str, content: &str) -> String {
    format!("!tool agent_send {}", json!({ "agent_id": to, "content": content }))
}

fn start_with_lead_and_child() -> Fixture {
    let fixture = Fixture::start();
    create_lead_and_child(&fixture, &TestDirectory::new());
    fixture
}

/// Parses the JSON result of a tool from the model's response.
fn tool_result(content: &str) -> Value {
    let result = content.strip_prefix("tool said: ").expect("the response has a tool result");
    serde_json::from_str(result).expect("the tool result is JSON")
}

#[test]
fn agent_send_returns_the_response_and_records_the_sender() {
    let fixture = start_with_lead_and_child();
    let result = tool_result(&fixture.send_text("lead", &agent_send_script("child", "hello")));
    assert_eq!(result["content"], "echo: hello");
    assert!(crate::support::is_hex(&result["request_id"], 16), "{result}");
    let page = fixture.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "agent", "source_agent_id": "lead" }));
    let content = fixture.send_text("child", &agent_send_script("lead", "!reply yes, child"));
    assert_eq!(tool_result(&content)["content"], "yes, child", "a sandboxed child may send to its parent");
    assert_all_valid(&fixture.model);
}

#[test]
fn cancelling_a_waiting_turn_cancels_the_childs_turn() {
    let fixture = start_with_lead_and_child();
    let pending = fixture.start_send("lead", &agent_send_script("child", "!stall"), "r");
    fixture.model.wait_stalled(1);
    assert_eq!(fixture.cancel("lead", "r")["cancelled"], true);
    assert_eq!(pending.next_result()["cancelled"], true);
    fixture.model.wait_aborted(1);
    wait_until("the child to be idle", || fixture.agent("child")["working"] == false);
    let page = fixture.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["meta"], json!({ "cancelled": true }), "{page}");
    let results: Vec<_> = fixture.messages("lead").into_iter().filter(|(role, _)| role == "tool").collect();
    assert_eq!(results[0].1, "Cancelled by user: tool execution was interrupted");
    for agent in ["lead", "child"] {
        assert_eq!(fixture.send(agent, "hi")["content"], "echo: hi");
    }
    assert_all_valid(&fixture.model);
}

#[test]
fn cancelling_a_waiting_turn_removes_a_queued_turn() {
    let fixture = start_with_lead_and_child();
    let running = fixture.start_send("child", "!hold gate", "busy");
    fixture.model.wait_stalled(1);
    let pending = fixture.start_send("lead", &agent_send_script("child", "never sent to the model"), "r");
    wait_until("the child's queue to have the message", || fixture.agent("child")["queued"] == 1);
    assert_eq!(fixture.cancel("lead", "r")["cancelled"], true);
    assert_eq!(pending.next_result()["cancelled"], true);
    wait_until("the child's queue to be empty", || fixture.agent("child")["queued"] == 0);
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(fixture.send_text("child", "!history"), "!hold gate | !history");
}

#[test]
fn a_deadlock_of_two_agents_is_refused_and_names_both() {
    let fixture = start_with_lead_and_child();
    let result = tool_result(
        &fixture.send_text("lead", &agent_send_script("child", &agent_send_script("lead", "hello"))),
    );
    let text = "tool said: deadlock: 'child' would wait for 'lead', which waits for 'child'";
    assert_eq!(result["content"], text);
    assert_eq!(fixture.context("lead")["message_count"], 4, "the refused message was not queued");
}

#[test]
fn a_deadlock_among_three_agents_is_refused() {
    let fixture = Fixture::start();
    let all = json!(["trusted", "sandboxed"]);
    fixture.create_with(json!({ "agent_id": "a", "preset": "trusted", "may_create": all }));
    fixture.create_with(
        json!({ "agent_id": "b", "preset": "trusted", "parent_agent_id": "a", "may_create": all }),
    );
    fixture.create_with(json!({ "agent_id": "c", "parent_agent_id": "b" }));
    let result =
        tool_result(&fixture.send_text(
            "a",
            &agent_send_script("b", &agent_send_script("c", &agent_send_script("b", "hello"))),
        ));
    let text = "deadlock: 'c' would wait for 'b', which waits for 'c'";
    assert!(result["content"].as_str().unwrap().contains(text), "{result}");
    for agent in ["a", "b", "c"] {
        assert_eq!(fixture.send(agent, "hi")["content"], "echo: hi");
    }
}

#[test]
fn a_message_sent_without_waiting_is_no_deadlock() {
    let fixture = start_with_lead_and_child();
    let enqueue =
        format!("!tool agent_send {}", json!({ "agent_id": "lead", "content": "for later", "wait": false }));
    let result = tool_result(&fixture.send_text("lead", &agent_send_script("child", &enqueue)));
    let inner = result["content"].as_str().unwrap();
    assert!(inner.contains("\"status\":\"queued\""), "{result}");
    wait_until("the message to be processed", || fixture.context("lead")["message_count"] == 6);
    assert_eq!(fixture.messages("lead")[4].1, "for later");
}

#[test]
fn a_waiting_turn_releases_its_permit() {
    let fixture = Fixture::with_config("limits.turns_running_max = 1");
    create_lead_and_child(&fixture, &TestDirectory::new());
    let result = tool_result(&fixture.send_text("lead", &agent_send_script("child", "hello")));
    assert_eq!(result["content"], "echo: hello");
    assert_eq!(fixture.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn a_turn_that_waits_for_a_permit_can_be_cancelled() {
    let fixture = Fixture::with_config("limits.turns_running_max = 1");
    create_lead_and_child(&fixture, &TestDirectory::new());
    fixture.create("stranger");
    let pending = fixture.start_send("lead", &agent_send_script("child", "!hold a"), "r");
    fixture.model.wait_stalled(1);
    let stranger = fixture.enqueue_send("stranger", "!hold b", "s");
    fixture.model.release("a");
    wait_until("the stranger to have the permit", || fixture.agent("stranger")["working"] == true);
    wait_until("the child to be done", || fixture.agent("child")["working"] == false);
    assert!(pending.has_no_response());
    assert_eq!(fixture.cancel("lead", "r")["cancelled"], true);
    assert_eq!(pending.next_result()["cancelled"], true);
    fixture.model.release("b");
    assert_eq!(stranger.next_result()["content"], " released b");
    assert_eq!(fixture.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn a_graceful_stop_waits_for_a_parent_and_its_child() {
    let fixture = Fixture::with_config("stop_grace_ms = 3600000");
    create_lead_and_child(&fixture, &TestDirectory::new());
    let pending = fixture.start_send("lead", &agent_send_script("child", "!hold gate"), "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGTERM");
    fixture.daemon.wait_stderr("stopping: ");
    fixture.model.release("gate");
    let content = pending.next_result()["content"].take();
    assert_eq!(tool_result(content.as_str().unwrap())["content"], " released gate");
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}

#[test]
fn agent_send_to_self_or_unrelated_agents_is_refused() {
    let fixture = start_with_lead_and_child();
    fixture.create("stranger");
    assert_eq!(
        fixture.send_text("lead", &agent_send_script("lead", "me?")),
        "tool said: agent_send cannot target the current agent"
    );
    let content = fixture.send_text("lead", &agent_send_script("stranger", "hello"));
    assert_eq!(
        content,
        "tool said: Permission denied: cannot target agent 'stranger'; allowed: parent and child agents"
    );
    let content = fixture.send_text("child", &agent_send_script("stranger", "hello"));
    assert_eq!(
        content,
        "tool said: Permission denied: cannot target agent 'stranger'; allowed: parent agent"
    );
    assert_eq!(fixture.context("stranger")["message_count"], 0);
}

#[test]
fn a_parent_can_list_inspect_and_cancel_its_child() {
    let fixture = start_with_lead_and_child();
    let pending = fixture.start_send("child", "!stall", "essay");
    fixture.model.wait_stalled(1);
    let status = tool_result(&fixture.send_text("lead", r#"!tool agent_status {"agent_id":"child"}"#));
    let expected = json!({
        "agent_id": "child", "halted": null, "message_count": 1, "parent_agent_id": "lead", "preset": "sandboxed",
        "queued": 0, "working": true,
    });
    assert_eq!(status, expected);
    let list = tool_result(&fixture.send_text("lead", "!tool agent_list {}"));
    let names: Vec<_> = list["agents"].as_array().unwrap().iter().map(|agent| &agent["agent_id"]).collect();
    assert_eq!(names, ["lead", "child"]);
    let cancel = r#"!tool agent_cancel {"agent_id":"child","request_id":"essay"}"#;
    assert_eq!(fixture.send_text("lead", cancel), r#"tool said: {"cancelled":true,"request_id":"essay"}"#);
    assert_eq!(pending.next_result()["cancelled"], true);
    let again = r#"tool said: {"cancelled":false,"reason":"not_found_or_completed","request_id":"essay"}"#;
    assert_eq!(fixture.send_text("lead", cancel), again);
}
