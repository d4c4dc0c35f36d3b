//! Event subscriptions: visibility, cursors, kind filters, and when a stream ends.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use nexus3_protocol::events::{Event, EventQuery};
use nexus3_protocol::sse::{SseDecoder, SseEvent};

use super::*;
use crate::streams::{EventBytes, StreamError};

/// A client that reads an event stream.
pub(super) struct EventReader {
    stream: EventBytes,
    decoder: SseDecoder,
}

impl EventReader {
    pub(super) fn new(stream: EventBytes) -> Self {
        Self { stream, decoder: SseDecoder::new(16 * 1024 * 1024) }
    }

    pub(super) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                return Some(event);
            }
            let bytes = self.next_bytes().await?;
            self.decoder.feed(&bytes);
        }
    }

    /// Reads what the stream hands out at once.
    pub(super) async fn next_bytes(&mut self) -> Option<Bytes> {
        poll_fn(|cx| self.stream.poll_next(cx)).await
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    /// Reads events until all tasks wait; returns them and whether the stream has ended.
    pub(super) async fn drain(&mut self) -> (Vec<SseEvent>, bool) {
        let mut events = Vec::new();
        // The paused clock advances only when no task can run.
        while let Ok(next) = tokio::time::timeout(Duration::from_nanos(1), self.next()).await {
            let Some(event) = next else { return (events, true) };
            events.push(event);
        }
        (events, false)
    }

    /// Reads all events available now as `kind agent`.
    pub(super) async fn kinds(&mut self) -> Vec<String> {
        self.drain().await.0.iter().map(kind).collect()
    }
}

/// Formats an event as `kind agent`.
fn kind(event: &SseEvent) -> String {
    let data: Value = serde_json::from_str(&event.data).unwrap();
    match data["agent_id"].as_str() {
        Some(agent) => format!("{} {agent}", event.event),
        None => event.event.clone(),
    }
}

fn sequence(event: &SseEvent) -> Option<u64> {
    match Event::decode(&event.event, &event.data).unwrap().unwrap() {
        Event::Journalled(event) => Some(event.sequence),
        Event::Live(_) => None,
    }
}

impl Fixture {
    pub(super) async fn watch(
        &self,
        caller: &Caller,
        door: &str,
        query: &str,
    ) -> Result<EventReader, StreamError> {
        let target = match door {
            "/" => self.dispatcher.daemon_target(),
            name => self.dispatcher.agent_target(name, caller).unwrap(),
        };
        let query = EventQuery::parse(query).unwrap();
        self.dispatcher.watch(&target, caller, query).await.map(EventReader::new)
    }

    pub(super) async fn watch_as_admin(&self, door: &str, query: &str) -> EventReader {
        self.watch(&Caller::admin(), door, query).await.unwrap()
    }

    pub(super) async fn send(&self, name: &str, text: &str) {
        self.call_agent(name, &request("send", &format!(r#"{{"content":"{text}"}}"#))).await;
    }
}

const TURN: [&str; 5] = ["turn_accepted a", "turn_begun a", "text_delta a", "message a", "turn_ended a"];

#[tokio::test(start_paused = true)]
async fn admin_sees_all_events_from_now_on() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["before"]).await;
    let mut reader = fixture.watch_as_admin("/", "").await;
    assert_eq!(reader.kinds().await, Vec::<String>::new());
    fixture.create_agents(&["a"]).await;
    fixture.send("a", "hi").await;
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let expected: Vec<_> = ["agent_created a"].into_iter().chain(TURN).chain(["agent_destroyed a"]).collect();
    assert_eq!(reader.kinds().await, expected);
}

#[tokio::test(start_paused = true)]
async fn agent_stream_has_its_events_and_ends_on_destroy() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let mut reader = fixture.watch_as_admin("a", "").await;
    fixture.send("b", "hi").await;
    fixture.send("a", "hi").await;
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"b"}"#)).await;
    assert_eq!(reader.kinds().await, TURN);
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let (events, ended) = reader.drain().await;
    assert_eq!(
        (events.iter().map(kind).collect::<Vec<_>>(), ended),
        (vec!["agent_destroyed a".to_owned()], true)
    );
}

