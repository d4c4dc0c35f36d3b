//! Disks that fail at a failpoint: a full one heals, one that did not take what was written is the end.

use agent::outside::Store as _;

use super::*;
use crate::conformance::samples::entry_range;
use crate::conformance::{RecordingListener, accepted};

#[tokio::test]
async fn a_full_disk_refuses_the_group_and_heals() {
    let home = Home::new();
    let store =
        home.open_with_failpoints("commit.before:turn_accepted@1=full, commit.before:turn_accepted@2=full");
    let listener = Arc::new(RecordingListener::default());
    store.set_listener(Arc::clone(&listener) as _);
    append_records(&store, [created("main", None)]).await.unwrap();
    let call = || store.append(vec![append(1, "main", [message("a"), accepted(1, "send")])]);
    for _ in 0..2 {
        assert!(matches!(call().await, Err(StoreFault::Full(_))));
        assert_eq!(last_sequence(&store).await, 1);
    }
    assert_eq!(call().await, Ok(()), "the same call passes when there is room");
    assert_eq!(call().await, Err(StoreFault::DuplicateRequestId));
    assert_eq!(listener.sequences(), [1, 2, 3]);
    assert!(listener.failures.lock().unwrap().is_empty());
    store.close().await;
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn a_disk_that_fails_is_the_end() {
    let home = Home::new();
    let store = home.open_with_failpoints("commit.before:turn_accepted=fsync");
    let listener = Arc::new(RecordingListener::default());
    store.set_listener(Arc::clone(&listener) as _);
    append_records(&store, [created("main", None)]).await.unwrap();
    append_records(&store, [message("kept")]).await.unwrap();
    let failing = store.append(vec![append(1, "main", [accepted(1, "send")])]);
    let beside = store.append(vec![append(1, "main", [begun(1)])]);
    let forgetting = store.prune_turns(agent::outside::Timestamp(0));
    for answer in
        [failing.await, beside.await, forgetting.await.map(drop), append_records(&store, [begun(1)]).await]
    {
        assert!(matches!(answer, Err(StoreFault::Failed(_))), "{answer:?}");
    }
    assert_eq!(listener.failures.lock().unwrap().len(), 1, "told once");
    assert_eq!(listener.sequences(), [1, 2]);
    assert_eq!(store.read(entry_range(None, 0)).await.unwrap().len(), 2, "reads go on");
    store.close().await;
    assert_eq!(last_sequence(&home.open()).await, 2);
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn a_checkpoint_that_fails_is_the_end_and_one_without_room_is_not() {
    for (failpoint, is_the_end) in [("checkpoint.before@1=full", false), ("checkpoint.before@1=fsync", true)]
    {
        let home = Home::new();
        let store = home.open_with_failpoints(failpoint);
        append_records(&store, [created("main", None)]).await.unwrap();
        let large = message(&"x".repeat(100_000));
        let mut kept = 1;
        while kept < 200 && append_records(&store, [large.clone()]).await.is_ok() {
            kept += 1;
        }
        assert_eq!(kept < 200, is_the_end, "{failpoint}");
        store.close().await;
        assert_eq!(last_sequence(&home.open()).await, kept, "{failpoint}");
        assert!(home.is_sound().await);
    }
}
