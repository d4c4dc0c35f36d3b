//! The files of a store: the database, and those beside it that bear its name and an ending.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the files of one store are.
#[derive(Debug, Clone)]
pub(crate) struct StoreFiles {
    pub(crate) database: PathBuf,
}

impl StoreFiles {
    pub(crate) fn new(database: &Path) -> Self {
        Self { database: database.to_owned() }
    }

    /// SQLite's write-ahead log: commits that are not in the database yet.
    pub(crate) fn wal(&self) -> PathBuf {
        self.with_suffix("-wal")
    }

    /// Held by the daemon that uses the store.
    pub(crate) fn lock(&self) -> PathBuf {
        self.with_suffix(".lock")
    }

    /// How far the journal had come.
    pub(crate) fn high_water_mark(&self) -> PathBuf {
        self.with_suffix(".mark")
    }

    /// The copy that was taken before the schema left this version; a number tells later ones apart.
    pub(crate) fn migration_backup(&self, version: u32, number: u32) -> PathBuf {
        match number {
            0 => self.with_suffix(&format!(".v{version}.bak")),
            number => self.with_suffix(&format!(".v{version}.{number}.bak")),
        }
    }

    /// The folder they are in.
    pub(crate) fn folder(&self) -> &Path {
        parent_folder(&self.database)
    }

    fn with_suffix(&self, ending: &str) -> PathBuf {
        let mut path = OsString::from(&self.database);
        path.push(ending);
        PathBuf::from(path)
    }
}

/// The folder of a path that may be a plain name.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
