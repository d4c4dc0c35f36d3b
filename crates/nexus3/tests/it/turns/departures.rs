//! Clients that go away in the middle of a send, and clients that stay longer than a connection may rest.

use std::net::Shutdown;

use serde_json::json;

use crate::support::calls::{OpenCalls, request};
use crate::support::{Stage, path};

/// Starts a send on a connection that the test can end.
fn send_and_keep(stage: &Stage, content: &str) -> testkit::RawConnection {
    let mut connection = stage.daemon.connection();
    connection.send(&request(&stage.daemon, &path("worker"), 1, "send", json!({ "content": content })));
    stage.model.wait_stalled(1);
    connection
}

fn assert_turn_went_on(stage: &Stage, leave: impl FnOnce(testkit::RawConnection)) {
    stage.create("worker");
    let connection = send_and_keep(stage, "!hold gate first");
    let next = stage.enqueue_send("worker", "!history", "next");
    leave(connection);
    assert_eq!(stage.context("worker")["message_count"], 1, "the daemon goes on");
    stage.model.release("gate");
    assert_eq!(next.result()["content"], "!hold gate first | !history");
    let said = stage.messages("worker");
    assert_eq!(said[1], ("assistant".to_owned(), "first released gate".to_owned()));
    assert_eq!(stage.model.aborted(), 0);
}

#[test]
fn a_client_that_closes_its_connection_does_not_end_its_turn() {
    assert_turn_went_on(&Stage::open(), drop);
}

#[test]
fn a_client_that_resets_its_connection_does_not_end_its_turn() {
    assert_turn_went_on(&Stage::open(), testkit::RawConnection::reset);
}

#[test]
fn a_waiting_send_of_a_client_that_went_away_still_gets_its_turn() {
    let stage = Stage::open();
    stage.create("worker");
    let running = stage.start_send("worker", "!hold gate", "running");
    stage.model.wait_stalled(1);
    let mut gone = OpenCalls::none();
    let params = json!({ "content": "from beyond", "request_id": "gone" });
    let socket =
        stage.accepted("worker", "gone", || gone.start(&stage.daemon, &path("worker"), "send", params));
    socket.shutdown(Shutdown::Both).unwrap();
    let last = stage.enqueue_send("worker", "!history", "last");
    stage.model.release("gate");
    assert_eq!(running.result()["content"], " released gate");
    assert_eq!(last.result()["content"], "!hold gate | from beyond | !history");
}

#[test]
fn a_client_that_half_closes_gets_its_answer() {
    let stage = Stage::open();
    stage.create("worker");
    let mut connection = send_and_keep(&stage, "!hold gate whole");
    connection.shutdown_write();
    stage.model.release("gate");
    assert_eq!(connection.read_response().json()["result"]["content"], "whole released gate");
}

#[test]
fn a_turn_may_take_longer_than_a_connection_may_rest() {
    let stage = Stage::with("limits.keep_alive_ms = 50");
    stage.create("worker");
    let mut connection = stage.daemon.connection();
    let params = json!({ "content": "!slow 400 worth waiting" });
    connection.send(&request(&stage.daemon, &path("worker"), 1, "send", params));
    assert_eq!(connection.read_response().json()["result"]["content"], "worth waiting");
}
