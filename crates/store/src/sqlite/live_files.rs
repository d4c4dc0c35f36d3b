//! Watches the files of an open store. SQLite keeps writing to a database or a write-ahead log that was moved, removed
//! or truncated, and the next start would not find those commits; so the writer checks both before each commit.

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::PAGE_BYTES;
use super::database_file::FileId;
use super::files::StoreFiles;

/// Size of the header of a write-ahead log, and of the header of each page in it.
const WAL_HEADER_BYTES: u64 = 32;
const WAL_PAGE_HEADER_BYTES: u64 = 24;

/// The database and its write-ahead log as SQLite has them open.
#[derive(Debug)]
pub(super) struct LiveFiles {
    database: LiveFile,
    wal: LiveFile,
}

/// A file by name, and what the name has to refer to.
#[derive(Debug)]
struct LiveFile {
    path: PathBuf,
    id: FileId,
    bytes_min: u64,
}

/// A file that is no longer what SQLite has open. The text names it and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LostFile {
    /// The log is not at its place, but SQLite can still read it: a checkpoint saves its commits in the database.
    WalDetached(String),
    /// Stored pages are missing, or belong to a database that is elsewhere.
    Pages(String),
}

impl LiveFiles {
    /// Records the identity and size of both files, which must exist.
    pub(super) fn observe(files: &StoreFiles, database: FileId) -> io::Result<Self> {
        let database = LiveFile { id: database, ..LiveFile::observe(&files.database)? };
        Ok(Self { database, wal: LiveFile::observe(&files.wal())? })
    }

    /// Checks that both names refer to the open files, and that neither is shorter than its pages. Costs two `stat`
    /// calls; `wal_pages` is the number of pages in the log since the first commit, before it zero.
    pub(super) fn check(&mut self, wal_pages: usize) -> Result<(), LostFile> {
        if wal_pages > 0 {
            let page_bytes = WAL_PAGE_HEADER_BYTES + PAGE_BYTES as u64;
            self.wal.bytes_min = WAL_HEADER_BYTES + wal_pages as u64 * page_bytes;
        }
        let database = &mut self.database;
        // The database only grows: nothing vacuums it.
        database.bytes_min = database.check().map_err(|loss| {
            let remedy = match loss {
                Loss::Detached(_) => "put it back beside its -wal, or restore a backup",
                Loss::Truncated(_) => "restore a backup",
            };
            LostFile::Pages(format!(
                "{}; {remedy}, then start the daemon again",
                loss.describe(&database.path)
            ))
        })?;
        match self.wal.check() {
            Ok(_) => Ok(()),
            Err(loss @ Loss::Detached(_)) => Err(LostFile::WalDetached(format!(
                "{}; the daemon saves its commits in the database and stops: start it again",
                loss.describe(&self.wal.path)
            ))),
            Err(loss @ Loss::Truncated(_)) => Err(LostFile::Pages(format!(
                "{}; put its content back or restore a backup, then start the daemon again",
                loss.describe(&self.wal.path)
            ))),
        }
    }
}

/// How a name and the open file differ.
enum Loss {
    Detached(Option<io::Error>),
    Truncated(u64),
}

impl Loss {
    fn describe(&self, path: &Path) -> String {
        let what = match self {
            Self::Detached(None) => "replaced by another file".to_owned(),
            Self::Detached(Some(error)) if error.kind() == io::ErrorKind::NotFound => {
                "moved or removed".to_owned()
            }
            Self::Detached(Some(error)) => format!("made inaccessible ({error})"),
            Self::Truncated(bytes) => format!("truncated to {bytes} bytes"),
        };
        format!("{} was {what} while the daemon uses it", path.display())
    }
}

impl LiveFile {
    fn observe(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), id: FileId::of(&metadata), bytes_min: metadata.len() })
    }

    /// Returns the size of the file, if it is the open one and not too short.
    fn check(&self) -> Result<u64, Loss> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| Loss::Detached(Some(error)))?;
        match metadata.len() {
            _ if FileId::of(&metadata) != self.id => Err(Loss::Detached(None)),
            bytes if bytes < self.bytes_min => Err(Loss::Truncated(bytes)),
            bytes => Ok(bytes),
        }
    }
}
