//! Opens a SQLite store, or refuses it with an error that names the file, the cause and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::checkpoint::{Checkpointer, StartFault};
use super::database_file::DatabaseFile;
use super::failpoints::Failpoints;
use super::files::{StoreFiles, check_regular, parent_folder};
use super::folder::check_folder;
use super::high_water_mark::{HighWaterMark, HighWaterMarkFile};
use super::live_files::LiveFiles;
use super::migrate::migrate;
use super::queue::WriteQueue;
use super::reader_pool::{READER_THREADS, ReaderPool};
use super::schema::{MIGRATIONS, current_version};
use super::startup_check::{DatabaseState, inspect_database};
use super::transaction_writer::JournalHead;
use super::writer::{Writer, WriterContext};
use super::{Durability, SqliteOptions, SqliteStore};
use crate::digest::DatabaseId;

/// The first SQLite release without the bug that loses commits when the WAL is reset under load.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqliteOpenFault {
    /// Another daemon uses the store.
    #[error(
        "{}: another daemon{} uses this store; stop it, or give this one another home",
        .path.display(), .holder.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Locked {
        path: PathBuf,
        /// Id of the process that holds the lock, if the file names it.
        holder: Option<u32>,
    },
    /// The file or folder cannot be written.
    #[error("{}: read-only; make it writable for the daemon's user (chmod u+w), or remount the disk", .path.display())]
    ReadOnly { path: PathBuf },
    /// The folder is on a network file system.
    #[error(
        "{}: on a network file system ({system}), where locks and shared memory cannot be trusted; \
         move the daemon's home to a disk of this machine", .path.display()
    )]
    NetworkFileSystem { path: PathBuf, system: String },
    /// The file is not a SQLite database.
    #[error(
        "{}: not a database; restore a backup, or move the file and its -wal and .mark away to start with an empty \
         store",
        .path.display()
    )]
    NotADatabase { path: PathBuf },
    /// The database belongs to another program.
    #[error(
        "{}: a database of another program (application id {application:#x}); move it away or give the daemon \
         another home", .path.display()
    )]
    Foreign { path: PathBuf, application: i32 },
    /// A newer nexus3 wrote the database.
    #[error(
        "{}: schema version {found}, but this nexus3 supports versions up to {known}: an older binary cannot read \
         a newer schema; use the newer nexus3, or restore the backup it made ({}.v{known}.bak)",
        .path.display(), .path.display()
    )]
    NewerSchema { path: PathBuf, found: u32, known: u32 },
    /// The database is damaged.
    #[error(
        "{}: damaged: {why}; run nexus3 check for a full report, then restore a backup, or move the file and its \
         -wal and .mark away to start with an empty store", .path.display()
    )]
    Damaged { path: PathBuf, why: String },
    /// Committed entries are missing at the end of the journal.
    #[error(
        "{}: the journal ends at entry {last}, but {marked} were committed: {}-wal was cut, changed or removed; \
         put it back or restore a newer backup; if this file is older on purpose, remove {}.mark to continue \
         without the missing entries",
        .path.display(), .path.display(), .path.display()
    )]
    JournalTruncated {
        path: PathBuf,
        /// Sequence of the last entry in the file.
        last: u64,
        /// Sequence of the last committed entry, from the high-water mark.
        marked: u64,
    },
    /// A write-ahead log without its database.
    #[error(
        "{}: not there or empty, but its {}-wal holds commits; put the database back, or move its -wal and .mark \
         away to start with an empty store", .path.display(), .path.display()
    )]
    WalWithoutDatabase { path: PathBuf },
    /// The high-water mark of a database that is not there.
    #[error(
        "{}: not there or empty, but {}.mark says that {marked} entries were committed: the database was moved or \
         removed; put it back or restore a backup, or move its .mark away to start with an empty store",
        .path.display(), .path.display()
    )]
    MarkWithoutDatabase {
        path: PathBuf,
        /// Sequence of the last committed entry, from the high-water mark.
        marked: u64,
    },
    /// The disk is full.
    #[error(
        "{}: no space is left on its disk ({free}); make room on the disk of {}, or move the daemon's home to \
         another disk, and start again", .path.display(), parent_folder(path).display()
    )]
    DiskFull {
        path: PathBuf,
        /// The free space, in words.
        free: String,
    },
    /// The backup before a schema migration failed.
    #[error(
        "{}: the backup before the schema migration cannot be written: {why}; make room, or move old backups away",
        .path.display()
    )]
    BackupFailed { path: PathBuf, why: String },
    /// The linked SQLite library is too old.
    #[error(
        "SQLite {found} can lose commits; this program needs {} or later",
        format_version(SQLITE_VERSION_MIN)
    )]
    OldSqlite { found: &'static str },
    /// Invalid failpoints, or failpoints in a release build.
    #[error("{0}")]
    Failpoints(String),
    /// The operating system's random number generator failed.
    #[error("no random bytes: {0}")]
    Random(String),
    /// A file operation failed.
    #[error("{}: cannot be {action}: {error}", .path.display())]
    Io {
        path: PathBuf,
        /// The failed operation, as a past participle.
        action: &'static str,
        error: io::Error,
    },
    /// A SQLite operation failed.
    #[error("{}: {error}; run nexus3 check", .path.display())]
    Sql { path: PathBuf, error: rusqlite::Error },
}

