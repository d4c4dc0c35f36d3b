//! Notifications (requests without an id): executed to completion, then answered with 204 and no body.

use serde_json::{Value, json};
use testkit::RawResponse;

use crate::support::{Fixture, agent_ids, agent_path};

fn notify(fixture: &Fixture, path: &str, method: &str, params: Value) -> RawResponse {
    let mut request = json!({ "jsonrpc": "2.0", "method": method });
    request["params"] = params;
    fixture.daemon.post(path, &[], request.to_string().as_bytes())
}

fn assert_silent(response: &RawResponse) {
    assert_eq!((response.status, response.body.len()), (204, 0), "{}", response.text());
}

#[test]
fn notification_completes_before_its_response() {
    let fixture = Fixture::start();
    assert_silent(&notify(&fixture, "/", "create_agent", json!({ "agent_id": "worker" })));
    assert_eq!(agent_ids(&fixture.daemon), ["worker"]);
    assert_silent(&notify(&fixture, &agent_path("worker"), "send", json!({ "content": "hi" })));
    let expected = [("user", "hi"), ("assistant", "echo: hi")];
    assert_eq!(fixture.messages("worker"), expected.map(|(role, text)| (role.to_owned(), text.to_owned())));
    assert_silent(&notify(&fixture, "/", "destroy_agent", json!({ "agent_id": "worker" })));
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
}

#[test]
fn null_id_makes_a_notification() {
    let fixture = Fixture::start();
    let body = br#"{"jsonrpc":"2.0","id":null,"method":"create_agent","params":{"agent_id":"worker"}}"#;
    assert_silent(&fixture.daemon.post("/", &[], body));
    assert_eq!(agent_ids(&fixture.daemon), ["worker"]);
}

#[test]
fn failed_notification_returns_204() {
    let fixture = Fixture::start();
    fixture.create("worker");
    assert_silent(&notify(&fixture, "/", "no_such_method", json!({})));
    assert_silent(&notify(&fixture, "/", "create_agent", json!({ "agent_id": "worker" })));
    assert_silent(&notify(&fixture, "/", "create_agent", json!({ "agent_id": ".." })));
    assert_silent(&notify(&fixture, &agent_path("worker"), "send", json!({})));
    assert_silent(&notify(&fixture, &agent_path("worker"), "send", json!({ "content": "!status 500" })));
    assert_eq!(agent_ids(&fixture.daemon), ["worker"]);
    let messages = fixture.messages("worker");
    assert_eq!(messages[0], ("user".to_owned(), "!status 500".to_owned()));
}

#[test]
fn cancel_works_as_notification() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!stall", "r");
    fixture.model.wait_stalled(1);
    assert_silent(&notify(&fixture, &agent_path("worker"), "cancel", json!({ "request_id": "r" })));
    assert_eq!(pending.next_result()["cancelled"], true);
}

#[test]
fn shutdown_server_works_as_notification() {
    let fixture = Fixture::start();
    assert_silent(&notify(&fixture, "/", "shutdown_server", json!({})));
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}
