//! Visibility of events: the daemon's token sees all events, an agent sees its own and those of its descendants.

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestEventStream};

use super::SILENCE;
use crate::durability::JournalReader;
use crate::support::callers::call_as;
use crate::support::{Fixture, WAIT_MAX};

/// Asserts that a stream from the beginning delivers all events of these agents, and no others. `None` stands for the
/// daemon's own events.
fn assert_delivered(fixture: &Fixture, token: &str, target: &str, names: &[Option<&str>]) {
    let journal = JournalReader::read_all(&fixture.daemon);
    let is_visible = |entry: &&Value| names.contains(&entry["agent_id"].as_str());
    let expected: Vec<&Value> = journal.iter().filter(is_visible).collect();
    assert!(expected.len() >= names.len(), "each agent should have an event: {names:?}");
    let mut stream =
        TestEventStream::open(fixture.daemon.port(), target, Some(token), Some(0)).expect("the stream opens");
    let seen: Vec<Value> = expected.iter().map(|_| stream.next_event(WAIT_MAX).json()).collect();
    assert!(seen.iter().eq(expected), "{names:?}: {seen:?}");
    assert_eq!(stream.wait_event(SILENCE).expect("the stream is readable"), NextEvent::TimedOut, "{names:?}");
}

fn agent_names(seen: &[StreamEvent]) -> Vec<Value> {
    let mut names: Vec<Value> = seen.iter().map(|event| event.json()["agent_id"].clone()).collect();
    names.sort_by_key(Value::to_string);
    names.dedup();
    names
}

/// Creates two trees and sends a message to each agent. Returns the tokens of lead, child and stranger.
fn create_two_trees(fixture: &Fixture) -> [String; 3] {
    let lead = json!({ "agent_id": "lead", "preset": "trusted", "may_create": ["trusted", "sandboxed"] });
    let lead = fixture.create_with(lead);
    let child = json!({ "agent_id": "child", "parent_agent_id": "lead", "preset": "trusted" });
    let child = fixture.create_with(child);
    fixture.create_with(json!({ "agent_id": "grandchild", "parent_agent_id": "child" }));
    let stranger = fixture.create_with(json!({ "agent_id": "stranger" }));
    for name in ["lead", "child", "grandchild", "stranger"] {
        fixture.send(name, &format!("hello {name}"));
    }
    [lead, child, stranger]
}

#[test]
fn an_agent_sees_its_events_and_its_descendants() {
    let fixture = Fixture::start();
    let [lead, child, stranger] = create_two_trees(&fixture);
    let fixture = fixture.kill_and_start();
    let (lead_sees, child_sees) =
        ([Some("lead"), Some("child"), Some("grandchild")], [Some("child"), Some("grandchild")]);
    assert_delivered(&fixture, &lead, "/events", &lead_sees);
    assert_delivered(&fixture, &child, "/events", &child_sees);
    assert_delivered(&fixture, &stranger, "/events", &[Some("stranger")]);
    let admin = fixture.daemon.token().expect("a token").to_owned();
    let all = ["lead", "child", "grandchild", "stranger"].map(Some);
    assert_delivered(&fixture, &admin, "/events", &[&all[..], &[None]].concat());
    assert_delivered(&fixture, &lead, "/agent/grandchild/events", &[Some("grandchild")]);
    for (token, target) in [
        (&stranger, "/agent/lead/events"),
        (&child, "/agent/lead/events"),
        (&stranger, "/agent/grandchild/events"),
    ] {
        let refused =
            TestEventStream::open(fixture.daemon.port(), target, Some(token), None).expect_err("no stream");
        assert!(refused.to_string().starts_with("status 403"), "{target}: {refused}");
    }
}

#[test]
fn live_events_of_descendants_alone_are_delivered() {
    let fixture = Fixture::start();
    let [lead, ..] = create_two_trees(&fixture);
    let mut stream =
        TestEventStream::open(fixture.daemon.port(), "/events", Some(&lead), None).expect("the stream opens");
    fixture.send("stranger", "not for lead");
    fixture.create_with(json!({ "agent_id": "another" }));
    let new = json!({ "agent_id": "later", "parent_agent_id": "child" });
    fixture.create_with(new);
    assert_eq!(stream.next_event(WAIT_MAX).json()["agent_id"], "later");
    fixture.send("grandchild", "for lead");
    let seen = super::read_until(&mut stream, "turn_ended");
    assert_eq!(agent_names(&seen), ["grandchild"]);
    assert!(seen.iter().any(|event| event.kind == "text_delta"), "deltas of descendants are delivered too");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "child" }));
    let destroyed: Vec<Value> =
        (0..3).map(|_| stream.next_event(WAIT_MAX).json()["agent_id"].clone()).collect();
    assert!(
        ["child", "grandchild", "later"].iter().all(|name| destroyed.contains(&json!(name))),
        "{destroyed:?}"
    );
}

#[test]
fn without_agent_status_an_agent_sees_only_itself() {
    let fixture = Fixture::start();
    let [lead, ..] = create_two_trees(&fixture);
    let mut stream = TestEventStream::open(fixture.daemon.port(), "/events?deltas=false", Some(&lead), None)
        .expect("the stream opens");
    fixture.send("child", "seen");
    assert_eq!(agent_names(&super::read_until(&mut stream, "turn_ended")), ["child"]);
    fixture.set_permissions("lead", json!({ "disable_tools": ["agent_status"] }));
    fixture.send("child", "unseen");
    fixture.send("lead", "own");
    let seen = super::read_until(&mut stream, "turn_ended");
    assert_eq!(agent_names(&seen), ["lead"], "{seen:?}");
}

#[test]
fn a_denial_is_visible_to_the_caller_and_its_ancestors() {
    let fixture = Fixture::start();
    let [lead, child, _] = create_two_trees(&fixture);
    let refused = call_as(
        &fixture.daemon,
        &child,
        "/",
        "rename_agent",
        json!({ "agent_id": "stranger", "new_agent_id": "mine" }),
    );
    assert_eq!(refused["error"]["data"]["kind"], "permission_denied");
    // The journal has this entry after the denial.
    let stranger = fixture.create_with(json!({ "agent_id": "new" }));
    let seen_first = |token: &str| {
        let kinds = "/events?kind=denied,agent_created";
        let mut stream = TestEventStream::open(fixture.daemon.port(), kinds, Some(token), Some(0))
            .expect("the stream opens");
        loop {
            let event = stream.next_event(WAIT_MAX);
            if event.kind == "denied" || event.json()["agent_id"] == "new" {
                break event.kind;
            }
        }
    };
    assert_eq!(seen_first(&child), "denied");
    assert_eq!(seen_first(&lead), "denied", "the child is a descendant of lead");
    assert_eq!(seen_first(fixture.daemon.token().expect("a token")), "denied");
    assert_eq!(seen_first(&stranger), "agent_created");
}
