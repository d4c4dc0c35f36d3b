//! The ways to stop a daemon, each in order.

use rustix::process::Signal;
use serde_json::json;
use testkit::{NextEvent, TestDaemon, run};

use super::{assert_stopped, token_path};
use crate::support::program::Program;
use crate::support::{BIN, Fixture, LARGE_WINDOW_CONFIG, WAIT_MAX};

#[test]
fn a_signal_stops_it() {
    for signal in ["SIGTERM", "SIGINT", "SIGHUP"] {
        let stage = Fixture::start();
        stage.create("worker");
        stage.send("worker", "hi");
        assert!(token_path(&stage.daemon).exists());
        stage.daemon.signal(signal);
        assert_stopped(&stage.daemon);
        assert!(stage.daemon.stderr().contains(&format!("stopping: {signal}")));
    }
}

#[test]
fn a_client_stops_it() {
    let stage = Fixture::start();
    stage.create("worker");
    let result = stage.daemon.call_result("/", "shutdown_server", json!({}));
    assert_eq!(result, json!({ "success": true, "message": "Server shutting down" }));
    assert_stopped(&stage.daemon);
}

#[test]
fn it_stops_when_nobody_needs_it_for_its_idle_time() {
    let daemon = TestDaemon::builder(BIN).config("idle_timeout_s = 1").start();
    daemon.call_result("/", "list_agents", json!({}));
    assert_stopped(&daemon);
    assert!(daemon.stderr().contains("stopping: the idle timeout"), "{}", daemon.stderr());
}

#[test]
fn the_idle_time_can_be_given_by_flag() {
    let daemon = TestDaemon::builder(BIN).arg("--idle-timeout").arg("1").start();
    assert_stopped(&daemon);
}

#[test]
fn an_open_turn_is_not_idle() {
    let stage = Fixture::with_config("idle_timeout_s = 1");
    stage.create("worker");
    let open = stage.start_send("worker", "!hold gate", "r");
    let mut abandoned = stage.daemon.connection();
    stage.create("other");
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!hold other"}}"#;
    abandoned.send(&stage.daemon.post_bytes("/agent/other", &[], body));
    stage.model.wait_stalled(2);
    abandoned.reset();
    // Two others with the same idle time, one after the other: when both have ended, it has long passed for this one.
    for _ in 0..2 {
        let clock = TestDaemon::builder(BIN).config("idle_timeout_s = 1").start();
        assert_eq!(clock.wait_exit().code(), Some(0));
    }
    assert_eq!(stage.context("worker")["message_count"], 1);
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], " released gate");
    stage.model.release("other");
    assert_stopped(&stage.daemon);
}

#[test]
fn a_daemon_that_is_watched_is_not_idle() {
    // Heartbeats tell that a watcher has left.
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
fn whoever_watches_does_not_hold_it_and_hears_its_end() {
    let stage = Fixture::with_config("stop_grace_ms = 3600000");
    stage.create("worker");
    let streams = ["/events", "/agent/worker/events"].map(|path| stage.daemon.events(path, Some(0)));
    let running = stage.start_send("worker", "!hold gate", "r");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGTERM");
    stage.daemon.wait_stderr("stopping: SIGTERM");
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_stopped(&stage.daemon);
    for mut events in streams {
        let mut kinds = Vec::new();
        while let NextEvent::Event(event) = events.wait_event(WAIT_MAX).expect("a stream that ends in order")
        {
            kinds.push(event.kind);
        }
        assert!(kinds.contains(&"turn_ended".to_owned()), "{kinds:?}");
    }
}

#[test]
fn connections_that_say_nothing_do_not_hold_it() {
    let stage = Fixture::start();
    let mut idle: Vec<_> = (0..5).map(|_| stage.daemon.connection()).collect();
    for connection in &mut idle[..3] {
        connection.send(&stage.daemon.post_bytes(
            "/",
            &[],
            br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#,
        ));
        assert_eq!(connection.read_response().status, 200);
    }
    idle[3].send(b"POST / HTTP/1.1\r\nHos");
    stage.daemon.call_result("/", "shutdown_server", json!({}));
    assert_stopped(&stage.daemon);
    for connection in &mut idle {
        assert_eq!(String::from_utf8_lossy(&connection.read_to_end()), "");
    }
}

#[test]
fn a_client_that_does_not_take_its_answer_does_not_hold_it() {
    let stage = Fixture::with_config(LARGE_WINDOW_CONFIG);
    stage.create_with(json!({ "agent_id": "worker", "model": "big" }));
    let long = "0123456789abcdef".repeat(60_000);
    for _ in 0..8 {
        stage.send("worker", &long);
    }
    let mut greedy = stage.daemon.connection();
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"get_messages","params":{}}"#;
    greedy.send(&stage.daemon.post_bytes("/agent/worker", &[], body));
    greedy.stream().peek(&mut [0; 1]).expect("the answer is on its way");
    stage.daemon.signal("SIGTERM");
    assert_stopped(&stage.daemon);
    let told = "some clients did not read their last response within 5 s";
    assert!(stage.daemon.stderr().contains(told), "{}", stage.daemon.stderr());
}

#[test]
fn a_daemon_whose_reader_went_away_goes_on() {
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