fn format_version(number: i32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000)
}

impl SqliteOpenFault {
    pub(super) fn io(path: &Path, action: &'static str, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::disk_full(&path),
            _ => Self::Io { path, action, error },
        }
    }

    pub(super) fn sql(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, why: error.to_string() },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            Some(ErrorCode::DiskFull) => Self::disk_full(&path),
            // SQLite does not say why it could not create or extend a file.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
                if FreeSpace::of(&path).is_some_and(|free| free.is_exhausted()) =>
            {
                Self::disk_full(&path)
            }
            _ => Self::Sql { path, error },
        }
    }

    pub(super) fn disk_full(path: &Path) -> Self {
        let free = FreeSpace::of(path).map_or_else(|| "full".to_owned(), |free| free.to_string());
        Self::DiskFull { path: path.to_owned(), free }
    }
}

/// Free space of a disk, for an ordinary user.
struct FreeSpace {
    bytes: u64,
    /// Number of files that can be created; `None` where the file system has no limit.
    files: Option<u64>,
}

impl FreeSpace {
    /// The files that SQLite creates beside a database need this much.
    const BYTES_MIN: u64 = 1 << 20;

    fn of(path: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(parent_folder(path)).ok()?;
        let files = (disk.f_files > 0).then_some(disk.f_favail);
        Some(Self { bytes: disk.f_bavail.saturating_mul(disk.f_frsize), files })
    }

    fn is_exhausted(&self) -> bool {
        self.bytes < Self::BYTES_MIN || self.files == Some(0)
    }
}

impl fmt::Display for FreeSpace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} KiB free", self.bytes / 1024)?;
        self.files.map_or(Ok(()), |files| write!(out, ", {files} inodes free"))
    }
}

/// Opens the store at a path, and creates the file if it does not exist.
pub(crate) fn open(options: &SqliteOptions) -> Result<Arc<SqliteStore>, SqliteOpenFault> {
    let mut failpoints =
        Failpoints::parse(options.failpoints.as_deref()).map_err(SqliteOpenFault::Failpoints)?;
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(SqliteOpenFault::OldSqlite { found: rusqlite::version() });
    }
    let files = StoreFiles::new(&options.path);
    check_folder(&files)?;
    check_companion_files(&files)?;
    check_missing_database(&files)?;
    let file = Arc::new(DatabaseFile::lock(&files)?);
    let version = check_before_open(&files)?;
    file.make_private().map_err(|error| SqliteOpenFault::io(&files.database, "made private", error))?;
    let mut db = open_writer(&files, options.durability)?;
    if let Some(version) = version {
        migrate(&mut db, &files, version, MIGRATIONS, &mut failpoints)?;
    }
    let sql = |error| SqliteOpenFault::sql(&files.database, error);
    let (database, head) = check_after_open(&db, &files)?;
    let connections: Vec<_> =
        (0..READER_THREADS).map(|_| open_reader(&files.database)).collect::<Result<_, _>>().map_err(sql)?;
    let mark = HighWaterMarkFile::open(&files.high_water_mark())
        .map_err(|error| SqliteOpenFault::io(&files.high_water_mark(), "opened", error))?;
    let checkpoint_db = open_writer(&files, options.durability)?;
    let live_files = LiveFiles::observe(&files, file.id())
        .map_err(|error| SqliteOpenFault::io(&files.wal(), "found", error))?;
    let checkpointer =
        Checkpointer::start(&mut db, checkpoint_db, Arc::clone(&file)).map_err(|fault| match fault {
            StartFault::Io(error) => SqliteOpenFault::io(&files.database, "given a thread", error),
            StartFault::Sql(error) => SqliteOpenFault::sql(&files.database, error),
        })?;
    let (queue, readers) = (Arc::new(WriteQueue::default()), Arc::new(ReaderPool::default()));
    let store = SqliteStore { queue: Arc::clone(&queue), readers: Arc::clone(&readers) };
    let no_thread = |error| {
        // No writer thread will stop the queue and the readers, so do it here.
        store.queue.mark_stopped();
        store.readers.close();
        SqliteOpenFault::io(&files.database, "given a thread", error)
    };
    let reader_threads = readers.start(connections).map_err(no_thread)?;
    let durability = options.durability;
    let context = WriterContext {
        queue,
        database,
        durability,
        failpoints,
        high_water_mark: mark,
        checkpointer,
        live_files,
        is_wal_detached: false,
    };
    let writer = Writer { db, head, context, readers, reader_threads, file };
    writer.start().map_err(no_thread)?;
    Ok(Arc::new(store))
}

