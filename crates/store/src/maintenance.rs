//! Maintenance of a store, also while a daemon uses it: backup, full check, and verification of the hash chain.

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

/// Why a maintenance operation failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceFault {
    /// The store does not exist.
    #[error("{}: there is no store; the daemon creates it at its first start", .0.display())]
    Missing(PathBuf),
    /// The target file exists already.
    #[error("{}: exists already and is not overwritten; choose another name", .0.display())]
    Exists(PathBuf),
    /// The file is not a usable nexus3 store.
    #[error("{}: {what}", .path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        what: String,
    },
    /// A file operation failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A SQLite operation failed.
    #[error("{}: {error}; run nexus3 check", .path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The backup is damaged and was removed.
    #[error("{}: the backup is damaged and was removed: {why}; run nexus3 check on the store", .path.display())]
    CorruptCopy {
        /// The backup file.
        path: PathBuf,
        /// The problem found.
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

/// Runs an operation on a store. Without a WAL no daemon uses the store, and it is opened immutable, which creates no
/// companion files; otherwise it is opened as a regular reader.
fn with_store<T>(
    path: &Path,
    operation: impl Fn(&Connection) -> Result<T, MaintenanceFault>,
    is_sound: impl Fn(&T) -> bool,
) -> Result<T, MaintenanceFault> {
    let sql = |error| MaintenanceFault::sql(path, error);
    let wal = StoreFiles::new(path).wal();
    if !wal.exists() {
        let result = open_immutable(path).map_err(sql).and_then(|db| operation(&db));
        // If a daemon started meanwhile, its writes can look like damage: discard a bad result and read again.
        if !wal.exists() || result.as_ref().is_ok_and(is_sound) {
            return result;
        }
    }
    open_reader(path).map_err(sql).and_then(|db| operation(&db))
}
