//! Faults on real files: what is refused when a store is opened, what disks do to it, and what a crash leaves.

mod corruption;
#[cfg(debug_assertions)]
mod injected_faults;
mod migrations;
mod power_loss;
mod refusals;
mod resource_limits;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::outside::{Store as _, StoreFault};

use super::{Durability, OpenFault, SqliteOptions, SqliteStore, StoreFiles, open};
use crate::conformance::{append, begun, created, message};

/// A folder for one store.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: crate::conformance::folder() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nexus3.db")
    }

    fn files(&self) -> StoreFiles {
        StoreFiles::new(&self.path())
    }

    fn open(&self) -> Arc<SqliteStore> {
        open(&SqliteOptions::new(self.path())).unwrap()
    }

    #[cfg(debug_assertions)]
    fn open_with_failpoints(&self, failpoints: &str) -> Arc<SqliteStore> {
        let failpoints = Some(failpoints.to_owned());
        open(&SqliteOptions { failpoints, ..SqliteOptions::new(self.path()) }).unwrap()
    }

    fn open_fault(&self) -> OpenFault {
        open(&SqliteOptions::new(self.path())).unwrap_err()
    }

    /// A store with one agent and some messages, closed in order.
    async fn with_messages(messages: u32) -> Self {
        let home = Self::new();
        fill(&home.open(), messages).await;
        home
    }

    /// The files of a daemon that was killed now.
    fn crash_copy(&self) -> Home {
        let other = Home::new();
        for from in [self.path(), self.files().wal(), self.files().high_water_mark()] {
            if from.exists() {
                std::fs::copy(&from, other.folder.path().join(from.file_name().unwrap())).unwrap();
            }
        }
        other
    }

    /// Nothing is left of it in memory: the next to open it reads the files.
    async fn is_sound(&self) -> bool {
        let report = crate::check(&self.path()).unwrap();
        if !report.is_sound() {
            println!("{report}");
        }
        report.is_sound()
    }
}

async fn fill(store: &Arc<SqliteStore>, messages: u32) {
    append_records(store, [created("main", None)]).await.unwrap();
    for number in 0..messages {
        append_records(store, [message(&format!("message {number}, and more of it"))]).await.unwrap();
    }
    store.close().await;
}

/// Appends to agent 1.
async fn append_records(
    store: &Arc<SqliteStore>,
    records: impl Into<Vec<agent::journal::Record>>,
) -> Result<(), StoreFault> {
    store.append(vec![append(1, "main", records)]).await
}

async fn last_sequence(store: &Arc<SqliteStore>) -> u64 {
    store.bounds().await.unwrap().last
}

/// Changes the bytes of a file.
fn edit_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn the_library_is_new_enough() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[tokio::test]
async fn a_store_that_is_dropped_keeps_what_was_in_line() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let waiting: Vec<_> = (0..100).map(|turn| store.append(vec![append(1, "main", [begun(turn)])])).collect();
    drop(store);
    for answer in waiting {
        assert_eq!(answer.await, Ok(()));
    }
    assert_eq!(last_sequence(&home.open()).await, 101);
}

#[tokio::test]
async fn a_closed_store_is_one_file_and_what_guards_it() {
    let home = Home::with_messages(5).await;
    let mut names: Vec<_> = std::fs::read_dir(home.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["nexus3.db", "nexus3.db.lock", "nexus3.db.mark"]);
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let modes = || {
        std::fs::read_dir(home.folder.path()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name(), entry.metadata().unwrap().permissions().mode() & 0o777)
        })
    };
    assert_eq!(modes().count(), 5, "database, log, its index, lock, mark");
    assert!(modes().all(|(_, mode)| mode == 0o600), "{:?}", modes().collect::<Vec<_>>());
    store.close().await;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!home.is_sound().await, "others can read it");
    drop(home.open());
    assert!(modes().all(|(_, mode)| mode == 0o600), "{:?}", modes().collect::<Vec<_>>());
}

#[tokio::test]
async fn both_durabilities_keep_what_they_say() {
    for durability in [Durability::Full, Durability::Normal] {
        let home = Home::new();
        let store = open(&SqliteOptions { durability, ..SqliteOptions::new(home.path()) }).unwrap();
        append_records(&store, [created("main", None)]).await.unwrap();
        let copy = home.crash_copy();
        assert_eq!(
            last_sequence(&copy.open()).await,
            1,
            "{durability:?}: the end of a process takes nothing"
        );
        store.close().await;
        let mark = super::HighWaterMark::read(&home.files().high_water_mark()).unwrap().unwrap();
        assert_eq!(mark.sequence, 1, "{durability:?}");
    }
}
