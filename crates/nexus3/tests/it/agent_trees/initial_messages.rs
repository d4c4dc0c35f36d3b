//! `initial_message`: worked on before anything else, waited for or not, and the agent is there however it ends.

use serde_json::{Value, json};

use crate::support::{Fixture, agent_ids, agent_path, is_capability_token, member_names};

fn create(stage: &Fixture, params: Value) -> Value {
    stage.daemon.call_result("/", "create_agent", params)
}

/// `8-4-4-4-12` hex digits, version 4.
fn is_uuid(value: &Value) -> bool {
    let shape = "hhhhhhhh-hhhh-4hhh-hhhh-hhhhhhhhhhhh";
    let fits = |(byte, place): (u8, u8)| if place == b'h' { byte.is_ascii_hexdigit() } else { byte == place };
    value.as_str().is_some_and(|text| text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits))
}

#[test]
fn a_first_message_that_nobody_waits_for_is_queued_and_can_be_cancelled() {
    let stage = Fixture::start();
    let created = create(&stage, json!({ "agent_id": "worker", "initial_message": "!stall" }));
    assert_eq!(member_names(&created), ["agent_id", "initial_request_id", "initial_status", "token", "url"]);
    assert_eq!(created["initial_status"], "queued");
    assert!(is_uuid(&created["initial_request_id"]) && is_capability_token(&created["token"]), "{created}");
    stage.model.wait_stalled(1);
    let later = stage.enqueue_send("worker", "later", "later");
    let cancelled = stage.cancel("worker", created["initial_request_id"].clone());
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(later.next_result()["content"], "echo: later");
    assert_eq!(stage.messages("worker")[0].1, "!stall");
    let page = stage.daemon.call_result(&agent_path("worker"), "get_messages", json!({ "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "rpc" }));
}

#[test]
fn a_first_message_that_is_waited_for_comes_with_its_answer() {
    let stage = Fixture::start();
    let params =
        json!({ "agent_id": "worker", "initial_message": "hello", "wait_for_initial_response": true });
    let created = create(&stage, params);
    assert_eq!(member_names(&created), ["agent_id", "initial_request_id", "response", "token", "url"]);
    let response = &created["response"];
    assert_eq!(response["content"], "echo: hello");
    assert_eq!(response["request_id"], created["initial_request_id"]);
    assert_eq!(member_names(response), ["content", "halted_at_iteration_limit", "request_id", "usage"]);
    assert_eq!(stage.send_text("worker", "!history"), "hello | !history");
}

#[test]
fn a_model_that_fails_leaves_the_agent_and_says_why() {
    let stage = Fixture::start();
    let params = json!({ "agent_id": "worker", "initial_message": "!status 500 boom", "wait_for_initial_response": true });
    let created = create(&stage, params);
    let error = &created["response"]["error"];
    assert_eq!(*error, json!({ "code": -32603, "message": "API request failed (500): boom" }), "{created}");
    assert!(is_capability_token(&created["token"]), "{created}");
    assert_eq!(agent_ids(&stage.daemon), ["worker"]);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn a_first_message_that_is_cancelled_while_it_is_waited_for_is_answered() {
    let stage = Fixture::start();
    let params =
        json!({ "agent_id": "worker", "initial_message": "!stall", "wait_for_initial_response": true });
    let open =
        crate::support::pending_calls::PendingCalls::single(&stage.daemon, "/", "create_agent", params);
    stage.model.wait_stalled(1);
    assert_eq!(agent_ids(&stage.daemon), ["worker"], "it is there before it has answered");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    let created = open.next_result();
    assert_eq!(created["response"]["cancelled"], true, "{created}");
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
}

#[test]
fn waiting_without_a_first_message_is_no_wait() {
    let stage = Fixture::start();
    let created = create(&stage, json!({ "agent_id": "worker", "wait_for_initial_response": true }));
    crate::support::assert_created(&created, "worker");
}

#[test]
fn a_first_message_is_first_whoever_else_sends() {
    let stage = Fixture::start();
    for round in 0..20 {
        let name = format!("worker-{round}");
        let mut calls = crate::support::pending_calls::PendingCalls::new();
        let params = json!({ "agent_id": name, "initial_message": "first" });
        calls.start(&stage.daemon, "/", "create_agent", params);
        crate::support::wait_until("the agent to be there", || {
            let request = br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"second"}}"#;
            stage.daemon.post(&agent_path(&name), &[], request).status == 200
        });
        calls.next_result();
        assert_eq!(stage.messages(&name)[0].1, "first");
    }
}

#[test]
fn a_parent_creates_a_child_with_a_first_message_by_tool() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let call = json!({ "agent_id": "child", "initial_message": "hello", "wait_for_initial_response": true });
    let said = stage.send_text("lead", &format!("!tool agent_create {call}"));
    let answer: Value = serde_json::from_str(said.strip_prefix("tool said: ").unwrap()).unwrap();
    assert_eq!((&answer["agent_id"], &answer["url"]), (&json!("child"), &json!("/agent/child")));
    assert_eq!(answer["response"]["content"], "echo: hello");
    assert!(answer.get("token").is_none(), "a model is shown no token: {answer}");
    let page = stage.daemon.call_result(&agent_path("child"), "get_messages", json!({}));
    assert_eq!(page["messages"][0]["meta"], json!({ "source": "agent", "source_agent_id": "lead" }));
    let call = json!({ "agent_id": "other", "initial_message": "!status 500 boom", "wait_for_initial_response": true });
    let said = stage.send_text("lead", &format!("!tool agent_create {call}"));
    assert!(said.contains("\"response\":{\"error\":\"API request failed (500): boom\"}"), "{said}");
    assert_eq!(stage.agent("lead")["children"], json!(["child", "other"]), "it is there all the same");
}
