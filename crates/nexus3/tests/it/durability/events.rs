//! Event streams: each entry once, in order, to the callers that may see it, from the position they resume at.

mod event_filters;
mod resuming;
mod slow_readers;
mod turn_events;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestDaemon, TestEventStream};

use super::JournalReader;
use crate::support::callers::post_as;
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Time without an event after which a test assumes that none is on its way.
const SILENCE: Duration = Duration::from_millis(300);

/// Reads events up to the first one of this kind.
fn read_until(stream: &mut TestEventStream, kind: &str) -> Vec<StreamEvent> {
    let mut events: Vec<StreamEvent> = Vec::new();
    while events.last().is_none_or(|event| event.kind != kind) {
        events.push(stream.next_event(WAIT_MAX));
    }
    events
}

fn kinds(events: &[StreamEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

/// Requests events with these extra headers, and returns the status and the message of the refusal.
fn refusal(daemon: &TestDaemon, target: &str, headers: &str) -> (u16, String) {
    let token = daemon.token().expect("a daemon writes a token");
    let port = daemon.port();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    );
    let response = daemon.send_raw(request.as_bytes());
    let message = response.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    (response.status, message)
}

#[test]
fn a_stream_without_a_position_starts_at_the_end() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.send("worker", "before");
    let last = JournalReader::read_all(&fixture.daemon).len();
    let mut stream = fixture.daemon.events("/agent/worker/events?deltas=false", None);
    fixture.send("worker", "hello");
    let events = read_until(&mut stream, "turn_ended");
    assert_eq!(kinds(&events), ["turn_accepted", "turn_begun", "message", "turn_ended"]);
    let opening = String::from_utf8_lossy(stream.body()).into_owned();
    assert!(opening.starts_with(&format!("retry: 1000\n\nid: {last}\n\n")), "{opening}");
    let header = |name: &str| {
        let found = stream.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(
        (header("content-type"), header("cache-control")),
        ("text/event-stream".into(), "no-store".into())
    );
    let accepted = events[0].json();
    assert_eq!((&accepted["agent_id"], &accepted["message"]["content"]), (&json!("worker"), &json!("hello")));
    assert_eq!(events[2].json()["content"], "echo: hello");
}

#[test]
fn filters_select_events_by_kind() {
    let fixture = Fixture::start();
    fixture.create("worker");
    for text in ["one", "two"] {
        fixture.send("worker", text);
    }
    for target in ["/events?after=0&kind=message,turn_ended", "/events?kind=message&kind=turn_ended&after=0"]
    {
        let mut stream = fixture.daemon.events(target, None);
        let events: Vec<StreamEvent> = (0..4).map(|_| stream.next_event(WAIT_MAX)).collect();
        assert_eq!(kinds(&events), ["message", "turn_ended", "message", "turn_ended"]);
        assert_eq!(stream.wait_event(SILENCE).expect("the stream is readable"), NextEvent::TimedOut);
    }
    let mut stream = fixture.daemon.events("/events?deltas=false&kind=turn_ended,text_delta", None);
    fixture.send("worker", "three");
    assert_eq!(stream.next_event(WAIT_MAX).kind, "turn_ended", "an event has to pass both filters");
}

#[test]
fn invalid_event_requests_are_rejected() {
    let fixture = Fixture::start();
    fixture.create("worker");
    for (target, text) in [
        ("/events?kind=nonsense", "got: 'nonsense'"),
        ("/events?kind=message,nonsense", "kind must be one of agent_created"),
        ("/events?after=soon", "after must be a sequence number, got: 'soon'"),
        ("/events?after=-1", "after must be a sequence number"),
        ("/events?after=1&after=2", "after is given twice"),
        ("/events?deltas=maybe", "deltas must be true or false, got: 'maybe'"),
        ("/events?since=1", "unknown query parameter 'since'"),
        ("/agent/worker/events?kind=nonsense", "kind must be one of"),
    ] {
        let (status, message) = refusal(&fixture.daemon, target, "");
        assert_eq!(status, 400, "{target}: {message}");
        assert!(message.contains(text), "{target}: {message}");
    }
    let twice = "Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n";
    assert_eq!(refusal(&fixture.daemon, "/events", twice), (400, "Last-Event-ID is given twice".to_owned()));
    let (status, message) = refusal(&fixture.daemon, "/events", "Last-Event-ID: x\r\n");
    assert_eq!(
        (status, message.contains("Last-Event-ID must be a sequence number")),
        (400, true),
        "{message}"
    );
    assert_eq!(
        refusal(&fixture.daemon, "/agent/missing/events", ""),
        (404, "Agent not found: missing".to_owned())
    );
    assert_eq!(
        refusal(&fixture.daemon, "/agent/worker/event", "").0,
        405,
        "no other path below an agent accepts GET"
    );
    let unauthenticated = fixture.daemon.send_raw(
        format!("GET /events HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", fixture.daemon.port()).as_bytes(),
    );
    assert_eq!(unauthenticated.status, 401, "{}", unauthenticated.text());
}

#[test]
fn a_position_beyond_the_end_yields_a_gap_event() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let last = JournalReader::read_all(&fixture.daemon).len() as u64;
    let mut stream = fixture.daemon.events("/events?kind=agent_created", Some(last + 1));
    let gap = stream.next_event(WAIT_MAX);
    assert_eq!((gap.kind.as_str(), gap.id.as_ref()), ("gap", None), "a gap passes every filter");
    assert_eq!(gap.json(), json!({ "kind": "gap", "journalled": false, "first": 1, "last": last }));
    assert_eq!(stream.next_event(WAIT_MAX).kind, "agent_created", "the stream continues at the first entry");
    let mut at_the_end = fixture.daemon.events("/events", Some(last));
    assert_eq!(
        at_the_end.wait_event(SILENCE).expect("the stream is readable"),
        NextEvent::TimedOut,
        "a position at the end is no gap"
    );
}