/// Checks that no companion file is a link or a special file.
fn check_companion_files(files: &StoreFiles) -> Result<(), SqliteOpenFault> {
    for path in [files.wal(), files.wal_index(), files.high_water_mark()] {
        check_regular(&path).map_err(|error| SqliteOpenFault::io(&path, "used", error))?;
    }
    Ok(())
}

/// Checks that a database that does not exist or is empty has left no commits behind. Runs before the file is created.
fn check_missing_database(files: &StoreFiles) -> Result<(), SqliteOpenFault> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    // The WAL first: a daemon that creates the store at this moment writes to the database first.
    let has_wal = size(&files.wal()) > 0;
    let path = files.database.clone();
    if size(&path) > 0 {
        return Ok(());
    }
    if has_wal {
        // SQLite would delete the WAL as stale.
        return Err(SqliteOpenFault::WalWithoutDatabase { path });
    }
    match read_mark(files)?.filter(|mark| mark.sequence > 0) {
        None => Ok(()),
        Some(HighWaterMark { sequence: marked, .. }) => {
            Err(SqliteOpenFault::MarkWithoutDatabase { path, marked })
        }
    }
}

/// Inspects the database read-only, so that a refused file stays unchanged. Returns the version to migrate from.
fn check_before_open(files: &StoreFiles) -> Result<Option<u32>, SqliteOpenFault> {
    let path = files.database.clone();
    if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
        return Ok(Some(0));
    }
    // The lock is held, so without a WAL there is no writer: the file can be read as immutable, which creates no
    // companion files.
    let db = if files.wal().exists() { open_reader(&path) } else { open_immutable(&path) };
    let db = db.map_err(|error| SqliteOpenFault::sql(&path, error))?;
    match inspect(&db, files)? {
        DatabaseState::Empty => Ok(Some(0)),
        DatabaseState::Older(version) => Ok(Some(version)),
        DatabaseState::Current { .. } => Ok(None),
        DatabaseState::Foreign(application) => Err(SqliteOpenFault::Foreign { path, application }),
        DatabaseState::Newer(found) => {
            Err(SqliteOpenFault::NewerSchema { path, found, known: current_version() })
        }
        DatabaseState::Damaged(why) => Err(SqliteOpenFault::Damaged { path, why }),
        DatabaseState::JournalTruncated { last, marked } => {
            Err(SqliteOpenFault::JournalTruncated { path, last, marked })
        }
    }
}

/// Inspects the database after the migrations: only a current, intact schema is accepted.
fn check_after_open(
    db: &Connection,
    files: &StoreFiles,
) -> Result<(DatabaseId, JournalHead), SqliteOpenFault> {
    let path = files.database.clone();
    match inspect(db, files)? {
        DatabaseState::Current { database, head } => Ok((database, head)),
        DatabaseState::JournalTruncated { last, marked } => {
            Err(SqliteOpenFault::JournalTruncated { path, last, marked })
        }
        state => Err(SqliteOpenFault::Damaged { path, why: format!("after opening: {state}") }),
    }
}

fn inspect(db: &Connection, files: &StoreFiles) -> Result<DatabaseState, SqliteOpenFault> {
    inspect_database(db, read_mark(files)?.as_ref())
        .map_err(|error| SqliteOpenFault::sql(&files.database, error))
}

fn read_mark(files: &StoreFiles) -> Result<Option<HighWaterMark>, SqliteOpenFault> {
    let path = files.high_water_mark();
    HighWaterMark::read(&path).map_err(|error| SqliteOpenFault::io(&path, "read", error))
}

/// How long SQLite waits for a lock that another program holds, such as a starting backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Size the WAL file is truncated to after a checkpoint. Overwriting old pages is cheaper than growing the file.
const WAL_BYTES_RETAINED_MAX: i64 = 16 << 20;

fn open_writer(files: &StoreFiles, durability: Durability) -> Result<Connection, SqliteOpenFault> {
    let path = &files.database;
    let sql = |error| SqliteOpenFault::sql(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sql)?;
    configure_connection(&db).map_err(sql)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(sql)?;
    if mode != "wal" {
        let error = io::Error::other(format!("its journal mode stays {mode}"));
        return Err(SqliteOpenFault::Io { path: path.clone(), action: "put into WAL mode", error });
    }
    let synchronous = match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    let set = || {
        db.pragma_update(None, "synchronous", synchronous)?;
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        db.pragma_update(None, "journal_size_limit", WAL_BYTES_RETAINED_MAX)?;
        // In KiB. Writes have locality, so a small cache suffices; a commit after a B-tree rebalance scans all of it.
        db.pragma_update(None, "cache_size", -4096)
    };
    set().map_err(sql)?;
    Ok(db)
}

/// Opens a read-only connection.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    configure_connection(&db)?;
    Ok(db)
}

/// Opens a file that no other process writes, without creating SQLite's companion files.
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

/// Applies the settings that all connections share.
fn configure_connection(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(64);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "mmap_size", 0)?;
    db.pragma_update(None, "temp_store", "memory")
}
