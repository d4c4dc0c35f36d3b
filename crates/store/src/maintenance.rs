//! Looking after a store from outside, also while a daemon uses it: a copy, a full check, the chain of the journal.

mod backup;
mod chain;
mod check;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub(crate) use backup::copy_database;
pub use backup::{BackupReport, backup};
pub use chain::{ChainBreak, ChainReport, verify_chain};
pub use check::{CheckReport, Problem, check};

use crate::sqlite::{StoreFiles, open_immutable, open_reader};

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceFault {
    /// There is no store.
    #[error("{}: there is no store; a daemon makes it when it first starts", .0.display())]
    Missing(PathBuf),
    /// The target is there already.
    #[error("{}: there already; nothing is overwritten, choose another name", .0.display())]
    Exists(PathBuf),
    /// It is no store of ours.
    #[error("{}: {what}", .path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        what: String,
    },
    /// The system refused.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// SQLite refused.
    #[error("{}: {error}; run nexus3 check", .path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: rusqlite::Error,
    },
    /// The copy is not whole; it was removed.
    #[error("{}: the copy is not whole and was removed: {why}; run nexus3 check on the store", .path.display())]
    CorruptCopy {
        /// The copy.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl MaintenanceFault {
    fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    fn sql(path: &Path, error: rusqlite::Error) -> Self {
        Self::Sql { path: path.to_owned(), error }
    }
}

/// Works on a store that nobody uses without leaving a trace beside it, and on one in use as SQLite's guest. A daemon
/// always has a log.
fn with_store<T>(
    path: &Path,
    work: impl Fn(&Connection) -> Result<T, MaintenanceFault>,
    is_fine: impl Fn(&T) -> bool,
) -> Result<T, MaintenanceFault> {
    let sql = |error| MaintenanceFault::sql(path, error);
    let log = StoreFiles::new(path).wal();
    if !log.exists() {
        let found = open_immutable(path).map_err(sql).and_then(|db| work(&db));
        // A daemon that began meanwhile writes under our hands: a fault that was found then counts for nothing.
        if !log.exists() || found.as_ref().is_ok_and(is_fine) {
            return found;
        }
    }
    open_reader(path).map_err(sql).and_then(|db| work(&db))
}
