//! Disk errors injected by failpoints: the store recovers from a full disk, and fails for good after an fsync error.

use agent::outside::{KeyValueStore as _, Namespace, Store as _, Timestamp};

use super::*;
use crate::conformance::samples::entry_range;
use crate::conformance::values::store_value;
use crate::conformance::{RecordingListener, accepted};

#[tokio::test]
async fn full_disk_refuses_the_group_then_recovers() {
    let home = Home::new();
    let store =
        home.open_with_failpoints("commit.before:turn_accepted@1=full, commit.before:turn_accepted@2=full");
    let listener = Arc::new(RecordingListener::default());
    store.set_listener(Arc::clone(&listener) as _);
    append_records(&store, [created("main", None)]).await.unwrap();
    let append_batch = || store.append(vec![append(1, "main", [message("a"), accepted(1, "send")])]);
    for _ in 0..2 {
        assert!(matches!(append_batch().await, Err(StoreFault::Full(_))));
        assert_eq!(last_sequence(&store).await, 1);
    }
    assert_eq!(append_batch().await, Ok(()), "the same batch succeeds later");
    assert_eq!(append_batch().await, Err(StoreFault::DuplicateRequestId));
    assert_eq!(listener.sequences(), [1, 2, 3]);
    assert!(listener.failures.lock().unwrap().is_empty());
    store.close().await;
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn refused_value_is_not_stored() {
    let home = Home::new();
    let store = home.open_with_failpoints("commit.before:key_value@1=full");
    let write = || store.write_value(store_value(Namespace::User, "k", "1", None, 0));
    assert!(matches!(write().await, Err(StoreFault::Full(_))));
    assert_eq!(write().await, Ok(false), "the refused write left nothing");
    let copy = home.crash_copy();
    let stored = copy.open().value(Namespace::User, "k".to_owned(), Timestamp(0)).await.unwrap();
    assert_eq!(stored.map(|value| value.json).as_deref(), Some("1"), "a process crash loses nothing");
}

#[tokio::test]
async fn fsync_failure_fails_the_store_for_good() {
    let home = Home::new();
    let store = home.open_with_failpoints("commit.before:turn_accepted=fsync");
    let listener = Arc::new(RecordingListener::default());
    store.set_listener(Arc::clone(&listener) as _);
    append_records(&store, [created("main", None)]).await.unwrap();
    append_records(&store, [message("committed")]).await.unwrap();
    let failing = store.append(vec![append(1, "main", [accepted(1, "send")])]);
    let queued = store.append(vec![append(1, "main", [begun(1)])]);
    let pruning = store.prune_turns(Timestamp(0));
    for result in
        [failing.await, queued.await, pruning.await.map(drop), append_records(&store, [begun(1)]).await]
    {
        assert!(matches!(result, Err(StoreFault::Failed(_))), "{result:?}");
    }
    assert_eq!(listener.failures.lock().unwrap().len(), 1, "notified once");
    assert_eq!(listener.sequences(), [1, 2]);
    assert_eq!(store.read(entry_range(None, 0)).await.unwrap().len(), 2, "reads still work");
    store.close().await;
    assert_eq!(last_sequence(&home.open()).await, 2);
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn failed_checkpoint_fails_the_store_unless_disk_is_full() {
    for (failpoint, fails_store) in [("checkpoint.before@1=full", false), ("checkpoint.before@1=fsync", true)]
    {
        let home = Home::new();
        let store = home.open_with_failpoints(failpoint);
        append_records(&store, [created("main", None)]).await.unwrap();
        let large = message(&"x".repeat(100_000));
        let mut committed = 1;
        while committed < 200 && append_records(&store, [large.clone()]).await.is_ok() {
            committed += 1;
        }
        assert_eq!(committed < 200, fails_store, "{failpoint}");
        store.close().await;
        assert_eq!(last_sequence(&home.open()).await, committed, "{failpoint}");
        assert!(home.is_sound().await);
    }
}