#[tokio::test(start_paused = true)]
async fn resumed_stream_has_no_gaps_and_no_duplicates() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    for _ in 0..3 {
        fixture.send("a", "hi").await;
    }
    let mut full = fixture.watch_as_admin("/", "after=0&deltas=false").await;
    let all: Vec<_> = full.drain().await.0.iter().filter_map(sequence).collect();
    let last = *all.last().unwrap();
    assert_eq!(all, (1..=last).collect::<Vec<_>>(), "the journal starts at 1 without gaps");
    for after in 0..=last {
        let mut resumed = fixture.watch_as_admin("/", &format!("after={after}&deltas=false")).await;
        fixture.send("a", "hi").await;
        let sequences: Vec<_> = resumed.drain().await.0.iter().filter_map(sequence).collect();
        assert_eq!(sequences, (after + 1..=*sequences.last().unwrap()).collect::<Vec<_>>(), "after {after}");
        assert!(*sequences.last().unwrap() > last, "new events follow the replayed ones");
    }
}

#[tokio::test(start_paused = true)]
async fn new_stream_reports_its_starting_sequence() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let start = fixture.watch_as_admin("/", "").await.stream.starts_after().unwrap();
    fixture.send("a", "hi").await;
    let mut resumed = fixture.watch_as_admin("/", &format!("after={start}&deltas=false")).await;
    let expected = ["turn_accepted a", "turn_begun a", "message a", "turn_ended a"];
    assert_eq!(resumed.kinds().await, expected);
    let with_cursor = fixture.watch_as_admin("/", "after=0").await;
    assert_eq!(with_cursor.stream.starts_after(), None, "the client chose the cursor");
}

#[tokio::test(start_paused = true)]
async fn cursor_beyond_the_journal_yields_a_gap_and_restarts() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut reader = fixture.watch_as_admin("/", "after=999&kind=agent_created").await;
    let (events, _) = reader.drain().await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(kinds, ["gap", "agent_created a"], "a gap is delivered whatever the filter");
    assert_eq!(events[0].data, r#"{"kind":"gap","journalled":false,"first":1,"last":2}"#);
}

