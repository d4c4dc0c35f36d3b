//! `steer`: an extra instruction for the running turn, which is part of the next model call.

use serde_json::{Value, json};

use super::create_lead_and_child;
use crate::support::callers::result_as;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::last_conversation;
use crate::support::{ExpectError as _, Fixture, agent_path};

fn steer(fixture: &Fixture, agent: &str, content: &str) -> Value {
    fixture.daemon.call_result(&agent_path(agent), "steer", json!({ "content": content }))
}

fn as_messages(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn an_instruction_is_part_of_the_next_model_call() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    assert_eq!(steer(&fixture, "worker", "only rivers"), json!({ "steered": true, "request_id": "r" }));
    assert_eq!(steer(&fixture, "worker", "in Europe"), json!({ "steered": true, "request_id": "r" }));
    assert_eq!(
        fixture.context("worker")["message_count"],
        1,
        "an instruction waits for the running model call"
    );
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], "so far released gateecho: in Europe");
    let sent = [
        ("user", "!hold gate so far"),
        ("assistant", "so far released gate"),
        ("user", "only rivers"),
        ("user", "in Europe"),
    ];
    assert_eq!(last_conversation(&fixture.model), as_messages(&sent));
    assert_eq!(fixture.model.requests().len(), 2);
    assert_eq!(fixture.messages("worker").len(), 5);
}

#[test]
fn an_instruction_during_a_tool_call_follows_its_result() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    create_lead_and_child(&fixture, &folder);
    let call = r#"!tool agent_send {"agent_id":"child","content":"!hold gate"}"#;
    let pending = fixture.start_send("lead", call, "r");
    fixture.model.wait_stalled(1);
    assert_eq!(steer(&fixture, "lead", "and hurry")["steered"], true);
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], "echo: and hurry");
    let sent = last_conversation(&fixture.model);
    let roles: Vec<_> = sent.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert!(sent[2].1.contains("released gate") && sent[3].1 == "and hurry", "{sent:?}");
}

#[test]
fn an_instruction_without_a_turn_or_beyond_16_is_refused() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let not_steered = json!({ "steered": false, "reason": "no_running_turn_or_full" });
    assert_eq!(steer(&fixture, "worker", "hello?"), not_steered);
    assert_eq!(fixture.context("worker")["message_count"], 0);
    let pending = fixture.start_send("worker", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    for number in 0..16 {
        assert_eq!(steer(&fixture, "worker", &number.to_string())["steered"], true, "{number}");
    }
    assert_eq!(steer(&fixture, "worker", "one too many"), not_steered);
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], " released gateecho: 15");
    let error = fixture.daemon.error(&agent_path("worker"), "steer", json!({}));
    assert_eq!(error, json!({ "code": -32602, "message": "Missing required parameter: content" }));
}

#[test]
fn an_instruction_to_a_cancelled_turn_stays_a_message() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!stall", "r");
    fixture.model.wait_stalled(1);
    assert_eq!(steer(&fixture, "worker", "an instruction")["steered"], true);
    fixture.cancel("worker", "r");
    assert_eq!(pending.next_result()["cancelled"], true);
    assert_eq!(
        fixture.messages("worker"),
        as_messages(&[("user", "!stall"), ("user", "an instruction"), ("assistant", "")])
    );
    assert_eq!(fixture.send_text("worker", "!history"), "!stall | an instruction | !history");
}

#[test]
fn a_parent_may_steer_and_its_source_is_recorded() {
    let fixture = Fixture::start();
    let lead = fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let pending = fixture.start_send("child", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    let params = json!({ "content": "an instruction", "source": "script", "source_agent_id": "lead" });
    assert_eq!(result_as(&fixture.daemon, &lead, &agent_path("child"), "steer", params)["steered"], true);
    fixture.model.release("gate");
    pending.next_result();
    let page =
        fixture.daemon.call_result(&agent_path("child"), "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "script", "source_agent_id": "lead" }));
}
