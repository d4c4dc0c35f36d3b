//! Resource limits: a full disk, long read transactions, and a full write queue.

use std::process::Command;

use agent::outside::Store as _;

use super::*;
use crate::conformance::samples::entry_range;

/// A small tmpfs, unmounted on drop.
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
async fn full_disk_recovers_without_a_restart() {
    let home = Home::new();
    let Some(_disk) = SmallDisk::mount(home.folder.path()) else {
        println!("skipped: this user may not mount a small disk");
        return;
    };
    let ballast = home.folder.path().join("ballast");
    std::fs::write(&ballast, vec![0; 700_000]).unwrap();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let mut committed = 1;
    let mut fill = async |text_bytes: usize| {
        // Several concurrent appends, so that groups are refused as a whole.
        let enqueue = || store.append(vec![append(1, "main", [message(&"x".repeat(text_bytes))])]);
        let mut results = Vec::new();
        for pending in [enqueue(), enqueue(), enqueue()] {
            results.push(pending.await);
        }
        committed += results.iter().filter(|result| result.is_ok()).count() as u64;
        results.into_iter().find_map(Result::err)
    };
    let fault = loop {
        if let Some(fault) = fill(3000).await {
            break fault;
        }
    };
    assert!(matches!(fault, StoreFault::Full(_)), "{fault:?}");
    // Small batches may still fit into the last page; fill that too.
    while fill(10).await.is_none() {}
    let read = store.read(entry_range(None, 0)).await.unwrap();
    assert_eq!(read.len() as u64, last_sequence(&store).await, "reads still work");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(fill(3000).await, None, "there is space again");
    assert_eq!(last_sequence(&store).await, committed);
    store.close().await;
    assert!(home.is_sound().await);
    let store = home.open();
    assert_eq!(last_sequence(&store).await, committed);
    store.close().await;
}

#[tokio::test]
async fn start_on_a_full_disk_names_the_disk_and_its_free_space() {
    let home = Home::new();
    let Some(_disk) = SmallDisk::mount(home.folder.path()) else {
        println!("skipped: this user may not mount a small disk");
        return;
    };
    let ballast = home.folder.path().join("ballast");
    // First without a database, then with one.
    for entries in [0, 2] {
        if entries > 0 {
            fill(&home.open(), 1).await;
        }
        let mut file = std::fs::File::create(&ballast).unwrap();
        for bytes in [4096, 1] {
            while std::io::Write::write_all(&mut file, &vec![0; bytes]).is_ok() {}
        }
        drop(file);
        let text = home.open_fault().to_string();
        for part in ["no space is left on its disk (0 KiB free", "make room on the disk of /", "start again"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        std::fs::remove_file(&ballast).unwrap();
        assert_eq!(last_sequence(&home.open()).await, entries, "a start after making room");
    }
}

#[tokio::test]
async fn long_reader_blocks_neither_writes_nor_later_shrinking() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let reader = rusqlite::Connection::open(home.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM journal").unwrap();
    let wal_bytes = || std::fs::metadata(home.files().wal()).unwrap().len();
    let large = || append(1, "main", [message(&"x".repeat(1 << 20))]);
    for _ in 0..20 {
        store.append(vec![large()]).await.unwrap();
    }
    assert!(wal_bytes() > 20 << 20, "the reader blocks the checkpoint");
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    for _ in 0..40 {
        store.append(vec![large()]).await.unwrap();
    }
    assert!(wal_bytes() <= 40 << 20, "{}", wal_bytes());
    store.close().await;
    assert!(!home.files().wal().exists());
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn full_write_queue_refuses_appends() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let blocker = rusqlite::Connection::open(home.path()).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let results: Vec<_> =
        (0..70_000).map(|turn| store.append(vec![append(1, "main", [begun(turn)])])).collect();
    blocker.execute_batch("ROLLBACK").unwrap();
    let mut refused = 0_u64;
    for result in results {
        match result.await {
            Ok(()) => {}
            Err(StoreFault::Full(_)) => refused += 1,
            Err(fault) => panic!("{fault}"),
        }
    }
    // The queue holds 65,536 tasks, and the writer has dequeued a group of at most 1,024.
    assert!(refused >= 70_000 - 65_536 - 1_024, "{refused}");
    assert_eq!(last_sequence(&store).await, 70_001 - refused);
    store.close().await;
}
