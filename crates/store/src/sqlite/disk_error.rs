//! What SQLite's errors mean for a store: no room now, or never again.

use rusqlite::ErrorCode;
use rusqlite::ffi;

/// What an error means for the group it met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskError {
    /// Nothing was kept; it may pass later.
    Full(String),
    /// Nobody knows what was kept, or nothing can be any more.
    Broken(String),
    /// One call breaks a rule of the schema.
    ConstraintViolation(String),
}

impl DiskError {
    pub(super) fn classify(error: &rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(code, _) = error else {
            return Self::Broken(format!("the store was used wrongly: {error}"));
        };
        match code.code {
            ErrorCode::DiskFull => Self::Full("no space is left for the database".to_owned()),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Self::Full("another program holds the database".to_owned())
            }
            // The index of the write-ahead log could not grow; nothing was written yet.
            ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                Self::Full("no space is left for the index of the write-ahead log".to_owned())
            }
            ErrorCode::ConstraintViolation => Self::ConstraintViolation(error.to_string()),
            ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_FSYNC => {
                Self::Broken(format!("the disk did not take what was written: {error}"))
            }
            ErrorCode::ReadOnly => Self::Broken(format!("the database has become read-only: {error}")),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                Self::Broken(format!("the database is damaged: {error}; run nexus3 check"))
            }
            _ => Self::Broken(format!("the database failed: {error}")),
        }
    }
}
