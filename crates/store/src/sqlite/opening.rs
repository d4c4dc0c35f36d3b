//! Opens a store, or says why not: which file, what is wrong with it, and what to do.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::checkpoint::{Checkpointer, StartFault};
use super::failpoints::Failpoints;
use super::files::StoreFiles;
use super::high_water_mark::{HighWaterMark, HighWaterMarkFile};
use super::lock_file::{self, LockFile};
use super::migrate::migrate;
use super::queue::WriteQueue;
use super::reader_pool::{READER_THREADS, ReaderPool};
use super::schema::{MIGRATIONS, current_version};
use super::startup_check::{DatabaseState, inspect_database};
use super::transaction_writer::JournalHead;
use super::writer::{Writer, WriterContext};
use super::{Durability, SqliteOptions, SqliteStore};
use crate::digest::DatabaseId;

/// The first SQLite without the fault that loses commits when a log is begun anew under load.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// Another daemon uses it.
    #[error(
        "{}: another daemon{} uses this store; stop it, or give this one another home",
        .path.display(), .holder.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, if it said so.
        holder: Option<u32>,
    },
    /// It cannot be written.
    #[error("{}: read-only; give the daemon's user the right to write (chmod u+w), or remount the disk", .path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// It is on another machine.
    #[error(
        "{}: on a network file system ({system}), where locks and shared memory cannot be trusted; \
         move the daemon's home to a disk of this machine", .path.display()
    )]
    NetworkFileSystem {
        /// The folder.
        path: PathBuf,
        /// The file system.
        system: String,
    },
    /// It is no database.
    #[error(
        "{}: not a database; restore a backup, or move the file away to begin anew", .path.display()
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// Another program's.
    #[error(
        "{}: a database of another program (application id {application:#x}); move it away or give the daemon \
         another home", .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it says it is.
        application: i32,
    },
    /// A later program's.
    #[error(
        "{}: schema version {found}, and this nexus3 knows versions up to {known}: an older binary cannot read \
         what a newer one wrote; use the newer nexus3, or restore the copy it took ({}.v{known}.bak)",
        .path.display(), .path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The highest version that is known.
        known: u32,
    },
    /// It is not whole.
    #[error(
        "{}: damaged: {why}; run nexus3 check to see all of it, then restore a backup, or move the file and its \
         -wal away to begin anew", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Entries are missing that were kept.
    #[error(
        "{}: the journal ends at entry {last}, but {marked} were kept: {}-wal was cut, changed or removed; put it \
         back or restore a newer backup; if this file is older on purpose, remove {}.mark to go on without the rest",
        .path.display(), .path.display(), .path.display()
    )]
    JournalTruncated {
        /// The file.
        path: PathBuf,
        /// The last entry there is.
        last: u64,
        /// The last entry there was.
        marked: u64,
    },
    /// Commits without the database they belong to.
    #[error(
        "{}: not there or empty, but its {}-wal holds commits; put the database back, or move the -wal file away \
         as well", .path.display(), .path.display()
    )]
    WalWithoutDatabase {
        /// The file.
        path: PathBuf,
    },
    /// There is no room to open it.
    #[error("{}: no space is left on this disk; make room and start again", .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The copy before a migration failed.
    #[error("{}: the copy before the schema changes cannot be written: {why}; make room or move it away", .path.display())]
    BackupFailed {
        /// The copy.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The library is too old.
    #[error(
        "SQLite {found} can lose commits; this program needs {} or later",
        format_version(SQLITE_VERSION_MIN)
    )]
    OldSqlite {
        /// Its version.
        found: &'static str,
    },
    /// Failpoints that make no sense, or are asked of a release build.
    #[error("{0}")]
    Failpoints(String),
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// The system refused.
    #[error("{}: cannot be {doing}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
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
}

fn format_version(number: i32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000)
}

impl OpenFault {
    pub(super) fn io(path: &Path, doing: &'static str, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, doing, error },
        }
    }

    pub(super) fn sql(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, why: error.to_string() },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            _ => Self::Sql { path, error },
        }
    }
}

