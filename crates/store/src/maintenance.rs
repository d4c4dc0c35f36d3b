//! Maintenance of a store, also while a daemon uses it: the trait that backends implement, its reports and faults.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::digest::hex;

/// Maintenance of a store that this process need not have open: another daemon may use it, or it is too damaged to be
/// opened.
pub trait Maintenance: Send + Sync {
    /// Backs up the store to a new file, which is verified before it gets its name.
    ///
    /// # Errors
    /// When there is no store, the target exists, the disk is full, or the store is damaged.
    fn backup(&self, to: &Path) -> Result<BackupReport, MaintenanceFault>;

    /// Checks the whole store.
    ///
    /// # Errors
    /// When there is no store or it cannot be read. All other problems are in the report.
    fn check(&self) -> Result<CheckReport, MaintenanceFault>;

    /// Reads the whole journal and verifies its hash chain.
    ///
    /// # Errors
    /// When there is no store, or it cannot be opened.
    fn verify_chain(&self) -> Result<ChainReport, MaintenanceFault>;
}

/// Why a maintenance operation failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceFault {
    /// An in-memory store.
    #[error("an in-memory store ends with its process: there is nothing to back up or check")]
    InMemory,
    /// The store does not exist.
    #[error("{}: there is no store; the daemon creates it at its first start", .0.display())]
    Missing(PathBuf),
    /// The target file exists already.
    #[error("{}: exists already and is not overwritten; choose another name", .0.display())]
    Exists(PathBuf),
    /// The file is not a usable nexus3 store.
    #[error("{}: {what}", .path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        what: String,
    },
    /// A file operation failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A database operation failed.
    #[error("{}: {why}; run nexus3 check", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The database's error.
        why: String,
    },
    /// The backup is damaged and was removed.
    #[error("{}: the backup is damaged and was removed: {why}; run nexus3 check on the store", .path.display())]
    CorruptCopy {
        /// The backup file.
        path: PathBuf,
        /// The problem found.
        why: String,
    },
}

/// Summary of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// The backup file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Number of live agents in it.
    pub agents: u64,
    /// Its verified hash chain.
    pub chain: ChainReport,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, agents, chain } = self;
        writeln!(out, "{}: {} KiB, {agents} agents, checked", path.display(), bytes.div_ceil(1024))?;
        writeln!(out, "{chain}")?;
        write!(
            out,
            "To restore it: stop the daemon, remove the store's -wal, -shm and .mark files, put this file in the store's place"
        )
    }
}

/// Result of verifying a journal's hash chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainReport {
    /// The file.
    pub path: PathBuf,
    /// Number of entries.
    pub entries: u64,
    /// Sequence of the first entry; 0 if there is none.
    pub first: u64,
    /// Sequence of the last entry; 0 if there is none.
    pub last: u64,
    /// Hash of the last entry. Note it to prove later that no earlier entry has changed.
    pub head: [u8; 32],
    /// Breaks of the chain; at most the first hundred.
    pub breaks: Vec<ChainBreak>,
}

/// An entry at which the hash chain breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    /// Sequence of the entry.
    pub sequence: u64,
    /// Description of the problem.
    pub why: String,
}

impl ChainReport {
    /// Whether the chain has no breaks.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.breaks.is_empty()
    }
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "entry {}: {}", self.sequence, self.why)
    }
}

impl fmt::Display for ChainReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path: _, entries, first, last, head, breaks } = self;
        if breaks.is_empty() {
            return write!(out, "chain: intact, {entries} entries, {first} to {last}, head {}", hex(head));
        }
        write!(out, "chain: BROKEN, {entries} entries, {first} to {last}")?;
        breaks.iter().try_for_each(|chain_break| write!(out, "\n  {chain_break}"))
    }
}

/// Result of a full check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The file.
    pub path: PathBuf,
    /// Schema version; 0 if it could not be read.
    pub version: u32,
    /// Size of the database in bytes.
    pub bytes: u64,
    /// Size of the write-ahead log in bytes.
    pub wal_bytes: u64,
    /// Number of live agents.
    pub agents: u64,
    /// Number of destroyed agents retained because they have descendants.
    pub destroyed: u64,
    /// Number of turns whose request ids are stored.
    pub turns: u64,
    /// Number of open turns.
    pub open_turns: u64,
    /// Number of entries in the key-value store.
    pub values: u64,
    /// Hash chain of the journal, if it could be read.
    pub chain: Option<ChainReport>,
    /// All problems found.
    pub problems: Vec<Problem>,
}

/// A problem found by a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Description of the problem.
    pub what: String,
    /// Remedy.
    pub repair: String,
}

impl CheckReport {
    /// Whether no problem was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n    to repair: {}", self.what, self.repair)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            version,
            bytes,
            wal_bytes,
            agents,
            destroyed,
            turns,
            open_turns,
            values,
            chain,
            problems,
        } = self;
        let kibibytes = |bytes: &u64| bytes.div_ceil(1024);
        writeln!(
            out,
            "{}: schema {version}, {} KiB, write-ahead log {} KiB",
            path.display(),
            kibibytes(bytes),
            kibibytes(wal_bytes)
        )?;
        writeln!(
            out,
            "{agents} agents, {destroyed} destroyed, {turns} request ids, {open_turns} open turns, {values} stored values"
        )?;
        if let Some(chain) = chain {
            writeln!(out, "{chain}")?;
        }
        if problems.is_empty() {
            return write!(out, "sound");
        }
        write!(out, "{} problems:", problems.len())?;
        problems.iter().try_for_each(|problem| write!(out, "\n  {problem}"))
    }
}
