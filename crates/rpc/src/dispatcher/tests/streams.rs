//! Watching: who sees what, from where on, which kinds, and when it ends.

use std::future::poll_fn;

use nexus3_protocol::events::{Event, EventQuery};
use nexus3_protocol::sse::{SseDecoder, SseEvent};

use super::*;
use crate::streams::{EventBytes, StreamError};

/// Somebody who reads a stream.
pub(super) struct EventReader {
    stream: EventBytes,
    reader: SseDecoder,
}

impl EventReader {
    pub(super) fn new(stream: EventBytes) -> Self {
        Self { stream, reader: SseDecoder::new(1024 * 1024) }
    }

    pub(super) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.reader.next_event().unwrap() {
                return Some(event);
            }
            self.reader.feed(&poll_fn(|cx| self.stream.poll_next(cx)).await?);
        }
    }

    /// All that has happened by now, and whether the stream has ended.
    async fn drain(&mut self) -> (Vec<SseEvent>, bool) {
        let mut events = Vec::new();
        loop {
            // A task may not take as much as it likes at once: only who waits again has nothing more to tell.
            run_until_idle().await;
            let before = events.len();
            while let Some(next) = self.next().now_or_never() {
                let Some(event) = next else { return (events, true) };
                events.push(event);
            }
            if events.len() == before {
                return (events, false);
            }
        }
    }

    /// The kinds of all that has happened by now, with the agents they are about.
    async fn kinds(&mut self) -> Vec<String> {
        self.drain().await.0.iter().map(kind).collect()
    }
}

/// `kind agent`, as short as a test wants to read it.
fn kind(event: &SseEvent) -> String {
    let data: Value = serde_json::from_str(&event.data).unwrap();
    match data["agent_id"].as_str() {
        Some(agent) => format!("{} {agent}", event.event),
        None => event.event.clone(),
    }
}

fn sequence(event: &SseEvent) -> Option<u64> {
    match Event::decode(&event.event, &event.data).unwrap().unwrap() {
        Event::Journalled(kept) => Some(kept.sequence),
        Event::Live(_) => None,
    }
}

impl Fixture {
    async fn watch(&self, caller: &Caller, door: &str, query: &str) -> Result<EventReader, StreamError> {
        let entrance = match door {
            "/" => self.dispatcher.daemon_target(),
            name => self.dispatcher.agent_target(name).unwrap(),
        };
        let query = EventQuery::parse(query).unwrap();
        self.dispatcher.watch(&entrance, caller, query).await.map(EventReader::new)
    }

    async fn watch_as_admin(&self, door: &str, query: &str) -> EventReader {
        self.watch(&Caller::admin(), door, query).await.unwrap()
    }

