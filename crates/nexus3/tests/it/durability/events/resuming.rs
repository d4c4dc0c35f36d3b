//! Resumed event streams: after a kill, from `Last-Event-ID` and from `after`, without gaps and duplicates.

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestDaemon};

use super::SILENCE;
use crate::durability::{JournalReader, send_params, wait_turns_ended};
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Resumes after the last event seen, and reads up to the last journal entry of this agent, or of all agents.
fn read_from_last(daemon: &TestDaemon, agent: Option<&str>, seen: &mut Vec<StreamEvent>) {
    let target = agent.map_or_else(|| "/events".to_owned(), |agent| format!("/agent/{agent}/events"));
    let journal = JournalReader::read_all(daemon);
    let matches = |entry: &&Value| agent.is_none_or(|agent| entry["agent_id"] == agent);
    let last = journal.iter().rfind(matches).and_then(|entry| entry["sequence"].as_u64());
    let after = seen.last().and_then(StreamEvent::sequence).unwrap_or_default();
    let mut stream = daemon.events(&format!("{target}?deltas=false"), Some(after));
    while seen.last().and_then(StreamEvent::sequence) != last {
        seen.push(stream.next_event(WAIT_MAX));
    }
    assert_eq!(
        stream.wait_event(SILENCE).expect("the stream is readable"),
        NextEvent::TimedOut,
        "nothing follows"
    );
}

#[test]
fn a_stream_resumed_after_kills_has_no_gap_or_duplicate() {
    let mut fixture = Fixture::start();
    let mut seen: Vec<StreamEvent> = Vec::new();
    for run in 0..4 {
        let names = ["a", "b", "c"].map(|name| format!("{name}{run}"));
        names.iter().for_each(|name| fixture.create(name));
        let mut stream = {
            let after = seen.last().and_then(StreamEvent::sequence).unwrap_or_default();
            fixture.daemon.events("/events?deltas=false", Some(after))
        };
        let mut calls = PendingCalls::new();
        for send in 0..5 {
            for name in &names {
                let id = format!("{name}-{send}");
                calls.start(&fixture.daemon, &agent_path(name), "send", send_params(&id, &id));
            }
        }
        // The kill hits while turns are running.
        let seen_before_kill = seen.len() + 20 + 7 * run;
        while seen.len() < seen_before_kill {
            seen.push(stream.next_event(WAIT_MAX));
        }
        fixture = fixture.kill_and_start();
        wait_turns_ended(&fixture.daemon, &[]);
    }
    read_from_last(&fixture.daemon, None, &mut seen);
    let journal = JournalReader::read_all(&fixture.daemon);
    let sequences: Vec<u64> = seen.iter().filter_map(StreamEvent::sequence).collect();
    assert_eq!(sequences, (1..=journal.len() as u64).collect::<Vec<_>>());
    assert!(seen.iter().map(StreamEvent::json).eq(journal), "the delivered events should equal the journal");
}

#[test]
fn a_stream_of_one_agent_resumes_after_a_restart() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.create("other");
    let mut seen = Vec::new();
    fixture.send("worker", "one");
    fixture.send("other", "not yours");
    read_from_last(&fixture.daemon, Some("worker"), &mut seen);
    let fixture = fixture.kill_and_start();
    fixture.send("other", "not yours either");
    fixture.send("worker", "two");
    read_from_last(&fixture.daemon, Some("worker"), &mut seen);
    let numbers: Vec<_> = seen.iter().map(|event| event.json()["number"].clone()).collect();
    assert_eq!(
        json!(numbers),
        json!((1..=seen.len()).collect::<Vec<_>>()),
        "the agent's own numbers have no gap"
    );
    assert!(seen.iter().all(|event| event.json()["agent_id"] == "worker"));
    assert_eq!(seen.iter().filter(|event| event.kind == "turn_ended").count(), 2);
}

#[test]
fn last_event_id_takes_precedence_over_after() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.send("worker", "hello");
    let first = |target: &str, after: Option<u64>| fixture.daemon.events(target, after).next_event(WAIT_MAX);
    assert_eq!(first("/events?after=0", None).sequence(), Some(1));
    assert_eq!(first("/events?after=3", None).sequence(), Some(4));
    assert_eq!(first("/events?after=0", Some(2)).sequence(), Some(3), "a browser that reconnects sends both");
    assert_eq!(first("/events?after=1", Some(2)), first("/events?after=2", None));
}

#[test]
fn events_before_a_rename_have_the_old_name() {
    let fixture = Fixture::start();
    fixture.create("before");
    fixture.send("before", "hello");
    fixture.daemon.call_result("/", "rename_agent", json!({ "agent_id": "before", "new_agent_id": "after" }));
    fixture.send("after", "hello again");
    let fixture = fixture.kill_and_start();
    let mut seen = Vec::new();
    read_from_last(&fixture.daemon, Some("after"), &mut seen);
    let names: Vec<_> = seen.iter().map(|event| event.json()["agent_id"].clone()).collect();
    let renamed =
        seen.iter().position(|event| event.kind == "agent_renamed").expect("the rename is journalled");
    assert!(names[..renamed].iter().all(|name| name == "before"), "{names:?}");
    assert!(names[renamed + 1..].iter().all(|name| name == "after"), "{names:?}");
    assert_eq!(seen[0].kind, "agent_created", "the stream has the events of both names");
}
