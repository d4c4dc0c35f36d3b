//! Paths of a store's files: the database, and companion files named after it with a suffix.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Paths of one store's files.
#[derive(Debug, Clone)]
pub(crate) struct StoreFiles {
    pub(crate) database: PathBuf,
}

impl StoreFiles {
    pub(crate) fn new(database: &Path) -> Self {
        Self { database: database.to_owned() }
    }

    /// SQLite's write-ahead log: commits not yet checkpointed into the database.
    pub(crate) fn wal(&self) -> PathBuf {
        self.with_suffix("-wal")
    }

    /// The lock file of the daemon that uses the store.
    pub(crate) fn lock(&self) -> PathBuf {
        self.with_suffix(".lock")
    }

    /// The high-water mark of the journal.
    pub(crate) fn high_water_mark(&self) -> PathBuf {
        self.with_suffix(".mark")
    }

    /// The backup made before migrating from this schema version; `number` distinguishes repeated ones.
    pub(crate) fn migration_backup(&self, version: u32, number: u32) -> PathBuf {
        match number {
            0 => self.with_suffix(&format!(".v{version}.bak")),
            number => self.with_suffix(&format!(".v{version}.{number}.bak")),
        }
    }

    /// The folder of the store.
    pub(crate) fn folder(&self) -> &Path {
        parent_folder(&self.database)
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut path = OsString::from(&self.database);
        path.push(suffix);
        PathBuf::from(path)
    }
}

/// Returns the parent folder of a path, `.` for a bare file name.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
