//! What is read: each question is one transaction that ends with the answer. What makes no sense is told, never
//! guessed.

use std::sync::Arc;

use agent::journal::{DAEMON, Record, Serial};
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

/// What cannot be read is damaged, whatever the reason: a store that cannot be written says so when it is.
pub(crate) fn read_fault(error: &rusqlite::Error) -> StoreFault {
    match error {
        rusqlite::Error::SqliteFailure(code, _) if code.code == rusqlite::ErrorCode::DatabaseBusy => {
            StoreFault::Full("another program holds the database".to_owned())
        }
        error => StoreFault::Corrupt(format!("it cannot be read: {error}")),
    }
}

/// For `?` in this file: [`damage`] by value.
struct QueryFault(StoreFault);

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
    fn from(misread: QueryFault) -> Self {
        misread.0
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
        let serial = to_u64(row.get(0)?, "a serial")?;
        check_agent_checksum(row)?;
        let id = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        index.push(IndexRow {
            serial,
            id: codec::decode_agent_id(id).map_err(|fault| damaged(&format!("agent {serial}"), fault))?,
            parent: row.get::<_, Option<i64>>(2)?.map(|parent| to_u64(parent, "a parent")).transpose()?,
            capability_digest: row.get(4)?,
            is_destroyed: row.get(3)?,
            is_finished: row.get(8)?,
        });
    }
    Ok(index)
}

/// The row begins with [`AGENT_SUMMED`] and the sum.
fn check_agent_checksum(row: &Row<'_>) -> Result<(), QueryFault> {
    if agent_checksum(row, 0)? == row.get::<_, i64>(7)? {
        return Ok(());
    }
    Err(damaged(&format!("agent {}", row.get::<_, i64>(0)?), "its row is not as it was written").into())
}

/// Every agent has an entry, and entries are never removed.
pub(super) fn last_serial(db: &Connection) -> Result<Serial, StoreFault> {
    let last: Option<i64> = query_optional(db, "SELECT max(serial) FROM states")?;
    last.map_or(Ok(DAEMON), |last| to_u64(last, "a serial"))
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
    let about = |fault: CodecFault| damaged(&format!("agent {serial}"), fault);
    let text = |place| row.get_ref(place)?.as_str().map_err(rusqlite::Error::from);
    Ok(Some(StoredAgent {
        serial,
        record: codec::decode_agent(text(5)?, text(1)?, text(6)?).map_err(about)?,
        state: codec::decode_state(text(8)?).map_err(about)?,
        ledger: codec::decode_ledger(text(9)?).map_err(about)?,
        is_destroyed: row.get(3)?,
    }))
}

pub(super) fn history(db: &Connection, agent: Serial) -> Result<Vec<Record>, StoreFault> {
    Ok(read_history(db, agent)?)
}

fn read_history(db: &Connection, agent: Serial) -> Result<Vec<Record>, QueryFault> {
    let mut records = Vec::new();
    if let Some(tail) = read_tail(db, agent)? {
        visit_backwards(db, agent, &tail, 0, |row| {
            records.push(decode_record(row)?);
            Ok(())
        })?;
        // A tail that was turned into an earlier one would have another number.
        if records.len() as u64 != tail.number.unwrap_or_default() {
            return Err(damaged(&format!("agent {agent}"), "its last entry is not where it should be").into());
        }
    }
    records.reverse();
    Ok(records)
}

/// Where an agent's entries end, or where they are read from.
struct JournalTail {
    last: i64,
    number: Option<u64>,
}

