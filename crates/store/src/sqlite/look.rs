//! The first look at a database that is there: is it ours, can we read its version, is its end what it should be.
//! A full look is left to `check`.

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::mark::Mark;
use super::schema::{APPLICATION_ID, DATABASE_ID, current_version, schema_problems};
use super::scribe::Head;
use crate::digest::{Content, DatabaseId, Digest, genesis, link, sum};

/// Databases up to this size are looked at page by page.
const WHOLE_LOOK_BYTES_MAX: u64 = 8 << 20;
/// Entries at the end of the journal whose links are looked at.
const TAIL: i64 = 64;

/// What a first look found.
#[derive(Debug)]
pub(crate) enum Look {
    /// A file that nothing was written to.
    Empty,
    /// An older schema, to be migrated.
    Older(u32),
    /// The current schema.
    Current { database: DatabaseId, head: Head },
    /// Another program's.
    Foreign(i32),
    /// A later program's.
    Newer(u32),
    /// It is not whole.
    Damaged(String),
    /// Entries are missing that were kept.
    Lost { last: u64, marked: u64 },
}

/// Looks. The mark is read before: the journal only grows.
///
/// # Errors
/// When SQLite cannot read it.
pub(crate) fn first_look(db: &Connection, mark: Option<&Mark>) -> rusqlite::Result<Look> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: u32 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match (application, version) {
        (0, 0) if objects == 0 => {
            // A mark beside it says that it was not: all of it was in a log that is gone.
            let lost = mark.filter(|mark| mark.sequence > 0);
            return Ok(lost.map_or(Look::Empty, |mark| Look::Lost { last: 0, marked: mark.sequence }));
        }
        (APPLICATION_ID, version) if version > current_version() => return Ok(Look::Newer(version)),
        (APPLICATION_ID, version) if version < current_version() => return Ok(Look::Older(version)),
        (APPLICATION_ID, _) => {}
        (other, _) => return Ok(Look::Foreign(other)),
    }
    if let Some(problem) = schema_problems(db)?.into_iter().next() {
        return Ok(Look::Damaged(problem));
    }
    if let Some(problem) = page_problem(db)? {
        return Ok(Look::Damaged(problem));
    }
    let Some(database) = database_id(db)? else {
        return Ok(Look::Damaged("it does not say which database it is".to_owned()));
    };
    let head = match tail(db, &database)? {
        Ok(head) => head,
        Err(problem) => return Ok(Look::Damaged(problem)),
    };
    match mark.filter(|mark| mark.database == database) {
        Some(mark) => against_mark(db, database, head, mark),
        None => Ok(Look::Current { database, head }),
    }
}

fn against_mark(db: &Connection, database: DatabaseId, head: Head, mark: &Mark) -> rusqlite::Result<Look> {
    if mark.sequence > head.sequence {
        return Ok(Look::Lost { last: head.sequence, marked: mark.sequence });
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
        return Ok(Look::Current { database, head });
    }
    Ok(Look::Damaged(format!("entry {} of the journal is not the one that was kept", mark.sequence)))
}

fn page_problem(db: &Connection) -> rusqlite::Result<Option<String>> {
    let pages: u64 =
        db.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)?;
    let page_bytes: u64 =
        db.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)?;
    if pages.saturating_mul(page_bytes) > WHOLE_LOOK_BYTES_MAX {
        return Ok(None);
    }
    let said: String = db.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    Ok((said != "ok").then_some(said))
}

pub(crate) fn database_id(db: &Connection) -> rusqlite::Result<Option<DatabaseId>> {
    db.query_row("SELECT value FROM meta WHERE key = ?1", [DATABASE_ID], |row| row.get(0)).optional()
}

/// The end of the journal, when the last links hold. The first of them is tied to one that is not looked at.
fn tail(db: &Connection, database: &DatabaseId) -> rusqlite::Result<Result<Head, String>> {
    let sql =
        format!("{ENTRIES} WHERE sequence > (SELECT max(sequence) FROM journal) - ?1 ORDER BY sequence");
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query([TAIL])?;
    let genesis = Head { sequence: 0, hash: genesis(database) };
    let mut before = None;
    while let Some(row) = rows.next()? {
        let entry = kept(row)?;
        if let Some(before) = before.or((entry.sequence == 1).then_some(genesis))
            && !(entry.sequence == before.sequence + 1 && entry.follows(&before.hash))
        {
            let problem = "does not follow from the one before it";
            return Ok(Err(format!("entry {} of the journal {problem}", entry.sequence)));
        }
        before = Some(Head { sequence: entry.sequence, hash: entry.hash });
    }
    Ok(Ok(before.unwrap_or(genesis)))
}

/// Everything that is tied into a link, and the link, for [`kept`].
pub(crate) const ENTRIES: &str =
    "SELECT sequence, agent, number, at, name, kind, body, hash, previous, sum FROM journal";

/// An entry as it is kept.
pub(crate) struct Kept<'row> {
    pub(crate) sequence: u64,
    pub(crate) number: u64,
    /// The entry of the same agent before it.
    pub(crate) previous: Option<u64>,
    pub(crate) content: Content<'row>,
    sum: i64,
    pub(crate) hash: Digest,
}

impl Kept<'_> {
    /// Whether no disk has changed what it says.
    pub(crate) fn is_as_written(&self) -> bool {
        sum(&self.content.digest()) == self.sum
    }

    /// Whether it is what was written after an entry with this hash.
    pub(crate) fn follows(&self, previous: &Digest) -> bool {
        let content = self.content.digest();
        sum(&content) == self.sum && link(previous, self.sequence, self.number, &content) == self.hash
    }
}

/// A row of [`ENTRIES`].
pub(crate) fn kept<'row>(row: &'row Row<'_>) -> rusqlite::Result<Kept<'row>> {
    Ok(Kept {
        sequence: row.get::<_, i64>(0)?.unsigned_abs(),
        number: row.get::<_, i64>(2)?.unsigned_abs(),
        previous: row.get::<_, Option<i64>>(8)?.map(i64::unsigned_abs),
        content: Content {
            agent: row.get::<_, i64>(1)?.unsigned_abs(),
            at: row.get(3)?,
            name: row.get_ref(4)?.as_str_or_null()?.unwrap_or_default(),
            kind: row.get_ref(5)?.as_str()?,
            body: row.get_ref(6)?.as_str()?,
        },
        sum: row.get(9)?,
        hash: row.get(7)?,
    })
}
