//! Event streams and turns: streaming sends, streams beside running turns, the limit of streams, and shutdown.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestDaemon, TestEventStream};

use super::{kinds, read_until, refusal};
use crate::durability::{JournalReader, send_params};
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Starts a send whose events are streamed in the response.
fn send_streaming(daemon: &TestDaemon, agent: &str, params: &Value) -> TestEventStream {
    let body = json!({ "jsonrpc": "2.0", "id": "x", "method": "send", "params": params }).to_string();
    let headers = [("Accept", "application/json, text/event-stream;q=0.9")];
    let request = daemon.post_bytes(&agent_path(agent), &headers, body.as_bytes());
    TestEventStream::request(daemon.port(), &request).expect("the response is an event stream")
}

fn read_to_end(mut stream: TestEventStream) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    loop {
        match stream.wait_event(WAIT_MAX).expect("the stream is readable") {
            NextEvent::Event(event) => events.push(event),
            NextEvent::Ended => return events,
            NextEvent::TimedOut => panic!("the stream does not end: {events:?}"),
        }
    }
}

#[test]
fn a_streaming_send_ends_with_the_plain_response() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let call = r#"!tool echo {"text":"hi"}"#;
    let events = read_to_end(send_streaming(&fixture.daemon, "worker", &send_params(call, "r")));
    let without_deltas: Vec<&str> =
        kinds(&events).into_iter().filter(|kind| !kind.ends_with("_delta")).collect();
    let journalled =
        ["turn_accepted", "turn_begun", "message", "tool_begun", "message", "message", "turn_ended"];
    assert_eq!(without_deltas[..7], journalled);
    assert_eq!(without_deltas[7..], ["response"]);
    let response = events.last().expect("the stream has a response");
    assert_eq!((response.id.as_ref(), &response.json()["id"]), (None, &json!("x")));
    let plain = fixture.daemon.call_result(&agent_path("worker"), "send", send_params(call, "r"));
    assert_eq!(response.json()["result"], plain, "the same send without a stream has the same result");
    let repeated = read_to_end(send_streaming(&fixture.daemon, "worker", &send_params(call, "r")));
    assert_eq!(repeated.last().map(|event| event.json()["result"].clone()), Some(plain));
    assert_eq!(fixture.model.call_counts(call, 0).requests, 1);
    let ids: Vec<u64> = events.iter().filter_map(StreamEvent::sequence).collect();
    assert!(ids.is_sorted() && ids.len() == 7, "{ids:?}");
}

#[test]
fn a_failed_streaming_send_ends_with_the_error() {
    let fixture = Fixture::start();
    fixture.create("worker");
    for (params, code) in [
        (json!({ "content": 5 }), -32602),
        (json!({ "content": "!status 500 boom", "request_id": "f" }), -32603),
        (json!({ "content": "other", "request_id": "f" }), -32602),
    ] {
        let events = read_to_end(send_streaming(&fixture.daemon, "worker", &params));
        let response = events.last().expect("the stream has a response");
        assert_eq!((response.kind.as_str(), &response.json()["error"]["code"]), ("response", &json!(code)));
    }
}

#[test]
fn a_cancelled_streaming_send_ends_with_partial_text() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut stream = send_streaming(&fixture.daemon, "worker", &send_params("!hold never so far", "r"));
    read_until(&mut stream, "text_delta");
    assert_eq!(fixture.cancel("worker", "r")["cancelled"], true);
    let rest = read_to_end(stream);
    assert_eq!(kinds(&rest), ["message", "turn_ended", "response"]);
    let response = rest[2].json();
    assert_eq!(
        (&response["result"]["cancelled"], &response["result"]["content"]),
        (&json!(true), &json!("so far"))
    );
}

#[test]
fn a_streaming_send_continues_after_a_disconnect() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut stream = send_streaming(&fixture.daemon, "worker", &send_params("!hold gate so far", "r"));
    read_until(&mut stream, "text_delta");
    drop(stream);
    fixture.model.release("gate");
    let response = fixture.send_with_request_id("worker", "!hold gate so far", "r");
    assert_eq!(response["result"]["content"], "so far released gate");
    assert_eq!(fixture.model.call_counts("!hold gate so far", 0).requests, 1);
}

#[test]
fn streams_use_no_turn_permit_and_prevent_idle_exit() {
    let fixture =
        Fixture::with_config("idle_timeout_s = 1\n[limits]\nheartbeat_ms = 50\nturns_running_max = 1\n");
    fixture.create("worker");
    let mut all = fixture.daemon.events("/events", None);
    let of_worker = fixture.daemon.events("/agent/worker/events", None);
    let more: Vec<TestEventStream> = (0..20).map(|_| fixture.daemon.events("/events", None)).collect();
    assert_eq!(fixture.send_text("worker", "hello"), "echo: hello");
    read_until(&mut all, "turn_ended");
    drop((of_worker, more));
    let beyond_timeout = Duration::from_millis(1500);
    assert_eq!(
        all.wait_event(beyond_timeout).expect("the stream is readable"),
        NextEvent::TimedOut,
        "a subscriber keeps the daemon running"
    );
    drop(all);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
    assert!(fixture.daemon.stderr().contains("the idle timeout"), "{}", fixture.daemon.stderr());
}

#[test]
fn the_number_of_event_streams_is_limited() {
    let fixture = Fixture::with_config("[limits]\nevent_streams_max = 3\nheartbeat_ms = 50\n");
    fixture.create("worker");
    let mut open: Vec<TestEventStream> = (0..3).map(|_| fixture.daemon.events("/events", None)).collect();
    for target in ["/events", "/agent/worker/events"] {
        let (status, message) = refusal(&fixture.daemon, target, "");
        assert_eq!(status, 503, "{message}");
        assert!(message.contains("event_streams_max"), "{message}");
    }
    let events = read_to_end(send_streaming(&fixture.daemon, "worker", &send_params("hello", "r")));
    assert_eq!(
        events.last().map(|event| event.kind.as_str()),
        Some("response"),
        "a streaming send does not count as a stream"
    );
    drop(open.pop());
    crate::support::wait_until("a free stream", || {
        TestEventStream::open(fixture.daemon.port(), "/events", fixture.daemon.token(), None).is_ok()
    });
}

#[test]
fn streams_end_at_shutdown_and_resume_without_a_gap() {
    let fixture = Fixture::with_config("stop_grace_ms = 0\n");
    fixture.create("worker");
    let mut all = fixture.daemon.events("/events?deltas=false", Some(0));
    let pending = fixture.start_send("worker", "!stall so far", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGTERM");
    let mut seen = Vec::new();
    while let NextEvent::Event(event) = all.wait_event(WAIT_MAX).expect("the stream is readable") {
        seen.push(event);
    }
    assert_eq!(all.wait_event(WAIT_MAX).expect("the stream is readable"), NextEvent::Ended);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0), "{}", fixture.daemon.stderr());
    assert_eq!(pending.next_result()["cancelled"], true, "the grace period is over");
    let last = seen.last().and_then(StreamEvent::sequence);
    assert!(String::from_utf8_lossy(all.body()).contains(": daemon shutting down\n"));
    let Fixture { daemon, model } = fixture;
    let fixture = Fixture { daemon: daemon.wait_stopped().start(), model };
    let mut later = fixture.daemon.events("/events?deltas=false", last);
    seen.extend(read_until(&mut later, "daemon_started"));
    let journal = JournalReader::read_all(&fixture.daemon);
    assert!(
        seen.iter().map(StreamEvent::json).eq(journal),
        "entries that were not delivered at shutdown should be delivered after the start"
    );
}
