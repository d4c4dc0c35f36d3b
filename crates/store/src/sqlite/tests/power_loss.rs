//! Power loss: whatever prefix of the write-ahead log reached the disk, and whatever bytes follow it, each batch is
//! recovered as a whole or not at all, and no batch committed within the prefix is lost.

use super::*;
use crate::conformance::{accepted, dump, ended};

/// Size of the WAL and last sequence after a commit.
struct CommitPoint {
    wal_bytes: u64,
    last_sequence: u64,
}

/// Creates a store with commits of different sizes, still open.
async fn store_with_commits() -> (Home, Vec<CommitPoint>, Arc<SqliteStore>) {
    let home = Home::new();
    let store = home.open();
    let wal = || std::fs::metadata(home.files().wal()).unwrap().len();
    let mut commits = vec![CommitPoint { wal_bytes: wal(), last_sequence: 0 }];
    append_records(&store, [created("main", None)]).await.unwrap();
    commits.push(CommitPoint { wal_bytes: wal(), last_sequence: 1 });
    for turn in 0..12 {
        let request = format!("send {turn}");
        append_records(&store, [accepted(turn, &request), begun(turn)]).await.unwrap();
        commits.push(CommitPoint { wal_bytes: wal(), last_sequence: last_sequence(&store).await });
        let text = "x".repeat(usize::try_from(turn).unwrap() * 1500);
        append_records(&store, [message(&text), ended(turn, &request)]).await.unwrap();
        commits.push(CommitPoint { wal_bytes: wal(), last_sequence: last_sequence(&store).await });
    }
    (home, commits, store)
}

async fn check_prefix(crashed: &Home, commits: &[CommitPoint], prefix: u64, what: &str) {
    let store = open(&SqliteOptions::new(crashed.path())).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let recovered = last_sequence(&store).await;
    let committed = commits
        .iter()
        .rev()
        .find(|commit| commit.wal_bytes <= prefix)
        .map_or(0, |commit| commit.last_sequence);
    assert!(recovered >= committed, "{what}: {recovered} of {committed}");
    assert!(
        commits.iter().any(|commit| commit.last_sequence == recovered),
        "{what}: {recovered} is in the middle of a batch"
    );
    store.close().await;
    assert!(crashed.is_sound().await, "{what}");
}

#[tokio::test]
async fn every_wal_prefix_holds_whole_batches() {
    let (home, commits, store) = store_with_commits().await;
    let crashed = home.crash_copy();
    store.close().await;
    let wal = std::fs::read(crashed.files().wal()).unwrap();
    let database = std::fs::read(crashed.path()).unwrap();
    std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    let frame = 24 + 4096;
    let ends = (0..=(wal.len() - 32) / frame).map(|frames| 32 + frames * frame);
    let cuts = ends.flat_map(|end| [end.saturating_sub(1), end, end + 7, end + 24, end + 2000]);
    // Seven is coprime to five and three, so every kind of cut is combined with every tail.
    for (number, cut) in cuts.filter(|cut| *cut <= wal.len()).enumerate().step_by(7) {
        std::fs::write(crashed.path(), &database).unwrap();
        let mut prefix = wal[..cut].to_vec();
        // Pages that never reached the disk may be missing, zero, or old content.
        match number % 3 {
            0 => {}
            1 => prefix.resize(cut + 5000, 0),
            _ => prefix.extend(wal[..cut].iter().rev().take(5000)),
        }
        std::fs::write(crashed.files().wal(), prefix).unwrap();
        check_prefix(&crashed, &commits, cut as u64, &format!("cut at {cut}, tail {}", number % 3)).await;
        std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    }
}

#[tokio::test]
async fn torn_page_in_last_commit_loses_only_that_commit() {
    let (home, commits, store) = store_with_commits().await;
    let crashed = home.crash_copy();
    store.close().await;
    std::fs::remove_file(crashed.files().high_water_mark()).unwrap();
    let [.., before, end] = commits.as_slice() else { panic!("no commits") };
    edit_bytes(&crashed.files().wal(), |wal| {
        let middle = usize::try_from(before.wal_bytes.midpoint(end.wal_bytes)).unwrap();
        wal[middle..middle + 512].fill(0xaa);
    });
    check_prefix(&crashed, &commits, before.wal_bytes, "torn").await;
}

#[tokio::test]
async fn committed_state_survives_a_crash() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None), accepted(1, "send")]).await.unwrap();
    let crashed = home.crash_copy();
    assert_eq!(dump(&*crashed.open()).await, dump(&*store).await);
}
