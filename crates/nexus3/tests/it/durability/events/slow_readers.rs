//! Readers that do not read: they slow nobody down, and lose nothing but words that were not kept.

use std::fs;

use serde_json::json;
use testkit::{NextEvent, StreamEvent, TestEventStream};

use super::read_until;
use crate::durability::{JournalReader, send_params};
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, LARGE_WINDOW_CONFIG, WAIT_MAX, agent_path};

const READERS: usize = 100;
const AGENTS: usize = 10;
const SENDS: usize = 5;
const DELTAS: usize = 300;

/// Reads up to this sequence; whether words were left out on the way.
fn catch_up(stream: &mut TestEventStream, last: u64) -> (Vec<u64>, bool) {
    let (mut sequences, mut lagged) = (Vec::new(), false);
    while sequences.last() != Some(&last) {
        let event = stream.next_event(WAIT_MAX);
        lagged |= event.kind == "lagged";
        sequences.extend(event.sequence());
    }
    (sequences, lagged)
}

#[test]
fn a_hundred_readers_that_do_not_read_slow_nobody_and_miss_nothing_that_is_kept() {
    let stage = Fixture::start();
    let names: Vec<String> = (0..AGENTS).map(|agent| format!("a{agent}")).collect();
    names.iter().for_each(|name| stage.create(name));
    let before = JournalReader::read_all(&stage.daemon).len() as u64;
    let mut stalled: Vec<TestEventStream> = (0..READERS)
        .map(|reader| {
            // One in ten watches one agent.
            let target = if reader % 10 == 0 { "/agent/a0/events" } else { "/events" };
            let stream = stage.daemon.events(target, None);
            stream.shrink_receive_buffer();
            stream
        })
        .collect();
    let mut calls = PendingCalls::new();
    let content = format!("!chunks {DELTAS} {}", "x".repeat(DELTAS));
    for send in 0..SENDS {
        for name in &names {
            calls.start(
                &stage.daemon,
                &agent_path(name),
                "send",
                send_params(&content, &format!("{name}-{send}")),
            );
        }
    }
    for _ in 0..AGENTS * SENDS {
        assert_eq!(calls.next_result()["content"].as_str().map(str::len), Some(DELTAS), "all are answered");
    }
    let journal = JournalReader::read_all(&stage.daemon);
    let last = journal.len() as u64;
    assert_eq!(last - before, (AGENTS * SENDS * 4) as u64, "nothing but these turns happened");
    let of_one: Vec<u64> = journal
        .iter()
        .filter(|entry| entry["agent_id"] == "a0")
        .filter_map(|entry| entry["sequence"].as_u64().filter(|sequence| *sequence > before))
        .collect();
    let mut late = 0;
    for (reader, stream) in stalled.iter_mut().enumerate() {
        let expected: Vec<u64> =
            if reader % 10 == 0 { of_one.clone() } else { (before + 1..=last).collect() };
        let (sequences, lagged) = catch_up(stream, *expected.last().expect("something happened"));
        assert_eq!(sequences, expected, "no hole and no repeat");
        late += usize::from(lagged);
    }
    assert!(late > 0, "somebody was told that words are missing");
}

#[test]
fn a_reader_that_never_reads_is_let_go_and_comes_back_to_its_place() {
    let stage = Fixture::with_config(&format!("[limits]\nwrite_ms = 200\n{LARGE_WINDOW_CONFIG}"));
    let long = "x".repeat(1_000_000);
    stage.model.set_response(&long, "short");
    let mut stalled = stage.daemon.events("/events?deltas=false", Some(0));
    stalled.shrink_receive_buffer();
    // More than the kernel keeps for a reader.
    for agent in 0..8 {
        stage.create_with(json!({ "agent_id": format!("a{agent}"), "model": "big" }));
        stage.send(&format!("a{agent}"), &long);
    }
    let mut seen: Vec<StreamEvent> = Vec::new();
    while let Ok(NextEvent::Event(event)) = stalled.wait_event(WAIT_MAX) {
        seen.push(event);
    }
    let last =
        |seen: &[StreamEvent]| seen.last().and_then(StreamEvent::sequence).expect("it had read something");
    let journal = JournalReader::read_all(&stage.daemon);
    assert!(last(&seen) < journal.len() as u64, "it was let go before the end");
    // On a machine that is busy it may happen again.
    while seen.len() < journal.len() {
        let before = seen.len();
        let mut again = stage.daemon.events("/events?deltas=false", Some(last(&seen)));
        while seen.len() < journal.len()
            && let Ok(NextEvent::Event(event)) = again.wait_event(WAIT_MAX)
        {
            seen.push(event);
        }
        assert!(seen.len() > before, "it comes no further");
    }
    assert!(seen.iter().map(StreamEvent::json).eq(journal));
}

/// A journal of more than 64 MiB is written while somebody stands still in the middle of reading it.
#[test]
fn a_reader_that_stands_still_does_not_let_the_log_grow() {
    const WAL_BYTES_MAX: u64 = 64 << 20;
    let stage = Fixture::with_config(&format!("[limits]\nwrite_ms = 3600000\n{LARGE_WINDOW_CONFIG}"));
    let long = "y".repeat(1_000_000);
    stage.model.set_response(&long, "short");
    stage.create_with(json!({ "agent_id": "first", "model": "big" }));
    let mut stalled = stage.daemon.events("/events?deltas=false", Some(0));
    stalled.shrink_receive_buffer();
    read_until(&mut stalled, "agent_created");
    for _ in 0..3 {
        stage.send("first", &long);
    }
    let home = stage.daemon.home();
    let bytes = |name: &str| fs::metadata(home.join(name)).map_or(0, |file| file.len());
    let (mut largest, mut forks) = (0, 0);
    // Every fork has all of the messages.
    while bytes("nexus3.db") < WAL_BYTES_MAX + (8 << 20) {
        let fork = json!({ "agent_id": "first", "new_agent_id": format!("fork{forks}") });
        stage.daemon.call_result("/", "fork_agent", fork);
        largest = largest.max(bytes("nexus3.db-wal"));
        forks += 1;
        assert!(forks < 60, "the journal does not grow: {}", bytes("nexus3.db"));
    }
    assert!(largest < WAL_BYTES_MAX, "the log grew to {largest} bytes");
    // What it stood in the middle of comes, and then all the rest, in order.
    let mut seen: Vec<StreamEvent> = (0..20).map(|_| stalled.next_event(WAIT_MAX)).collect();
    let sequences: Vec<u64> = seen.iter().filter_map(StreamEvent::sequence).collect();
    assert_eq!(sequences, (3..23).collect::<Vec<_>>());
    let created = seen.iter().filter(|event| event.kind == "agent_created").count();
    let last = seen.pop().and_then(|event| event.sequence());
    let mut rest = stage.daemon.events("/events?kind=agent_created", last);
    for fork in created..forks {
        assert_eq!(rest.next_event(WAIT_MAX).json()["agent_id"], format!("fork{fork}"));
    }
}
