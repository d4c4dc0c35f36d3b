//! What is in the file: the journal, which is only ever appended to, and the tables that follow from it.

use rusqlite::{Connection, OptionalExtension as _};

/// `nx3s`: tells our files from those of other programs.
pub(crate) const APPLICATION_ID: i32 = 0x6e78_3373;

/// One step of the schema; its place in [`MIGRATIONS`] plus one is the version it leads to.
pub(crate) type Migration = &'static str;

/// Steps are never changed once they were released, only added.
pub(crate) const MIGRATIONS: &[Migration] = &[INITIAL_SCHEMA];

/// Every page that a commit touches is written twice, so what changes together lies together. States change at every
/// turn and are small, so they are apart from what agents are made from; of an agent that is forgotten, and of the
/// daemon, only the place of the last entry is there. Entries of one agent are found backwards: each names the one
/// before it. An index of them all would touch a page for each agent; every 64th is in one, as a place to begin from in
/// the middle. A turn's row lies where it was accepted; its end is an entry of the journal, and the row says which.
/// Sums tell when a disk has changed something: SQLite has none of its own.
const INITIAL_SCHEMA: Migration = "
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    number INTEGER NOT NULL,
    previous INTEGER,
    name TEXT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    sum INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX journal_milestones ON journal (agent) WHERE number % 64 = 0;

CREATE TABLE agents (
    serial INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    parent INTEGER REFERENCES agents (serial),
    gone INTEGER NOT NULL DEFAULT 0 CHECK (gone IN (0, 1)),
    capability BLOB NOT NULL,
    record TEXT NOT NULL,
    rights TEXT NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX agents_by_id ON agents (id) WHERE gone = 0;
CREATE INDEX agents_by_parent ON agents (parent) WHERE parent IS NOT NULL;

CREATE TABLE states (
    serial INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    number INTEGER NOT NULL,
    is_finished INTEGER NOT NULL CHECK (is_finished IN (0, 1)),
    state TEXT,
    ledger_version INTEGER NOT NULL,
    ledger TEXT
) STRICT;

CREATE TABLE turns (
    accepted INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    request BLOB NOT NULL,
    turn INTEGER NOT NULL,
    content BLOB NOT NULL,
    sum INTEGER NOT NULL,
    ended INTEGER,
    ended_at INTEGER
) STRICT;
CREATE UNIQUE INDEX turns_by_request ON turns (agent, request);
CREATE INDEX turns_open ON turns (agent) WHERE ended IS NULL;
CREATE INDEX turns_by_end ON turns (ended_at) WHERE ended_at IS NOT NULL;
";

/// The key of what tells this database from all others.
pub(crate) const DATABASE_ID: &str = "database_id";

/// The version that this program writes.
pub(crate) fn current_version() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// What of the schema is not as it should be, in words. The file has to have the current version.
pub(crate) fn schema_problems(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(&MIGRATIONS.concat())?;
    let mut expected = model.prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let mut found = db.prepare("SELECT sql FROM sqlite_schema WHERE type = ?1 AND name = ?2")?;
    let mut problems = Vec::new();
    let mut rows = expected.query(())?;
    while let Some(row) = rows.next()? {
        let (kind, name, sql): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let there: Option<Option<String>> = found.query_row((&kind, &name), |row| row.get(0)).optional()?;
        match there {
            None => problems.push(format!("the {kind} {name} is missing")),
            Some(there) if there.as_deref() != Some(&sql) => {
                problems.push(format!("the {kind} {name} is not what it should be"));
            }
            Some(_) => {}
        }
    }
    Ok(problems)
}
