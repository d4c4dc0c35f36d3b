//! Schema migrations: a backup first, then each migration in its own transaction, so that a crash leaves either the old
//! or the new version.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::failpoints::{FailpointSite, Failpoints, InjectedFault};
use super::files::StoreFiles;
use super::maintenance::copy_database;
use super::opening::SqliteOpenFault;
use super::schema::{APPLICATION_ID, DATABASE_ID, Migration};
use crate::digest::DatabaseId;

/// Maximum number of backups of one schema version.
const BACKUPS_MAX: u32 = 100;

/// Migrates a database from `version` to the end of the list. Version 0 is a new file and needs no backup.
pub(super) fn migrate(
    db: &mut Connection,
    files: &StoreFiles,
    version: u32,
    migrations: &[Migration],
    failpoints: &mut Failpoints,
) -> Result<(), SqliteOpenFault> {
    if version > 0 {
        let path = back_up(db, files, version)?;
        tracing::info!(path = %path.display(), version, "backup made before the schema migration");
    }
    for (number, migration) in (1..).zip(migrations).skip(version as usize) {
        inject_fault(failpoints.hit(FailpointSite::MigrateBefore, &std::iter::empty()), &files.database)?;
        apply_migration(db, number, migration, failpoints, &files.database)?;
    }
    Ok(())
}

fn apply_migration(
    db: &mut Connection,
    number: u32,
    migration: &str,
    failpoints: &mut Failpoints,
    path: &Path,
) -> Result<(), SqliteOpenFault> {
    let fault = |error| SqliteOpenFault::sql(path, error);
    let transaction = db.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(fault)?;
    transaction.execute_batch(migration).map_err(fault)?;
    inject_fault(failpoints.hit(FailpointSite::MigrateMiddle, &std::iter::empty()), path)?;
    if number == 1 {
        let mut id = DatabaseId::default();
        getrandom::fill(&mut id).map_err(|error| SqliteOpenFault::Random(error.to_string()))?;
        transaction.execute("INSERT INTO meta VALUES (?1, ?2)", (DATABASE_ID, id)).map_err(fault)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
    }
    transaction.pragma_update(None, "user_version", number).map_err(fault)?;
    transaction.commit().map_err(fault)
}

fn back_up(db: &Connection, files: &StoreFiles, version: u32) -> Result<PathBuf, SqliteOpenFault> {
    for number in 0..BACKUPS_MAX {
        let path = files.migration_backup(version, number);
        if path.exists() {
            continue;
        }
        copy_database(db, &path, |_| Ok(()))
            .map_err(|fault| SqliteOpenFault::BackupFailed { path: path.clone(), why: fault.to_string() })?;
        return Ok(path);
    }
    let path = files.migration_backup(version, 0);
    Err(SqliteOpenFault::BackupFailed {
        path,
        why: format!("{BACKUPS_MAX} backups of schema version {version} exist already"),
    })
}

fn inject_fault(fault: Option<InjectedFault>, path: &Path) -> Result<(), SqliteOpenFault> {
    match fault {
        None => Ok(()),
        Some(InjectedFault::DiskFull) => Err(SqliteOpenFault::disk_full(path)),
        Some(InjectedFault::FsyncFailed) => {
            let error = std::io::Error::other("a failpoint");
            Err(SqliteOpenFault::io(path, "written", error))
        }
    }
}
