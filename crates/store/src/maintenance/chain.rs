//! Verification of the journal's hash chain: every entry's hash covers the entry and the previous hash, so that no
//! entry can be changed, removed or inserted without changing all later hashes.

use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{MaintenanceFault, with_store};
use crate::digest::{genesis, hex};
use crate::sqlite::{
    DatabaseState, EntryRow, HighWaterMark, SELECT_ENTRIES, StoreFiles, database_id, inspect_database,
    read_entry_row,
};

/// Maximum number of reported breaks.
const BREAKS_MAX: usize = 100;
/// Entries read per transaction; a longer transaction would block the daemon's checkpoints.
const ENTRIES_PER_TRANSACTION: u32 = 4096;

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

/// Reads the whole journal of a store and verifies its hash chain.
///
/// # Errors
/// When there is no store, or it cannot be opened.
pub fn verify_chain(path: &Path) -> Result<ChainReport, MaintenanceFault> {
    if !path.exists() {
        return Err(MaintenanceFault::Missing(path.to_owned()));
    }
    with_store(path, |db| verify(db, path), ChainReport::is_intact)
}

fn verify(db: &Connection, path: &Path) -> Result<ChainReport, MaintenanceFault> {
    let sql = |error| MaintenanceFault::sql(path, error);
    let mark = HighWaterMark::read(&StoreFiles::new(path).high_water_mark())
        .map_err(|error| MaintenanceFault::io(path, error))?;
    let state = inspect_database(db, mark.as_ref()).map_err(sql)?;
    if let DatabaseState::Empty
    | DatabaseState::Foreign(_)
    | DatabaseState::Newer(_)
    | DatabaseState::Older(_) = state
    {
        let what = "not a store of this version; run nexus3 check".to_owned();
        return Err(MaintenanceFault::NotAStore { path: path.to_owned(), what });
    }
    let mut report = walk_chain(db, path, mark.as_ref(), |_| {}).map_err(sql)?;
    if let DatabaseState::JournalTruncated { last, marked } = state {
        let why = format!("missing: {marked} entries were committed, but the last one present is {last}");
        report.breaks.push(ChainBreak { sequence: last + 1, why });
    }
    Ok(report)
}

/// Verifies the chain, also against the high-water mark, and passes every readable entry to `visit`.
pub(super) fn walk_chain(
    db: &Connection,
    path: &Path,
    mark: Option<&HighWaterMark>,
    mut visit: impl FnMut(&EntryRow<'_>),
) -> rusqlite::Result<ChainReport> {
    let database = database_id(db)?;
    let mark = mark.filter(|mark| Some(mark.database) == database);
    let mut report = ChainReport {
        path: path.to_owned(),
        entries: 0,
        first: 0,
        last: 0,
        head: genesis(&database.unwrap_or_default()),
        breaks: Vec::new(),
    };
    if database.is_none() {
        let why = "the database id, from which the first hash is computed, is missing".to_owned();
        report.add_break(ChainBreak { sequence: 1, why });
    }
    let mut statement =
        db.prepare(&format!("{SELECT_ENTRIES} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"))?;
    loop {
        let (before, entries_before) = (report.last, report.entries);
        let after = i64::try_from(before).unwrap_or(i64::MAX);
        let mut rows = statement.query((after, ENTRIES_PER_TRANSACTION))?;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    let why = format!("this and later entries cannot be read: {error}");
                    report.add_break(ChainBreak { sequence: report.last + 1, why });
                    return Ok(report);
                }
            };
            match read_entry_row(row) {
                Ok(entry) => {
                    report.add_entry(&entry, mark);
                    visit(&entry);
                }
                Err(error) => {
                    let sequence = row.get::<_, i64>(0)?.unsigned_abs();
                    report.add_break(ChainBreak { sequence, why: format!("malformed: {error}") });
                    report.entries += 1;
                    report.last = report.last.max(sequence);
                }
            }
        }
        // Corrupted sequences may not increase: stop when no progress is made.
        if report.last == before || report.entries - entries_before < u64::from(ENTRIES_PER_TRANSACTION) {
            return Ok(report);
        }
    }
}

impl ChainReport {
    fn add_entry(&mut self, entry: &EntryRow<'_>, mark: Option<&HighWaterMark>) {
        let sequence = entry.sequence;
        let problem = if sequence <= self.last {
            Some(format!("out of order: follows entry {}", self.last))
        } else if sequence != self.last + 1 {
            Some(format!("entries are missing before it, from {} on", self.last + 1))
        } else if !entry.follows(&self.head) {
            Some("changed, or does not follow from the one before it".to_owned())
        } else if mark.is_some_and(|mark| mark.sequence == sequence && mark.hash != entry.hash) {
            Some("not the one committed: the hash in the .mark file differs".to_owned())
        } else {
            None
        };
        if let Some(why) = problem {
            self.add_break(ChainBreak { sequence, why });
        }
        if self.entries == 0 {
            self.first = sequence;
        }
        self.entries += 1;
        self.last = self.last.max(sequence);
        self.head = entry.hash;
    }

    fn add_break(&mut self, chain_break: ChainBreak) {
        if self.breaks.len() < BREAKS_MAX {
            self.breaks.push(chain_break);
        }
    }
}
