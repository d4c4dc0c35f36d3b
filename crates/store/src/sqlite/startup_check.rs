//! Quick check of an existing database at startup: application id, schema version, tables, and the end of the hash
//! chain. The full check is in [`super::maintenance`].

use std::fmt;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::high_water_mark::HighWaterMark;
use super::schema::{APPLICATION_ID, DATABASE_ID, current_version, schema_problems};
use super::transaction_writer::JournalHead;
use crate::digest::{DatabaseId, Digest, EntryContent, chain_hash, checksum, genesis};

/// Databases up to this size get SQLite's integrity check.
const INTEGRITY_CHECK_BYTES_MAX: u64 = 8 << 20;
/// Number of entries at the end of the journal whose hashes are verified.
const TAIL_ENTRIES: i64 = 64;

/// Result of the startup check.
#[derive(Debug)]
pub(crate) enum DatabaseState {
    /// A new file without a schema.
    Empty,
    /// An older schema that needs migration.
    Older(u32),
    /// The current schema.
    Current { database: DatabaseId, head: JournalHead },
    /// Another program's database, with its application id.
    Foreign(i32),
    /// The schema of a newer nexus3.
    Newer(u32),
    /// A damaged database, with the first problem found.
    Damaged(String),
    /// Committed entries are missing at the end of the journal.
    JournalTruncated { last: u64, marked: u64 },
}

impl fmt::Display for DatabaseState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "empty: no schema was created"),
            Self::Older(version) => {
                write!(out, "schema version {version} is older than {}", current_version())
            }
            Self::Current { .. } => write!(out, "a store of this version"),
            Self::Foreign(application) => {
                write!(out, "a database of another program (application id {application:#x})")
            }
            Self::Newer(version) => write!(
                out,
                "schema version {version} is newer than {}, the highest this nexus3 supports",
                current_version()
            ),
            Self::Damaged(why) => write!(out, "{why}"),
            Self::JournalTruncated { last, marked } => write!(
                out,
                "the journal ends at entry {last}, but {marked} were committed: its -wal was cut, changed or removed"
            ),
        }
    }
}

/// Checks a database. Read the high-water mark before: the journal only grows, so a later mark could exceed what this
/// connection sees.
///
/// # Errors
/// When SQLite cannot read the database.
pub(crate) fn inspect_database(
    db: &Connection,
    mark: Option<&HighWaterMark>,
) -> rusqlite::Result<DatabaseState> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: u32 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match (application, version) {
        (0, 0) if objects == 0 => {
            // A mark means that entries were committed: they were only in the WAL, which was lost.
            let lost = mark.filter(|mark| mark.sequence > 0);
            return Ok(lost.map_or(DatabaseState::Empty, |mark| DatabaseState::JournalTruncated {
                last: 0,
                marked: mark.sequence,
            }));
        }
        (APPLICATION_ID, version) if version > current_version() => return Ok(DatabaseState::Newer(version)),
        (APPLICATION_ID, _) => {}
        (application, _) => return Ok(DatabaseState::Foreign(application)),
    }
    let is_older = version < current_version();
    if !is_older && let Some(problem) = schema_problems(db)?.into_iter().next() {
        return Ok(DatabaseState::Damaged(problem));
    }
    if let Some(problem) = page_problem(db)? {
        return Ok(DatabaseState::Damaged(problem));
    }
    let Some(database) = database_id(db)? else {
        return Ok(DatabaseState::Damaged("its database id is missing".to_owned()));
    };
    let head = match verify_tail(db, &database)? {
        Ok(head) => head,
        Err(problem) => return Ok(DatabaseState::Damaged(problem)),
    };
    // An older schema too: its newer version may be in a part of the WAL that was lost.
    let state = match mark.filter(|mark| mark.database == database) {
        Some(mark) => compare_with_mark(db, database, head, mark)?,
        None => DatabaseState::Current { database, head },
    };
    Ok(match state {
        DatabaseState::Current { .. } if is_older => DatabaseState::Older(version),
        state => state,
    })
}

