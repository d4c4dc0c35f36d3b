//! Recorded file changes: what tools replaced, so that the changes of a turn can be undone. A change is recorded before
//! it takes effect; a change that was recorded and never made is recognised by the state of its file.

use super::{BoxFuture, StoreFault};
use crate::journal::Serial;
use crate::permission::FilePath;

/// Maximum size of a file whose content is recorded.
pub const UNDO_FILE_BYTES_MAX: usize = 8 << 20;

/// Maximum size of what is recorded for one turn.
pub const UNDO_TURN_BYTES_MAX: usize = 32 << 20;

/// Maximum size of what is recorded for one agent. Beyond it, the oldest turns are dropped.
pub const UNDO_AGENT_BYTES_MAX: usize = 64 << 20;

/// Maximum number of files and directories that are recorded for one turn. An undo opens the directory of each.
pub const UNDO_TURN_FILES_MAX: usize = 512;

/// The size of a recorded change beside its path and content.
const CHANGE_OVERHEAD_BYTES: usize = 128;

/// SHA-256 of the type and content of a file, or of its absence. Modes are not part of it.
pub type StateDigest = [u8; 32];

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// Nothing.
    Absent,
    /// A directory; its entries are states of their own.
    Directory {
        /// Its permission bits.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Its permission bits.
        mode: u32,
        /// Its content.
        content: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        /// The path that it contains.
        target: String,
    },
}

/// The change of one path in a turn. The store merges the changes of a path: the first `before` and the last digests
/// count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The path, without symbolic links above its last name.
    pub path: FilePath,
    /// What was there before the first change of the turn.
    pub before: FileState,
    /// The state before the last change of the turn. The path still has it if that change was never made.
    pub last_before: StateDigest,
    /// The state after the last change of the turn.
    pub after: StateDigest,
}

impl FileChange {
    /// The size that counts towards the limits.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let content = match &self.before {
            FileState::File { content, .. } => content.len(),
            FileState::Link { target } => target.len(),
            FileState::Absent | FileState::Directory { .. } => 0,
        };
        CHANGE_OVERHEAD_BYTES + self.path.as_str().len() + content
    }
}

/// The changes of one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewChanges {
    /// They can be undone.
    Recorded(Vec<FileChange>),
    /// They cannot be undone, for this reason; then nor can their turn.
    NotUndoable(String),
}

/// Changes to record for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeWrite {
    /// The agent.
    pub agent: Serial,
    /// The turn.
    pub turn: u64,
    /// The changes.
    pub changes: NewChanges,
}

/// The recorded changes of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnChanges {
    /// The turn.
    pub turn: u64,
    /// Whether the turn was undone.
    pub is_undone: bool,
    /// Why the turn cannot be undone. Its changes are not stored then.
    pub not_undoable: Option<String>,
    /// The changes by ascending path.
    pub changes: Vec<FileChange>,
}

impl TurnChanges {
    /// A turn without changes.
    #[must_use]
    pub fn new(turn: u64) -> Self {
        Self { turn, is_undone: false, not_undoable: None, changes: Vec::new() }
    }

    /// Why so many changes of this size cannot be undone; none if they can.
    #[must_use]
    pub fn excess(files: usize, bytes: usize) -> Option<String> {
        if files > UNDO_TURN_FILES_MAX {
            return Some(format!("it changed more than {UNDO_TURN_FILES_MAX} files"));
        }
        let is_too_large = bytes > UNDO_TURN_BYTES_MAX;
        is_too_large.then(|| format!("what it replaced is larger than {} MiB", UNDO_TURN_BYTES_MAX >> 20))
    }

    /// Why a turn that was dropped for later ones cannot be undone.
    #[must_use]
    pub fn dropped() -> String {
        let mebibytes = UNDO_AGENT_BYTES_MAX >> 20;
        format!("what it replaced was dropped: the limit of {mebibytes} MiB for one agent was reached since")
    }
}

/// Durable storage of file changes. They are deleted when their agent is destroyed; `TurnUndone` marks their turn as
/// undone and deletes them.
pub trait FileChangeStore: Send + Sync {
    /// Records changes. Enqueued when this function returns; committed when the future resolves to `Ok`.
    fn record_changes(&self, write: ChangeWrite) -> BoxFuture<'static, Result<(), StoreFault>>;

    /// The changes of a turn, or of the latest turn that has any.
    fn turn_changes(
        &self,
        agent: Serial,
        turn: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<TurnChanges>, StoreFault>>;
}

/// Records the file changes of a tool call.
pub trait ChangeRecorder: Send + Sync {
    /// Records changes before they are made; returns once they are committed. Blocks: called on a blocking thread only.
    ///
    /// # Errors
    /// When the commit failed; the changes must not be made then.
    fn record(&self, changes: NewChanges) -> Result<(), String>;

    /// Whether changes are recorded at all.
    fn is_recording(&self) -> bool {
        true
    }
}

/// A recorder for calls that do not belong to a turn.
#[derive(Debug, Clone, Copy)]
pub struct Unrecorded;

impl ChangeRecorder for Unrecorded {
    fn record(&self, _changes: NewChanges) -> Result<(), String> {
        Ok(())
    }

    fn is_recording(&self) -> bool {
        false
    }
}

/// Why changes were not undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreFault {
    /// These paths have neither the state after the turn nor the one before it.
    #[error("changed since: {}", .0.iter().map(FilePath::as_str).collect::<Vec<_>>().join(", "))]
    ChangedSince(Vec<FilePath>),
    /// The restoration failed.
    #[error("{0}")]
    Failed(String),
}