fn read_tail(db: &Connection, agent: Serial) -> Result<Option<JournalTail>, QueryFault> {
    let mut statement = db.prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?;
    let found: Option<(i64, i64)> =
        statement.query_row([to_i64(agent)?], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((last, number)) = found else { return Ok(None) };
    Ok(Some(JournalTail { last, number: Some(to_u64(number, "a number")?) }))
}

/// Shows the entries of an agent from its tail back to the one behind `after`.
fn visit_backwards(
    db: &Connection,
    agent: Serial,
    tail: &JournalTail,
    after: i64,
    mut show: impl FnMut(&Row<'_>) -> Result<(), QueryFault>,
) -> Result<(), QueryFault> {
    let mut statement = db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence = ?1"))?;
    let mut next = Some(tail.last);
    let mut number = tail.number;
    while let Some(sequence) = next.filter(|sequence| *sequence > after) {
        let mut rows = statement.query([sequence])?;
        let about = |why: &str| damaged(&format!("entry {sequence}"), why);
        let row = rows.next()?.ok_or_else(|| about("it is missing"))?;
        let entry = read_entry_row(row)?;
        if entry.content.agent != agent || number.is_some_and(|number| number != entry.number) {
            return Err(about("it is not the one that should be there").into());
        }
        show(row)?;
        number = entry.number.checked_sub(1);
        next = row.get(8)?;
        if next.is_some_and(|previous| previous >= sequence) || next.is_none() != (entry.number == 1) {
            return Err(about("it does not lead back").into());
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
        serials.push(to_u64(row.get(0)?, "a serial")?);
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

/// A destroyed agent may have left turns that are not forgotten yet; they are no longer there for anybody.
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
    let about = |what: &str| damaged(&format!("turn {turn} of agent {agent}"), what);
    let (ended, ended_at): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
    if turn_checksum(accepted, to_i64(agent)?, &key, turn, &content) != row.get::<_, i64>(3)?
        || ended.is_some() != ended_at.is_some()
    {
        return Err(about("its row is not as it was written").into());
    }
    let turn = to_u64(turn, "a turn")?;
    let end = ended.map(|ended| read_turn_end(db, ended, request_id)).transpose()?;
    if end.as_ref().is_some_and(Option::is_none) {
        return Err(about("its end is not where it should be").into());
    }
    Ok(Some(StoredTurn { turn, content_digest: content, end: end.flatten() }))
}

/// The end of a turn in the entry of this sequence, if it is of that send.
fn read_turn_end(db: &Connection, sequence: i64, request: &RequestId) -> Result<Option<TurnEnd>, QueryFault> {
    let mut statement = db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence = ?1"))?;
    let mut rows = statement.query([sequence])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(match decode_record(row)? {
        Record::TurnEnded { request_id, end, .. } if request_id == *request => Some(*end),
        _ => None,
    })
}

pub(super) fn read(db: &Connection, span: EntryRange) -> Result<Vec<Arc<JournalEntry>>, StoreFault> {
    Ok(read_range(db, span)?)
}

fn read_range(db: &Connection, span: EntryRange) -> Result<Vec<Arc<JournalEntry>>, QueryFault> {
    let after = i64::try_from(span.after).unwrap_or(i64::MAX);
    if let Some(agent) = span.agent {
        return read_agent_entries(db, agent, after, span.limit);
    }
    let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
    let mut statement =
        db.prepare_cached(&format!("{SELECT_ENTRIES} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"))?;
    let mut rows = statement.query([after, limit])?;
    let (mut entries, mut last): (Vec<Arc<JournalEntry>>, _) = (Vec::new(), span.after);
    while let Some(row) = rows.next()? {
        let entry = decode_entry(row)?;
        // Whoever reads on behind the last one must never come back to where it was.
        if entry.sequence <= last {
            return Err(
                damaged(&format!("entry {}", entry.sequence), format!("it stands behind {last}")).into()
            );
        }
        last = entry.sequence;
        entries.push(Arc::new(entry));
    }
    Ok(entries)
}

/// One agent's entries, from one milestone to the next: each stretch is read backwards from its end.
fn read_agent_entries(
    db: &Connection,
    agent: Serial,
    mut after: i64,
    limit: usize,
) -> Result<Vec<Arc<JournalEntry>>, QueryFault> {
    let mut entries = Vec::new();
    let Some(tail) = read_tail(db, agent)? else { return Ok(entries) };
    while entries.len() < limit && after < tail.last {
        let milestone: Option<i64> = db
            .prepare_cached(
                "SELECT sequence FROM journal WHERE agent = ?1 AND number % 64 = 0 AND sequence > ?2 \
                 ORDER BY sequence LIMIT 1",
            )?
            .query_row([to_i64(agent)?, after], |row| row.get(0))
            .optional()?;
        let end = milestone.map_or(JournalTail { ..tail }, |last| JournalTail { last, number: None });
        let begun = entries.len();
        visit_backwards(db, agent, &end, after, |row| {
            entries.push(Arc::new(decode_entry(row)?));
            Ok(())
        })?;
        entries[begun..].reverse();
        after = end.last;
    }
    entries.truncate(limit);
    Ok(entries)
}

/// A row of [`ENTRIES`] as an entry.
fn decode_entry(row: &Row<'_>) -> Result<JournalEntry, QueryFault> {
    let entry = read_entry_row(row)?;
    let name =
        Some(entry.content.name).filter(|name| !name.is_empty()).map(codec::decode_agent_id).transpose();
    Ok(JournalEntry {
        sequence: entry.sequence,
        agent: entry.content.agent,
        agent_id: name.map_err(|fault| damaged(&format!("entry {}", entry.sequence), fault))?,
        agent_sequence: entry.number,
        at: Timestamp(entry.content.at),
        record: decode_record(row)?,
    })
}

/// What a row of [`ENTRIES`] says, if it is what was written.
fn decode_record(row: &Row<'_>) -> Result<Record, QueryFault> {
    let entry = read_entry_row(row)?;
    let about = |why: String| damaged(&format!("entry {}", entry.sequence), why);
    if !entry.checksum_matches() {
        return Err(about("it is not as it was written".to_owned()).into());
    }
    let EntryContent { kind, body, .. } = entry.content;
    Ok(codec::decode_record(kind, body).map_err(|fault| about(format!("{kind}: {fault}")))?)
}

pub(super) fn bounds(db: &Connection) -> Result<JournalBounds, StoreFault> {
    let first: Option<i64> = query_optional(db, "SELECT min(sequence) FROM journal")?;
    let last: Option<i64> = query_optional(db, "SELECT max(sequence) FROM journal")?;
    let last = last.map_or(Ok(0), |last| to_u64(last, "a sequence"))?;
    let first = first.map_or(Ok(last + 1), |first| to_u64(first, "a sequence"))?;
    Ok(JournalBounds { first, last })
}

fn query_optional(db: &Connection, sql: &str) -> Result<Option<i64>, StoreFault> {
    let mut statement = db.prepare_cached(sql).map_err(|error| read_fault(&error))?;
    let found = statement.query_row((), |row| row.get(0)).optional().map_err(|error| read_fault(&error))?;
    Ok(found.flatten())
}

fn damaged(what: &str, why: impl std::fmt::Display) -> StoreFault {
    StoreFault::Corrupt(format!("{what}: {why}"))
}

fn to_u64(number: i64, what: &str) -> Result<u64, StoreFault> {
    u64::try_from(number).map_err(|_| damaged(what, format!("{number} is below zero")))
}
