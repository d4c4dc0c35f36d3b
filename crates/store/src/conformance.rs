//! Conformance suite for all stores: each test runs on the memory store and on a SQLite file, which is reopened in
//! between and checked at the end.

mod agents;
mod appending;
mod equivalence;
mod reading;
pub(crate) mod samples;
mod turns;

use std::sync::{Arc, Mutex};

use agent::journal::{Record, Serial};
use agent::outside::{Append, CommitListener, JournalEntry, Store, StoreFault, Timestamp};

pub(crate) use samples::{accepted, append, created, ended, message};

/// Creates a temporary folder, in memory if possible: these tests do not depend on a disk, and disks are slow.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A store under test.
pub(crate) struct StoreUnderTest {
    pub(crate) store: Arc<dyn Store>,
    folder: Option<tempfile::TempDir>,
}

impl StoreUnderTest {
    pub(crate) fn in_memory() -> Self {
        Self { store: crate::memory(), folder: None }
    }

    pub(crate) fn in_sqlite() -> Self {
        Self::open_at(folder())
    }

    /// Opens the SQLite store of a folder.
    pub(crate) fn open_at(folder: tempfile::TempDir) -> Self {
        let store = crate::open(&crate::SqliteOptions::new(folder.path().join("nexus3.db"))).unwrap();
        Self { store, folder: Some(folder) }
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.as_ref().unwrap().path()
    }

    /// Closes and reopens a SQLite store; does nothing for the memory store.
    pub(crate) async fn reopen(&mut self) {
        let Some(folder) = &self.folder else { return };
        self.store.close().await;
        self.store = crate::open(&crate::SqliteOptions::new(folder.path().join("nexus3.db"))).unwrap();
    }

    pub(crate) async fn commit(&self, append: Append) {
        self.store.append(vec![append]).await.unwrap();
    }

    pub(crate) async fn append_fault(&self, appends: Vec<Append>) -> StoreFault {
        self.store.append(appends).await.unwrap_err()
    }

    /// Creates an agent.
    pub(crate) async fn create(&self, serial: Serial, name: &str, parent: Option<Serial>) {
        self.commit(append(serial, name, [created(name, parent)])).await;
    }

    /// Formats the whole content of the store for comparison.
    pub(crate) async fn dump(&self) -> String {
        let index = self.store.index().await.unwrap();
        let agents = self.store.agents(index.iter().map(|row| row.serial).collect()).await.unwrap();
        let entries = self.store.read(samples::entry_range(None, 0)).await.unwrap();
        let with_open_turns = self.store.agents_with_open_turns().await.unwrap();
        let bounds = self.store.bounds().await.unwrap();
        let last = self.store.last_serial().await.unwrap();
        format!("{index:#?}\n{agents:#?}\n{entries:#?}\n{with_open_turns:?} {bounds:?} {last}")
    }

    async fn close_and_check(self) {
        self.store.close().await;
        let Some(folder) = &self.folder else { return };
        let path = folder.path().join("nexus3.db");
        let report = crate::check(&path).unwrap();
        assert!(report.is_sound(), "{report}");
    }
}

/// Runs each test on each store.
macro_rules! conformance_tests {
    ($($claim:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $claim() {
                let mut store = $crate::conformance::StoreUnderTest::in_memory();
                super::$claim(&mut store).await;
                store.close_and_check().await;
            })*
        }

        mod in_sqlite {
            $(#[tokio::test]
            async fn $claim() {
                let mut store = $crate::conformance::StoreUnderTest::in_sqlite();
                super::$claim(&mut store).await;
                store.close_and_check().await;
            })*
        }
    };
}
pub(crate) use conformance_tests;

/// A commit listener that records its notifications.
#[derive(Default)]
pub(crate) struct RecordingListener {
    pub(crate) entries: Mutex<Vec<Arc<JournalEntry>>>,
    pub(crate) failures: Mutex<Vec<String>>,
}

impl CommitListener for RecordingListener {
    fn committed(&self, entries: &[Arc<JournalEntry>]) {
        self.entries.lock().unwrap().extend_from_slice(entries);
    }

    fn store_failed(&self, why: &str) {
        self.failures.lock().unwrap().push(why.to_owned());
    }
}

impl RecordingListener {
    pub(crate) fn sequences(&self) -> Vec<u64> {
        self.entries.lock().unwrap().iter().map(|entry| entry.sequence).collect()
    }
}

/// A simple record of a live agent.
pub(crate) fn begun(turn: u64) -> Record {
    Record::TurnBegun { turn }
}

pub(crate) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}
