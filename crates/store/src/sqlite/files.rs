//! The files of a store: the database, and those beside it that bear its name and an ending.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the files of one store are.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) database: PathBuf,
}

impl Files {
    pub(crate) fn of(database: &Path) -> Self {
        Self { database: database.to_owned() }
    }

    /// SQLite's write-ahead log: commits that are not in the database yet.
    pub(crate) fn wal(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// Held by the daemon that uses the store.
    pub(crate) fn lock(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// How far the journal had come.
    pub(crate) fn mark(&self) -> PathBuf {
        self.beside(".mark")
    }

    /// The copy that was taken before the schema left this version; a number tells later ones apart.
    pub(crate) fn before_migration(&self, version: u32, number: u32) -> PathBuf {
        match number {
            0 => self.beside(&format!(".v{version}.bak")),
            number => self.beside(&format!(".v{version}.{number}.bak")),
        }
    }

    /// The folder they are in.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(&self.database)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = OsString::from(&self.database);
        path.push(ending);
        PathBuf::from(path)
    }
}

/// The folder of a path that may be a plain name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
