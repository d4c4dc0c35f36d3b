//! Maintenance of a SQLite store: backup, full check, and verification of the hash chain.

mod backup;
mod chain;
mod check;
mod journaled_agents;

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::files::StoreFiles;
use super::high_water_mark::HighWaterMark;
use super::opening::{open_immutable, open_reader};
use super::startup_check::{DatabaseState, inspect_database};
use crate::maintenance::{BackupReport, ChainReport, CheckReport, Maintenance, MaintenanceFault};

pub(super) use backup::copy_database;

/// Maintenance of the store in a SQLite file.
pub(crate) struct SqliteMaintenance {
    pub(crate) path: PathBuf,
}

impl Maintenance for SqliteMaintenance {
    fn backup(&self, to: &Path) -> Result<BackupReport, MaintenanceFault> {
        backup::backup(&self.path, to)
    }

    fn check(&self) -> Result<CheckReport, MaintenanceFault> {
        check::check(&self.path)
    }

    fn verify_chain(&self) -> Result<ChainReport, MaintenanceFault> {
        chain::verify_chain(&self.path)
    }
}

fn io_fault(path: &Path, error: io::Error) -> MaintenanceFault {
    MaintenanceFault::Io { path: path.to_owned(), error }
}

fn sql_fault(path: &Path, error: &rusqlite::Error) -> MaintenanceFault {
    MaintenanceFault::Database { path: path.to_owned(), why: error.to_string() }
}

/// Reads the high-water mark, then inspects the database.
fn inspect(db: &Connection, path: &Path) -> Result<(Option<HighWaterMark>, DatabaseState), MaintenanceFault> {
    let mark = HighWaterMark::read(&StoreFiles::new(path).high_water_mark())
        .map_err(|error| io_fault(path, error))?;
    let state = inspect_database(db, mark.as_ref()).map_err(|error| sql_fault(path, &error))?;
    Ok((mark, state))
}

/// Runs an operation on a store. Without a WAL no daemon uses the store, and it is opened immutable, which creates no
/// companion files; otherwise it is opened as a regular reader.
fn with_store<T>(
    path: &Path,
    operation: impl Fn(&Connection) -> Result<T, MaintenanceFault>,
    is_sound: impl Fn(&T) -> bool,
) -> Result<T, MaintenanceFault> {
    let sql = |error| sql_fault(path, &error);
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
