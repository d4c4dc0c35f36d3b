//! Each way to stop a daemon, and that each stop is clean.

use rustix::process::Signal;
use serde_json::json;
use testkit::{NextEvent, TestDaemon, run};

use super::{assert_stopped, token_path};
use crate::support::program::Program;
use crate::support::{BIN, Fixture, LARGE_WINDOW_CONFIG, WAIT_MAX};

#[test]
fn signal_stops_the_daemon() {
    for signal in ["SIGTERM", "SIGINT", "SIGHUP"] {
        let fixture = Fixture::start();
        fixture.create("worker");
        fixture.send("worker", "hi");
        assert!(token_path(&fixture.daemon).exists());
        fixture.daemon.signal(signal);
        assert_stopped(&fixture.daemon);
        assert!(fixture.daemon.stderr().contains(&format!("stopping: {signal}")));
    }
}

#[test]
fn client_stops_the_daemon() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let result = fixture.daemon.call_result("/", "shutdown_server", json!({}));
    assert_eq!(result, json!({ "success": true, "message": "Server shutting down" }));
    assert_stopped(&fixture.daemon);
}

#[test]
fn idle_timeout_stops_the_daemon() {
    let daemon = TestDaemon::builder(BIN).config("idle_timeout_s = 1").start();
    daemon.call_result("/", "list_agents", json!({}));
    assert_stopped(&daemon);
    assert!(daemon.stderr().contains("stopping: the idle timeout"), "{}", daemon.stderr());
}

#[test]
fn idle_timeout_can_be_set_by_flag() {
    let daemon = TestDaemon::builder(BIN).arg("--idle-timeout").arg("1").start();
    assert_stopped(&daemon);
}

#[test]
fn open_turn_prevents_the_idle_stop() {
    let fixture = Fixture::with_config("idle_timeout_s = 1");
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!hold gate", "r");
    let mut abandoned = fixture.daemon.connection();
    fixture.create("other");
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!hold other"}}"#;
    abandoned.send(&fixture.daemon.post_bytes("/agent/other", &[], body));
    fixture.model.wait_stalled(2);
    abandoned.reset();
    // Two other daemons with the same idle timeout run in sequence: when both have exited, the timeout of this one is
    // over.
    for _ in 0..2 {
        let clock = TestDaemon::builder(BIN).config("idle_timeout_s = 1").start();
        assert_eq!(clock.wait_exit().code(), Some(0));
    }
    assert_eq!(fixture.context("worker")["message_count"], 1);
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], " released gate");
    fixture.model.release("other");
    assert_stopped(&fixture.daemon);
}

#[test]
fn subscriber_prevents_the_idle_stop() {
    // Heartbeats detect that a subscriber has disconnected.
    let config = "idle_timeout_s = 1\nlimits.heartbeat_ms = 100";
    let daemon = TestDaemon::builder(BIN).config(config).start();
    let events = daemon.events("/events", None);
    for _ in 0..2 {
        let clock = TestDaemon::builder(BIN).config("idle_timeout_s = 1").start();
        assert_eq!(clock.wait_exit().code(), Some(0));
    }
    daemon.call_result("/", "list_agents", json!({}));
    drop(events);
    assert_stopped(&daemon);
}

#[test]
fn subscribers_do_not_block_the_stop_and_get_its_events() {
    let fixture = Fixture::with_config("stop_grace_ms = 3600000");
    fixture.create("worker");
    let streams = ["/events", "/agent/worker/events"].map(|path| fixture.daemon.events(path, Some(0)));
    let running = fixture.start_send("worker", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGTERM");
    fixture.daemon.wait_stderr("stopping: SIGTERM");
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_stopped(&fixture.daemon);
    for mut events in streams {
        let mut kinds = Vec::new();
        while let NextEvent::Event(event) = events.wait_event(WAIT_MAX).expect("the stream ends cleanly") {
            kinds.push(event.kind);
        }
        assert!(kinds.contains(&"turn_ended".to_owned()), "{kinds:?}");
    }
}

#[test]
fn idle_connections_do_not_block_the_stop() {
    let fixture = Fixture::start();
    let mut idle: Vec<_> = (0..5).map(|_| fixture.daemon.connection()).collect();
    for connection in &mut idle[..3] {
        connection.send(&fixture.daemon.post_bytes(
            "/",
            &[],
            br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#,
        ));
        assert_eq!(connection.read_response().status, 200);
    }
    idle[3].send(b"POST / HTTP/1.1\r\nHos");
    fixture.daemon.call_result("/", "shutdown_server", json!({}));
    assert_stopped(&fixture.daemon);
    for connection in &mut idle {
        assert_eq!(String::from_utf8_lossy(&connection.read_to_end()), "");
    }
}

#[test]
fn unread_response_does_not_block_the_stop() {
    let fixture = Fixture::with_config(LARGE_WINDOW_CONFIG);
    fixture.create_with(json!({ "agent_id": "worker", "model": "big" }));
    let long = "0123456789abcdef".repeat(60_000);
    for _ in 0..8 {
        fixture.send("worker", &long);
    }
    let mut unread = fixture.daemon.connection();
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"get_messages","params":{}}"#;
    unread.send(&fixture.daemon.post_bytes("/agent/worker", &[], body));
    unread.stream().peek(&mut [0; 1]).expect("the response has begun");
    fixture.daemon.signal("SIGTERM");
    assert_stopped(&fixture.daemon);
    let warning = "some clients did not read their last response within 5 s";
    assert!(fixture.daemon.stderr().contains(warning), "{}", fixture.daemon.stderr());
}

#[test]
fn daemon_survives_closed_output_pipes() {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = Program::start(&["serve", "0", "--log-level", "trace"], &[], home.path(), b"");
    let address = daemon.wait_line("Server: http://");
    let port = address.strip_prefix("127.0.0.1:").unwrap();
    daemon.stop_reading();
    for name in ["one", "two"] {
        let created = run(BIN, &["rpc", "create", name, "-p", port], &[], home.path());
        assert_eq!(created.code, 0, "{}", created.stderr);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code, 0);
}
