//! Turns that are open when the daemon is told to stop.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::assert_stopped;
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path, wait_until};

/// A grace time that no test lives to see the end of.
const ENDLESS: &str = "stop_grace_ms = 3600000\nlog.raw = true";

fn fixture_with_worker(config: &str) -> Fixture {
    let stage = Fixture::with_config(config);
    stage.create("worker");
    stage
}

fn cancelled(content: &str) -> Value {
    json!({ "cancelled": true, "content": content, "request_id": "r", "halted_at_iteration_limit": false })
}

#[test]
fn an_open_turn_may_finish() {
    for signal in ["SIGTERM", "SIGINT"] {
        let stage = fixture_with_worker(ENDLESS);
        let running = stage.start_send("worker", "!hold gate the end", "r");
        stage.model.wait_stalled(1);
        let waiting = stage.enqueue_send("worker", "and this", "w");
        stage.daemon.signal(signal);
        stage.daemon.wait_stderr(&format!("stopping: {signal}"));
        stage.model.release("gate");
        assert_eq!(running.next_result()["content"], "the end released gate");
        assert_eq!(waiting.next_result()["content"], "echo: and this", "what waited was accepted, too");
        assert_stopped(&stage.daemon);
    }
}

#[test]
fn an_open_turn_may_finish_after_a_clients_stop() {
    let stage = fixture_with_worker(ENDLESS);
    let running = stage.start_send("worker", "!hold gate the end", "r");
    stage.model.wait_stalled(1);
    stage.daemon.call_result("/", "shutdown_server", json!({}));
    stage.daemon.wait_stderr("stopping: a client's request");
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], "the end released gate");
    assert_stopped(&stage.daemon);
}

#[test]
fn a_turn_that_takes_longer_than_the_grace_time_is_cancelled() {
    let stage = fixture_with_worker("stop_grace_ms = 100\nlog.raw = true");
    let running = stage.start_send("worker", "!stall so far", "r");
    stage.wait_streamed("worker", "so far");
    let waiting = stage.enqueue_send("worker", "never", "r2");
    stage.daemon.signal("SIGTERM");
    assert_eq!(running.next_result(), cancelled("so far"));
    assert_eq!(waiting.next_result()["cancelled"], true);
    assert_stopped(&stage.daemon);
    assert!(stage.daemon.stderr().contains("cancelled 2 turns that did not end within the grace period"));
    stage.model.wait_aborted(1);
}

#[test]
fn no_grace_time_means_now() {
    let stage = fixture_with_worker("stop_grace_ms = 0");
    let running = stage.start_send("worker", "!silent", "r");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGTERM");
    assert_eq!(running.next_result(), cancelled(""));
    assert_stopped(&stage.daemon);
}

#[test]
fn a_second_signal_cancels_at_once() {
    for (first, second) in [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT")] {
        let stage = fixture_with_worker(ENDLESS);
        let running = stage.start_send("worker", "!stall so far", "r");
        stage.wait_streamed("worker", "so far");
        let waiting = stage.enqueue_send("worker", "never", "w");
        stage.daemon.signal(first);
        stage.daemon.wait_stderr(&format!("stopping: {first}"));
        stage.daemon.signal(second);
        assert_eq!(running.next_result(), cancelled("so far"));
        assert_eq!(waiting.next_result()["cancelled"], true);
        assert_stopped(&stage.daemon);
    }
}

#[test]
fn a_signal_after_a_clients_stop_cancels_at_once() {
    let stage = fixture_with_worker(ENDLESS);
    let running = stage.start_send("worker", "!silent", "r");
    stage.model.wait_stalled(1);
    stage.daemon.call_result("/", "shutdown_server", json!({}));
    stage.daemon.wait_stderr("stopping: a client's request");
    stage.daemon.signal("SIGTERM");
    assert_eq!(running.next_result(), cancelled(""));
    assert_stopped(&stage.daemon);
}

#[test]
fn nobody_new_is_let_in_while_it_stops() {
    let stage = fixture_with_worker(ENDLESS);
    let running = stage.start_send("worker", "!hold gate", "r");
    stage.model.wait_stalled(1);
    let mut idle = stage.daemon.connection();
    stage.daemon.signal("SIGTERM");
    assert_eq!(idle.read_to_end(), b"", "a connection without a request is closed");
    wait_until("the door to close", || TcpStream::connect(("127.0.0.1", stage.daemon.port())).is_err());
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_stopped(&stage.daemon);
}

#[test]
fn a_request_that_was_under_way_when_it_stopped_gets_no_new_turn_or_agent() {
    let stage = fixture_with_worker("log.level = \"debug\"");
    let halves = [
        (agent_path("worker"), r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hi"}}"#),
        ("/".to_owned(), r#"{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{}}"#),
        ("/".to_owned(), r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hi"}}"#),
    ];
    let mut open = Vec::new();
    for (path, body) in &halves {
        let mut connection = stage.daemon.connection();
        let bytes = stage.daemon.post_bytes(path, &[("Expect", "100-continue")], body.as_bytes());
        let (head, body) = bytes.split_at(bytes.len() - body.len());
        connection.send(head);
        assert_eq!(connection.read_response().status, 100, "the daemon waits for the body now");
        open.push((connection, body.to_vec()));
    }
    stage.daemon.signal("SIGTERM");
    stage.daemon.wait_stderr("agent ended");
    for (connection, body) in &mut open {
        connection.send(body);
        let response = connection.read_response().json();
        assert_eq!(response["error"]["code"], -32001, "{response}");
        assert_eq!(response["error"]["message"], "Server shutting down");
        assert!(response["error"]["data"]["retry_after_ms"].is_u64(), "{response}");
    }
    assert_stopped(&stage.daemon);
}

#[test]
fn everybody_who_waits_is_answered_when_it_stops() {
    let stage = fixture_with_worker("stop_grace_ms = 50\nlimits.turns_running_max = 3");
    let mut calls = PendingCalls::new();
    for number in 0..12 {
        let name = format!("agent-{number}");
        stage.create(&name);
        calls.start(&stage.daemon, &agent_path(&name), "send", json!({ "content": "!stall" }));
        calls.start(&stage.daemon, &agent_path(&name), "send", json!({ "content": "later" }));
    }
    stage.model.wait_stalled(3);
    let waiting = stage.enqueue_send("worker", "last", "last");
    stage.daemon.signal("SIGTERM");
    let answers: Vec<_> = (0..24).map(|_| calls.next_arrival().response).collect();
    for answer in answers {
        let response = answer.json();
        let ended = response["result"]["cancelled"] == true || response["error"]["code"] == -32001;
        assert!(ended || response["result"]["content"] == "echo: later", "{response}");
    }
    assert_eq!(waiting.next_result()["cancelled"], true);
    assert_stopped(&stage.daemon);
}
