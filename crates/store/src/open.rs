//! The list of store backends: one arm each to open a store and to maintain it. What a backend does is in its own
//! folder.

use std::path::PathBuf;
use std::sync::Arc;

use agent::outside::Store;

use crate::maintenance::{Maintenance, MaintenanceFault};
use crate::sqlite::{self, SqliteMaintenance, SqliteOpenFault, SqliteOptions};

/// A backend and its options.
#[derive(Debug, Clone)]
pub enum StoreOptions {
    /// In memory: the content is lost when the store is dropped.
    Memory,
    /// In a SQLite file.
    Sqlite(SqliteOptions),
}

impl StoreOptions {
    /// Returns the default options for a SQLite file.
    #[must_use]
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(SqliteOptions::new(path))
    }
}

/// Why a store cannot be opened. The text names the store, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// Another daemon uses the store.
    #[error("{0}")]
    Locked(String),
    /// Any other cause.
    #[error("{0}")]
    Refused(String),
}

impl From<SqliteOpenFault> for OpenFault {
    fn from(fault: SqliteOpenFault) -> Self {
        match fault {
            SqliteOpenFault::Locked { .. } => Self::Locked(fault.to_string()),
            _ => Self::Refused(fault.to_string()),
        }
    }
}

/// Opens a store, and creates it if it does not exist.
///
/// # Errors
/// When the store is in use, damaged, another program's, or not writable.
pub fn open(options: &StoreOptions) -> Result<Arc<dyn Store>, OpenFault> {
    Ok(match options {
        StoreOptions::Memory => crate::memory(),
        StoreOptions::Sqlite(options) => sqlite::open(options)?,
    })
}

/// Returns the maintenance of a store, which need not be open.
///
/// # Errors
/// When the backend has nothing to maintain.
pub fn maintenance(options: &StoreOptions) -> Result<Box<dyn Maintenance>, MaintenanceFault> {
    match options {
        StoreOptions::Memory => Err(MaintenanceFault::InMemory),
        StoreOptions::Sqlite(options) => Ok(Box::new(SqliteMaintenance { path: options.path.clone() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_store_has_no_maintenance() {
        assert!(matches!(maintenance(&StoreOptions::Memory), Err(MaintenanceFault::InMemory)));
    }

    #[test]
    fn a_locked_store_differs_from_other_refusals() {
        let folder = crate::conformance::folder();
        let options = StoreOptions::sqlite(folder.path().join("nexus3.db"));
        let store = open(&options).unwrap();
        assert!(matches!(open(&options), Err(OpenFault::Locked(why)) if why.contains("another daemon")));
        drop(store);
        let options = StoreOptions::sqlite(folder.path().join("none").join("nexus3.db"));
        assert!(matches!(open(&options), Err(OpenFault::Refused(why)) if why.contains("none")));
    }
}
