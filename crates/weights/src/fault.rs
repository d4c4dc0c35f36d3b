//! Why weights cannot be had, in words that name the thing and the mend.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::checksum::Checksum;
use crate::model_id::ModelId;

/// What went wrong with weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsFault {
    /// Not a name for a model.
    #[error(
        "{0:?} is no name for a model: up to 64 of a-z, 0-9, '.', '-' and '_', beginning with a letter or a digit, without an ending like .json"
    )]
    InvalidName(String),
    /// Not a sum.
    #[error("{0:?} is no SHA-256 sum: 64 hexadecimal digits")]
    InvalidChecksum(String),
    /// Not a source.
    #[error("{text:?} is no source of weights: {why}")]
    InvalidSource {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file or folder of the shelf cannot be used.
    #[error("cannot {what} {}: {fault}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        fault: io::Error,
    },
    /// Somebody else works on the same model.
    #[error("{id} is being worked on by {holder}; wait until it is done, or end it")]
    Busy {
        /// The model.
        id: ModelId,
        /// Who has it.
        holder: String,
    },
    /// No such model on the shelf.
    #[error("{0} is not here; nexus3 models list shows what is")]
    NotInstalled(ModelId),
    /// Something else has the name.
    #[error(
        "there is another {id} here, with sha256 {checksum}; remove it first, or pull under another name with --as"
    )]
    NameTaken {
        /// The model.
        id: ModelId,
        /// What is there.
        checksum: Checksum,
    },
    /// The file is not what was pulled.
    #[error("{} was changed since it was pulled ({why}); remove it and pull it again", path.display())]
    Modified {
        /// The file.
        path: PathBuf,
        /// How it differs.
        why: String,
    },
    /// The disk has too little room.
    #[error(
        "the disk of {} has {} free and {} are needed; make room and pull again: what has come is kept",
        path.display(),
        megabytes(*free_bytes),
        megabytes(*needed_bytes)
    )]
    DiskFull {
        /// A place on the disk.
        path: PathBuf,
        /// What is free.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// The caller ended the pull.
    #[error("ended before {0} was whole; what has come is kept, pull it again to go on")]
    Cancelled(ModelId),
    /// Every source failed.
    #[error("{}", all_failed(id, attempts))]
    AllFailed {
        /// The model.
        id: ModelId,
        /// What was tried, in order.
        attempts: Vec<FailedAttempt>,
    },
    /// A task broke off.
    #[error("the work on {0} broke off")]
    TaskFailed(ModelId),
}

impl WeightsFault {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |fault| Self::File { what, path: path.to_owned(), fault }
    }
}

/// A source that was tried in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The source, as it is written.
    pub source: String,
    /// Why it failed, and what would help.
    pub why: String,
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn all_failed(id: &ModelId, attempts: &[FailedAttempt]) -> String {
    let mut text = format!("{id} cannot be had:");
    for FailedAttempt { source, why } in attempts {
        let _ = write!(text, "\n  {source}: {why}");
    }
    let _ = write!(text, "\nWith the file from elsewhere: nexus3 models pull {id} --from FILE");
    text
}

/// Why one source failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchFault {
    /// The next source may do better.
    #[error("{0}")]
    SourceFailed(String),
    /// What came is not what was wanted; it was removed.
    #[error("{0}")]
    ContentMismatch(String),
    /// The disk, or the caller: no other source helps.
    #[error("{0}")]
    Local(#[from] WeightsFault),
    /// The caller ended it.
    #[error("ended")]
    Cancelled,
}

impl FetchFault {
    pub(crate) fn source_failed(why: impl Into<String>) -> Self {
        Self::SourceFailed(why.into())
    }
}
