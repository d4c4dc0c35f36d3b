//! Open turns when the daemon stops: the grace period, and signals that end it.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::assert_stopped;
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path, wait_until};

/// A grace period longer than any test.
const ENDLESS_GRACE: &str = "stop_grace_ms = 3600000\nlog.raw = true";

fn fixture_with_worker(config: &str) -> Fixture {
    let fixture = Fixture::with_config(config);
    fixture.create("worker");
    fixture
}

fn cancelled(content: &str) -> Value {
    json!({ "cancelled": true, "content": content, "request_id": "r", "halted_at_iteration_limit": false })
}

/// The result of a cancelled send that had received text; what it used is an estimate.
fn cancelled_with_text(mut result: Value) -> Value {
    let usage = result.as_object_mut().and_then(|members| members.remove("usage"));
    let estimated = usage.as_ref().and_then(|usage| usage["estimated_tokens"].as_u64());
    assert!(estimated.is_some_and(|tokens| tokens > 0), "{usage:?}");
    result
}

#[test]
fn open_turn_may_finish_after_a_signal() {
    for signal in ["SIGTERM", "SIGINT"] {
        let fixture = fixture_with_worker(ENDLESS_GRACE);
        let running = fixture.start_send("worker", "!hold gate the end", "r");
        fixture.model.wait_stalled(1);
        let queued = fixture.enqueue_send("worker", "and this", "w");
        fixture.daemon.signal(signal);
        fixture.daemon.wait_stderr(&format!("stopping: {signal}"));
        fixture.model.release("gate");
        assert_eq!(running.next_result()["content"], "the end released gate");
        assert_eq!(queued.next_result()["content"], "echo: and this", "a queued send was accepted, too");
        assert_stopped(&fixture.daemon);
    }
}

#[test]
fn open_turn_may_finish_after_shutdown_server() {
    let fixture = fixture_with_worker(ENDLESS_GRACE);
    let running = fixture.start_send("worker", "!hold gate the end", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.call_result("/", "shutdown_server", json!({}));
    fixture.daemon.wait_stderr("stopping: a client's request");
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], "the end released gate");
    assert_stopped(&fixture.daemon);
}

#[test]
fn turn_over_the_grace_period_is_cancelled() {
    let fixture = fixture_with_worker("stop_grace_ms = 100\nlog.raw = true");
    let running = fixture.start_send("worker", "!stall so far", "r");
    fixture.wait_streamed("worker", "so far");
    let queued = fixture.enqueue_send("worker", "never", "r2");
    fixture.daemon.signal("SIGTERM");
    assert_eq!(cancelled_with_text(running.next_result()), cancelled("so far"));
    assert_eq!(queued.next_result()["cancelled"], true);
    assert_stopped(&fixture.daemon);
    assert!(fixture.daemon.stderr().contains("cancelled 2 turns that did not end within the grace period"));
    fixture.model.wait_aborted(1);
}

#[test]
fn zero_grace_period_cancels_immediately() {
    let fixture = fixture_with_worker("stop_grace_ms = 0");
    let running = fixture.start_send("worker", "!silent", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGTERM");
    assert_eq!(running.next_result(), cancelled(""));
    assert_stopped(&fixture.daemon);
}

#[test]
fn second_signal_cancels_immediately() {
    for (first, second) in [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT")] {
        let fixture = fixture_with_worker(ENDLESS_GRACE);
        let running = fixture.start_send("worker", "!stall so far", "r");
        fixture.wait_streamed("worker", "so far");
        let queued = fixture.enqueue_send("worker", "never", "w");
        fixture.daemon.signal(first);
        fixture.daemon.wait_stderr(&format!("stopping: {first}"));
        fixture.daemon.signal(second);
        assert_eq!(cancelled_with_text(running.next_result()), cancelled("so far"));
        assert_eq!(queued.next_result()["cancelled"], true);
        assert_stopped(&fixture.daemon);
    }
}

#[test]
fn signal_after_shutdown_server_cancels_immediately() {
    let fixture = fixture_with_worker(ENDLESS_GRACE);
    let running = fixture.start_send("worker", "!silent", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.call_result("/", "shutdown_server", json!({}));
    fixture.daemon.wait_stderr("stopping: a client's request");
    fixture.daemon.signal("SIGTERM");
    assert_eq!(running.next_result(), cancelled(""));
    assert_stopped(&fixture.daemon);
}

#[test]
fn stopping_daemon_accepts_no_connections() {
    let fixture = fixture_with_worker(ENDLESS_GRACE);
    let running = fixture.start_send("worker", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    let mut idle = fixture.daemon.connection();
    fixture.daemon.signal("SIGTERM");
    assert_eq!(idle.read_to_end(), b"", "a connection without a request is closed");
    wait_until("the listener to close", || TcpStream::connect(("127.0.0.1", fixture.daemon.port())).is_err());
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_stopped(&fixture.daemon);
}

#[test]
fn requests_completed_during_the_stop_start_nothing() {
    let fixture = fixture_with_worker("log.level = \"debug\"");
    let requests = [
        (agent_path("worker"), r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hi"}}"#),
        ("/".to_owned(), r#"{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{}}"#),
        ("/".to_owned(), r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hi"}}"#),
        ("/".to_owned(), r#"{"jsonrpc":"2.0","id":1,"method":"list_sessions"}"#),
        (agent_path("worker"), r#"{"jsonrpc":"2.0","id":1,"method":"get_messages"}"#),
    ];
    let mut half_sent = Vec::new();
    for (path, body) in &requests {
        let mut connection = fixture.daemon.connection();
        let bytes = fixture.daemon.post_bytes(path, &[("Expect", "100-continue")], body.as_bytes());
        let (head, body) = bytes.split_at(bytes.len() - body.len());
        connection.send(head);
        assert_eq!(connection.read_response().status, 100, "the daemon waits for the body");
        half_sent.push((connection, body.to_vec()));
    }
    fixture.daemon.signal("SIGTERM");
    fixture.daemon.wait_stderr("agent ended");
    for (connection, body) in &mut half_sent {
        connection.send(body);
        let response = connection.read_response();
        assert_eq!(response.status, 503);
        let response = response.json();
        assert_eq!(response["error"]["code"], -32001, "{response}");
        assert_eq!(response["error"]["message"], "Server shutting down");
        assert!(response["error"]["data"]["retry_after_ms"].is_u64(), "{response}");
    }
    assert_stopped(&fixture.daemon);
}

#[test]
fn every_pending_call_gets_a_response_at_the_stop() {
    let fixture = fixture_with_worker("stop_grace_ms = 50\nlimits.turns_running_max = 3");
    let mut calls = PendingCalls::new();
    for number in 0..12 {
        let name = format!("agent-{number}");
        fixture.create(&name);
        calls.start(&fixture.daemon, &agent_path(&name), "send", json!({ "content": "!stall" }));
        calls.start(&fixture.daemon, &agent_path(&name), "send", json!({ "content": "later" }));
    }
    fixture.model.wait_stalled(3);
    let queued = fixture.enqueue_send("worker", "last", "last");
    fixture.daemon.signal("SIGTERM");
    let responses: Vec<_> = (0..24).map(|_| calls.next_arrival().response).collect();
    for response in responses {
        let response = response.json();
        let ended = response["result"]["cancelled"] == true || response["error"]["code"] == -32001;
        assert!(ended || response["result"]["content"] == "echo: later", "{response}");
    }
    assert_eq!(queued.next_result()["cancelled"], true);
    assert_stopped(&fixture.daemon);
}
