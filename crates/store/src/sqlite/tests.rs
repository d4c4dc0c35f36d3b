//! Tests on real files: refusals when opening, disk corruption, full disks, migrations, and crashes.

mod corruption;
#[cfg(debug_assertions)]
mod injected_faults;
mod lost_files;
mod maintenance;
mod migrations;
mod power_loss;
mod refusals;
mod resource_limits;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::outside::{Store as _, StoreFault};

use super::files::StoreFiles;
use super::high_water_mark::HighWaterMark;
use super::{Durability, SqliteMaintenance, SqliteOpenFault, SqliteOptions, SqliteStore, open};
use crate::conformance::{append, begun, created, message};
use crate::maintenance::{BackupReport, ChainReport, CheckReport, Maintenance as _, MaintenanceFault};

/// A temporary folder for one store.
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

    fn open_fault(&self) -> SqliteOpenFault {
        open(&SqliteOptions::new(self.path())).unwrap_err()
    }

    /// Creates a store with one agent and some messages, and closes it.
    async fn with_messages(messages: u32) -> Self {
        let home = Self::new();
        fill(&home.open(), messages).await;
        home
    }

    /// Copies the files as a daemon that is killed now would leave them.
    fn crash_copy(&self) -> Home {
        let copy = Home::new();
        for from in [self.path(), self.files().wal(), self.files().high_water_mark()] {
            if from.exists() {
                std::fs::copy(&from, copy.folder.path().join(from.file_name().unwrap())).unwrap();
            }
        }
        copy
    }

    /// Runs a full check and prints its report if it finds problems.
    async fn is_sound(&self) -> bool {
        let report = check(&self.path()).unwrap();
        if !report.is_sound() {
            println!("{report}");
        }
        report.is_sound()
    }
}

fn backup(from: &Path, to: &Path) -> Result<BackupReport, MaintenanceFault> {
    SqliteMaintenance { path: from.to_owned() }.backup(to)
}

fn check(path: &Path) -> Result<CheckReport, MaintenanceFault> {
    SqliteMaintenance { path: path.to_owned() }.check()
}

fn verify_chain(path: &Path) -> Result<ChainReport, MaintenanceFault> {
    SqliteMaintenance { path: path.to_owned() }.verify_chain()
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

/// The names in a folder, sorted.
fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Changes the bytes of a file.
fn edit_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn linked_sqlite_is_new_enough() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[tokio::test]
async fn dropped_store_commits_queued_batches() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let results: Vec<_> = (0..100).map(|turn| store.append(vec![append(1, "main", [begun(turn)])])).collect();
    drop(store);
    for result in results {
        assert_eq!(result.await, Ok(()));
    }
    assert_eq!(last_sequence(&home.open()).await, 101);
}

#[tokio::test]
async fn closed_store_leaves_database_and_mark() {
    let home = Home::with_messages(5).await;
    assert_eq!(file_names(home.folder.path()), ["nexus3.db", "nexus3.db.mark"]);
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
    assert_eq!(modes().count(), 4, "database, -wal, -shm, mark");
    assert!(modes().all(|(_, mode)| mode == 0o600), "{:?}", modes().collect::<Vec<_>>());
    store.close().await;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!home.is_sound().await, "others can read it");
    drop(home.open());
    assert!(modes().all(|(_, mode)| mode == 0o600), "{:?}", modes().collect::<Vec<_>>());
}

#[tokio::test]
async fn both_durabilities_survive_a_process_crash() {
    for durability in [Durability::Full, Durability::Normal] {
        let home = Home::new();
        let store = open(&SqliteOptions { durability, ..SqliteOptions::new(home.path()) }).unwrap();
        append_records(&store, [created("main", None)]).await.unwrap();
        let copy = home.crash_copy();
        assert_eq!(last_sequence(&copy.open()).await, 1, "{durability:?}: a process crash loses nothing");
        store.close().await;
        let mark = HighWaterMark::read(&home.files().high_water_mark()).unwrap().unwrap();
        assert_eq!(mark.sequence, 1, "{durability:?}");
    }
}
