//! Power cuts: whatever prefix of the write-ahead log has reached the disk, and whatever stands behind it, each call is
//! there as a whole or not at all, and none is missing that was answered before.

use super::*;
use crate::conformance::{StoreUnderTest, accepted, ended};

/// Answered calls: how long the log was then, and how far the journal.
struct CommitPoint {
    wal_bytes: u64,
    last_sequence: u64,
}

/// Calls of different sizes, and the files that a power cut finds.
async fn store_with_commits() -> (Home, Vec<CommitPoint>, Arc<SqliteStore>) {
    let home = Home::new();
    let store = home.open();
    let log = || std::fs::metadata(home.files().wal()).unwrap().len();
    let mut answered = vec![CommitPoint { wal_bytes: log(), last_sequence: 0 }];
    append_records(&store, [created("main", None)]).await.unwrap();
    answered.push(CommitPoint { wal_bytes: log(), last_sequence: 1 });
    for turn in 0..12 {
        let request = format!("send {turn}");
        append_records(&store, [accepted(turn, &request), begun(turn)]).await.unwrap();
        answered.push(CommitPoint { wal_bytes: log(), last_sequence: last_sequence(&store).await });
        let text = "x".repeat(usize::try_from(turn).unwrap() * 1500);
        append_records(&store, [message(&text), ended(turn, &request)]).await.unwrap();
        answered.push(CommitPoint { wal_bytes: log(), last_sequence: last_sequence(&store).await });
    }
    (home, answered, store)
}

async fn check_prefix(crashed: &Home, answered: &[CommitPoint], prefix: u64, what: &str) {
    let store = open(&SqliteOptions::new(crashed.path())).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let there = last_sequence(&store).await;
    let promised =
        answered.iter().rev().find(|call| call.wal_bytes <= prefix).map_or(0, |call| call.last_sequence);
    assert!(there >= promised, "{what}: {there} of {promised}");
    assert!(
        answered.iter().any(|call| call.last_sequence == there),
        "{what}: {there} is in the middle of a call"
    );
    store.close().await;
    assert!(crashed.is_sound().await, "{what}");
}

#[tokio::test]
async fn every_prefix_of_the_log_is_whole_calls() {
    let (home, answered, store) = store_with_commits().await;
    let crashed = home.crash_copy();
    store.close().await;
    let log = std::fs::read(crashed.files().wal()).unwrap();
    let database = std::fs::read(crashed.path()).unwrap();
    std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    let frame = 24 + 4096;
    let ends = (0..=(log.len() - 32) / frame).map(|frames| 32 + frames * frame);
    let cuts = ends.flat_map(|end| [end.saturating_sub(1), end, end + 7, end + 24, end + 2000]);
    // Seven has no part in five or three: all places and all tails come together.
    for (number, cut) in cuts.filter(|cut| *cut <= log.len()).enumerate().step_by(7) {
        std::fs::write(crashed.path(), &database).unwrap();
        let mut prefix = log[..cut].to_vec();
        // What never reached the disk may be missing, zero, or what was there before.
        match number % 3 {
            0 => {}
            1 => prefix.resize(cut + 5000, 0),
            _ => prefix.extend(log[..cut].iter().rev().take(5000)),
        }
        std::fs::write(crashed.files().wal(), prefix).unwrap();
        check_prefix(&crashed, &answered, cut as u64, &format!("cut at {cut}, tail {}", number % 3)).await;
        std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    }
}

#[tokio::test]
async fn a_torn_page_in_the_last_commit_takes_only_that_commit() {
    let (home, answered, store) = store_with_commits().await;
    let crashed = home.crash_copy();
    store.close().await;
    std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    let [.., before, end] = answered.as_slice() else { panic!("nothing was written") };
    edit_bytes(&crashed.files().wal(), |log| {
        let middle = usize::try_from(before.wal_bytes.midpoint(end.wal_bytes)).unwrap();
        log[middle..middle + 512].fill(0xaa);
    });
    check_prefix(&crashed, &answered, before.wal_bytes, "torn").await;
}

#[tokio::test]
async fn what_was_answered_survives_a_crash_with_its_state() {
    let bench = StoreUnderTest::in_sqlite();
    bench.create(1, "main", None).await;
    bench.commit(append(1, "main", [accepted(1, "send")])).await;
    let truth = bench.dump().await;
    let crashed = crate::conformance::folder();
    for name in ["nexus3.db", "nexus3.db-wal", "nexus3.db.mark"] {
        std::fs::copy(bench.folder().join(name), crashed.path().join(name)).unwrap();
    }
    let again = StoreUnderTest::open_at(crashed);
    assert_eq!(again.dump().await, truth);
}
