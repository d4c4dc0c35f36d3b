//! Clients that go away in the middle of a send, and clients that stay longer than a connection may rest.

use std::net::Shutdown;

use serde_json::json;

use crate::support::pending_calls::{PendingCalls, request_bytes};
use crate::support::{Fixture, agent_path};

/// Starts a send on a connection that the test can end.
fn start_held_send(stage: &Fixture, content: &str) -> testkit::RawConnection {
    let mut connection = stage.daemon.connection();
    connection.send(&request_bytes(
        &stage.daemon,
        &agent_path("worker"),
        1,
        "send",
        json!({ "content": content }),
    ));
    stage.model.wait_stalled(1);
    connection
}

fn assert_turn_continues(stage: &Fixture, leave: impl FnOnce(testkit::RawConnection)) {
    stage.create("worker");
    let connection = start_held_send(stage, "!hold gate first");
    let next = stage.enqueue_send("worker", "!history", "next");
    leave(connection);
    assert_eq!(stage.context("worker")["message_count"], 1, "the daemon goes on");
    stage.model.release("gate");
    assert_eq!(next.next_result()["content"], "!hold gate first | !history");
    let said = stage.messages("worker");
    assert_eq!(said[1], ("assistant".to_owned(), "first released gate".to_owned()));
    assert_eq!(stage.model.aborted(), 0);
}

#[test]
fn a_client_that_closes_its_connection_does_not_end_its_turn() {
    assert_turn_continues(&Fixture::start(), drop);
}

#[test]
fn a_client_that_resets_its_connection_does_not_end_its_turn() {
    assert_turn_continues(&Fixture::start(), testkit::RawConnection::reset);
}

#[test]
fn a_waiting_send_of_a_client_that_went_away_still_gets_its_turn() {
    let stage = Fixture::start();
    stage.create("worker");
    let running = stage.start_send("worker", "!hold gate", "running");
    stage.model.wait_stalled(1);
    let mut gone = PendingCalls::new();
    let params = json!({ "content": "from beyond", "request_id": "gone" });
    let socket = stage.start_until_accepted("worker", "gone", || {
        gone.start(&stage.daemon, &agent_path("worker"), "send", params)
    });
    socket.shutdown(Shutdown::Both).unwrap();
    let last = stage.enqueue_send("worker", "!history", "last");
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(last.next_result()["content"], "!hold gate | from beyond | !history");
}

#[test]
fn a_client_that_half_closes_gets_its_answer() {
    let stage = Fixture::start();
    stage.create("worker");
    let mut connection = start_held_send(&stage, "!hold gate whole");
    connection.shutdown_write();
    stage.model.release("gate");
    assert_eq!(connection.read_response().json()["result"]["content"], "whole released gate");
}

#[test]
fn a_turn_may_take_longer_than_a_connection_may_rest() {
    let stage = Fixture::with_config("limits.keep_alive_ms = 50");
    stage.create("worker");
    let mut connection = stage.daemon.connection();
    let params = json!({ "content": "!slow 400 worth waiting" });
    connection.send(&request_bytes(&stage.daemon, &agent_path("worker"), 1, "send", params));
    assert_eq!(connection.read_response().json()["result"]["content"], "worth waiting");
}
