//! The request: which repository, what to read, and what stays closed. It reaches the helper process as JSON.

use serde::{Deserialize, Serialize};

/// A request to read a repository.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitRequest {
    /// The real path of the working tree's top directory.
    pub worktree: String,
    /// The real paths of the directories that may be read: the working tree, and those of the repository outside it.
    pub roots: Vec<String>,
    /// The file or directory that the result is limited to, relative to the working tree; empty for all.
    pub path: String,
    /// Absolute paths of blocked files and directories.
    pub blocked: Vec<String>,
    /// What to read.
    pub operation: GitOperation,
}

/// What to read. An offset is a number of lines, or of commits in a log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GitOperation {
    /// The branch and the changed files.
    Status {
        /// Lines to skip.
        offset: usize,
    },
    /// Changes as a patch.
    Diff {
        /// The revision to compare from; by default the index, or with `staged` the last commit.
        from: Option<String>,
        /// The revision to compare to; by default the working tree, or with `staged` the index.
        to: Option<String>,
        /// Whether the index is compared instead of the working tree.
        staged: bool,
        /// Lines to skip.
        offset: usize,
    },
    /// Commits, newest first.
    Log {
        /// The revision to begin with; `HEAD` by default.
        rev: Option<String>,
        /// How many commits.
        count: usize,
        /// Commits to skip.
        offset: usize,
    },
    /// A commit, or the path as it was in it.
    Show {
        /// The revision.
        rev: String,
        /// Lines to skip.
        offset: usize,
    },
    /// The commit of each line.
    Blame {
        /// The revision; by default the working tree.
        rev: Option<String>,
        /// The first line, from 1 on.
        start_line: Option<u32>,
        /// The last line.
        end_line: Option<u32>,
    },
}
