//! Rows of recorded file changes: the statements of the writer, the queries of the readers, and the row checksum.

use agent::outside::{
    ChangeWrite, FileChange, FileState, NewChanges, StateDigest, StoreFault, TurnChanges,
    UNDO_AGENT_BYTES_MAX,
};
use agent::permission::FilePath;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::queries::QueryFault;
use super::transaction_writer::{WriteError, to_i64};
use crate::batch::refusal;
use crate::digest::checksum_parts;

/// Columns that the checksum covers, in the order of [`change_checksum`].
pub(super) const CHANGE_CHECKSUM_COLUMNS: &str = "agent, turn, path, kind, mode, content, last_before, after";

const ABSENT: i64 = 0;
const DIRECTORY: i64 = 1;
const FILE: i64 = 2;
const LINK: i64 = 3;

/// Records changes in the open transaction.
pub(super) fn record_changes(db: &Connection, write: &ChangeWrite) -> Result<(), WriteError> {
    let (agent, turn) = (to_i64(write.agent)?, to_i64(write.turn)?);
    if !db.prepare_cached("SELECT 1 FROM agents WHERE serial = ?1 AND gone = 0")?.exists([agent])? {
        return Err(refusal::no_agent().into());
    }
    db.prepare_cached(
        "INSERT INTO changed_turns (agent, turn, undone, not_undoable, files, bytes) VALUES (?1, ?2, 0, NULL, 0, 0) \
         ON CONFLICT (agent, turn) DO UPDATE SET undone = 0",
    )?
    .execute([agent, turn])?;
    let (is_refused, mut files, mut bytes): (bool, i64, i64) = db
        .prepare_cached(
            "SELECT not_undoable IS NOT NULL, files, bytes FROM changed_turns WHERE agent = ?1 AND turn = ?2",
        )?
        .query_row([agent, turn], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let changes = match &write.changes {
        _ if is_refused => return Ok(()),
        NewChanges::NotUndoable(why) => return set_not_undoable(db, agent, turn, why),
        NewChanges::Recorded(changes) => changes,
    };
    for change in changes {
        if merge(db, agent, turn, change)? {
            files += 1;
            bytes += i64::try_from(change.bytes()).unwrap_or(i64::MAX);
        }
    }
    let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    if let Some(why) = TurnChanges::excess(size(files), size(bytes)) {
        return set_not_undoable(db, agent, turn, &why);
    }
    db.prepare_cached("UPDATE changed_turns SET files = ?3, bytes = ?4 WHERE agent = ?1 AND turn = ?2")?
        .execute([agent, turn, files, bytes])?;
    drop_oldest(db, agent, turn)
}

/// Stores the change of a path, or merges it with the earlier one of the turn. Returns whether it is the first.
fn merge(db: &Connection, agent: i64, turn: i64, change: &FileChange) -> Result<bool, WriteError> {
    let path = change.path.as_str();
    let earlier: Option<(i64, i64, Vec<u8>)> = db
        .prepare_cached(
            "SELECT kind, mode, content FROM file_changes WHERE agent = ?1 AND turn = ?2 AND path = ?3",
        )?
        .query_row(params![agent, turn, path], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let is_first = earlier.is_none();
    let (kind, mode, content) = earlier.unwrap_or_else(|| encode_state(&change.before));
    let sum =
        checksum_columns(agent, turn, path, (kind, mode, &content), [&change.last_before, &change.after]);
    db.prepare_cached(
        "INSERT INTO file_changes (agent, turn, path, kind, mode, content, last_before, after, sum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (agent, turn, path) DO UPDATE SET \
         last_before = excluded.last_before, after = excluded.after, sum = excluded.sum",
    )?
    .execute(params![agent, turn, path, kind, mode, content, change.last_before, change.after, sum])?;
    Ok(is_first)
}

fn encode_state(state: &FileState) -> (i64, i64, Vec<u8>) {
    match state {
        FileState::Absent => (ABSENT, 0, Vec::new()),
        FileState::Directory { mode } => (DIRECTORY, i64::from(*mode), Vec::new()),
        FileState::File { mode, content } => (FILE, i64::from(*mode), content.clone()),
        FileState::Link { target } => (LINK, 0, target.as_bytes().to_vec()),
    }
}

fn set_not_undoable(db: &Connection, agent: i64, turn: i64, why: &str) -> Result<(), WriteError> {
    delete_changes(db, agent, turn)?;
    db.prepare_cached(
        "UPDATE changed_turns SET not_undoable = ?3, files = 0, bytes = 0 WHERE agent = ?1 AND turn = ?2",
    )?
    .execute(params![agent, turn, why])?;
    Ok(())
}

fn delete_changes(db: &Connection, agent: i64, turn: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM file_changes WHERE agent = ?1 AND turn = ?2")?
        .execute([agent, turn])
        .map(drop)
}

/// Drops the changes of the oldest turns until those of the agent are within its limit.
fn drop_oldest(db: &Connection, agent: i64, current: i64) -> Result<(), WriteError> {
    loop {
        let total: i64 = db
            .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM changed_turns WHERE agent = ?1")?
            .query_row([agent], |row| row.get(0))?;
        if usize::try_from(total).is_ok_and(|total| total <= UNDO_AGENT_BYTES_MAX) {
            return Ok(());
        }
        let oldest: Option<i64> = db
            .prepare_cached(
                "SELECT turn FROM changed_turns WHERE agent = ?1 AND turn <> ?2 AND bytes > 0 ORDER BY turn LIMIT 1",
            )?
            .query_row([agent, current], |row| row.get(0))
            .optional()?;
        let Some(oldest) = oldest else { return Ok(()) };
        set_not_undoable(db, agent, oldest, &TurnChanges::dropped())?;
    }
}

/// Marks a turn as undone, and deletes its changes.
pub(super) fn mark_undone(db: &Connection, agent: i64, turn: i64) -> Result<(), WriteError> {
    delete_changes(db, agent, turn)?;
    db.prepare_cached(
        "UPDATE changed_turns SET undone = 1, files = 0, bytes = 0 WHERE agent = ?1 AND turn = ?2",
    )?
    .execute([agent, turn])?;
    Ok(())
}

/// Deletes the changes of a destroyed agent.
pub(super) fn delete_agent_changes(db: &Connection, agent: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM file_changes WHERE agent = ?1")?.execute([agent])?;
    db.prepare_cached("DELETE FROM changed_turns WHERE agent = ?1")?.execute([agent]).map(drop)
}

/// Reads the changes of a turn, or of the latest turn that has any.
pub(super) fn turn_changes(
    db: &Connection,
    agent: u64,
    turn: Option<u64>,
) -> Result<Option<TurnChanges>, StoreFault> {
    let (agent, turn) = (to_i64(agent)?, turn.map(to_i64).transpose()?);
    let read = || -> Result<Option<TurnChanges>, QueryFault> {
        let found: Option<(i64, bool, Option<String>)> = db
            .prepare_cached(
                "SELECT turn, undone, not_undoable FROM changed_turns \
                 WHERE agent = ?1 AND (?2 IS NULL OR turn = ?2) ORDER BY turn DESC LIMIT 1",
            )?
            .query_row(params![agent, turn], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((number, is_undone, not_undoable)) = found else { return Ok(None) };
        let mut select = db.prepare_cached(&format!(
            "SELECT {CHANGE_CHECKSUM_COLUMNS}, sum FROM file_changes WHERE agent = ?1 AND turn = ?2 ORDER BY path"
        ))?;
        let mut rows = select.query([agent, number])?;
        let mut changes = Vec::new();
        while let Some(row) = rows.next()? {
            changes.push(decode_change(row)?);
        }
        Ok(Some(TurnChanges { turn: number.unsigned_abs(), is_undone, not_undoable, changes }))
    };
    Ok(read()?)
}

fn decode_change(row: &Row<'_>) -> Result<FileChange, QueryFault> {
    let path: String = row.get(2)?;
    let corrupt = |what: &str| StoreFault::Corrupt(format!("stored change of {path:?}: {what}"));
    if change_checksum(row)? != row.get::<_, i64>(8)? {
        return Err(corrupt("checksum mismatch").into());
    }
    let mode = u32::try_from(row.get::<_, i64>(4)?).map_err(|_| corrupt("invalid mode"))?;
    let before = match row.get::<_, i64>(3)? {
        ABSENT => FileState::Absent,
        DIRECTORY => FileState::Directory { mode },
        FILE => FileState::File { mode, content: row.get(5)? },
        LINK => {
            FileState::Link { target: String::from_utf8(row.get(5)?).map_err(|_| corrupt("invalid link"))? }
        }
        _ => return Err(corrupt("unknown type").into()),
    };
    let path = FilePath::resolve(&path, &FilePath::root()).map_err(|_| corrupt("invalid path"))?;
    Ok(FileChange { path, before, last_before: row.get(6)?, after: row.get(7)? })
}

/// Computes the checksum of a row whose first columns are the covered ones.
pub(super) fn change_checksum(row: &Row<'_>) -> rusqlite::Result<i64> {
    let path = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let content = row.get_ref(5)?.as_blob().map_err(rusqlite::Error::from)?;
    let state = (row.get(3)?, row.get(4)?, content);
    Ok(checksum_columns(row.get(0)?, row.get(1)?, path, state, [&row.get(6)?, &row.get(7)?]))
}

fn checksum_columns(
    agent: i64,
    turn: i64,
    path: &str,
    (kind, mode, content): (i64, i64, &[u8]),
    [last_before, after]: [&StateDigest; 2],
) -> i64 {
    checksum_parts(&[
        &agent.to_be_bytes(),
        &turn.to_be_bytes(),
        path.as_bytes(),
        &kind.to_be_bytes(),
        &mode.to_be_bytes(),
        content,
        last_before,
        after,
    ])
}
