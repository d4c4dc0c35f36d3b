//! Conformance suite for all stores: each test runs on each of the [`backends`]. The store is reopened in between and
//! checked at the end.

#[macro_use]
mod backends;

mod agents;
mod appending;
mod equivalence;
mod file_changes;
mod reading;
pub(crate) mod samples;
mod turns;
pub(crate) mod values;

use std::sync::{Arc, Mutex};

use agent::journal::{Record, Serial};
use agent::outside::{Append, CommitListener, JournalEntry, Store, StoreFault, Timestamp};

use self::backends::Backend;

pub(crate) use samples::{accepted, append, created, ended, message};

/// Creates a temporary folder, in memory if possible: these tests do not depend on a disk, and disks are slow.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A store under test.
pub(crate) struct StoreUnderTest {
    pub(crate) store: Arc<dyn Store>,
    backend: Box<dyn Backend>,
}

impl StoreUnderTest {
    pub(crate) fn open(backend: Box<dyn Backend>) -> Self {
        Self { store: backend.open(), backend }
    }

    /// Closes and reopens the store, unless it would lose its content.
    pub(crate) async fn reopen(&mut self) {
        if !self.backend.is_volatile() {
            self.store.close().await;
            self.store = self.backend.open();
        }
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

    async fn dump(&self) -> String {
        dump(&*self.store).await
    }

    async fn close_and_check(self) {
        self.store.close().await;
        self.backend.check();
    }
}

/// Formats the whole content of a store for comparison.
pub(crate) async fn dump(store: &dyn Store) -> String {
    let index = store.index().await.unwrap();
    let agents = store.agents(index.iter().map(|row| row.serial).collect()).await.unwrap();
    let entries = store.read(samples::entry_range(None, 0)).await.unwrap();
    let with_open_turns = store.agents_with_open_turns().await.unwrap();
    let bounds = store.bounds().await.unwrap();
    let last = store.last_serial().await.unwrap();
    format!("{index:#?}\n{agents:#?}\n{entries:#?}\n{with_open_turns:?} {bounds:?} {last}")
}

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