#[test]
fn an_idle_stream_sends_heartbeats() {
    let fixture = Fixture::with_config("[limits]\nheartbeat_ms = 20\n");
    let mut stream = fixture.daemon.events("/events?kind=turn_ended", None);
    while stream.comments() < 3 {
        // A heartbeat is a comment, and comments are not events: each wait times out.
        assert_eq!(
            stream.wait_event(Duration::from_millis(20)).expect("the stream is readable"),
            NextEvent::TimedOut
        );
    }
    assert!(String::from_utf8_lossy(stream.body()).contains("\n: heartbeat\n"));
}

#[test]
fn deltas_are_published_but_not_journalled() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut stream = fixture.daemon.events("/agent/worker/events", None);
    let message = "!think let me see | !chunks 5 one two three four five";
    let result = fixture.daemon.call_result(
        &agent_path("worker"),
        "send",
        json!({ "content": message, "request_id": "r" }),
    );
    let events = read_until(&mut stream, "turn_ended");
    let deltas = |kind: &str| -> Vec<Value> {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        of_kind.inspect(|event| assert_eq!(event.id, None, "{event:?}")).map(StreamEvent::json).collect()
    };
    let joined = |deltas: &[Value]| -> String {
        deltas.iter().map(|delta| delta["text"].as_str().expect("a text")).collect()
    };
    let (text, reasoning) = (deltas("text_delta"), deltas("reasoning_delta"));
    assert_eq!((joined(&text), joined(&reasoning)), ("one two three four five".into(), "let me see".into()));
    assert_eq!(text.len(), 5);
    for delta in text.iter().chain(&reasoning) {
        assert_eq!((&delta["journalled"], &delta["request_id"]), (&json!(false), &json!("r")), "{delta}");
        assert_eq!((&delta["turn"], &delta["agent_id"]), (&json!(1), &json!("worker")));
    }
    let journalled: Vec<&StreamEvent> = events.iter().filter(|event| event.id.is_some()).collect();
    assert!(
        journalled.iter().any(|event| event.json()["content"] == result["content"]),
        "the whole text follows"
    );
    let journal = JournalReader::read_all(&fixture.daemon);
    assert!(
        !journal.iter().any(|entry| entry.to_string().contains("let me see\"") && entry["kind"] == "message")
    );
    let position =
        |kind: &str| kinds(&events).iter().position(|known| *known == kind).expect("the event was published");
    assert!(
        position("turn_begun") < position("reasoning_delta") && position("text_delta") < position("message")
    );
}

#[test]
fn streams_of_a_destroyed_agent_end() {
    let fixture = Fixture::start();
    let token = fixture.create_with(json!({ "agent_id": "worker" }));
    let mut by_admin = fixture.daemon.events("/agent/worker/events", None);
    let mut by_agent = TestEventStream::open(fixture.daemon.port(), "/events", Some(&token), None)
        .expect("the stream opens");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    for stream in [&mut by_admin, &mut by_agent] {
        assert_eq!(stream.next_event(WAIT_MAX).kind, "agent_destroyed");
        // The caller of the second stream is destroyed: it gets no events of other agents.
        fixture.daemon.call_result("/", "create_agent", json!({}));
        assert_eq!(stream.wait_event(WAIT_MAX).expect("the stream is readable"), NextEvent::Ended);
    }
    let refused = post_as(&fixture.daemon, &token, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
}
