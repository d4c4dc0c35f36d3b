//! A disk that is full, readers that stay, and a line that is too long.

use std::process::Command;

use agent::outside::{Append, Store as _};

use super::*;
use crate::conformance::samples::entry_range;

/// A small disk of its own, as long as it lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

#[tokio::test]
async fn a_small_disk_fills_and_heals_without_a_restart() {
    let home = Home::new();
    let Some(_disk) = SmallDisk::mount(home.folder.path()) else {
        println!("skipped: this user may not mount a small disk");
        return;
    };
    let ballast = home.folder.path().join("ballast");
    std::fs::write(&ballast, vec![0; 700_000]).unwrap();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let mut kept = 1;
    let mut fill = async |text: usize| {
        // The disk is filled from several sides at once, so that groups are refused as a whole.
        let call = || store.append(vec![append(1, "main", [message(&"x".repeat(text))])]);
        let mut answers = Vec::new();
        for waiting in [call(), call(), call()] {
            answers.push(waiting.await);
        }
        kept += answers.iter().filter(|answer| answer.is_ok()).count() as u64;
        answers.into_iter().find_map(Result::err)
    };
    let mut fault = None;
    for _ in 0..1000 {
        fault = fill(3000).await;
        if fault.is_some() {
            break;
        }
    }
    assert!(matches!(fault, Some(StoreFault::Full(_))), "{fault:?}");
    // Small ones may still fit into the last page; then there is no room at all.
    while fill(10).await.is_none() {}
    let read = store.read(entry_range(None, 0)).await.unwrap();
    assert_eq!(read.len() as u64, last_sequence(&store).await, "reads go on");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(fill(3000).await, None, "there is room again");
    assert_eq!(last_sequence(&store).await, kept);
    store.close().await;
    assert!(home.is_sound().await);
    let store = home.open();
    assert_eq!(last_sequence(&store).await, kept);
    store.close().await;
}

#[tokio::test]
async fn a_reader_that_stays_does_not_stop_the_writer_and_the_log_shrinks_after_it() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let reader = rusqlite::Connection::open(home.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM journal").unwrap();
    let log = || std::fs::metadata(home.files().wal()).unwrap().len();
    let large = || append(1, "main", [message(&"x".repeat(1 << 20))]);
    for _ in 0..20 {
        store.append(vec![large()]).await.unwrap();
    }
    assert!(log() > 20 << 20, "the reader keeps it from being emptied");
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    for _ in 0..40 {
        let small: Append = large();
        store.append(vec![small]).await.unwrap();
    }
    assert!(log() <= 40 << 20, "{}", log());
    store.close().await;
    assert!(!home.files().wal().exists());
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn a_line_that_is_too_long_says_so() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let blocker = rusqlite::Connection::open(home.path()).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting: Vec<_> =
        (0..70_000).map(|turn| store.append(vec![append(1, "main", [begun(turn)])])).collect();
    blocker.execute_batch("ROLLBACK").unwrap();
    let mut refused = 0_u64;
    for answer in waiting {
        match answer.await {
            Ok(()) => {}
            Err(StoreFault::Full(_)) => refused += 1,
            Err(fault) => panic!("{fault}"),
        }
    }
    // The line holds 65,536, and the writer has a group of at most 1,024 in its hands.
    assert!(refused >= 70_000 - 65_536 - 1_024, "{refused}");
    assert_eq!(last_sequence(&store).await, 70_001 - refused);
    store.close().await;
}
