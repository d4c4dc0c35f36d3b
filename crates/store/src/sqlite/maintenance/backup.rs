//! Backup of a store, also while a daemon writes to it: a consistent snapshot, verified before it gets its name.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags};

use super::chain::walk_chain;
use super::{inspect, io_fault, sql_fault, with_store};
use crate::maintenance::{BackupReport, ChainReport, MaintenanceFault};
use crate::sqlite::files::parent_folder;
use crate::sqlite::opening::open_immutable;
use crate::sqlite::startup_check::DatabaseState;

/// Backs up a store to a new file. The backup is verified before it gets its name.
pub(super) fn backup(from: &Path, to: &Path) -> Result<BackupReport, MaintenanceFault> {
    if !from.exists() {
        return Err(MaintenanceFault::Missing(from.to_owned()));
    }
    let (chain, agents) = with_store(from, |db| copy_store(db, from, to), |_| true)?;
    let bytes = std::fs::metadata(to).map_err(|error| io_fault(to, error))?.len();
    Ok(BackupReport { path: to.to_owned(), bytes, agents, chain })
}

fn copy_store(db: &Connection, from: &Path, to: &Path) -> Result<(ChainReport, u64), MaintenanceFault> {
    match inspect(db, from)?.1 {
        DatabaseState::Current { .. } => copy_database(db, to, |copy| check_copy(copy, to)),
        state => {
            let what = format!("cannot be backed up: {state}; run nexus3 check");
            Err(MaintenanceFault::NotAStore { path: from.to_owned(), what })
        }
    }
}

fn check_copy(copy: &Connection, to: &Path) -> Result<(ChainReport, u64), MaintenanceFault> {
    let corrupt = |why: String| MaintenanceFault::CorruptCopy { path: to.to_owned(), why };
    let sql = |error: rusqlite::Error| corrupt(error.to_string());
    let result: String = copy.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0)).map_err(sql)?;
    if result != "ok" {
        return Err(corrupt(result));
    }
    let chain = walk_chain(copy, to, None, |_| {}).map_err(sql)?;
    if let Some(chain_break) = chain.breaks.first() {
        return Err(corrupt(chain_break.to_string()));
    }
    let agents: i64 =
        copy.query_row("SELECT count(*) FROM agents WHERE gone = 0", (), |row| row.get(0)).map_err(sql)?;
    Ok((chain, agents.unsigned_abs()))
}

/// Copies a connection's snapshot to a partial file, checks it, and renames it. Never overwrites a file, and leaves
/// none behind after an error.
pub(in crate::sqlite) fn copy_database<T>(
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
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let file = file.map_err(|error| io_fault(&part, error))?;
    let copied = copy_pages(db, &file, &part, check).and_then(|checked| {
        rename_into_place(&part, to)?;
        Ok(checked)
    });
    if copied.is_err() {
        // The first error is the one to report.
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
    let sql = |error| sql_fault(part, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(part, flags).map_err(sql)?;
    // A partial copy is deleted, so it needs no rollback journal; the complete one is synced below.
    target.execute_batch("PRAGMA journal_mode = off; PRAGMA synchronous = off").map_err(sql)?;
    // In one step and one read transaction: with smaller steps, every write of the daemon would restart the backup.
    let step = Backup::new(db, &mut target).and_then(|backup| backup.step(-1)).map_err(sql)?;
    if step != StepResult::Done {
        return Err(sql(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error { code: ErrorCode::DatabaseBusy, extended_code: rusqlite::ffi::SQLITE_BUSY },
            Some("another program holds the database; try again".to_owned()),
        )));
    }
    target.close().map_err(|(_, error)| sql(error))?;
    file.sync_all().map_err(|error| io_fault(part, error))?;
    check(&open_immutable(part).map_err(sql)?)
}

fn rename_into_place(part: &Path, to: &Path) -> Result<(), MaintenanceFault> {
    let fault = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => MaintenanceFault::Exists(to.to_owned()),
        _ => io_fault(to, error),
    };
    match rustix::fs::renameat_with(CWD, part, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Some file systems do not support NOREPLACE; a hard link does not replace a file either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            std::fs::hard_link(part, to).and_then(|()| std::fs::remove_file(part)).map_err(fault)?;
        }
        Err(error) => return Err(fault(error.into())),
    }
    let folder = parent_folder(to);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| io_fault(folder, error))
}
