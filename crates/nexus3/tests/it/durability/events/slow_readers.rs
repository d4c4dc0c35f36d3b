//! Subscribers that do not read: they do not slow down turns, and they miss only deltas, which are not journalled.

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

/// Reads up to this sequence number. Returns the sequence numbers, and whether deltas were skipped.
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
fn stalled_readers_delay_no_turn_and_miss_no_entry() {
    let fixture = Fixture::start();
    let names: Vec<String> = (0..AGENTS).map(|agent| format!("a{agent}")).collect();
    names.iter().for_each(|name| fixture.create(name));
    let before = JournalReader::read_all(&fixture.daemon).len() as u64;
    let mut stalled: Vec<TestEventStream> = (0..READERS)
        .map(|reader| {
            // One reader in ten subscribes to one agent.
            let target = if reader % 10 == 0 { "/agent/a0/events" } else { "/events" };
            let stream = fixture.daemon.events(target, None);
            stream.shrink_receive_buffer();
            stream
        })
        .collect();
    let mut calls = PendingCalls::new();
    let content = format!("!chunks {DELTAS} {}", "x".repeat(DELTAS));
    for send in 0..SENDS {
        for name in &names {
            calls.start(
                &fixture.daemon,
                &agent_path(name),
                "send",
                send_params(&content, &format!("{name}-{send}")),
            );
        }
    }
    for _ in 0..AGENTS * SENDS {
        assert_eq!(
            calls.next_result()["content"].as_str().map(str::len),
            Some(DELTAS),
            "every send should be answered"
        );
    }
    let journal = JournalReader::read_all(&fixture.daemon);
    let last = journal.len() as u64;
    assert_eq!(
        last - before,
        (AGENTS * SENDS * 4) as u64,
        "the journal should have only the entries of these turns"
    );
    let entries_of_one: Vec<u64> = journal
        .iter()
        .filter(|entry| entry["agent_id"] == "a0")
        .filter_map(|entry| entry["sequence"].as_u64().filter(|sequence| *sequence > before))
        .collect();
    let mut lagged_count = 0;
    for (reader, stream) in stalled.iter_mut().enumerate() {
        let expected: Vec<u64> =
            if reader % 10 == 0 { entries_of_one.clone() } else { (before + 1..=last).collect() };
        let (sequences, lagged) = catch_up(stream, *expected.last().expect("the turns wrote entries"));
        assert_eq!(sequences, expected, "no gap and no duplicate");
        lagged_count += usize::from(lagged);
    }
    assert!(lagged_count > 0, "no reader got a lagged event");
}

#[test]
fn a_stalled_reader_is_disconnected_and_can_resume() {
    let fixture = Fixture::with_config(&format!("[limits]\nwrite_ms = 200\n{LARGE_WINDOW_CONFIG}"));
    let long = "x".repeat(1_000_000);
    fixture.model.set_response(&long, "short");
    let mut stalled = fixture.daemon.events("/events?deltas=false", Some(0));
    stalled.shrink_receive_buffer();
    // More than the kernel buffers for a reader.
    for agent in 0..8 {
        fixture.create_with(json!({ "agent_id": format!("a{agent}"), "model": "big" }));
        fixture.send(&format!("a{agent}"), &long);
    }
    let mut seen: Vec<StreamEvent> = Vec::new();
    while let Ok(NextEvent::Event(event)) = stalled.wait_event(WAIT_MAX) {
        seen.push(event);
    }
    let last =
        |seen: &[StreamEvent]| seen.last().and_then(StreamEvent::sequence).expect("the reader got an event");
    let journal = JournalReader::read_all(&fixture.daemon);
    assert!(last(&seen) < journal.len() as u64, "the reader should be disconnected before the end");
    // On a busy machine the daemon may disconnect the resumed reader again.
    while seen.len() < journal.len() {
        let before = seen.len();
        let mut resumed = fixture.daemon.events("/events?deltas=false", Some(last(&seen)));
        while seen.len() < journal.len()
            && let Ok(NextEvent::Event(event)) = resumed.wait_event(WAIT_MAX)
        {
            seen.push(event);
        }
        assert!(seen.len() > before, "the resumed stream delivers nothing");
    }
    assert!(seen.iter().map(StreamEvent::json).eq(journal));
}

/// Writes a journal of more than 64 MiB while a reader is stalled in the middle of it.
#[test]
fn a_stalled_reader_does_not_grow_the_write_ahead_log() {
    const WAL_BYTES_MAX: u64 = 64 << 20;
    let fixture = Fixture::with_config(&format!("[limits]\nwrite_ms = 3600000\n{LARGE_WINDOW_CONFIG}"));
    let long = "y".repeat(1_000_000);
    fixture.model.set_response(&long, "short");
    fixture.create_with(json!({ "agent_id": "first", "model": "big" }));
    let mut stalled = fixture.daemon.events("/events?deltas=false", Some(0));
    stalled.shrink_receive_buffer();
    read_until(&mut stalled, "agent_created");
    for _ in 0..3 {
        fixture.send("first", &long);
    }
    let home = fixture.daemon.home();
    let bytes = |name: &str| fs::metadata(home.join(name)).map_or(0, |file| file.len());
    let (mut largest, mut forks) = (0, 0);
    // A fork copies all messages.
    while bytes("nexus3.db") < WAL_BYTES_MAX + (8 << 20) {
        let fork = json!({ "agent_id": "first", "new_agent_id": format!("fork{forks}") });
        fixture.daemon.call_result("/", "fork_agent", fork);
        largest = largest.max(bytes("nexus3.db-wal"));
        forks += 1;
        assert!(forks < 60, "the journal does not grow: {}", bytes("nexus3.db"));
    }
    assert!(largest < WAL_BYTES_MAX, "the write-ahead log grew to {largest} bytes");
    // The stalled stream continues where it stopped, and a stream resumed after it delivers the rest, in order.
    // A `lagged` event may come first.
    let events = std::iter::repeat_with(|| stalled.next_event(WAIT_MAX));
    let mut seen: Vec<StreamEvent> = events.filter(|event| event.kind != "lagged").take(20).collect();
    let sequences: Vec<u64> = seen.iter().filter_map(StreamEvent::sequence).collect();
    assert_eq!(sequences, (3..23).collect::<Vec<_>>());
    let created = seen.iter().filter(|event| event.kind == "agent_created").count();
    let last = seen.pop().and_then(|event| event.sequence());
    let mut rest = fixture.daemon.events("/events?kind=agent_created", last);
    for fork in created..forks {
        assert_eq!(rest.next_event(WAIT_MAX).json()["agent_id"], format!("fork{fork}"));
    }
}