#[tokio::test(start_paused = true)]
async fn kind_filter_selects_events() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut readers = Vec::new();
    for (query, expected) in [
        ("kind=message", vec!["message a"]),
        ("kind=turn_begun,turn_ended", vec!["turn_begun a", "turn_ended a"]),
        ("kind=text_delta", vec!["text_delta a"]),
        ("kind=text_delta&deltas=false", vec![]),
        ("deltas=false", vec!["turn_accepted a", "turn_begun a", "message a", "turn_ended a"]),
        ("kind=daemon_started", vec![]),
    ] {
        readers.push((fixture.watch_as_admin("/", query).await, query, expected));
    }
    fixture.send("a", "hi").await;
    for (mut reader, query, expected) in readers {
        assert_eq!(reader.kinds().await, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn deltas_are_marked_not_journalled_and_have_no_id() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut reader = fixture.watch_as_admin("a", "kind=text_delta").await;
    fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":7}"#)).await;
    let data = reader.next().await.unwrap().data;
    let expected = concat!(
        r#"{"kind":"text_delta","journalled":false,"agent_id":"a","request_id":7,"turn":1,"#,
        r#""text":"you said hi"}"#
    );
    assert_eq!(data, expected);
    assert_eq!(reader.decoder.last_event_id(), None);
}

/// lead → helper → scout; other.
pub(super) async fn tree() -> (Fixture, Caller) {
    let fixture = Fixture::new().await;
    let permissions = r#""preset":"trusted","may_create":["trusted","sandboxed"]"#;
    fixture.request_create(&format!(r#"{{"agent_id":"lead",{permissions}}}"#)).await;
    fixture
        .request_create(&format!(r#"{{"agent_id":"helper","parent_agent_id":"lead",{permissions}}}"#))
        .await;
    fixture.request_create(r#"{"agent_id":"scout","parent_agent_id":"helper"}"#).await;
    fixture.create_agents(&["other"]).await;
    (fixture, Caller::admin().acting_as("helper"))
}

#[tokio::test(start_paused = true)]
async fn agent_sees_events_of_itself_and_its_descendants() {
    let (fixture, helper) = tree().await;
    let mut reader = fixture
        .watch(
            &helper,
            "/",
            "kind=message,agent_created,agent_destroyed,denied,daemon_started,text_delta&after=0",
        )
        .await
        .unwrap();
    assert_eq!(reader.kinds().await, ["agent_created helper", "agent_created scout"]);
    for name in ["lead", "helper", "scout", "other"] {
        fixture.send(name, "hi").await;
    }
    let expected = ["text_delta helper", "message helper", "text_delta scout", "message scout"];
    assert_eq!(reader.kinds().await, expected);
    fixture.request_create(r#"{"agent_id":"late","parent_agent_id":"helper"}"#).await;
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"scout"}"#)).await;
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"other"}"#)).await;
    let expected = ["agent_created late", "agent_destroyed scout"];
    assert_eq!(reader.kinds().await, expected, "including the end of a destroyed descendant");
}

#[tokio::test(start_paused = true)]
async fn agent_sees_denials_of_its_subtree_only() {
    let (fixture, helper) = tree().await;
    let mut own = fixture.watch(&helper, "/", "kind=denied").await.unwrap();
    let mut all = fixture.watch_as_admin("/", "kind=denied").await;
    for agent in ["helper", "scout", "other"] {
        let caller = Caller::admin().acting_as(agent);
        fixture.call_as(&caller, "/", &request("shutdown_server", "{}")).await;
    }
    fixture.call_as(&Caller::admin().acting_as("missing"), "/", &request("list_agents", "{}")).await;
    fixture.send("scout", "read /etc/passwd").await;
    assert_eq!(own.kinds().await, ["denied helper", "denied scout", "denied scout"]);
    let (events, _) = all.drain().await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(kinds, ["denied helper", "denied scout", "denied other", "denied", "denied scout"]);
    let first: Value = serde_json::from_str(&events[0].data).unwrap();
    assert_eq!(first["action"], "shutdown_server");
    assert_eq!(first["text"], "Agent 'helper' is not authorized to call shutdown_server");
}

#[tokio::test(start_paused = true)]
async fn agent_losing_the_status_tool_sees_only_its_own_events() {
    let (fixture, helper) = tree().await;
    let mut reader = fixture.watch(&helper, "/", "kind=message").await.unwrap();
    fixture.send("scout", "hi").await;
    assert_eq!(reader.kinds().await, ["message scout"]);
    fixture.call_ok("helper", "set_permissions", r#"{"disable_tools":["agent_status"]}"#).await;
    fixture.send("scout", "hi").await;
    fixture.send("helper", "hi").await;
    assert_eq!(reader.kinds().await, ["message helper"]);
    let mut late = fixture.watch(&helper, "/", "kind=message&after=0").await.unwrap();
    assert_eq!(late.kinds().await, ["message helper"]);
    let refused = fixture.watch(&helper, "scout", "").await.err();
    assert_eq!(
        refused,
        Some(StreamError::Denied("Tool 'agent_status' is disabled by permission policy; remove it from disable_tools of the agent or its preset".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_descendant_obeys_a_permission_change() {
    let (fixture, helper) = tree().await;
    let mut reader = fixture.watch(&helper, "scout", "kind=message").await.unwrap();
    fixture.send("scout", "hi").await;
    assert_eq!(reader.kinds().await, ["message scout"]);
    for (disabled, expected) in [(r#"["agent_status"]"#, &[][..]), ("[]", &["message scout"])] {
        let change = format!(r#"{{"disable_tools":{disabled}}}"#);
        fixture.call_ok("lead", "set_permissions", &change).await;
        fixture.send("scout", "hi").await;
        assert_eq!(reader.kinds().await, expected, "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn agent_may_watch_only_its_subtree() {
    let (fixture, helper) = tree().await;
    for door in ["helper", "scout"] {
        let mut reader = fixture.watch(&helper, door, "kind=message").await.unwrap();
        fixture.send(door, "hi").await;
        assert_eq!(reader.kinds().await, [format!("message {door}")]);
    }
    for door in ["lead", "other"] {
        let text = format!("Agent 'helper' is not authorized to call events on '{door}'");
        assert_eq!(fixture.watch(&helper, door, "").await.err(), Some(StreamError::Denied(text)), "{door}");
    }
    let unknown = Caller::admin().acting_as("missing");
    let text = "X-Nexus-Agent names no agent that exists".to_owned();
    assert_eq!(fixture.watch(&unknown, "/", "").await.err(), Some(StreamError::Denied(text)));
    let mut denials = fixture.watch_as_admin("/", "kind=denied&after=0").await;
    assert_eq!(
        denials.kinds().await,
        ["denied helper", "denied helper", "denied"],
        "refusals are in the journal"
    );
}

#[tokio::test(start_paused = true)]
async fn stream_of_a_destroyed_agents_capability_ends() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["other"]).await;
    let token = fixture.create_agent("a", "trusted", None).await;
    let caller = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let mut reader = fixture.watch(&caller, "/", "").await.unwrap();
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    fixture.send("other", "hi").await;
    let (events, ended) = reader.drain().await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!((kinds, ended), (vec!["agent_destroyed a".to_owned()], true));
    let refused = fixture.watch(&caller, "/", "").await.err();
    assert_eq!(refused, Some(StreamError::Denied("Invalid API key".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_destroyed_target_is_refused() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let target = fixture.dispatcher.agent_target("a", &Caller::admin()).unwrap();
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let refused = fixture.dispatcher.watch(&target, &Caller::admin(), EventQuery::default()).await.err();
    assert_eq!(refused, Some(StreamError::AgentNotFound("Agent not found: a".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn slow_reader_lags_and_misses_only_deltas() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut slow = fixture.watch_as_admin("a", "").await;
    let before = slow.stream.starts_after().unwrap();
    for _ in 0..400 {
        fixture.send("a", "hi").await;
    }
    let (events, _) = slow.drain().await;
    assert_eq!(events[0].event, "lagged");
    assert_eq!(events[0].data, r#"{"kind":"lagged","journalled":false}"#);
    let sequences: Vec<_> = events.iter().filter_map(sequence).collect();
    assert_eq!(sequences, (before + 1..=before + 4 * 400).collect::<Vec<_>>(), "no journal event is missing");
    fixture.send("a", "hi").await;
    assert_eq!(slow.kinds().await, TURN, "caught up again");
}

#[tokio::test(start_paused = true)]
async fn events_before_a_restart_are_delivered_after_it() {
    let store = store::memory();
    let fixture = Fixture::with_store(Arc::clone(&store), Limits::default()).await;
    fixture.create_agents(&["a"]).await;
    fixture.send("a", "hi").await;
    fixture.pool.stop(Duration::ZERO).await;
    let fixture = Fixture::with_store(store, Limits::default()).await;
    let mut reader = fixture.watch_as_admin("/", "after=0&deltas=false").await;
    let expected = [
        "daemon_started",
        "agent_created a",
        "turn_accepted a",
        "turn_begun a",
        "message a",
        "turn_ended a",
        "daemon_stopped",
        "daemon_started",
    ];
    assert_eq!(reader.kinds().await, expected);
}
