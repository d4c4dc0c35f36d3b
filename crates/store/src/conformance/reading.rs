//! Reads: entry ranges, journal bounds, and visibility of commits.

use agent::outside::{EntryRange, JournalBounds};

use super::samples::{entry_range, message};
use super::{StoreUnderTest, append, begun};

conformance_tests!(
    read_honours_agent_after_and_limit,
    read_stops_at_its_size_but_returns_one_entry,
    empty_journal_has_empty_bounds,
    bounds_follow_the_journal,
    committed_entry_is_visible_at_once,
);

async fn read_honours_agent_after_and_limit(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", None).await;
    for turn in 0..4 {
        fixture.commit(append(1, "one", [begun(turn)])).await;
        fixture.commit(append(2, "two", [begun(turn)])).await;
    }
    fixture.reopen().await;
    let read = |agent, after, limit| {
        let store = std::sync::Arc::clone(&fixture.store);
        async move {
            let entries = store.read(EntryRange { limit, ..entry_range(agent, after) }).await.unwrap();
            entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>()
        }
    };
    assert_eq!(read(None, 0, 3).await, [1, 2, 3]);
    assert_eq!(read(None, 8, 100).await, [9, 10]);
    assert!(read(None, 10, 100).await.is_empty());
    assert!(read(None, u64::MAX, usize::MAX).await.is_empty());
    assert!(read(None, 0, 0).await.is_empty());
    assert_eq!(read(Some(1), 0, 100).await, [1, 3, 5, 7, 9]);
    assert_eq!(read(Some(2), 4, 2).await, [6, 8]);
    assert!(read(Some(2), 10, 2).await.is_empty());
    assert!(read(Some(7), 0, 2).await.is_empty());
}

async fn read_stops_at_its_size_but_returns_one_entry(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    // More than a stretch of 64 entries, so that an agent's entries are read in several steps.
    for _ in 0..70 {
        fixture.commit(append(1, "one", [message(&"x".repeat(10_000))])).await;
    }
    for agent in [None, Some(1)] {
        let read = |after, bytes_max| {
            let store = std::sync::Arc::clone(&fixture.store);
            async move {
                let entries =
                    store.read(EntryRange { bytes_max, ..entry_range(agent, after) }).await.unwrap();
                entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>()
            }
        };
        assert_eq!(read(1, 35_000).await, [2, 3, 4], "{agent:?}");
        assert_eq!(read(63, 35_000).await, [64, 65, 66], "{agent:?}");
        assert_eq!(read(1, 0).await, [2], "one entry whatever its size, {agent:?}");
        assert_eq!(read(1, usize::MAX).await.len(), 70, "{agent:?}");
    }
}

async fn empty_journal_has_empty_bounds(fixture: &mut StoreUnderTest) {
    assert_eq!(fixture.store.bounds().await.unwrap(), JournalBounds { first: 1, last: 0 });
    assert_eq!(fixture.store.read(entry_range(None, 0)).await.unwrap(), []);
    assert_eq!(fixture.store.history(1).await.unwrap(), []);
    assert_eq!(fixture.store.index().await.unwrap(), []);
    assert!(fixture.store.agents_with_open_turns().await.unwrap().is_empty());
}

async fn bounds_follow_the_journal(fixture: &mut StoreUnderTest) {
    for serial in 1..4 {
        fixture.create(serial, &format!("agent-{serial}"), None).await;
        fixture.reopen().await;
        assert_eq!(fixture.store.bounds().await.unwrap(), JournalBounds { first: 1, last: serial });
    }
}

async fn committed_entry_is_visible_at_once(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    for turn in 2..200 {
        fixture.commit(append(1, "one", [begun(turn)])).await;
        assert_eq!(fixture.store.bounds().await.unwrap().last, turn);
    }
}
