//! Paths of a store's files: the database, and companion files named after it with a suffix.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Paths of one store's files.
#[derive(Debug, Clone)]
pub(crate) struct StoreFiles {
    pub(crate) database: PathBuf,
}

impl StoreFiles {
    /// Resolves a symlink to the database: SQLite names the write-ahead log after the link's target.
    pub(crate) fn new(database: &Path) -> Self {
        let target = if database.is_symlink() { database.canonicalize().ok() } else { None };
        Self { database: target.unwrap_or_else(|| database.to_owned()) }
    }

    /// SQLite's write-ahead log: commits not yet checkpointed into the database.
    pub(crate) fn wal(&self) -> PathBuf {
        self.with_suffix("-wal")
    }

    /// Index of the write-ahead log, in memory that SQLite's connections share.
    pub(crate) fn wal_index(&self) -> PathBuf {
        self.with_suffix("-shm")
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

/// Opens a regular file. Never follows a symlink, whose target would be overwritten, nor waits for a pipe.
pub(super) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        if is_link { not_regular() } else { error }
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Checks that a file, if it exists, is a regular one: SQLite itself follows a symlink in place of a companion file.
pub(super) fn check_regular(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(not_regular()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file, but a link or a special file; move it away")
}
