//! Events and turns: a send that is told as it goes, streams that take no turn's place, and streams at the daemon's end.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestDaemon, TestEventStream};

use super::{kinds, read_until, refusal};
use crate::durability::{JournalReader, send_params};
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Starts a send that is told as it goes.
fn send_streaming(daemon: &TestDaemon, agent: &str, params: &Value) -> TestEventStream {
    let body = json!({ "jsonrpc": "2.0", "id": "x", "method": "send", "params": params }).to_string();
    let headers = [("Accept", "application/json, text/event-stream;q=0.9")];
    let request = daemon.post_bytes(&agent_path(agent), &headers, body.as_bytes());
    TestEventStream::request(daemon.port(), &request).expect("a stream of events")
}

fn read_to_end(mut stream: TestEventStream) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    loop {
        match stream.wait_event(WAIT_MAX).expect("a stream") {
            NextEvent::Event(event) => events.push(event),
            NextEvent::Ended => return events,
            NextEvent::TimedOut => panic!("the stream does not end: {events:?}"),
        }
    }
}

#[test]
fn a_send_that_is_told_ends_with_the_answer_that_it_would_have_had() {
    let stage = Fixture::start();
    stage.create("worker");
    let call = r#"!tool echo {"text":"hi"}"#;
    let events = read_to_end(send_streaming(&stage.daemon, "worker", &send_params(call, "r")));
    let without: Vec<&str> = kinds(&events).into_iter().filter(|kind| !kind.ends_with("_delta")).collect();
    let kept = ["turn_accepted", "turn_begun", "message", "tool_begun", "message", "message", "turn_ended"];
    assert_eq!(without[..7], kept);
    assert_eq!(without[7..], ["response"]);
    let response = events.last().expect("a response");
    assert_eq!((response.id.as_ref(), &response.json()["id"]), (None, &json!("x")));
    let plain = stage.daemon.call_result(&agent_path("worker"), "send", send_params(call, "r"));
    assert_eq!(response.json()["result"], plain, "and the same send without a stream gets the same");
    let again = read_to_end(send_streaming(&stage.daemon, "worker", &send_params(call, "r")));
    assert_eq!(again.last().map(|event| event.json()["result"].clone()), Some(plain));
    assert_eq!(stage.model.call_counts(call, 0).requests, 1);
    let ids: Vec<u64> = events.iter().filter_map(StreamEvent::sequence).collect();
    assert!(ids.is_sorted() && ids.len() == 7, "{ids:?}");
}

#[test]
fn a_send_that_is_told_and_refused_is_told_so() {
    let stage = Fixture::start();
    stage.create("worker");
    for (params, code) in [
        (json!({ "content": 5 }), -32602),
        (json!({ "content": "!status 500 boom", "request_id": "f" }), -32603),
        (json!({ "content": "other", "request_id": "f" }), -32602),
    ] {
        let events = read_to_end(send_streaming(&stage.daemon, "worker", &params));
        let response = events.last().expect("a response");
        assert_eq!((response.kind.as_str(), &response.json()["error"]["code"]), ("response", &json!(code)));
    }
}

#[test]
fn a_send_that_is_told_is_cancelled_and_says_what_it_had() {
    let stage = Fixture::start();
    stage.create("worker");
    let mut stream = send_streaming(&stage.daemon, "worker", &send_params("!hold never so far", "r"));
    read_until(&mut stream, "text_delta");
    assert_eq!(stage.cancel("worker", "r")["cancelled"], true);
    let rest = read_to_end(stream);
    assert_eq!(kinds(&rest), ["message", "turn_ended", "response"]);
    let response = rest[2].json();
    assert_eq!(
        (&response["result"]["cancelled"], &response["result"]["content"]),
        (&json!(true), &json!("so far"))
    );
}

#[test]
fn a_told_send_that_is_left_goes_on() {
    let stage = Fixture::start();
    stage.create("worker");
    let mut stream = send_streaming(&stage.daemon, "worker", &send_params("!hold gate so far", "r"));
    read_until(&mut stream, "text_delta");
    drop(stream);
    stage.model.release("gate");
    let answer = stage.send_with_request_id("worker", "!hold gate so far", "r");
    assert_eq!(answer["result"]["content"], "so far released gate");
    assert_eq!(stage.model.call_counts("!hold gate so far", 0).requests, 1);
}

#[test]
fn streams_take_no_turns_place_and_count_as_use() {
    let stage =
        Fixture::with_config("idle_timeout_s = 1\n[limits]\nheartbeat_ms = 50\nturns_running_max = 1\n");
    stage.create("worker");
    let mut all = stage.daemon.events("/events", None);
    let its = stage.daemon.events("/agent/worker/events", None);
    let more: Vec<TestEventStream> = (0..20).map(|_| stage.daemon.events("/events", None)).collect();
    assert_eq!(stage.send_text("worker", "hello"), "echo: hello");
    read_until(&mut all, "turn_ended");
    drop((its, more));
    let beyond = Duration::from_millis(1500);
    assert_eq!(
        all.wait_event(beyond).expect("a stream"),
        NextEvent::TimedOut,
        "somebody watches, so it stays"
    );
    drop(all);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
    assert!(stage.daemon.stderr().contains("the idle timeout"), "{}", stage.daemon.stderr());
}

#[test]
fn there_are_only_so_many_streams() {
    let stage = Fixture::with_config("[limits]\nevent_streams_max = 3\nheartbeat_ms = 50\n");
    stage.create("worker");
    let mut open: Vec<TestEventStream> = (0..3).map(|_| stage.daemon.events("/events", None)).collect();
    for target in ["/events", "/agent/worker/events"] {
        let (status, message) = refusal(&stage.daemon, target, "");
        assert_eq!(status, 503, "{message}");
        assert!(message.contains("event_streams_max"), "{message}");
    }
    let told = read_to_end(send_streaming(&stage.daemon, "worker", &send_params("hello", "r")));
    assert_eq!(told.last().map(|event| event.kind.as_str()), Some("response"), "a send needs no such place");
    drop(open.pop());
    crate::support::wait_until("a free place", || {
        TestEventStream::open(stage.daemon.port(), "/events", stage.daemon.token(), None).is_ok()
    });
}

#[test]
fn streams_end_with_the_daemon_and_tell_how_turns_ended_before() {
    let stage = Fixture::with_config("stop_grace_ms = 0\n");
    stage.create("worker");
    let mut all = stage.daemon.events("/events?deltas=false", Some(0));
    let _open = stage.start_send("worker", "!stall so far", "r");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGTERM");
    let mut seen = Vec::new();
    while let NextEvent::Event(event) = all.wait_event(WAIT_MAX).expect("a stream") {
        seen.push(event);
    }
    assert_eq!(all.wait_event(WAIT_MAX).expect("a stream"), NextEvent::Ended);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0), "{}", stage.daemon.stderr());
    let last = seen.last().and_then(StreamEvent::sequence);
    assert!(String::from_utf8_lossy(all.body()).contains(": daemon shutting down\n"));
    let Fixture { daemon, model } = stage;
    let stage = Fixture { daemon: daemon.wait_stopped().start(), model };
    let mut later = stage.daemon.events("/events?deltas=false", last);
    seen.extend(read_until(&mut later, "daemon_started"));
    let journal = JournalReader::read_all(&stage.daemon);
    assert!(seen.iter().map(StreamEvent::json).eq(journal), "what was not told at the end is told later");
}
