//! Verification of the journal's hash chain: every entry's hash covers the entry and the previous hash, so that no
//! entry can be changed, removed or inserted without changing all later hashes.

use std::path::Path;

use rusqlite::Connection;

use super::{inspect, sql_fault, with_store};
use crate::digest::genesis;
use crate::maintenance::{ChainBreak, ChainReport, MaintenanceFault};
use crate::sqlite::high_water_mark::HighWaterMark;
use crate::sqlite::startup_check::{DatabaseState, EntryRow, SELECT_ENTRIES, database_id, read_entry_row};

/// Maximum number of reported breaks.
const BREAKS_MAX: usize = 100;
/// Entries read per transaction; a longer transaction would block the daemon's checkpoints.
const ENTRIES_PER_TRANSACTION: u32 = 4096;

/// Reads the whole journal of a store and verifies its hash chain.
pub(super) fn verify_chain(path: &Path) -> Result<ChainReport, MaintenanceFault> {
    if !path.exists() {
        return Err(MaintenanceFault::Missing(path.to_owned()));
    }
    with_store(path, |db| verify(db, path), ChainReport::is_intact)
}

fn verify(db: &Connection, path: &Path) -> Result<ChainReport, MaintenanceFault> {
    let (mark, state) = inspect(db, path)?;
    if let DatabaseState::Empty
    | DatabaseState::Foreign(_)
    | DatabaseState::Newer(_)
    | DatabaseState::Older(_) = state
    {
        let what = "not a store of this version; run nexus3 check".to_owned();
        return Err(MaintenanceFault::NotAStore { path: path.to_owned(), what });
    }
    let mut report = walk_chain(db, path, mark.as_ref(), |_| {}).map_err(|error| sql_fault(path, &error))?;
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
