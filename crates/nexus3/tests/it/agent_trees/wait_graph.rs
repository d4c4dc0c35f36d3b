//! Agents that wait for each other by `agent_send`: a cancelled wait ends what it waited for, a circle is refused at once,
//! and whoever waits takes no place from those it waits for.

use serde_json::{Value, json};

use super::lead_and_child;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::assert_all_valid;
use crate::support::{Fixture, agent_path, wait_until};

fn agent_send_script(to: &str, content: &str) -> String {
    format!("!tool agent_send {}", json!({ "agent_id": to, "content": content }))
}

fn fixture_with_both() -> Fixture {
    let stage = Fixture::start();
    lead_and_child(&stage, &TestDirectory::new());
    stage
}

/// What a tool said, as JSON.
fn result_of(said: &str) -> Value {
    serde_json::from_str(said.strip_prefix("tool said: ").expect("a tool spoke")).expect("its result is JSON")
}

#[test]
fn a_child_answers_its_parent_and_knows_who_asked() {
    let stage = fixture_with_both();
    let answer = result_of(&stage.send_text("lead", &agent_send_script("child", "hello")));
    assert_eq!(answer["content"], "echo: hello");
    assert!(crate::support::is_hex(&answer["request_id"], 16), "{answer}");
    let page = stage.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "agent", "source_agent_id": "lead" }));
    let said = stage.send_text("child", &agent_send_script("lead", "!reply yes, child"));
    assert_eq!(result_of(&said)["content"], "yes, child", "a sandboxed child may ask its parent");
    assert_all_valid(&stage.model);
}

#[test]
fn cancelling_a_turn_that_waits_for_a_child_cancels_the_childs_turn() {
    let stage = fixture_with_both();
    let open = stage.start_send("lead", &agent_send_script("child", "!stall"), "r");
    stage.model.wait_stalled(1);
    assert_eq!(stage.cancel("lead", "r")["cancelled"], true);
    assert_eq!(open.next_result()["cancelled"], true);
    stage.model.wait_aborted(1);
    wait_until("the child to be idle", || stage.agent("child")["working"] == false);
    let page = stage.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["meta"], json!({ "cancelled": true }), "{page}");
    let results: Vec<_> = stage.messages("lead").into_iter().filter(|(role, _)| role == "tool").collect();
    assert_eq!(results[0].1, "Cancelled by user: tool execution was interrupted");
    for agent in ["lead", "child"] {
        assert_eq!(stage.send(agent, "hi")["content"], "echo: hi");
    }
    assert_all_valid(&stage.model);
}

#[test]
fn cancelling_reaches_a_child_whose_turn_has_not_begun() {
    let stage = fixture_with_both();
    let busy = stage.start_send("child", "!hold gate", "busy");
    stage.model.wait_stalled(1);
    let open = stage.start_send("lead", &agent_send_script("child", "never heard"), "r");
    wait_until("the child's queue to have it", || stage.agent("child")["queued"] == 1);
    assert_eq!(stage.cancel("lead", "r")["cancelled"], true);
    assert_eq!(open.next_result()["cancelled"], true);
    wait_until("the child's queue to be empty", || stage.agent("child")["queued"] == 0);
    stage.model.release("gate");
    assert_eq!(busy.next_result()["content"], " released gate");
    assert_eq!(stage.send_text("child", "!history"), "!hold gate | !history");
}

#[test]
fn a_circle_of_two_is_refused_at_once_and_names_both() {
    let stage = fixture_with_both();
    let answer =
        result_of(&stage.send_text("lead", &agent_send_script("child", &agent_send_script("lead", "hello"))));
    let text = "tool said: deadlock: 'child' would wait for 'lead', which waits for 'child'";
    assert_eq!(answer["content"], text);
    assert_eq!(stage.context("lead")["message_count"], 4, "no message was left behind");
}

#[test]
fn a_circle_of_three_is_refused_where_it_closes() {
    let stage = Fixture::start();
    let all = json!(["trusted", "sandboxed"]);
    stage.create_with(json!({ "agent_id": "a", "preset": "trusted", "may_create": all }));
    stage.create_with(
        json!({ "agent_id": "b", "preset": "trusted", "parent_agent_id": "a", "may_create": all }),
    );
    stage.create_with(json!({ "agent_id": "c", "parent_agent_id": "b" }));
    let answer =
        result_of(&stage.send_text(
            "a",
            &agent_send_script("b", &agent_send_script("c", &agent_send_script("b", "hello"))),
        ));
    let text = "deadlock: 'c' would wait for 'b', which waits for 'c'";
    assert!(answer["content"].as_str().unwrap().contains(text), "{answer}");
    for agent in ["a", "b", "c"] {
        assert_eq!(stage.send(agent, "hi")["content"], "echo: hi");
    }
}

