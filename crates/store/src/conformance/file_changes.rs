//! Recorded file changes: merging within a turn, limits, undone turns, and the removal with an agent.

use agent::PrincipalId;
use agent::journal::Record;
use agent::outside::{
    ChangeWrite, FileChange, FileState, NewChanges, StoreFault, TurnChanges, UNDO_TURN_BYTES_MAX,
    UNDO_TURN_FILES_MAX,
};
use agent::permission::FilePath;

use super::samples::destroyed;
use super::{StoreUnderTest, append, created};

conformance_tests!(
    recorded_changes_round_trip,
    changes_of_one_path_are_merged,
    latest_turn_is_the_default,
    turn_with_an_unrecorded_change_is_not_undoable,
    turn_beyond_a_limit_is_not_undoable,
    oldest_turns_are_dropped_beyond_the_limit_of_an_agent,
    undone_turn_has_no_changes,
    refused_undo_leaves_the_changes,
    changes_are_removed_with_their_agent,
    agent_that_does_not_exist_records_nothing,
);

fn change(path: &str, before: FileState, digests: [u8; 2]) -> FileChange {
    let path = FilePath::resolve(path, &FilePath::root()).unwrap();
    let [last_before, after] = digests.map(|byte| [byte; 32]);
    FileChange { path, before, last_before, after }
}

fn file(bytes: usize) -> FileState {
    FileState::File { mode: 0o640, content: vec![0xff; bytes] }
}

fn undone(turn: u64) -> Record {
    Record::TurnUndone { turn, by: PrincipalId::Admin, paths: Vec::new() }
}

async fn record(fixture: &StoreUnderTest, agent: u64, turn: u64, changes: Vec<FileChange>) {
    let changes = NewChanges::Recorded(changes);
    fixture.store.record_changes(ChangeWrite { agent, turn, changes }).await.unwrap();
}

async fn find(fixture: &StoreUnderTest, agent: u64, turn: Option<u64>) -> Option<TurnChanges> {
    fixture.store.turn_changes(agent, turn).await.unwrap()
}

async fn recorded_changes_round_trip(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let changes = vec![
        change("/a", FileState::Absent, [1, 2]),
        change("/b \u{1f980}", FileState::Directory { mode: 0o750 }, [3, 4]),
        change("/c", file(3), [5, 6]),
        change("/d", FileState::Link { target: "../x".to_owned() }, [7, 8]),
    ];
    record(fixture, 1, 5, changes.clone()).await;
    fixture.reopen().await;
    assert_eq!(
        find(fixture, 1, Some(5)).await,
        Some(TurnChanges { turn: 5, is_undone: false, not_undoable: None, changes })
    );
    assert_eq!(find(fixture, 1, Some(4)).await, None);
    assert_eq!(find(fixture, 2, None).await, None);
}

async fn changes_of_one_path_are_merged(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    record(fixture, 1, 1, vec![change("/a", file(3), [1, 2])]).await;
    record(fixture, 1, 1, vec![change("/a", file(9), [2, 3]), change("/b", FileState::Absent, [0, 1])]).await;
    fixture.reopen().await;
    let expected = vec![change("/a", file(3), [2, 3]), change("/b", FileState::Absent, [0, 1])];
    assert_eq!(find(fixture, 1, None).await.unwrap().changes, expected);
}

async fn latest_turn_is_the_default(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    for turn in [2, 11, 3] {
        record(fixture, 1, turn, vec![change("/a", FileState::Absent, [0, 1])]).await;
    }
    assert_eq!(find(fixture, 1, None).await.unwrap().turn, 11);
}

async fn turn_with_an_unrecorded_change_is_not_undoable(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    record(fixture, 1, 1, vec![change("/a", file(3), [1, 2])]).await;
    let changes = NewChanges::NotUndoable("/b is too large".to_owned());
    fixture.store.record_changes(ChangeWrite { agent: 1, turn: 1, changes }).await.unwrap();
    record(fixture, 1, 1, vec![change("/c", file(3), [1, 2])]).await;
    fixture.reopen().await;
    let found = find(fixture, 1, None).await.unwrap();
    assert_eq!((found.not_undoable.as_deref(), found.changes.len()), (Some("/b is too large"), 0));
}

async fn turn_beyond_a_limit_is_not_undoable(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let many = (0..=UNDO_TURN_FILES_MAX).map(|n| change(&format!("/{n}"), FileState::Absent, [0, 1]));
    record(fixture, 1, 1, many.collect()).await;
    let expected = Some("it changed more than 512 files".to_owned());
    assert_eq!(find(fixture, 1, None).await.unwrap().not_undoable, expected);
    let half = UNDO_TURN_BYTES_MAX / 2;
    record(fixture, 1, 2, vec![change("/a", file(half), [1, 2])]).await;
    assert_eq!(find(fixture, 1, None).await.unwrap().not_undoable, None);
    record(fixture, 1, 2, vec![change("/b", file(half), [1, 2])]).await;
    let expected = Some("what it replaced is larger than 32 MiB".to_owned());
    assert_eq!(find(fixture, 1, None).await.unwrap().not_undoable, expected);
}

async fn oldest_turns_are_dropped_beyond_the_limit_of_an_agent(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let nearly = UNDO_TURN_BYTES_MAX - 1024;
    for turn in 1..=3 {
        record(fixture, 1, turn, vec![change("/a", file(nearly), [1, 2])]).await;
    }
    let dropped = find(fixture, 1, Some(1)).await.unwrap();
    assert_eq!((dropped.not_undoable, dropped.changes.len()), (Some(TurnChanges::dropped()), 0));
    for turn in 2..=3 {
        assert_eq!(find(fixture, 1, Some(turn)).await.unwrap().changes.len(), 1);
    }
}

async fn undone_turn_has_no_changes(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    record(fixture, 1, 1, vec![change("/a", file(3), [1, 2])]).await;
    fixture.commit(append(1, "one", [undone(1)])).await;
    fixture.reopen().await;
    let found = find(fixture, 1, None).await.unwrap();
    assert_eq!((found.is_undone, found.changes.len()), (true, 0));
    record(fixture, 1, 1, vec![change("/a", file(4), [1, 2])]).await;
    let found = find(fixture, 1, None).await.unwrap();
    assert!(!found.is_undone, "a turn that was reopened can be undone again");
    assert_eq!(found.changes, [change("/a", file(4), [1, 2])]);
}

async fn refused_undo_leaves_the_changes(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    record(fixture, 1, 1, vec![change("/a", file(3), [1, 2])]).await;
    let refused = append(2, "one", [created("one", None)]);
    fixture.append_fault(vec![append(1, "one", [undone(1)]), refused]).await;
    let found = find(fixture, 1, None).await.unwrap();
    assert_eq!((found.is_undone, found.changes.len()), (false, 1));
}

async fn changes_are_removed_with_their_agent(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "child", Some(1)).await;
    record(fixture, 1, 1, vec![change("/a", file(3), [1, 2])]).await;
    fixture.commit(append(1, "one", [destroyed()])).await;
    fixture.reopen().await;
    assert_eq!(find(fixture, 1, None).await, None);
}

async fn agent_that_does_not_exist_records_nothing(fixture: &mut StoreUnderTest) {
    let changes = NewChanges::Recorded(Vec::new());
    let write = ChangeWrite { agent: 7, turn: 1, changes };
    assert_eq!(fixture.store.record_changes(write).await, Err(StoreFault::NotFound));
}
