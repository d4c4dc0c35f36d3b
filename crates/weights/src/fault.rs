//! Errors of weights. The messages name the model or file and the remedy.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::checksum::Checksum;
use crate::model_id::ModelId;

/// Error of an operation on weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsFault {
    /// Invalid model name.
    #[error(
        "{0:?} is not a valid model name: use up to 64 of a-z, 0-9, '.', '-' and '_', starting with a letter or a digit, without an extension like .json"
    )]
    InvalidName(String),
    /// Invalid checksum.
    #[error("{0:?} is not a SHA-256 checksum: use 64 hexadecimal digits")]
    InvalidChecksum(String),
    /// Invalid source.
    #[error("{text:?} is not a source of weights: {why}")]
    InvalidSource {
        /// The source as given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// I/O error on a file or directory.
    #[error("cannot {what} {}: {fault}", path.display())]
    File {
        /// The failed operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        fault: io::Error,
    },
    /// Another process holds the model's lock.
    #[error("{id} is locked by {holder}; wait until that process is done, or end it")]
    Busy {
        /// The model.
        id: ModelId,
        /// The process that holds the lock.
        holder: String,
    },
    /// Model not installed.
    #[error("{0} is not installed; list the installed models with: nexus3 models list")]
    NotInstalled(ModelId),
    /// Another model is installed under this name.
    #[error(
        "another {id} is installed, with sha256 {checksum}; remove it first, or pull under another name with --as"
    )]
    NameTaken {
        /// The model.
        id: ModelId,
        /// Checksum of the installed model.
        checksum: Checksum,
    },
    /// The file differs from the pulled one.
    #[error("{} was changed since it was pulled ({why}); remove it and pull it again", path.display())]
    Modified {
        /// The file.
        path: PathBuf,
        /// How it differs.
        why: String,
    },
    /// Not enough disk space.
    #[error(
        "the disk of {} has {} free and {} are needed; make room and pull again to resume",
        path.display(),
        megabytes(*free_bytes),
        megabytes(*needed_bytes)
    )]
    DiskFull {
        /// A path on the disk.
        path: PathBuf,
        /// Available bytes.
        free_bytes: u64,
        /// Required bytes.
        needed_bytes: u64,
    },
    /// The caller cancelled the pull.
    #[error("cancelled before {0} was complete; pull it again to resume the download")]
    Cancelled(ModelId),
    /// Every source failed.
    #[error("{}", all_failed(id, attempts))]
    AllFailed {
        /// The model.
        id: ModelId,
        /// The failed sources, in order.
        attempts: Vec<FailedAttempt>,
    },
    /// A background task panicked.
    #[error("an internal task for {0} failed unexpectedly; try again")]
    TaskFailed(ModelId),
}

impl WeightsFault {
    /// Returns a converter of I/O errors on this path.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |fault| Self::File { what, path: path.to_owned(), fault }
    }
}

/// A failed source of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The source as text.
    pub source: String,
    /// Why it failed, and the remedy.
    pub why: String,
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn all_failed(id: &ModelId, attempts: &[FailedAttempt]) -> String {
    let mut text = format!("cannot pull {id}: all sources failed:");
    for FailedAttempt { source, why } in attempts {
        let _ = write!(text, "\n  {source}: {why}");
    }
    let _ = write!(text, "\nIf you have the file: nexus3 models pull {id} --from FILE");
    text
}

/// Error of one source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchFault {
    /// The source failed; the next one may succeed.
    #[error("{0}")]
    SourceFailed(String),
    /// The content is not the expected one.
    #[error("{0}")]
    ContentMismatch(String),
    /// A local problem, such as a full disk: no other source helps.
    #[error("{0}")]
    Local(#[from] WeightsFault),
    /// The caller cancelled the pull.
    #[error("cancelled")]
    Cancelled,
}

impl FetchFault {
    pub(crate) fn source_failed(why: impl Into<String>) -> Self {
        Self::SourceFailed(why.into())
    }
}
