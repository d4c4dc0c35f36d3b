//! Claims about reading: spans, bounds, histories.

use agent::outside::{EntryRange, JournalBounds};

use super::samples::entry_range;
use super::{StoreUnderTest, append, begun, conformance_tests};

conformance_tests!(
    spans_are_cut_where_they_are_asked_to,
    an_empty_journal_has_empty_bounds,
    bounds_follow_the_journal,
    what_was_answered_is_read_at_once,
);

async fn spans_are_cut_where_they_are_asked_to(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.create(2, "two", None).await;
    for turn in 0..4 {
        bench.commit(append(1, "one", [begun(turn)])).await;
        bench.commit(append(2, "two", [begun(turn)])).await;
    }
    bench.reopen().await;
    let read = |agent, after, limit| {
        let store = std::sync::Arc::clone(&bench.store);
        async move {
            let entries = store.read(EntryRange { agent, after, limit }).await.unwrap();
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

async fn an_empty_journal_has_empty_bounds(bench: &mut StoreUnderTest) {
    assert_eq!(bench.store.bounds().await.unwrap(), JournalBounds { first: 1, last: 0 });
    assert_eq!(bench.store.read(entry_range(None, 0)).await.unwrap(), []);
    assert_eq!(bench.store.history(1).await.unwrap(), []);
    assert_eq!(bench.store.index().await.unwrap(), []);
    assert!(bench.store.agents_with_open_turns().await.unwrap().is_empty());
}

async fn bounds_follow_the_journal(bench: &mut StoreUnderTest) {
    for serial in 1..4 {
        bench.create(serial, &format!("agent-{serial}"), None).await;
        bench.reopen().await;
        assert_eq!(bench.store.bounds().await.unwrap(), JournalBounds { first: 1, last: serial });
    }
}

async fn what_was_answered_is_read_at_once(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    for turn in 2..200 {
        bench.commit(append(1, "one", [begun(turn)])).await;
        assert_eq!(bench.store.bounds().await.unwrap().last, turn);
    }
}