#[test]
fn a_message_that_nobody_waits_for_closes_no_circle() {
    let stage = fixture_with_both();
    let left =
        format!("!tool agent_send {}", json!({ "agent_id": "lead", "content": "for later", "wait": false }));
    let answer = result_of(&stage.send_text("lead", &agent_send_script("child", &left)));
    let inner = answer["content"].as_str().unwrap();
    assert!(inner.contains("\"status\":\"queued\""), "{answer}");
    wait_until("the message to be worked on", || stage.context("lead")["message_count"] == 6);
    assert_eq!(stage.messages("lead")[4].1, "for later");
}

#[test]
fn whoever_waits_takes_no_place_from_those_it_waits_for() {
    let stage = Fixture::with_config("limits.turns_running_max = 1");
    lead_and_child(&stage, &TestDirectory::new());
    let answer = result_of(&stage.send_text("lead", &agent_send_script("child", "hello")));
    assert_eq!(answer["content"], "echo: hello");
    assert_eq!(stage.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn a_turn_that_waits_for_its_place_again_can_be_cancelled() {
    let stage = Fixture::with_config("limits.turns_running_max = 1");
    lead_and_child(&stage, &TestDirectory::new());
    stage.create("stranger");
    let open = stage.start_send("lead", &agent_send_script("child", "!hold a"), "r");
    stage.model.wait_stalled(1);
    let stranger = stage.enqueue_send("stranger", "!hold b", "s");
    stage.model.release("a");
    wait_until("the stranger to have the place", || stage.agent("stranger")["working"] == true);
    wait_until("the child to be done", || stage.agent("child")["working"] == false);
    assert!(open.has_no_response());
    assert_eq!(stage.cancel("lead", "r")["cancelled"], true);
    assert_eq!(open.next_result()["cancelled"], true);
    stage.model.release("b");
    assert_eq!(stranger.next_result()["content"], " released b");
    assert_eq!(stage.send("lead", "hi")["content"], "echo: hi");
}

#[test]
fn a_stop_gives_a_parent_and_the_child_it_waits_for_their_time() {
    let stage = Fixture::with_config("stop_grace_ms = 3600000");
    lead_and_child(&stage, &TestDirectory::new());
    let open = stage.start_send("lead", &agent_send_script("child", "!hold gate"), "r");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGTERM");
    stage.daemon.wait_stderr("stopping: ");
    stage.model.release("gate");
    let content = open.next_result()["content"].take();
    assert_eq!(result_of(content.as_str().unwrap())["content"], " released gate");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}

#[test]
fn an_agent_does_not_send_to_itself_nor_to_strangers() {
    let stage = fixture_with_both();
    stage.create("stranger");
    assert_eq!(
        stage.send_text("lead", &agent_send_script("lead", "me?")),
        "tool said: agent_send cannot target the current agent"
    );
    let said = stage.send_text("lead", &agent_send_script("stranger", "hello"));
    assert_eq!(
        said,
        "tool said: Permission denied: cannot target agent 'stranger'; allowed: parent and child agents"
    );
    let said = stage.send_text("child", &agent_send_script("stranger", "hello"));
    assert_eq!(said, "tool said: Permission denied: cannot target agent 'stranger'; allowed: parent agent");
    assert_eq!(stage.context("stranger")["message_count"], 0);
}

#[test]
fn a_parent_sees_lists_and_cancels_what_its_child_does() {
    let stage = fixture_with_both();
    let open = stage.start_send("child", "!stall", "essay");
    stage.model.wait_stalled(1);
    let status = result_of(&stage.send_text("lead", r#"!tool agent_status {"agent_id":"child"}"#));
    let expected = json!({
        "agent_id": "child", "halted": null, "message_count": 1, "parent_agent_id": "lead", "preset": "sandboxed",
        "queued": 0, "working": true,
    });
    assert_eq!(status, expected);
    let list = result_of(&stage.send_text("lead", "!tool agent_list {}"));
    let names: Vec<_> = list["agents"].as_array().unwrap().iter().map(|agent| &agent["agent_id"]).collect();
    assert_eq!(names, ["lead", "child"]);
    let cancel = r#"!tool agent_cancel {"agent_id":"child","request_id":"essay"}"#;
    assert_eq!(stage.send_text("lead", cancel), r#"tool said: {"cancelled":true,"request_id":"essay"}"#);
    assert_eq!(open.next_result()["cancelled"], true);
    let again = r#"tool said: {"cancelled":false,"reason":"not_found_or_completed","request_id":"essay"}"#;
    assert_eq!(stage.send_text("lead", cancel), again);
}
