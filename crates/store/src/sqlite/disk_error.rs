//! Classification of SQLite errors: temporary (disk full, database locked), permanent, or a constraint violation.

use rusqlite::ErrorCode;
use rusqlite::ffi;

/// Effect of a SQLite error on the group being committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskError {
    /// No space is left, or another program holds the database. Nothing was committed; a retry may succeed.
    Full(String),
    /// The outcome of the commit is unknown, or no further commit is possible.
    Broken(String),
    /// A batch violates a constraint of the schema.
    ConstraintViolation(String),
}

impl DiskError {
    pub(super) fn classify(error: &rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(code, _) = error else {
            return Self::Broken(format!("invalid use of SQLite: {error}"));
        };
        match code.code {
            ErrorCode::DiskFull => Self::Full("no space is left for the database".to_owned()),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Self::Full("another program holds the database".to_owned())
            }
            // The WAL index (-shm) could not grow; nothing was written yet.
            ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                Self::Full("no space is left for the index of the write-ahead log".to_owned())
            }
            ErrorCode::ConstraintViolation => Self::ConstraintViolation(error.to_string()),
            ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_FSYNC => {
                Self::Broken(format!("fsync failed: {error}"))
            }
            ErrorCode::ReadOnly => Self::Broken(format!("the database became read-only: {error}")),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                Self::Broken(format!("the database is damaged: {error}; run nexus3 check"))
            }
            _ => Self::Broken(format!("the database failed: {error}")),
        }
    }
}
