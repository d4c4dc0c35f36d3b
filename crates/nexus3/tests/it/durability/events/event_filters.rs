//! Who sees what: whoever has the daemon's token everything, an agent itself and those below it.

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestEventStream};

use super::SILENCE;
use crate::durability::JournalReader;
use crate::support::callers::call_as;
use crate::support::{Fixture, WAIT_MAX};

/// From the beginning on, a caller sees what happened to these, and nothing else.
fn assert_delivered(stage: &Fixture, token: &str, target: &str, names: &[Option<&str>]) {
    let journal = JournalReader::read_all(&stage.daemon);
    let is_theirs = |entry: &&Value| names.contains(&entry["agent_id"].as_str());
    let expected: Vec<&Value> = journal.iter().filter(is_theirs).collect();
    assert!(expected.len() >= names.len(), "something happened to each: {names:?}");
    let mut stream =
        TestEventStream::open(stage.daemon.port(), target, Some(token), Some(0)).expect("a stream of events");
    let seen: Vec<Value> = expected.iter().map(|_| stream.next_event(WAIT_MAX).json()).collect();
    assert!(seen.iter().eq(expected), "{names:?}: {seen:?}");
    assert_eq!(stream.wait_event(SILENCE).expect("a stream"), NextEvent::TimedOut, "{names:?}");
}

fn agent_names(seen: &[StreamEvent]) -> Vec<Value> {
    let mut names: Vec<Value> = seen.iter().map(|event| event.json()["agent_id"].clone()).collect();
    names.sort_by_key(Value::to_string);
    names.dedup();
    names
}

/// Two trees, and something done by everybody.
fn create_two_trees(stage: &Fixture) -> [String; 3] {
    let lead = json!({ "agent_id": "lead", "preset": "trusted", "may_create": ["trusted", "sandboxed"] });
    let lead = stage.create_with(lead);
    let child = json!({ "agent_id": "child", "parent_agent_id": "lead", "preset": "trusted" });
    let child = stage.create_with(child);
    stage.create_with(json!({ "agent_id": "grandchild", "parent_agent_id": "child" }));
    let stranger = stage.create_with(json!({ "agent_id": "stranger" }));
    for name in ["lead", "child", "grandchild", "stranger"] {
        stage.send(name, &format!("hello {name}"));
    }
    [lead, child, stranger]
}

#[test]
fn an_agent_sees_itself_and_those_below_it() {
    let stage = Fixture::start();
    let [lead, child, stranger] = create_two_trees(&stage);
    let stage = stage.kill_and_start();
    let (lead_sees, child_sees) =
        ([Some("lead"), Some("child"), Some("grandchild")], [Some("child"), Some("grandchild")]);
    assert_delivered(&stage, &lead, "/events", &lead_sees);
    assert_delivered(&stage, &child, "/events", &child_sees);
    assert_delivered(&stage, &stranger, "/events", &[Some("stranger")]);
    let admin = stage.daemon.token().expect("a token").to_owned();
    let all = ["lead", "child", "grandchild", "stranger"].map(Some);
    assert_delivered(&stage, &admin, "/events", &[&all[..], &[None]].concat());
    assert_delivered(&stage, &lead, "/agent/grandchild/events", &[Some("grandchild")]);
    for (token, target) in [
        (&stranger, "/agent/lead/events"),
        (&child, "/agent/lead/events"),
        (&stranger, "/agent/grandchild/events"),
    ] {
        let refused =
            TestEventStream::open(stage.daemon.port(), target, Some(token), None).expect_err("no stream");
        assert!(refused.to_string().starts_with("status 403"), "{target}: {refused}");
    }
}

#[test]
fn what_happens_below_is_seen_as_it_happens_and_what_happens_elsewhere_is_not() {
    let stage = Fixture::start();
    let [lead, ..] = create_two_trees(&stage);
    let mut stream =
        TestEventStream::open(stage.daemon.port(), "/events", Some(&lead), None).expect("a stream");
    stage.send("stranger", "not for lead");
    stage.create_with(json!({ "agent_id": "another" }));
    let new = json!({ "agent_id": "newborn", "parent_agent_id": "child" });
    stage.create_with(new);
    assert_eq!(stream.next_event(WAIT_MAX).json()["agent_id"], "newborn");
    stage.send("grandchild", "for lead");
    let told = super::read_until(&mut stream, "turn_ended");
    assert_eq!(agent_names(&told), ["grandchild"]);
    assert!(told.iter().any(|event| event.kind == "text_delta"), "words of those below are heard too");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "child" }));
    let gone: Vec<Value> = (0..3).map(|_| stream.next_event(WAIT_MAX).json()["agent_id"].clone()).collect();
    assert!(["child", "grandchild", "newborn"].iter().all(|name| gone.contains(&json!(name))), "{gone:?}");
}

#[test]
fn an_agent_that_may_not_look_below_sees_itself() {
    let stage = Fixture::start();
    let [lead, ..] = create_two_trees(&stage);
    let mut stream = TestEventStream::open(stage.daemon.port(), "/events?deltas=false", Some(&lead), None)
        .expect("a stream");
    stage.send("child", "seen");
    assert_eq!(agent_names(&super::read_until(&mut stream, "turn_ended")), ["child"]);
    stage.set_permissions("lead", json!({ "disable_tools": ["agent_status"] }));
    stage.send("child", "unseen");
    stage.send("lead", "own");
    let told = super::read_until(&mut stream, "turn_ended");
    assert_eq!(agent_names(&told), ["lead"], "{told:?}");
}

#[test]
fn what_others_were_denied_is_nobody_elses_business() {
    let stage = Fixture::start();
    let [lead, child, _] = create_two_trees(&stage);
    let refused = call_as(
        &stage.daemon,
        &child,
        "/",
        "rename_agent",
        json!({ "agent_id": "stranger", "new_agent_id": "mine" }),
    );
    assert_eq!(refused["error"]["data"]["kind"], "permission_denied");
    // This comes behind it in the journal.
    let stranger = stage.create_with(json!({ "agent_id": "new" }));
    let seen_first = |token: &str| {
        let kinds = "/events?kind=denied,agent_created";
        let mut stream = TestEventStream::open(stage.daemon.port(), kinds, Some(token), Some(0))
            .expect("a stream of events");
        loop {
            let event = stream.next_event(WAIT_MAX);
            if event.kind == "denied" || event.json()["agent_id"] == "new" {
                break event.kind;
            }
        }
    };
    assert_eq!(seen_first(&child), "denied");
    assert_eq!(seen_first(&lead), "denied", "it is below");
    assert_eq!(seen_first(stage.daemon.token().expect("a token")), "denied");
    assert_eq!(seen_first(&stranger), "agent_created");
}
