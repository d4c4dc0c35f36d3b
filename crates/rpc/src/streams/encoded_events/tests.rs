//! The cache of encoded events: its bound, and what readers keep in memory.

use agent::AgentId;
use agent::journal::Record;
use agent::outside::Timestamp;

use super::*;

fn entry(sequence: u64, bytes: usize) -> JournalEntry {
    JournalEntry {
        sequence,
        agent: 1,
        agent_id: Some(AgentId::parse("a").unwrap()),
        agent_sequence: sequence,
        at: Timestamp(0),
        record: Record::DaemonStarted { version: "x".repeat(bytes) },
    }
}

#[test]
fn readers_within_events_hold_none_of_their_bytes() {
    let shared = SharedEncodedEvents::default();
    let mut readers: Vec<_> = (0..100).map(|_| shared.reader()).collect();
    let mut events: Vec<Weak<[Bytes]>> = Vec::new();
    for (sequence, reader) in (0_u64..).zip(&mut readers) {
        let piece = reader.begin(Encoding::Event, &entry(sequence, 1 << 20));
        assert_eq!(piece.len(), PIECE_BYTES_MAX);
        assert!(reader.has_begun());
        let cached = reader.cache.get(&(sequence, Encoding::Event)).unwrap();
        events.push(Arc::downgrade(&cached));
    }
    let held: usize = events.iter().filter_map(Weak::upgrade).map(|pieces| size(&pieces)).sum();
    assert!(held > 0 && held <= CACHE_BYTES_MAX, "{held} bytes for {} readers", readers.len());
    drop(readers);
    assert!(events.iter().all(|event| event.upgrade().is_none()), "without a stream, nothing is cached");
}

#[test]
fn an_event_is_encoded_once_for_all_readers() {
    let shared = SharedEncodedEvents::default();
    let (mut first, mut second) = (shared.reader(), shared.reader());
    let piece = first.begin(Encoding::Event, &entry(1, 100_000));
    // The content differs, so that a second encoding would show.
    let same = second.begin(Encoding::Event, &entry(1, 10));
    assert_eq!(piece.as_ptr(), same.as_ptr(), "both readers get the same allocation");
}

#[test]
fn an_event_larger_than_the_cache_is_cached_alone() {
    let mut reader = SharedEncodedEvents::default().reader();
    reader.begin(Encoding::Event, &entry(1, 10));
    reader.begin(Encoding::Event, &entry(2, CACHE_BYTES_MAX + 1));
    assert!(reader.cache.get(&(1, Encoding::Event)).is_none());
    assert!(reader.cache.get(&(2, Encoding::Event)).is_some());
}
