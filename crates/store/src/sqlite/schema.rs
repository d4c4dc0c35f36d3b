//! Database schema: the append-only journal, the tables derived from it, the key-value store, and file changes.
// tidy: allow retired-word because the stored format names a field `rights`

use rusqlite::{Connection, OptionalExtension as _};

/// SQLite application id `nx3s`, which marks a file as a nexus3 store.
pub(crate) const APPLICATION_ID: i32 = 0x6e78_3373;

/// SQL of one migration; its index in [`MIGRATIONS`] plus one is the version it produces.
pub(crate) type Migration = &'static str;

/// All migrations. A released migration is never changed; new ones are appended.
pub(crate) const MIGRATIONS: &[Migration] = &[INITIAL_SCHEMA, RECORD_INDEX, KEY_VALUES, FILE_CHANGES];

/// The tables. WAL mode writes every page of a commit twice, so values that change together are stored together.
///
/// - `states`: small and updated at every turn, so separate from `agents`. For removed agents and the daemon, a row
///   only holds the position of the last entry (`last`, `number`).
/// - `journal`: `previous` links an agent's entries backwards. An index of all entries would touch a page per agent in
///   each commit; `journal_milestones` indexes every 64th entry, as a start for reads in the middle.
/// - `turns`: `accepted` is the sequence of the accepting entry, `ended` that of the entry with the turn's end.
/// - `sum`: checksum of the row, because SQLite has none of its own.
///
/// Column names are part of the file format. The code calls `number` the agent sequence, `name` the agent id, `gone`
/// destroyed, `rights` permissions, `request` the request key and `content` the content digest.
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

/// Index of the entries that an agent's row is derived from, so that a row is compared with them whenever it is loaded.
const RECORD_INDEX: Migration = "
CREATE INDEX journal_records ON journal (agent, kind) WHERE kind IN ('agent_created', 'permissions_changed');
";

/// The key-value store. `namespace` is the serial of a tree's root, or zero for the user. The rows are not derived from
/// the journal. The index of expiry is partial, because most entries never expire.
const KEY_VALUES: Migration = "
CREATE TABLE key_values (
    namespace INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    sum INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX key_values_by_key ON key_values (namespace, key);
CREATE INDEX key_values_by_expiry ON key_values (expires_at) WHERE expires_at IS NOT NULL;
";

/// The recorded file changes of turns. A turn that cannot be undone has a reason and no changes. `kind` is 0 if nothing
/// was there before, 1 for a directory, 2 for a file and 3 for a symbolic link, whose target is the content.
const FILE_CHANGES: Migration = "
CREATE TABLE changed_turns (
    agent INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    undone INTEGER NOT NULL CHECK (undone IN (0, 1)),
    not_undoable TEXT,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (agent, turn)
) STRICT, WITHOUT ROWID;
CREATE TABLE file_changes (
    agent INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    path TEXT NOT NULL,
    kind INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    content BLOB NOT NULL,
    last_before BLOB NOT NULL,
    after BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX file_changes_by_path ON file_changes (agent, turn, path);
";

/// Key of the database id in `meta`.
pub(crate) const DATABASE_ID: &str = "database_id";

/// Returns the schema version this program writes.
pub(crate) fn current_version() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Returns descriptions of missing or changed tables and indexes. The file must have the current version.
pub(crate) fn schema_problems(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(&MIGRATIONS.concat())?;
    let mut expected = model.prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let mut found = db.prepare("SELECT sql FROM sqlite_schema WHERE type = ?1 AND name = ?2")?;
    let mut problems = Vec::new();
    let mut rows = expected.query(())?;
    while let Some(row) = rows.next()? {
        let (kind, name, sql): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let actual: Option<Option<String>> = found.query_row((&kind, &name), |row| row.get(0)).optional()?;
        match actual {
            None => problems.push(format!("the {kind} {name} is missing")),
            Some(actual) if actual.as_deref() != Some(&sql) => {
                problems.push(format!("the {kind} {name} has an unexpected definition"));
            }
            Some(_) => {}
        }
    }
    Ok(problems)
}
