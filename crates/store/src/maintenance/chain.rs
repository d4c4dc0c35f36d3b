//! The chain of the journal: every entry's hash covers the entry and the hash before it, so that no entry can be
//! changed, removed or put in between without changing all that follow.

use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{MaintenanceFault, with_store};
use crate::digest::{genesis, hex};
use crate::sqlite::{
    DatabaseState, EntryRow, HighWaterMark, SELECT_ENTRIES, StoreFiles, database_id, inspect_database,
    read_entry_row,
};

/// Breaks that are told.
const BREAKS_MAX: usize = 100;
/// Entries that are read in one transaction, so that a daemon is not kept from emptying its log.
const ENTRIES_PER_TRANSACTION: u32 = 4096;

/// What the chain of a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainReport {
    /// The file.
    pub path: PathBuf,
    /// Entries there are.
    pub entries: u64,
    /// The first of them; zero when there is none.
    pub first: u64,
    /// The last of them; zero when there is none.
    pub last: u64,
    /// The hash of the last: whoever notes it can tell later that nothing before it has changed.
    pub head: [u8; 32],
    /// Where the chain breaks; the first hundred places.
    pub breaks: Vec<ChainBreak>,
}

/// A place where the chain breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    /// The entry.
    pub sequence: u64,
    /// What is wrong with it.
    pub why: String,
}

impl ChainReport {
    /// Whether every entry follows from the one before it.
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
            return write!(out, "chain: whole, {entries} entries, {first} to {last}, head {}", hex(head));
        }
        write!(out, "chain: BROKEN, {entries} entries, {first} to {last}")?;
        breaks.iter().try_for_each(|place| write!(out, "\n  {place}"))
    }
}

/// Reads the whole journal of a store and says whether its chain holds.
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
    let look = inspect_database(db, mark.as_ref()).map_err(sql)?;
    if let DatabaseState::Empty
    | DatabaseState::Foreign(_)
    | DatabaseState::Newer(_)
    | DatabaseState::Older(_) = look
    {
        let what = "not a store of this version; run nexus3 check".to_owned();
        return Err(MaintenanceFault::NotAStore { path: path.to_owned(), what });
    }
    let mut report = read_chain(db, path).map_err(sql)?;
    if let DatabaseState::JournalTruncated { last, marked } = look {
        let why = format!("missing: {marked} entries were kept, and the last there is is {last}");
        report.breaks.push(ChainBreak { sequence: last + 1, why });
    }
    Ok(report)
}

/// The chain as a connection sees it.
pub(crate) fn read_chain(db: &Connection, path: &Path) -> rusqlite::Result<ChainReport> {
    walk_chain(db, path, |_| {})
}

/// Follows the chain, and shows every entry that can be read.
pub(super) fn walk_chain(
    db: &Connection,
    path: &Path,
    mut show: impl FnMut(&EntryRow<'_>),
) -> rusqlite::Result<ChainReport> {
    let database = database_id(db)?.unwrap_or_default();
    let mut report = ChainReport {
        path: path.to_owned(),
        entries: 0,
        first: 0,
        last: 0,
        head: genesis(&database),
        breaks: Vec::new(),
    };
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
                    let why = format!("it and what follows cannot be read: {error}");
                    report.add_break(ChainBreak { sequence: report.last + 1, why });
                    return Ok(report);
                }
            };
            match read_entry_row(row) {
                Ok(entry) => {
                    report.add_entry(&entry);
                    show(&entry);
                }
                Err(error) => {
                    let sequence = row.get::<_, i64>(0)?.unsigned_abs();
                    report.add_break(ChainBreak { sequence, why: format!("it makes no sense: {error}") });
                    report.entries += 1;
                    report.last = report.last.max(sequence);
                }
            }
        }
        // Numbers that were changed may lead back: what does not go on is the end.
        if report.last == before || report.entries - entries_before < u64::from(ENTRIES_PER_TRANSACTION) {
            return Ok(report);
        }
    }
}

impl ChainReport {
    fn add_entry(&mut self, entry: &EntryRow<'_>) {
        let sequence = entry.sequence;
        if sequence <= self.last {
            let why = format!("it stands behind entry {}", self.last);
            self.add_break(ChainBreak { sequence, why });
        } else if sequence != self.last + 1 {
            let why = format!("entries from {} on are missing before it", self.last + 1);
            self.add_break(ChainBreak { sequence, why });
        } else if !entry.follows(&self.head) {
            let why = "it was changed, or does not follow from the one before it".to_owned();
            self.add_break(ChainBreak { sequence, why });
        }
        if self.entries == 0 {
            self.first = sequence;
        }
        self.entries += 1;
        self.last = self.last.max(sequence);
        self.head = entry.hash;
    }

    fn add_break(&mut self, place: ChainBreak) {
        if self.breaks.len() < BREAKS_MAX {
            self.breaks.push(place);
        }
    }
}
