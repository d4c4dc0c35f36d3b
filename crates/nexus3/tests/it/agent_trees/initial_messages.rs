//! `initial_message`: it is the first turn of an agent, the caller may wait for it, and the agent exists whatever its
//! outcome.

use serde_json::{Value, json};

use crate::support::{Fixture, agent_ids, agent_path, is_capability_token, member_names};

fn create(fixture: &Fixture, params: Value) -> Value {
    fixture.daemon.call_result("/", "create_agent", params)
}

/// Whether this is a version 4 UUID: `8-4-4-4-12` hex digits.
fn is_uuid(value: &Value) -> bool {
    let shape = "hhhhhhhh-hhhh-4hhh-hhhh-hhhhhhhhhhhh";
    let fits = |(byte, expected): (u8, u8)| {
        if expected == b'h' { byte.is_ascii_hexdigit() } else { byte == expected }
    };
    value.as_str().is_some_and(|text| text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits))
}

#[test]
fn an_initial_message_is_queued_and_can_be_cancelled() {
    let fixture = Fixture::start();
    let created = create(&fixture, json!({ "agent_id": "worker", "initial_message": "!stall" }));
    assert_eq!(member_names(&created), ["agent_id", "initial_request_id", "initial_status", "token", "url"]);
    assert_eq!(created["initial_status"], "queued");
    assert!(is_uuid(&created["initial_request_id"]) && is_capability_token(&created["token"]), "{created}");
    fixture.model.wait_stalled(1);
    let later = fixture.enqueue_send("worker", "later", "later");
    let cancelled = fixture.cancel("worker", created["initial_request_id"].clone());
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(later.next_result()["content"], "echo: later");
    assert_eq!(fixture.messages("worker")[0].1, "!stall");
    let page = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({ "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "rpc" }));
}

#[test]
fn create_agent_can_wait_for_the_initial_response() {
    let fixture = Fixture::start();
    let params =
        json!({ "agent_id": "worker", "initial_message": "hello", "wait_for_initial_response": true });
    let created = create(&fixture, params);
    assert_eq!(member_names(&created), ["agent_id", "initial_request_id", "response", "token", "url"]);
    let response = &created["response"];
    assert_eq!(response["content"], "echo: hello");
    assert_eq!(response["request_id"], created["initial_request_id"]);
    assert_eq!(member_names(response), ["content", "halted_at_iteration_limit", "request_id", "usage"]);
    assert_eq!(fixture.send_text("worker", "!history"), "hello | !history");
}

#[test]
fn a_failed_initial_message_leaves_the_agent() {
    let fixture = Fixture::start();
    let params = json!({ "agent_id": "worker", "initial_message": "!status 500 boom", "wait_for_initial_response": true });
    let created = create(&fixture, params);
    let error = &created["response"]["error"];
    assert_eq!(*error, json!({ "code": -32603, "message": "API request failed (500): boom" }), "{created}");
    assert!(is_capability_token(&created["token"]), "{created}");
    assert_eq!(agent_ids(&fixture.daemon), ["worker"]);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn create_agent_returns_when_its_message_is_cancelled() {
    let fixture = Fixture::start();
    let params =
        json!({ "agent_id": "worker", "initial_message": "!stall", "wait_for_initial_response": true });
    let pending =
        crate::support::pending_calls::PendingCalls::single(&fixture.daemon, "/", "create_agent", params);
    fixture.model.wait_stalled(1);
    assert_eq!(agent_ids(&fixture.daemon), ["worker"], "the agent exists before its first response");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    let created = pending.next_result();
    assert_eq!(created["response"]["cancelled"], true, "{created}");
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
}

#[test]
fn waiting_without_an_initial_message_returns_at_once() {
    let fixture = Fixture::start();
    let created = create(&fixture, json!({ "agent_id": "worker", "wait_for_initial_response": true }));
    crate::support::assert_created(&created, "worker");
}

#[test]
fn an_initial_message_precedes_concurrent_sends() {
    let fixture = Fixture::start();
    for round in 0..20 {
        let name = format!("worker-{round}");
        let mut calls = crate::support::pending_calls::PendingCalls::new();
        let params = json!({ "agent_id": name, "initial_message": "first" });
        calls.start(&fixture.daemon, "/", "create_agent", params);
        crate::support::wait_until("the agent to exist", || {
            let request = br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"second"}}"#;
            fixture.daemon.post(&agent_path(&name), &[], request).status == 200
        });
        calls.next_result();
        assert_eq!(fixture.messages(&name)[0].1, "first");
    }
}

#[test]
fn agent_create_accepts_an_initial_message() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let call = json!({ "agent_id": "child", "initial_message": "hello", "wait_for_initial_response": true });
    let content = fixture.send_text("lead", &format!("!tool agent_create {call}"));
    let result: Value = serde_json::from_str(content.strip_prefix("tool said: ").unwrap()).unwrap();
    assert_eq!((&result["agent_id"], &result["url"]), (&json!("child"), &json!("/agent/child")));
    assert_eq!(result["response"]["content"], "echo: hello");
    assert!(result.get("token").is_none(), "a model gets no token: {result}");
    let page = fixture.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "agent", "source_agent_id": "lead" }));
    let call = json!({ "agent_id": "other", "initial_message": "!status 500 boom", "wait_for_initial_response": true });
    let content = fixture.send_text("lead", &format!("!tool agent_create {call}"));
    assert!(content.contains("\"response\":{\"error\":\"API request failed (500): boom\"}"), "{content}");
    assert_eq!(
        fixture.agent("lead")["children"],
        json!(["child", "other"]),
        "a child whose first message failed exists"
    );
}
