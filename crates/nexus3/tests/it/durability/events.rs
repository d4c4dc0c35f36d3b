//! The event stream: what happened, in order, once, to whoever may see it, from where they left off.

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

/// Long enough for anything that is on its way to come.
const SILENCE: Duration = Duration::from_millis(300);

/// Reads up to an event of this kind.
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

/// Asks for events with whatever headers; the status and the text of a refusal.
fn refusal(daemon: &TestDaemon, target: &str, headers: &str) -> (u16, String) {
    let token = daemon.token().expect("a daemon writes a token");
    let port = daemon.port();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    );
    let answer = daemon.send_raw(request.as_bytes());
    let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    (answer.status, message)
}

#[test]
fn a_stream_without_a_place_tells_where_it_is_and_what_happens_from_then_on() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.send("worker", "before");
    let last = JournalReader::read_all(&stage.daemon).len();
    let mut stream = stage.daemon.events("/agent/worker/events?deltas=false", None);
    stage.send("worker", "hello");
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
fn filters_leave_out_what_nobody_asked_for() {
    let stage = Fixture::start();
    stage.create("worker");
    for text in ["one", "two"] {
        stage.send("worker", text);
    }
    for target in ["/events?after=0&kind=message,turn_ended", "/events?kind=message&kind=turn_ended&after=0"]
    {
        let mut stream = stage.daemon.events(target, None);
        let events: Vec<StreamEvent> = (0..4).map(|_| stream.next_event(WAIT_MAX)).collect();
        assert_eq!(kinds(&events), ["message", "turn_ended", "message", "turn_ended"]);
        assert_eq!(stream.wait_event(SILENCE).expect("a stream"), NextEvent::TimedOut);
    }
    let mut stream = stage.daemon.events("/events?deltas=false&kind=turn_ended,text_delta", None);
    stage.send("worker", "three");
    assert_eq!(stream.next_event(WAIT_MAX).kind, "turn_ended", "both have to let it pass");
}

#[test]
fn a_question_that_makes_no_sense_is_refused() {
    let stage = Fixture::start();
    stage.create("worker");
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
        let (status, message) = refusal(&stage.daemon, target, "");
        assert_eq!(status, 400, "{target}: {message}");
        assert!(message.contains(text), "{target}: {message}");
    }
    let twice = "Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n";
    assert_eq!(refusal(&stage.daemon, "/events", twice), (400, "Last-Event-ID is given twice".to_owned()));
    let (status, message) = refusal(&stage.daemon, "/events", "Last-Event-ID: x\r\n");
    assert_eq!(
        (status, message.contains("Last-Event-ID must be a sequence number")),
        (400, true),
        "{message}"
    );
    assert_eq!(
        refusal(&stage.daemon, "/agent/nobody/events", ""),
        (404, "Agent not found: nobody".to_owned())
    );
    assert_eq!(refusal(&stage.daemon, "/agent/worker/event", "").0, 405, "only events can be watched");
    let unsigned = stage.daemon.send_raw(
        format!("GET /events HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", stage.daemon.port()).as_bytes(),
    );
    assert_eq!(unsigned.status, 401, "{}", unsigned.text());
}

#[test]
fn a_place_beyond_the_end_is_answered_by_what_there_is() {
    let stage = Fixture::start();
    stage.create("worker");
    let last = JournalReader::read_all(&stage.daemon).len() as u64;
    let mut stream = stage.daemon.events("/events?kind=agent_created", Some(last + 1));
    let gap = stream.next_event(WAIT_MAX);
    assert_eq!((gap.kind.as_str(), gap.id.as_ref()), ("gap", None), "it is told whatever the filter");
    assert_eq!(gap.json(), json!({ "kind": "gap", "journalled": false, "first": 1, "last": last }));
    assert_eq!(stream.next_event(WAIT_MAX).kind, "agent_created", "and reading goes on at the first");
    let mut at_the_end = stage.daemon.events("/events", Some(last));
    assert_eq!(
        at_the_end.wait_event(SILENCE).expect("a stream"),
        NextEvent::TimedOut,
        "the end itself is no gap"
    );
}

#[test]
fn a_quiet_stream_shows_that_it_is_alive() {
    let stage = Fixture::with_config("[limits]\nheartbeat_ms = 20\n");
    let mut stream = stage.daemon.events("/events?kind=turn_ended", None);
    while stream.comments() < 3 {
        // Each wait ends with whatever comes, and comments are no events.
        assert_eq!(stream.wait_event(Duration::from_millis(20)).expect("a stream"), NextEvent::TimedOut);
    }
    assert!(String::from_utf8_lossy(stream.body()).contains("\n: heartbeat\n"));
}

#[test]
fn what_a_model_is_just_saying_is_told_and_marked_as_not_kept() {
    let stage = Fixture::start();
    stage.create("worker");
    let mut stream = stage.daemon.events("/agent/worker/events", None);
    let asked = "!think let me see | !chunks 5 one two three four five";
    let answer = stage.daemon.call_result(
        &agent_path("worker"),
        "send",
        json!({ "content": asked, "request_id": "r" }),
    );
    let events = read_until(&mut stream, "turn_ended");
    let deltas = |kind: &str| -> Vec<Value> {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        of_kind.inspect(|event| assert_eq!(event.id, None, "{event:?}")).map(StreamEvent::json).collect()
    };
    let joined = |deltas: &[Value]| -> String {
        deltas.iter().map(|delta| delta["text"].as_str().expect("a text")).collect()
    };
    let (said, thought) = (deltas("text_delta"), deltas("reasoning_delta"));
    assert_eq!((joined(&said), joined(&thought)), ("one two three four five".into(), "let me see".into()));
    assert_eq!(said.len(), 5);
    for delta in said.iter().chain(&thought) {
        assert_eq!((&delta["journalled"], &delta["request_id"]), (&json!(false), &json!("r")), "{delta}");
        assert_eq!((&delta["turn"], &delta["agent_id"]), (&json!(1), &json!("worker")));
    }
    let kept: Vec<&StreamEvent> = events.iter().filter(|event| event.id.is_some()).collect();
    assert!(kept.iter().any(|event| event.json()["content"] == answer["content"]), "the whole text follows");
    let journal = JournalReader::read_all(&stage.daemon);
    assert!(
        !journal.iter().any(|entry| entry.to_string().contains("let me see\"") && entry["kind"] == "message")
    );
    let place = |kind: &str| kinds(&events).iter().position(|known| *known == kind).expect("it is told");
    assert!(place("turn_begun") < place("reasoning_delta") && place("text_delta") < place("message"));
}

#[test]
fn the_events_of_an_agent_end_with_it() {
    let stage = Fixture::start();
    let token = stage.create_with(json!({ "agent_id": "worker" }));
    let mut its = stage.daemon.events("/agent/worker/events", None);
    let mut own =
        TestEventStream::open(stage.daemon.port(), "/events", Some(&token), None).expect("a stream");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    for stream in [&mut its, &mut own] {
        assert_eq!(stream.next_event(WAIT_MAX).kind, "agent_destroyed");
        // The caller of the second is gone: what others do is not its business.
        stage.daemon.call_result("/", "create_agent", json!({}));
        assert_eq!(stream.wait_event(WAIT_MAX).expect("a stream"), NextEvent::Ended);
    }
    let refused = post_as(&stage.daemon, &token, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
}
