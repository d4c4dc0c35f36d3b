//! Read queries of the store. The reader pool runs each in one read transaction. Rows are verified against their
//! checksums; a mismatch is reported as corruption, never guessed around.

use std::sync::Arc;

use agent::journal::{AgentRecord, DAEMON, Record, Serial};
use agent::outside::{
    EntryRange, IndexRow, JournalBounds, JournalEntry, StoreFault, StoredAgent, StoredTurn, Timestamp,
};
use agent::{RequestId, TurnEnd};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum, turn_checksum};
use super::startup_check::{SELECT_ENTRIES, read_entry_row};
use super::transaction_writer::to_i64;
use crate::codec::{self, CodecFault};
use crate::digest::{self, Digest, EntryContent};

/// Maps a read error to a fault. Any error but a busy database counts as corruption; the writer reports write failures.
pub(crate) fn read_fault(error: &rusqlite::Error) -> StoreFault {
    match error {
        rusqlite::Error::SqliteFailure(code, _) if code.code == rusqlite::ErrorCode::DatabaseBusy => {
            StoreFault::Full("another program holds the database".to_owned())
        }
        error => StoreFault::Corrupt(format!("read failed: {error}")),
    }
}

/// Wrapper that lets `?` convert SQLite errors with [`read_fault`].
pub(super) struct QueryFault(StoreFault);

impl From<rusqlite::Error> for QueryFault {
    fn from(error: rusqlite::Error) -> Self {
        Self(read_fault(&error))
    }
}

impl From<StoreFault> for QueryFault {
    fn from(fault: StoreFault) -> Self {
        Self(fault)
    }
}

impl From<QueryFault> for StoreFault {
    fn from(fault: QueryFault) -> Self {
        fault.0
    }
}

pub(super) fn index(db: &Connection) -> Result<Vec<IndexRow>, StoreFault> {
    Ok(read_index(db)?)
}

fn read_index(db: &Connection) -> Result<Vec<IndexRow>, QueryFault> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {AGENT_CHECKSUM_COLUMNS}, sum, is_finished FROM agents LEFT JOIN states USING (serial) ORDER BY serial"
    ))?;
    let mut rows = statement.query(())?;
    let mut index = Vec::new();
    while let Some(row) = rows.next()? {
        let serial = to_u64(row.get(0)?, "serial")?;
        check_agent_checksum(row)?;
        let id = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        index.push(IndexRow {
            serial,
            id: codec::decode_agent_id(id).map_err(|fault| corrupt(&format!("agent {serial}"), fault))?,
            parent: row.get::<_, Option<i64>>(2)?.map(|parent| to_u64(parent, "parent")).transpose()?,
            capability_digest: row.get(4)?,
            is_destroyed: row.get(3)?,
            is_finished: row.get(8)?,
        });
    }
    Ok(index)
}

/// Verifies the checksum of a row that starts with [`AGENT_CHECKSUM_COLUMNS`] and the checksum.
fn check_agent_checksum(row: &Row<'_>) -> Result<(), QueryFault> {
    if agent_checksum(row, 0)? == row.get::<_, i64>(7)? {
        return Ok(());
    }
    Err(corrupt(&format!("agent {}", row.get::<_, i64>(0)?), "row checksum mismatch").into())
}

/// Returns the highest serial ever used. Every agent has a `states` row, and those are never removed.
pub(super) fn last_serial(db: &Connection) -> Result<Serial, StoreFault> {
    let last: Option<i64> = query_optional(db, "SELECT max(serial) FROM states")?;
    last.map_or(Ok(DAEMON), |last| to_u64(last, "serial"))
}

pub(super) fn agents(db: &Connection, serials: &[Serial]) -> Result<Vec<StoredAgent>, StoreFault> {
    let mut agents = Vec::with_capacity(serials.len());
    for serial in serials {
        agents.extend(read_agent(db, *serial)?);
    }
    Ok(agents)
}

fn read_agent(db: &Connection, serial: Serial) -> Result<Option<StoredAgent>, QueryFault> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {AGENT_CHECKSUM_COLUMNS}, sum, state, ledger FROM agents LEFT JOIN states USING (serial) WHERE serial = ?1"
    ))?;
    let mut rows = statement.query([to_i64(serial)?])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    check_agent_checksum(row)?;
    let agent_fault = |fault: CodecFault| corrupt(&format!("agent {serial}"), fault);
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let record = codec::decode_agent(text(5)?, text(1)?, text(6)?).map_err(agent_fault)?;
    compare_with_journal(db, serial, &record)?;
    Ok(Some(StoredAgent {
        serial,
        record,
        state: codec::decode_state(text(8)?).map_err(agent_fault)?,
        ledger: codec::decode_ledger(text(9)?).map_err(agent_fault)?,
        is_destroyed: row.get(3)?,
    }))
}

