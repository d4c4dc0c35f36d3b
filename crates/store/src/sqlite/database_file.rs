//! The open database file. Its inode is locked, not a name beside it: a hard link or a bind mount of the file is the
//! same database, and two writers break the journal's chain.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, major, minor};

use super::files::StoreFiles;
use super::opening::SqliteOpenFault;

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Databases that this process has open. A second attempt must not even open the file: closing any descriptor of it
/// would release the POSIX locks of SQLite's connections.
static OPEN_DATABASES: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

fn open_databases() -> MutexGuard<'static, BTreeSet<FileId>> {
    OPEN_DATABASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The database file, open and exclusively locked. `flock` neither conflicts with SQLite's POSIX locks nor is released
/// by closing another descriptor; readers such as a backup do not use it.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    file: File,
    id: FileId,
}

impl DatabaseFile {
    /// Opens and locks the database; creates it, readable only by its owner, if it does not exist.
    pub(super) fn lock(files: &StoreFiles) -> Result<Self, SqliteOpenFault> {
        let path = &files.database;
        let io = |action| move |error| SqliteOpenFault::io(path, action, error);
        let locked = |holder| SqliteOpenFault::Locked { path: path.clone(), holder };
        let mut open_databases = open_databases();
        if let Some(metadata) = existing_file(path)?
            && open_databases.contains(&FileId::of(&metadata))
        {
            return Err(locked(Some(std::process::id())));
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(io("opened for writing"))?;
        let id = FileId::of(&file.metadata().map_err(io("read"))?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(locked(lock_holder(id))),
            Err(error) => return Err(io("locked")(error.into())),
        }
        if existing_file(path)?.is_none_or(|metadata| FileId::of(&metadata) != id) {
            let error = io::Error::other("it was replaced meanwhile; start again");
            return Err(io("locked")(error));
        }
        open_databases.insert(id);
        Ok(Self { file, id })
    }

    /// Restricts the file to its owner. SQLite copies the mode to companion files.
    pub(super) fn make_private(&self) -> io::Result<()> {
        if self.file.metadata()?.permissions().mode() & 0o077 != 0 {
            self.file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        let mut open_databases = open_databases();
        // Closing the file releases the lock too, but only after another thread may have found it free.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        open_databases.remove(&self.id);
    }
}

/// Returns the metadata of the database if it exists, and refuses it if it is not a writable regular file.
fn existing_file(path: &Path) -> Result<Option<Metadata>, SqliteOpenFault> {
    match std::fs::metadata(path) {
        // Respect a missing write bit even for root, which could write anyway.
        Ok(file) if file.permissions().mode() & 0o200 == 0 => {
            Err(SqliteOpenFault::ReadOnly { path: path.to_owned() })
        }
        Ok(file) if !file.is_file() => Err(SqliteOpenFault::NotADatabase { path: path.to_owned() }),
        Ok(file) => Ok(Some(file)),
        // The target of a symlink may be on a disk that is not mounted: an empty store must not appear there.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => Ok(None),
        Err(error) => Err(SqliteOpenFault::io(path, "found", error)),
    }
}

/// Returns the process that holds the lock on a file, if the kernel tells; only for the message.
fn lock_holder(id: FileId) -> Option<u32> {
    let FileId { device, inode } = id;
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holder = locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "FLOCK").skip(3);
        let holder = fields.next()?;
        (fields.next()? == file).then(|| holder.parse().ok()).flatten()
    });
    holder.filter(|holder| *holder > 0)
}
