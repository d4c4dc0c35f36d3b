//! Clients that disconnect during a send, and sends that take longer than the idle timeout of a connection.

use std::net::Shutdown;

use serde_json::json;

use crate::support::pending_calls::{PendingCalls, request_bytes};
use crate::support::{Fixture, agent_path};

/// Starts a send on a connection that the test can close, and waits until the model holds it.
fn start_held_send(fixture: &Fixture, content: &str) -> testkit::RawConnection {
    let mut connection = fixture.daemon.connection();
    connection.send(&request_bytes(
        &fixture.daemon,
        &agent_path("worker"),
        1,
        "send",
        json!({ "content": content }),
    ));
    fixture.model.wait_stalled(1);
    connection
}

fn assert_turn_continues(fixture: &Fixture, disconnect: impl FnOnce(testkit::RawConnection)) {
    fixture.create("worker");
    let connection = start_held_send(fixture, "!hold gate first");
    let next = fixture.enqueue_send("worker", "!history", "next");
    disconnect(connection);
    assert_eq!(fixture.context("worker")["message_count"], 1, "the turn is still running");
    fixture.model.release("gate");
    assert_eq!(next.next_result()["content"], "!hold gate first | !history");
    let messages = fixture.messages("worker");
    assert_eq!(messages[1], ("assistant".to_owned(), "first released gate".to_owned()));
    assert_eq!(fixture.model.aborted(), 0);
}

#[test]
fn turn_continues_when_its_client_closes_the_connection() {
    assert_turn_continues(&Fixture::start(), drop);
}

#[test]
fn turn_continues_when_its_client_resets_the_connection() {
    assert_turn_continues(&Fixture::start(), testkit::RawConnection::reset);
}

#[test]
fn queued_send_runs_after_its_client_disconnected() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let running = fixture.start_send("worker", "!hold gate", "running");
    fixture.model.wait_stalled(1);
    let mut gone = PendingCalls::new();
    let params = json!({ "content": "from beyond", "request_id": "gone" });
    let socket = fixture.start_until_accepted("worker", "gone", || {
        gone.start(&fixture.daemon, &agent_path("worker"), "send", params)
    });
    socket.shutdown(Shutdown::Both).unwrap();
    let last = fixture.enqueue_send("worker", "!history", "last");
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(last.next_result()["content"], "!hold gate | from beyond | !history");
}

#[test]
fn half_closed_client_gets_the_result_of_its_send() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut connection = start_held_send(&fixture, "!hold gate whole");
    connection.shutdown_write();
    fixture.model.release("gate");
    assert_eq!(connection.read_response().json()["result"]["content"], "whole released gate");
}

#[test]
fn turn_may_take_longer_than_the_idle_timeout() {
    let fixture = Fixture::with_config("limits.keep_alive_ms = 50");
    fixture.create("worker");
    let mut connection = fixture.daemon.connection();
    let params = json!({ "content": "!slow 400 worth waiting" });
    connection.send(&request_bytes(&fixture.daemon, &agent_path("worker"), 1, "send", params));
    assert_eq!(connection.read_response().json()["result"]["content"], "worth waiting");
}