/// Compares an agent's row with the journal that it is derived from. The checksum of the row detects a failing disk; the
/// journal's chain also covers a change of the permissions, the parent or the capability by another program.
fn compare_with_journal(db: &Connection, serial: Serial, row: &AgentRecord) -> Result<(), QueryFault> {
    let differs = |why: &str| corrupt(&format!("agent {serial}"), why);
    let Some(Record::Created(created)) = last_record(db, serial, "agent_created")? else {
        return Err(differs("its creation is not in the journal").into());
    };
    let permissions = match last_record(db, serial, "permissions_changed")? {
        Some(Record::PermissionsChanged { permissions, .. }) => *permissions,
        _ => created.permissions.clone(),
    };
    if row.permissions != permissions {
        return Err(differs("its permissions are not those in the journal").into());
    }
    // The id is the current one.
    if *row != (AgentRecord { id: row.id.clone(), permissions, ..*created }) {
        return Err(differs("its record is not the one in the journal").into());
    }
    Ok(())
}

/// Reads the last record of a kind in `journal_records`.
fn last_record(db: &Connection, agent: Serial, kind: &str) -> Result<Option<Record>, QueryFault> {
    let mut statement = db.prepare_cached(&format!(
        "{SELECT_ENTRIES} INDEXED BY journal_records WHERE agent = ?1 AND kind = ?2 \
         AND kind IN ('agent_created', 'permissions_changed') ORDER BY sequence DESC LIMIT 1"
    ))?;
    let mut rows = statement.query(params![to_i64(agent)?, kind])?;
    rows.next()?.map(decode_record).transpose()
}

pub(super) fn history(db: &Connection, agent: Serial) -> Result<Vec<Record>, StoreFault> {
    Ok(read_history(db, agent)?)
}

fn read_history(db: &Connection, agent: Serial) -> Result<Vec<Record>, QueryFault> {
    let mut records = Vec::new();
    if let Some(tail) = read_tail(db, agent)? {
        visit_backwards(db, SELECT_ENTRIES, agent, &tail, 0, |row| {
            records.push(decode_record(row)?);
            Ok(())
        })?;
        // A tail pointer corrupted into an earlier entry would yield fewer records.
        if records.len() as u64 != tail.agent_sequence.unwrap_or_default() {
            return Err(corrupt(&format!("agent {agent}"), "last entry is not at its position").into());
        }
    }
    records.reverse();
    Ok(records)
}

/// The entry from which an agent's entries are read backwards.
struct JournalTail {
    last: i64,
    /// Its position among the agent's own entries; `None` when not known beforehand.
    agent_sequence: Option<u64>,
}

