//! `steer`: a word for the turn that runs, read by the model before it is asked again.

use serde_json::{Value, json};

use super::lead_and_child;
use crate::support::callers::result_as;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::last_conversation;
use crate::support::{ExpectError as _, Fixture, agent_path};

fn steer(stage: &Fixture, agent: &str, content: &str) -> Value {
    stage.daemon.call_result(&agent_path(agent), "steer", json!({ "content": content }))
}

fn spoken(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_word_for_a_held_turn_is_in_the_next_question() {
    let stage = Fixture::start();
    stage.create("worker");
    let open = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    assert_eq!(steer(&stage, "worker", "only rivers"), json!({ "steered": true, "request_id": "r" }));
    assert_eq!(steer(&stage, "worker", "in Europe"), json!({ "steered": true, "request_id": "r" }));
    assert_eq!(stage.context("worker")["message_count"], 1, "it waits for the answer under way");
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], "so far released gateecho: in Europe");
    let sent = [
        ("user", "!hold gate so far"),
        ("assistant", "so far released gate"),
        ("user", "only rivers"),
        ("user", "in Europe"),
    ];
    assert_eq!(last_conversation(&stage.model), spoken(&sent));
    assert_eq!(stage.model.requests().len(), 2);
    assert_eq!(stage.messages("worker").len(), 5);
}

#[test]
fn a_word_during_a_tool_call_comes_after_its_result() {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    lead_and_child(&stage, &folder);
    let call = r#"!tool agent_send {"agent_id":"child","content":"!hold gate"}"#;
    let open = stage.start_send("lead", call, "r");
    stage.model.wait_stalled(1);
    assert_eq!(steer(&stage, "lead", "and hurry")["steered"], true);
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], "echo: and hurry");
    let sent = last_conversation(&stage.model);
    let roles: Vec<_> = sent.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert!(sent[2].1.contains("released gate") && sent[3].1 == "and hurry", "{sent:?}");
}

#[test]
fn a_word_for_nobody_is_told_and_left() {
    let stage = Fixture::start();
    stage.create("worker");
    let nobody = json!({ "steered": false, "reason": "no_running_turn_or_full" });
    assert_eq!(steer(&stage, "worker", "hello?"), nobody);
    assert_eq!(stage.context("worker")["message_count"], 0);
    let open = stage.start_send("worker", "!hold gate", "r");
    stage.model.wait_stalled(1);
    for number in 0..16 {
        assert_eq!(steer(&stage, "worker", &number.to_string())["steered"], true, "{number}");
    }
    assert_eq!(steer(&stage, "worker", "one too many"), nobody);
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], " released gateecho: 15");
    let error = stage.daemon.error(&agent_path("worker"), "steer", json!({}));
    assert_eq!(error, json!({ "code": -32602, "message": "Missing required parameter: content" }));
}

#[test]
fn a_word_is_kept_when_its_turn_is_cancelled() {
    let stage = Fixture::start();
    stage.create("worker");
    let open = stage.start_send("worker", "!stall", "r");
    stage.model.wait_stalled(1);
    assert_eq!(steer(&stage, "worker", "a word")["steered"], true);
    stage.cancel("worker", "r");
    assert_eq!(open.next_result()["cancelled"], true);
    assert_eq!(
        stage.messages("worker"),
        spoken(&[("user", "!stall"), ("user", "a word"), ("assistant", "")])
    );
    assert_eq!(stage.send_text("worker", "!history"), "!stall | a word | !history");
}

#[test]
fn a_words_source_is_kept_with_it_and_a_parent_may_steer() {
    let stage = Fixture::start();
    let lead = stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let open = stage.start_send("child", "!hold gate", "r");
    stage.model.wait_stalled(1);
    let params = json!({ "content": "a word", "source": "script", "source_agent_id": "lead" });
    assert_eq!(result_as(&stage.daemon, &lead, &agent_path("child"), "steer", params)["steered"], true);
    stage.model.release("gate");
    open.next_result();
    let page =
        stage.daemon.call_result(&agent_path("child"), "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "script", "source_agent_id": "lead" }));
}
