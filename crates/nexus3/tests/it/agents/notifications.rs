//! Requests without an id: done to their end, answered with 204 and nothing else.

use serde_json::{Value, json};
use testkit::RawResponse;

use crate::support::{Fixture, agent_ids, agent_path};

fn notify(stage: &Fixture, path: &str, method: &str, params: Value) -> RawResponse {
    let mut request = json!({ "jsonrpc": "2.0", "method": method });
    request["params"] = params;
    stage.daemon.post(path, &[], request.to_string().as_bytes())
}

fn assert_silent(answer: &RawResponse) {
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{}", answer.text());
}

#[test]
fn what_a_notification_asks_for_is_done_when_its_answer_comes() {
    let stage = Fixture::start();
    assert_silent(&notify(&stage, "/", "create_agent", json!({ "agent_id": "worker" })));
    assert_eq!(agent_ids(&stage.daemon), ["worker"]);
    assert_silent(&notify(&stage, &agent_path("worker"), "send", json!({ "content": "hi" })));
    let said = [("user", "hi"), ("assistant", "echo: hi")];
    assert_eq!(stage.messages("worker"), said.map(|(role, text)| (role.to_owned(), text.to_owned())));
    assert_silent(&notify(&stage, "/", "destroy_agent", json!({ "agent_id": "worker" })));
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
}

#[test]
fn a_null_id_is_no_id() {
    let stage = Fixture::start();
    let body = br#"{"jsonrpc":"2.0","id":null,"method":"create_agent","params":{"agent_id":"worker"}}"#;
    assert_silent(&stage.daemon.post("/", &[], body));
    assert_eq!(agent_ids(&stage.daemon), ["worker"]);
}

#[test]
fn a_notifications_fault_is_silent() {
    let stage = Fixture::start();
    stage.create("worker");
    assert_silent(&notify(&stage, "/", "no_such_method", json!({})));
    assert_silent(&notify(&stage, "/", "create_agent", json!({ "agent_id": "worker" })));
    assert_silent(&notify(&stage, "/", "create_agent", json!({ "agent_id": ".." })));
    assert_silent(&notify(&stage, &agent_path("worker"), "send", json!({})));
    assert_silent(&notify(&stage, &agent_path("worker"), "send", json!({ "content": "!status 500" })));
    assert_eq!(agent_ids(&stage.daemon), ["worker"]);
    let said = stage.messages("worker");
    assert_eq!(said[0], ("user".to_owned(), "!status 500".to_owned()));
}

#[test]
fn a_cancel_by_notification_cancels() {
    let stage = Fixture::start();
    stage.create("worker");
    let open = stage.start_send("worker", "!stall", "r");
    stage.model.wait_stalled(1);
    assert_silent(&notify(&stage, &agent_path("worker"), "cancel", json!({ "request_id": "r" })));
    assert_eq!(open.next_result()["cancelled"], true);
}

#[test]
fn a_shutdown_by_notification_ends_the_daemon() {
    let stage = Fixture::start();
    assert_silent(&notify(&stage, "/", "shutdown_server", json!({})));
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}