fn read_tail(db: &Connection, agent: Serial) -> Result<Option<JournalTail>, QueryFault> {
    let mut statement = db.prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?;
    let found: Option<(i64, i64)> =
        statement.query_row([to_i64(agent)?], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((last, number)) = found else { return Ok(None) };
    Ok(Some(JournalTail { last, agent_sequence: Some(to_u64(number, "agent sequence")?) }))
}

/// Selects the columns that [`visit_backwards`] reads, at their positions in [`SELECT_ENTRIES`]. Without the body, an
/// entry's size does not matter.
const SELECT_POINTERS: &str = "SELECT sequence, agent, number, 0, 0, 0, 0, 0, previous FROM journal";

/// Visits an agent's entries from the tail backwards, down to the first one after sequence `after`. `select` is
/// [`SELECT_ENTRIES`] or [`SELECT_POINTERS`].
fn visit_backwards(
    db: &Connection,
    select: &str,
    agent: Serial,
    tail: &JournalTail,
    after: i64,
    mut visit: impl FnMut(&Row<'_>) -> Result<(), QueryFault>,
) -> Result<(), QueryFault> {
    let mut statement = db.prepare_cached(&format!("{select} WHERE sequence = ?1"))?;
    let mut next = Some(tail.last);
    let mut expected = tail.agent_sequence;
    while let Some(sequence) = next.filter(|sequence| *sequence > after) {
        let mut rows = statement.query([sequence])?;
        let entry_fault = |why: &str| corrupt(&format!("entry {sequence}"), why);
        let row = rows.next()?.ok_or_else(|| entry_fault("missing"))?;
        let (found, number) = (row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs());
        if found != agent || expected.is_some_and(|expected| expected != number) {
            return Err(entry_fault("unexpected agent or agent sequence").into());
        }
        visit(row)?;
        expected = number.checked_sub(1);
        next = row.get(8)?;
        if next.is_some_and(|previous| previous >= sequence) || next.is_none() != (number == 1) {
            return Err(entry_fault("invalid pointer to the agent's previous entry").into());
        }
    }
    Ok(())
}

pub(super) fn agents_with_open_turns(db: &Connection) -> Result<Vec<Serial>, StoreFault> {
    Ok(read_agents_with_open_turns(db)?)
}

fn read_agents_with_open_turns(db: &Connection) -> Result<Vec<Serial>, QueryFault> {
    let mut statement =
        db.prepare_cached("SELECT DISTINCT agent FROM turns WHERE ended IS NULL ORDER BY agent")?;
    let mut rows = statement.query(())?;
    let mut serials = Vec::new();
    while let Some(row) = rows.next()? {
        serials.push(to_u64(row.get(0)?, "serial")?);
    }
    Ok(serials)
}

pub(super) fn turn(
    db: &Connection,
    agent: Serial,
    request_id: &RequestId,
) -> Result<Option<StoredTurn>, StoreFault> {
    Ok(read_turn(db, agent, request_id)?)
}

/// Reads a turn of a live agent. Turns of a destroyed agent that are not pruned yet are invisible.
fn read_turn(
    db: &Connection,
    agent: Serial,
    request_id: &RequestId,
) -> Result<Option<StoredTurn>, QueryFault> {
    let mut statement = db.prepare_cached(
        "SELECT accepted, turn, content, sum, ended, ended_at FROM turns WHERE agent = ?1 AND request = ?2 \
         AND EXISTS (SELECT 1 FROM agents WHERE serial = ?1 AND gone = 0)",
    )?;
    let key = digest::request_key(request_id);
    let mut rows = statement.query(params![to_i64(agent)?, key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (accepted, turn, content): (i64, i64, Digest) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let turn_fault = |why: &str| corrupt(&format!("turn {turn} of agent {agent}"), why);
    let (ended, ended_at): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
    if turn_checksum(accepted, to_i64(agent)?, &key, turn, &content) != row.get::<_, i64>(3)?
        || ended.is_some() != ended_at.is_some()
    {
        return Err(turn_fault("row checksum mismatch").into());
    }
    let turn = to_u64(turn, "turn")?;
    let end = ended.map(|ended| read_turn_end(db, ended, request_id)).transpose()?;
    if end.as_ref().is_some_and(Option::is_none) {
        return Err(turn_fault("its end is not in the referenced entry").into());
    }
    Ok(Some(StoredTurn { turn, content_digest: content, end: end.flatten() }))
}

/// Reads the turn end in the entry with this sequence, if it belongs to the request.
fn read_turn_end(db: &Connection, sequence: i64, request: &RequestId) -> Result<Option<TurnEnd>, QueryFault> {
    let mut statement = db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence = ?1"))?;
    let mut rows = statement.query([sequence])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(match decode_record(row)? {
        Record::TurnEnded { request_id, end, .. } if request_id == *request => Some(*end),
        _ => None,
    })
}

pub(super) fn read(db: &Connection, range: EntryRange) -> Result<Vec<Arc<JournalEntry>>, StoreFault> {
    Ok(read_range(db, range)?)
}

fn read_range(db: &Connection, range: EntryRange) -> Result<Vec<Arc<JournalEntry>>, QueryFault> {
    let after = i64::try_from(range.after).unwrap_or(i64::MAX);
    if let Some(agent) = range.agent {
        return read_agent_entries(db, agent, after, range);
    }
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let mut statement =
        db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"))?;
    let mut rows = statement.query([after, limit])?;
    let (mut entries, mut last): (Vec<Arc<JournalEntry>>, _) = (Vec::new(), range.after);
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if !fits(row, &mut bytes, range.bytes_max)? {
            break;
        }
        let entry = decode_entry(row)?;
        // A reader that continues after the last entry must never be sent backwards.
        if entry.sequence <= last {
            let why = format!("out of order: follows entry {last}");
            return Err(corrupt(&format!("entry {}", entry.sequence), why).into());
        }
        last = entry.sequence;
        entries.push(Arc::new(entry));
    }
    Ok(entries)
}

/// Reads one agent's entries in stretches of up to 64: the partial index on every 64th entry finds the end of a
/// stretch, from which the pointers lead backwards. Only the entries that are returned are decoded.
fn read_agent_entries(
    db: &Connection,
    agent: Serial,
    mut after: i64,
    range: EntryRange,
) -> Result<Vec<Arc<JournalEntry>>, QueryFault> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let Some(tail) = read_tail(db, agent)? else { return Ok(entries) };
    let mut statement = db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence = ?1"))?;
    while after < tail.last {
        let milestone: Option<i64> = db
            .prepare_cached(
                "SELECT sequence FROM journal WHERE agent = ?1 AND number % 64 = 0 AND sequence > ?2 \
                 ORDER BY sequence LIMIT 1",
            )?
            .query_row([to_i64(agent)?, after], |row| row.get(0))
            .optional()?;
        let end = milestone.map_or(JournalTail { ..tail }, |last| JournalTail { last, agent_sequence: None });
        let mut sequences: Vec<i64> = Vec::new();
        visit_backwards(db, SELECT_POINTERS, agent, &end, after, |row| {
            sequences.push(row.get(0)?);
            Ok(())
        })?;
        for sequence in sequences.into_iter().rev() {
            let mut rows = statement.query([sequence])?;
            let row = rows.next()?.ok_or_else(|| corrupt(&format!("entry {sequence}"), "missing"))?;
            if entries.len() >= range.limit || !fits(row, &mut bytes, range.bytes_max)? {
                return Ok(entries);
            }
            entries.push(Arc::new(decode_entry(row)?));
        }
        after = end.last;
    }
    Ok(entries)
}

/// Adds the size of a row of [`SELECT_ENTRIES`]; returns whether it fits. The first row always does.
fn fits(row: &Row<'_>, bytes: &mut usize, bytes_max: usize) -> Result<bool, QueryFault> {
    let is_first = *bytes == 0;
    *bytes = bytes.saturating_add(read_entry_row(row)?.content.body.len().max(1));
    Ok(is_first || *bytes <= bytes_max)
}

/// Decodes a row of [`SELECT_ENTRIES`] into an entry.
fn decode_entry(row: &Row<'_>) -> Result<JournalEntry, QueryFault> {
    let entry = read_entry_row(row)?;
    let agent_id =
        Some(entry.content.agent_id).filter(|id| !id.is_empty()).map(codec::decode_agent_id).transpose();
    Ok(JournalEntry {
        sequence: entry.sequence,
        agent: entry.content.agent,
        agent_id: agent_id.map_err(|fault| corrupt(&format!("entry {}", entry.sequence), fault))?,
        agent_sequence: entry.agent_sequence,
        at: Timestamp(entry.content.at),
        record: decode_record(row)?,
    })
}

/// Verifies the checksum of a row of [`SELECT_ENTRIES`] and decodes its record.
fn decode_record(row: &Row<'_>) -> Result<Record, QueryFault> {
    let entry = read_entry_row(row)?;
    let entry_fault = |why: String| corrupt(&format!("entry {}", entry.sequence), why);
    if !entry.checksum_matches() {
        return Err(entry_fault("checksum mismatch".to_owned()).into());
    }
    let EntryContent { kind, body, .. } = entry.content;
    Ok(codec::decode_record(kind, body).map_err(|fault| entry_fault(format!("{kind}: {fault}")))?)
}

pub(super) fn bounds(db: &Connection) -> Result<JournalBounds, StoreFault> {
    let first: Option<i64> = query_optional(db, "SELECT min(sequence) FROM journal")?;
    let last: Option<i64> = query_optional(db, "SELECT max(sequence) FROM journal")?;
    let last = last.map_or(Ok(0), |last| to_u64(last, "sequence"))?;
    let first = first.map_or(Ok(last + 1), |first| to_u64(first, "sequence"))?;
    Ok(JournalBounds { first, last })
}

fn query_optional(db: &Connection, sql: &str) -> Result<Option<i64>, StoreFault> {
    let mut statement = db.prepare_cached(sql).map_err(|error| read_fault(&error))?;
    let found = statement.query_row((), |row| row.get(0)).optional().map_err(|error| read_fault(&error))?;
    Ok(found.flatten())
}

fn corrupt(what: &str, why: impl std::fmt::Display) -> StoreFault {
    StoreFault::Corrupt(format!("{what}: {why}"))
}

fn to_u64(number: i64, what: &str) -> Result<u64, StoreFault> {
    u64::try_from(number).map_err(|_| corrupt(what, format!("negative value {number}")))
}