    async fn send(&self, name: &str, text: &str) {
        self.call_agent(name, &request("send", &format!(r#"{{"content":"{text}"}}"#))).await;
    }
}

const TURN: [&str; 5] = ["turn_accepted a", "turn_begun a", "text_delta a", "message a", "turn_ended a"];

#[tokio::test(start_paused = true)]
async fn an_admin_sees_everything_from_now_on() {
    let house = Fixture::new().await;
    house.create_agents(&["before"]).await;
    let mut listener = house.watch_as_admin("/", "").await;
    assert_eq!(listener.kinds().await, Vec::<String>::new());
    house.create_agents(&["a"]).await;
    house.send("a", "hi").await;
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let expected: Vec<_> = ["agent_created a"].into_iter().chain(TURN).chain(["agent_destroyed a"]).collect();
    assert_eq!(listener.kinds().await, expected);
}

#[tokio::test(start_paused = true)]
async fn one_agents_door_tells_of_that_agent_and_ends_with_it() {
    let house = Fixture::new().await;
    house.create_agents(&["a", "b"]).await;
    let mut listener = house.watch_as_admin("a", "").await;
    house.send("b", "hi").await;
    house.send("a", "hi").await;
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"b"}"#)).await;
    assert_eq!(listener.kinds().await, TURN);
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let (events, ended) = listener.drain().await;
    assert_eq!(
        (events.iter().map(kind).collect::<Vec<_>>(), ended),
        (vec!["agent_destroyed a".to_owned()], true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_taken_up_again_anywhere_has_no_hole_and_no_repeat() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    for _ in 0..3 {
        house.send("a", "hi").await;
    }
    let mut whole = house.watch_as_admin("/", "after=0&deltas=false").await;
    let all: Vec<_> = whole.drain().await.0.iter().filter_map(sequence).collect();
    let last = *all.last().unwrap();
    assert_eq!(all, (1..=last).collect::<Vec<_>>(), "the journal begins at one and has no hole");
    for after in 0..=last {
        let mut rest = house.watch_as_admin("/", &format!("after={after}&deltas=false")).await;
        house.send("a", "hi").await;
        let told: Vec<_> = rest.drain().await.0.iter().filter_map(sequence).collect();
        assert_eq!(told, (after + 1..=*told.last().unwrap()).collect::<Vec<_>>(), "after {after}");
        assert!(*told.last().unwrap() > last, "what happens now follows what has happened");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_begins_now_is_told_where_it_is() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let place = house.watch_as_admin("/", "").await.stream.starts_after().unwrap();
    house.send("a", "hi").await;
    let mut rest = house.watch_as_admin("/", &format!("after={place}&deltas=false")).await;
    let expected = ["turn_accepted a", "turn_begun a", "message a", "turn_ended a"];
    assert_eq!(rest.kinds().await, expected);
    let knows = house.watch_as_admin("/", "after=0").await;
    assert_eq!(knows.stream.starts_after(), None, "this one knows");
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_is_not_in_the_journal_is_a_gap_and_reading_begins_anew() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let mut listener = house.watch_as_admin("/", "after=999&kind=agent_created").await;
    let (events, _) = listener.drain().await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(kinds, ["gap", "agent_created a"], "a gap is told whatever the filter");
    assert_eq!(events[0].data, r#"{"kind":"gap","journalled":false,"first":1,"last":2}"#);
}

#[tokio::test(start_paused = true)]
async fn a_filter_chooses_kinds() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let mut listeners = Vec::new();
    for (query, expected) in [
        ("kind=message", vec!["message a"]),
        ("kind=turn_begun,turn_ended", vec!["turn_begun a", "turn_ended a"]),
        ("kind=text_delta", vec!["text_delta a"]),
        ("kind=text_delta&deltas=false", vec![]),
        ("deltas=false", vec!["turn_accepted a", "turn_begun a", "message a", "turn_ended a"]),
        ("kind=daemon_started", vec![]),
    ] {
        listeners.push((house.watch_as_admin("/", query).await, query, expected));
    }
    house.send("a", "hi").await;
    for (mut listener, query, expected) in listeners {
        assert_eq!(listener.kinds().await, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn deltas_say_that_they_are_not_kept_and_have_no_id() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let mut listener = house.watch_as_admin("a", "kind=text_delta").await;
    house.call_agent("a", &request("send", r#"{"content":"hi","request_id":7}"#)).await;
    let data = listener.next().await.unwrap().data;
    let expected = concat!(
        r#"{"kind":"text_delta","journalled":false,"agent_id":"a","request_id":7,"turn":1,"#,
        r#""text":"you said hi"}"#
    );
    assert_eq!(data, expected);
    assert_eq!(listener.reader.last_event_id(), None);
}

/// lead → helper → scout; other.
async fn tree() -> (Fixture, Caller) {
    let house = Fixture::new().await;
    let permissions = r#""preset":"trusted","may_create":["trusted","sandboxed"]"#;
    house.request_create(&format!(r#"{{"agent_id":"lead",{permissions}}}"#)).await;
    house.request_create(&format!(r#"{{"agent_id":"helper","parent_agent_id":"lead",{permissions}}}"#)).await;
    house.request_create(r#"{"agent_id":"scout","parent_agent_id":"helper"}"#).await;
    house.create_agents(&["other"]).await;
    (house, Caller::admin().acting_as("helper"))
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_itself_and_those_below_it() {
    let (house, helper) = tree().await;
    let mut listener = house
        .watch(
            &helper,
            "/",
            "kind=message,agent_created,agent_destroyed,denied,daemon_started,text_delta&after=0",
        )
        .await
        .unwrap();
    assert_eq!(listener.kinds().await, ["agent_created helper", "agent_created scout"]);
    for name in ["lead", "helper", "scout", "other"] {
        house.send(name, "hi").await;
    }
    let expected = ["text_delta helper", "message helper", "text_delta scout", "message scout"];
    assert_eq!(listener.kinds().await, expected);
    house.request_create(r#"{"agent_id":"late","parent_agent_id":"helper"}"#).await;
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"scout"}"#)).await;
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"other"}"#)).await;
    let expected = ["agent_created late", "agent_destroyed scout"];
    assert_eq!(listener.kinds().await, expected, "also the end of one that it had seen");
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_its_own_denials_and_those_below_it_and_nobody_elses() {
    let (house, helper) = tree().await;
    let mut own = house.watch(&helper, "/", "kind=denied").await.unwrap();
    let mut all = house.watch_as_admin("/", "kind=denied").await;
    for who in ["helper", "scout", "other"] {
        let caller = Caller::admin().acting_as(who);
        house.call_as(&caller, "/", &request("shutdown_server", "{}")).await;
    }
    house.call_as(&Caller::admin().acting_as("nobody"), "/", &request("list_agents", "{}")).await;
    house.send("scout", "read /etc/passwd").await;
    assert_eq!(own.kinds().await, ["denied helper", "denied scout", "denied scout"]);
    let (events, _) = all.drain().await;
    let who: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(who, ["denied helper", "denied scout", "denied other", "denied", "denied scout"]);
    let first: Value = serde_json::from_str(&events[0].data).unwrap();
    assert_eq!(first["action"], "shutdown_server");
    assert_eq!(first["text"], "Agent 'helper' is not authorized to call shutdown_server");
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_the_tool_sees_only_itself_from_the_change_on() {
    let (house, helper) = tree().await;
    let mut listener = house.watch(&helper, "/", "kind=message").await.unwrap();
    house.send("scout", "hi").await;
    assert_eq!(listener.kinds().await, ["message scout"]);
    house.call_ok("helper", "set_permissions", r#"{"disable_tools":["agent_status"]}"#).await;
    house.send("scout", "hi").await;
    house.send("helper", "hi").await;
    assert_eq!(listener.kinds().await, ["message helper"]);
    let mut late = house.watch(&helper, "/", "kind=message&after=0").await.unwrap();
    assert_eq!(late.kinds().await, ["message helper"]);
    let refused = house.watch(&helper, "scout", "").await.err();
    assert_eq!(
        refused,
        Some(StreamError::Denied("Tool 'agent_status' is disabled by permission policy".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_watch_itself_and_those_below_it_and_is_refused_at_other_doors() {
    let (house, helper) = tree().await;
    for door in ["helper", "scout"] {
        let mut listener = house.watch(&helper, door, "kind=message").await.unwrap();
        house.send(door, "hi").await;
        assert_eq!(listener.kinds().await, [format!("message {door}")]);
    }
    for door in ["lead", "other"] {
        let text = format!("Agent 'helper' is not authorized to call events on '{door}'");
        assert_eq!(house.watch(&helper, door, "").await.err(), Some(StreamError::Denied(text)), "{door}");
    }
    let nobody = Caller::admin().acting_as("nobody");
    let text = "X-Nexus-Agent names no agent that exists".to_owned();
    assert_eq!(house.watch(&nobody, "/", "").await.err(), Some(StreamError::Denied(text)));
    let mut denials = house.watch_as_admin("/", "kind=denied&after=0").await;
    assert_eq!(
        denials.kinds().await,
        ["denied helper", "denied helper", "denied"],
        "a refusal is in the journal"
    );
}

#[tokio::test(start_paused = true)]
async fn a_capability_that_has_died_sees_nothing_more() {
    let house = Fixture::new().await;
    house.create_agents(&["other"]).await;
    let token = house.create_agent("a", "trusted", None).await;
    let caller = house.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let mut listener = house.watch(&caller, "/", "").await.unwrap();
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    house.send("other", "hi").await;
    let (events, ended) = listener.drain().await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!((kinds, ended), (vec!["agent_destroyed a".to_owned()], true));
    let refused = house.watch(&caller, "/", "").await.err();
    assert_eq!(refused, Some(StreamError::Denied("Invalid API key".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_destroyed_behind_an_open_door_cannot_be_watched() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let entrance = house.dispatcher.agent_target("a").unwrap();
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let refused = house.dispatcher.watch(&entrance, &Caller::admin(), EventQuery::default()).await.err();
    assert_eq!(refused, Some(StreamError::AgentNotFound("Agent not found: a".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_slows_nobody_and_misses_only_deltas() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let mut slow = house.watch_as_admin("a", "").await;
    let before = slow.stream.starts_after().unwrap();
    for _ in 0..400 {
        house.send("a", "hi").await;
    }
    let (events, _) = slow.drain().await;
    assert_eq!(events[0].event, "lagged");
    assert_eq!(events[0].data, r#"{"kind":"lagged","journalled":false}"#);
    let told: Vec<_> = events.iter().filter_map(sequence).collect();
    assert_eq!(told, (before + 1..=before + 4 * 400).collect::<Vec<_>>(), "none of the journal is missing");
    house.send("a", "hi").await;
    assert_eq!(slow.kinds().await, TURN, "and it is up to date again");
}

#[tokio::test(start_paused = true)]
async fn what_happened_before_a_restart_is_told_after_it() {
    let store = store::memory();
    let house = Fixture::with_store(Arc::clone(&store), Limits::default()).await;
    house.create_agents(&["a"]).await;
    house.send("a", "hi").await;
    house.pool.stop(std::time::Duration::ZERO).await;
    let house = Fixture::with_store(store, Limits::default()).await;
    let mut listener = house.watch_as_admin("/", "after=0&deltas=false").await;
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
    assert_eq!(listener.kinds().await, expected);
}
