//! Coming back: to a daemon that was killed, to a place that was noted, again and again.

use serde_json::{Value, json};
use testkit::{NextEvent, StreamEvent, TestDaemon};

use super::SILENCE;
use crate::durability::{JournalReader, send_params, wait_turns_ended};
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Comes back behind what was seen, and reads up to where the journal ends for this agent, or for all.
fn read_from_last(daemon: &TestDaemon, agent: Option<&str>, seen: &mut Vec<StreamEvent>) {
    let target = agent.map_or_else(|| "/events".to_owned(), |agent| format!("/agent/{agent}/events"));
    let journal = JournalReader::read_all(daemon);
    let is_its = |entry: &&Value| agent.is_none_or(|agent| entry["agent_id"] == agent);
    let last = journal.iter().rfind(is_its).and_then(|entry| entry["sequence"].as_u64());
    let after = seen.last().and_then(StreamEvent::sequence).unwrap_or_default();
    let mut stream = daemon.events(&format!("{target}?deltas=false"), Some(after));
    while seen.last().and_then(StreamEvent::sequence) != last {
        seen.push(stream.next_event(WAIT_MAX));
    }
    assert_eq!(stream.wait_event(SILENCE).expect("a stream"), NextEvent::TimedOut, "nothing follows");
}

#[test]
fn a_reader_that_comes_back_after_each_kill_has_no_hole_and_no_repeat() {
    let mut stage = Fixture::start();
    let mut seen: Vec<StreamEvent> = Vec::new();
    for life in 0..4 {
        let names = ["a", "b", "c"].map(|name| format!("{name}{life}"));
        names.iter().for_each(|name| stage.create(name));
        let mut stream = {
            let after = seen.last().and_then(StreamEvent::sequence).unwrap_or_default();
            stage.daemon.events("/events?deltas=false", Some(after))
        };
        let mut calls = PendingCalls::new();
        for send in 0..5 {
            for name in &names {
                let id = format!("{name}-{send}");
                calls.start(&stage.daemon, &agent_path(name), "send", send_params(&id, &id));
            }
        }
        // Somewhere in the middle of it.
        let wanted = seen.len() + 20 + 7 * life;
        while seen.len() < wanted {
            seen.push(stream.next_event(WAIT_MAX));
        }
        stage = stage.kill_and_start();
        wait_turns_ended(&stage.daemon, &[]);
    }
    read_from_last(&stage.daemon, None, &mut seen);
    let journal = JournalReader::read_all(&stage.daemon);
    let sequences: Vec<u64> = seen.iter().filter_map(StreamEvent::sequence).collect();
    assert_eq!(sequences, (1..=journal.len() as u64).collect::<Vec<_>>());
    assert!(seen.iter().map(StreamEvent::json).eq(journal), "what was told once is what is there");
}

#[test]
fn a_reader_of_one_agent_comes_back_to_its_own_place() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.create("other");
    let mut seen = Vec::new();
    stage.send("worker", "one");
    stage.send("other", "not yours");
    read_from_last(&stage.daemon, Some("worker"), &mut seen);
    let stage = stage.kill_and_start();
    stage.send("other", "not yours either");
    stage.send("worker", "two");
    read_from_last(&stage.daemon, Some("worker"), &mut seen);
    let numbers: Vec<_> = seen.iter().map(|event| event.json()["number"].clone()).collect();
    assert_eq!(json!(numbers), json!((1..=seen.len()).collect::<Vec<_>>()), "its own count has no hole");
    assert!(seen.iter().all(|event| event.json()["agent_id"] == "worker"));
    assert_eq!(seen.iter().filter(|event| event.kind == "turn_ended").count(), 2);
}

#[test]
fn a_place_in_the_query_is_a_place_and_the_header_counts_before_it() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.send("worker", "hello");
    let first = |target: &str, after: Option<u64>| stage.daemon.events(target, after).next_event(WAIT_MAX);
    assert_eq!(first("/events?after=0", None).sequence(), Some(1));
    assert_eq!(first("/events?after=3", None).sequence(), Some(4));
    assert_eq!(first("/events?after=0", Some(2)).sequence(), Some(3), "a browser that comes back sends both");
    assert_eq!(first("/events?after=1", Some(2)), first("/events?after=2", None));
}

#[test]
fn a_name_that_an_agent_had_is_told_as_it_was() {
    let stage = Fixture::start();
    stage.create("before");
    stage.send("before", "hello");
    stage.daemon.call_result("/", "rename_agent", json!({ "agent_id": "before", "new_agent_id": "after" }));
    stage.send("after", "hello again");
    let stage = stage.kill_and_start();
    let mut seen = Vec::new();
    read_from_last(&stage.daemon, Some("after"), &mut seen);
    let names: Vec<_> = seen.iter().map(|event| event.json()["agent_id"].clone()).collect();
    let renamed = seen.iter().position(|event| event.kind == "agent_renamed").expect("it was renamed");
    assert!(names[..renamed].iter().all(|name| name == "before"), "{names:?}");
    assert!(names[renamed + 1..].iter().all(|name| name == "after"), "{names:?}");
    assert_eq!(seen[0].kind, "agent_created", "all of it is one agent's");
}