fn compare_with_mark(
    db: &Connection,
    database: DatabaseId,
    head: JournalHead,
    mark: &HighWaterMark,
) -> rusqlite::Result<DatabaseState> {
    if mark.sequence > head.sequence {
        return Ok(DatabaseState::JournalTruncated { last: head.sequence, marked: mark.sequence });
    }
    let found: Option<Digest> = match mark.sequence {
        0 => Some(mark.hash),
        sequence => db
            .query_row(
                "SELECT hash FROM journal WHERE sequence = ?1",
                [i64::try_from(sequence).unwrap_or(i64::MAX)],
                |row| row.get(0),
            )
            .optional()?,
    };
    if found == Some(mark.hash) {
        return Ok(DatabaseState::Current { database, head });
    }
    Ok(DatabaseState::Damaged(format!("entry {} of the journal is not the one committed", mark.sequence)))
}

fn page_problem(db: &Connection) -> rusqlite::Result<Option<String>> {
    let pages: u64 =
        db.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)?;
    let page_bytes: u64 =
        db.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)?;
    if pages.saturating_mul(page_bytes) > INTEGRITY_CHECK_BYTES_MAX {
        return Ok(None);
    }
    let result: String = db.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    Ok((result != "ok").then_some(result))
}

pub(crate) fn database_id(db: &Connection) -> rusqlite::Result<Option<DatabaseId>> {
    db.query_row("SELECT value FROM meta WHERE key = ?1", [DATABASE_ID], |row| row.get(0)).optional()
}

/// Verifies the hashes of the last entries and returns the head of the journal. The first of them is taken on trust,
/// since the entry before it is not read.
fn verify_tail(db: &Connection, database: &DatabaseId) -> rusqlite::Result<Result<JournalHead, String>> {
    let sql = format!(
        "{SELECT_ENTRIES} WHERE sequence > (SELECT max(sequence) FROM journal) - ?1 ORDER BY sequence"
    );
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query([TAIL_ENTRIES])?;
    let genesis = JournalHead { sequence: 0, hash: genesis(database) };
    let mut before = None;
    while let Some(row) = rows.next()? {
        let entry = read_entry_row(row)?;
        if let Some(before) = before.or((entry.sequence == 1).then_some(genesis))
            && !(entry.sequence == before.sequence + 1 && entry.follows(&before.hash))
        {
            let problem = "does not follow from the one before it";
            return Ok(Err(format!("entry {} of the journal {problem}", entry.sequence)));
        }
        before = Some(JournalHead { sequence: entry.sequence, hash: entry.hash });
    }
    Ok(Ok(before.unwrap_or(genesis)))
}

/// Selects all hashed columns and the hash, in the order of [`read_entry_row`].
pub(crate) const SELECT_ENTRIES: &str =
    "SELECT sequence, agent, number, at, name, kind, body, hash, previous, sum FROM journal";

/// A row of the `journal` table.
pub(crate) struct EntryRow<'row> {
    pub(crate) sequence: u64,
    pub(crate) agent_sequence: u64,
    /// Sequence of the same agent's previous entry.
    pub(crate) previous: Option<u64>,
    pub(crate) content: EntryContent<'row>,
    checksum: i64,
    pub(crate) hash: Digest,
}

impl EntryRow<'_> {
    /// Whether the content matches the row's checksum.
    pub(crate) fn checksum_matches(&self) -> bool {
        checksum(&self.content.digest()) == self.checksum
    }

    /// Whether the row's hash is the successor of the previous entry's hash.
    pub(crate) fn follows(&self, previous: &Digest) -> bool {
        let content = self.content.digest();
        checksum(&content) == self.checksum
            && chain_hash(previous, self.sequence, self.agent_sequence, &content) == self.hash
    }
}

/// Reads a row of [`SELECT_ENTRIES`].
pub(crate) fn read_entry_row<'row>(row: &'row Row<'_>) -> rusqlite::Result<EntryRow<'row>> {
    Ok(EntryRow {
        sequence: row.get::<_, i64>(0)?.unsigned_abs(),
        agent_sequence: row.get::<_, i64>(2)?.unsigned_abs(),
        previous: row.get::<_, Option<i64>>(8)?.map(i64::unsigned_abs),
        content: EntryContent {
            agent: row.get::<_, i64>(1)?.unsigned_abs(),
            at: row.get(3)?,
            agent_id: row.get_ref(4)?.as_str_or_null()?.unwrap_or_default(),
            kind: row.get_ref(5)?.as_str()?,
            body: row.get_ref(6)?.as_str()?,
        },
        checksum: row.get(9)?,
        hash: row.get(7)?,
    })
}