/// Opens the store of a file, which is made if it is not there.
///
/// # Errors
/// When it is in use, not whole, not ours, or cannot be written; the text names the file and what to do.
pub fn open(options: &SqliteOptions) -> Result<Arc<SqliteStore>, OpenFault> {
    let mut failpoints = Failpoints::parse(options.failpoints.as_deref()).map_err(OpenFault::Failpoints)?;
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenFault::OldSqlite { found: rusqlite::version() });
    }
    let files = StoreFiles::new(&options.path);
    lock_file::check_folder(&files)?;
    // Before the database is touched: a process that closes a file gives up all its locks on it, and SQLite's may be
    // among them.
    let lock = LockFile::acquire(&files)?;
    lock_file::check_database_file(&files)?;
    let version = check_before_open(&files)?;
    lock_file::make_private(&files.database)
        .map_err(|error| OpenFault::io(&files.database, "made", error))?;
    let mut db = open_writer(&files, options.durability)?;
    if let Some(version) = version {
        migrate(&mut db, &files, version, MIGRATIONS, &mut failpoints)?;
    }
    let sql = |error| OpenFault::sql(&files.database, error);
    let (database, head) = check_after_open(&db, &files)?;
    let connections: Vec<_> =
        (0..READER_THREADS).map(|_| open_reader(&files.database)).collect::<Result<_, _>>().map_err(sql)?;
    let mark = HighWaterMarkFile::open(&files.high_water_mark())
        .map_err(|error| OpenFault::io(&files.high_water_mark(), "opened", error))?;
    let own = open_writer(&files, options.durability)?;
    let file =
        File::open(&files.database).map_err(|error| OpenFault::io(&files.database, "opened", error))?;
    let file = Arc::new(file);
    let checkpointer = Checkpointer::start(&mut db, own, Arc::clone(&file)).map_err(|fault| match fault {
        StartFault::Io(error) => OpenFault::io(&files.database, "given a thread", error),
        StartFault::Sql(error) => OpenFault::sql(&files.database, error),
    })?;
    let (line, readers) = (Arc::new(WriteQueue::default()), Arc::new(ReaderPool::default()));
    let store = SqliteStore { queue: Arc::clone(&line), readers: Arc::clone(&readers) };
    let no_thread = |error| {
        // Nobody else will end what has begun.
        store.queue.mark_stopped();
        store.readers.close();
        OpenFault::io(&files.database, "given a thread", error)
    };
    let reader_threads = readers.start(connections).map_err(no_thread)?;
    let durability = options.durability;
    let hand =
        WriterContext { queue: line, database, durability, failpoints, high_water_mark: mark, checkpointer };
    let writer = Writer { db, head, context: hand, readers, reader_threads, file, lock };
    writer.start().map_err(no_thread)?;
    Ok(Arc::new(store))
}

/// Looks without writing, so that what is refused is left as it was found. The version to migrate from, if any.
fn check_before_open(files: &StoreFiles) -> Result<Option<u32>, OpenFault> {
    let path = files.database.clone();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    if size(&path) == 0 {
        // SQLite would take the log for a leftover and delete it.
        return if size(&files.wal()) == 0 {
            Ok(Some(0))
        } else {
            Err(OpenFault::WalWithoutDatabase { path })
        };
    }
    // We hold the lock: without a log nobody writes, and nothing has to be put beside it.
    let db = if files.wal().exists() { open_reader(&path) } else { open_immutable(&path) };
    let db = db.map_err(|error| OpenFault::sql(&path, error))?;
    match inspect(&db, files)? {
        DatabaseState::Empty => Ok(Some(0)),
        DatabaseState::Older(version) => Ok(Some(version)),
        DatabaseState::Current { .. } => Ok(None),
        DatabaseState::Foreign(application) => Err(OpenFault::Foreign { path, application }),
        DatabaseState::Newer(found) => Err(OpenFault::NewerSchema { path, found, known: current_version() }),
        DatabaseState::Damaged(why) => Err(OpenFault::Damaged { path, why }),
        DatabaseState::JournalTruncated { last, marked } => {
            Err(OpenFault::JournalTruncated { path, last, marked })
        }
    }
}

/// After the migrations everything has to be in order.
fn check_after_open(db: &Connection, files: &StoreFiles) -> Result<(DatabaseId, JournalHead), OpenFault> {
    let path = files.database.clone();
    match inspect(db, files)? {
        DatabaseState::Current { database, head } => Ok((database, head)),
        DatabaseState::JournalTruncated { last, marked } => {
            Err(OpenFault::JournalTruncated { path, last, marked })
        }
        other => Err(OpenFault::Damaged { path, why: format!("after it was opened: {other:?}") }),
    }
}

fn inspect(db: &Connection, files: &StoreFiles) -> Result<DatabaseState, OpenFault> {
    let mark = HighWaterMark::read(&files.high_water_mark())
        .map_err(|error| OpenFault::io(&files.high_water_mark(), "read", error))?;
    inspect_database(db, mark.as_ref()).map_err(|error| OpenFault::sql(&files.database, error))
}

/// How long to wait for another program that holds the database, such as a backup that begins.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The write-ahead log is cut to this size when it has been emptied. Writing over old pages is cheaper than growing.
const WAL_BYTES_RETAINED_MAX: i64 = 16 << 20;

fn open_writer(files: &StoreFiles, durability: Durability) -> Result<Connection, OpenFault> {
    let path = &files.database;
    let sql = |error| OpenFault::sql(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sql)?;
    configure_connection(&db).map_err(sql)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(sql)?;
    if mode != "wal" {
        let error = io::Error::other(format!("its journal mode stays {mode}"));
        return Err(OpenFault::Io { path: path.clone(), doing: "put into WAL mode", error });
    }
    let synchronous = match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    let set = || {
        db.pragma_update(None, "synchronous", synchronous)?;
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        db.pragma_update(None, "journal_size_limit", WAL_BYTES_RETAINED_MAX)?;
        // In KiB. What is written lies together, so a few pages do; and a commit that has moved pages in a tree looks
        // through all of them.
        db.pragma_update(None, "cache_size", -4096)
    };
    set().map_err(sql)?;
    Ok(db)
}

/// A connection that cannot write.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    configure_connection(&db)?;
    Ok(db)
}

/// A file that nobody else uses or will: read without the files that SQLite would put beside it.
pub(crate) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags)?;
    configure_connection(&db)?;
    Ok(db)
}

/// What holds for every connection.
fn configure_connection(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(64);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "mmap_size", 0)?;
    db.pragma_update(None, "temp_store", "memory")
}
