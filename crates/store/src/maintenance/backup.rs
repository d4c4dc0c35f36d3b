//! A copy of a store, also while a daemon writes to it: one moment of it, whole or not at all.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags};

use super::chain::{ChainReport, read_chain};
use super::{MaintenanceFault, with_store};
use crate::sqlite::{
    DatabaseState, HighWaterMark, StoreFiles, inspect_database, open_immutable, parent_folder,
};

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// The copy.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Agents in it.
    pub agents: u64,
    /// Its journal, read to the end.
    pub chain: ChainReport,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, agents, chain } = self;
        writeln!(out, "{}: {} KiB, {agents} agents, checked", path.display(), bytes.div_ceil(1024))?;
        writeln!(out, "{chain}")?;
        write!(
            out,
            "To restore it: stop the daemon; remove the -wal, -shm and .mark files of the store; put this file in its place"
        )
    }
}

/// Copies the store of a file. The copy is checked before it gets its name.
///
/// # Errors
/// When there is no store, the target is there already, there is no room, or the store is not whole.
pub fn backup(from: &Path, to: &Path) -> Result<BackupReport, MaintenanceFault> {
    if !from.exists() {
        return Err(MaintenanceFault::Missing(from.to_owned()));
    }
    let (chain, agents) = with_store(from, |db| copy_store(db, from, to), |_| true)?;
    let bytes = std::fs::metadata(to).map_err(|error| MaintenanceFault::io(to, error))?.len();
    Ok(BackupReport { path: to.to_owned(), bytes, agents, chain })
}

fn copy_store(db: &Connection, from: &Path, to: &Path) -> Result<(ChainReport, u64), MaintenanceFault> {
    let mark = HighWaterMark::read(&StoreFiles::new(from).high_water_mark())
        .map_err(|error| MaintenanceFault::io(from, error))?;
    match inspect_database(db, mark.as_ref()).map_err(|error| MaintenanceFault::sql(from, error))? {
        DatabaseState::Current { .. } => copy_database(db, to, |copied| check_copy(copied, to)),
        other => {
            let what = format!("not a store that can be copied ({other:?}); run nexus3 check");
            Err(MaintenanceFault::NotAStore { path: from.to_owned(), what })
        }
    }
}

fn check_copy(copied: &Connection, to: &Path) -> Result<(ChainReport, u64), MaintenanceFault> {
    let bad = |why: String| MaintenanceFault::CorruptCopy { path: to.to_owned(), why };
    let sql = |error: rusqlite::Error| bad(error.to_string());
    let said: String = copied.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0)).map_err(sql)?;
    if said != "ok" {
        return Err(bad(said));
    }
    let chain = read_chain(copied, to).map_err(sql)?;
    if let Some(broken) = chain.breaks.first() {
        return Err(bad(broken.to_string()));
    }
    let agents: i64 =
        copied.query_row("SELECT count(*) FROM agents WHERE gone = 0", (), |row| row.get(0)).map_err(sql)?;
    Ok((chain, agents.unsigned_abs()))
}

/// Copies what a connection sees, has it checked, and gives it its name. Nothing is overwritten, and after a fault
/// nothing is left.
pub(crate) fn copy_database<T>(
    db: &Connection,
    to: &Path,
    check: impl FnOnce(&Connection) -> Result<T, MaintenanceFault>,
) -> Result<T, MaintenanceFault> {
    if to.symlink_metadata().is_ok() {
        return Err(MaintenanceFault::Exists(to.to_owned()));
    }
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = parent_folder(to).join(name);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let file = made.map_err(|error| MaintenanceFault::io(&part, error))?;
    let copied = copy_pages(db, &file, &part, check).and_then(|checked| {
        rename_into_place(&part, to)?;
        Ok(checked)
    });
    if copied.is_err() {
        // The first fault is the one to tell.
        let _ = std::fs::remove_file(&part);
    }
    copied
}

fn copy_pages<T>(
    db: &Connection,
    file: &File,
    part: &Path,
    check: impl FnOnce(&Connection) -> Result<T, MaintenanceFault>,
) -> Result<T, MaintenanceFault> {
    let sql = |error| MaintenanceFault::sql(part, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(part, flags).map_err(sql)?;
    // Whatever happens to a half copy, it is thrown away; the whole one is forced to the disk below.
    target.execute_batch("PRAGMA journal_mode = off; PRAGMA synchronous = off").map_err(sql)?;
    // All at once, in one reading transaction: a writer that goes on would make smaller steps begin again and again.
    let step = Backup::new(db, &mut target).and_then(|backup| backup.step(-1)).map_err(sql)?;
    if step != StepResult::Done {
        return Err(sql(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error { code: ErrorCode::DatabaseBusy, extended_code: rusqlite::ffi::SQLITE_BUSY },
            Some("another program holds the database; try again".to_owned()),
        )));
    }
    target.close().map_err(|(_, error)| sql(error))?;
    file.sync_all().map_err(|error| MaintenanceFault::io(part, error))?;
    check(&open_immutable(part).map_err(sql)?)
}

fn rename_into_place(part: &Path, to: &Path) -> Result<(), MaintenanceFault> {
    let fault = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => MaintenanceFault::Exists(to.to_owned()),
        _ => MaintenanceFault::io(to, error),
    };
    match rustix::fs::renameat_with(CWD, part, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Some file systems cannot rename so; a link is never made over a file either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            std::fs::hard_link(part, to).and_then(|()| std::fs::remove_file(part)).map_err(fault)?;
        }
        Err(error) => return Err(fault(error.into())),
    }
    let folder = parent_folder(to);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| MaintenanceFault::io(folder, error))
}
