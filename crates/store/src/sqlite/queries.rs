//! What is read: each question is one transaction that ends with the answer. What makes no sense is told, never
//! guessed.

use std::sync::Arc;

use agent::journal::{DAEMON, Record, Serial};
use agent::outside::{JournalBounds, JournalEntry, IndexRow, Moment, EntryRange, StoreFault, StoredAgent, StoredTurn};
use agent::{RequestId, TurnEnd};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::look::{ENTRIES, kept};
use super::scribe::whole;
use super::sums::{AGENT_SUMMED, agent_sum, turn_sum};
use crate::body::{self, BodyFault};
use crate::digest::{self, Content, Digest};

/// What cannot be read is damaged, whatever the reason: a store that cannot be written says so when it is.
pub(crate) fn damage(error: &rusqlite::Error) -> StoreFault {
    match error {
        rusqlite::Error::SqliteFailure(code, _) if code.code == rusqlite::ErrorCode::DatabaseBusy => {
            StoreFault::Full("another program holds the database".to_owned())
        }
        error => StoreFault::Corrupt(format!("it cannot be read: {error}")),
    }
}

/// For `?` in this file: [`damage`] by value.
struct Misread(StoreFault);

impl From<rusqlite::Error> for Misread {
    fn from(error: rusqlite::Error) -> Self {
        Self(damage(&error))
    }
}

impl From<StoreFault> for Misread {
    fn from(fault: StoreFault) -> Self {
        Self(fault)
    }
}

impl From<Misread> for StoreFault {
    fn from(misread: Misread) -> Self {
        misread.0
    }
}

pub(super) fn index(db: &Connection) -> Result<Vec<IndexRow>, StoreFault> {
    Ok(read_index(db)?)
}

fn read_index(db: &Connection) -> Result<Vec<IndexRow>, Misread> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {AGENT_SUMMED}, sum, is_finished FROM agents LEFT JOIN states USING (serial) ORDER BY serial"
    ))?;
    let mut rows = statement.query(())?;
    let mut index = Vec::new();
    while let Some(row) = rows.next()? {
        let serial = natural(row.get(0)?, "a serial")?;
        check_agent_sum(row)?;
        let id = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        index.push(IndexRow {
            serial,
            id: body::read_agent_id(id).map_err(|fault| odd(&format!("agent {serial}"), fault))?,
            parent: row.get::<_, Option<i64>>(2)?.map(|parent| natural(parent, "a parent")).transpose()?,
            capability_digest: row.get(4)?,
            is_destroyed: row.get(3)?,
            is_finished: row.get(8)?,
        });
    }
    Ok(index)
}

/// The row begins with [`AGENT_SUMMED`] and the sum.
fn check_agent_sum(row: &Row<'_>) -> Result<(), Misread> {
    if agent_sum(row, 0)? == row.get::<_, i64>(7)? {
        return Ok(());
    }
    Err(odd(&format!("agent {}", row.get::<_, i64>(0)?), "its row is not as it was written").into())
}

/// Every agent has an entry, and entries are never removed.
pub(super) fn last_serial(db: &Connection) -> Result<Serial, StoreFault> {
    let last: Option<i64> = one(db, "SELECT max(serial) FROM states")?;
    last.map_or(Ok(DAEMON), |last| natural(last, "a serial"))
}

pub(super) fn agents(db: &Connection, serials: &[Serial]) -> Result<Vec<StoredAgent>, StoreFault> {
    let mut agents = Vec::with_capacity(serials.len());
    for serial in serials {
        agents.extend(agent(db, *serial)?);
    }
    Ok(agents)
}

fn agent(db: &Connection, serial: Serial) -> Result<Option<StoredAgent>, Misread> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {AGENT_SUMMED}, sum, state, ledger FROM agents LEFT JOIN states USING (serial) WHERE serial = ?1"
    ))?;
    let mut rows = statement.query([whole(serial)?])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    check_agent_sum(row)?;
    let about = |fault: BodyFault| odd(&format!("agent {serial}"), fault);
    let text = |place| row.get_ref(place)?.as_str().map_err(rusqlite::Error::from);
    Ok(Some(StoredAgent {
        serial,
        record: body::read_agent(text(5)?, text(1)?, text(6)?).map_err(about)?,
        state: body::read_state(text(8)?).map_err(about)?,
        ledger: body::read_ledger(text(9)?).map_err(about)?,
        is_destroyed: row.get(3)?,
    }))
}

pub(super) fn history(db: &Connection, agent: Serial) -> Result<Vec<Record>, StoreFault> {
    Ok(read_history(db, agent)?)
}

fn read_history(db: &Connection, agent: Serial) -> Result<Vec<Record>, Misread> {
    let mut records = Vec::new();
    if let Some(tail) = tail(db, agent)? {
        walk_back(db, agent, &tail, 0, |row| {
            records.push(record(row)?);
            Ok(())
        })?;
        // A tail that was turned into an earlier one would have another number.
        if records.len() as u64 != tail.number.unwrap_or_default() {
            return Err(odd(&format!("agent {agent}"), "its last entry is not where it should be").into());
        }
    }
    records.reverse();
    Ok(records)
}

/// Where an agent's entries end, or where they are read from.
struct Tail {
    last: i64,
    number: Option<u64>,
}

fn tail(db: &Connection, agent: Serial) -> Result<Option<Tail>, Misread> {
    let mut statement = db.prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?;
    let found: Option<(i64, i64)> =
        statement.query_row([whole(agent)?], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((last, number)) = found else { return Ok(None) };
    Ok(Some(Tail { last, number: Some(natural(number, "a number")?) }))
}

/// Shows the entries of an agent from its tail back to the one behind `after`.
fn walk_back(
    db: &Connection,
    agent: Serial,
    tail: &Tail,
    after: i64,
    mut show: impl FnMut(&Row<'_>) -> Result<(), Misread>,
) -> Result<(), Misread> {
    let mut statement = db.prepare_cached(&format!("{ENTRIES} WHERE sequence = ?1"))?;
    let mut next = Some(tail.last);
    let mut number = tail.number;
    while let Some(sequence) = next.filter(|sequence| *sequence > after) {
        let mut rows = statement.query([sequence])?;
        let about = |why: &str| odd(&format!("entry {sequence}"), why);
        let row = rows.next()?.ok_or_else(|| about("it is missing"))?;
        let entry = kept(row)?;
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

pub(super) fn unsettled(db: &Connection) -> Result<Vec<Serial>, StoreFault> {
    Ok(read_unsettled(db)?)
}

fn read_unsettled(db: &Connection) -> Result<Vec<Serial>, Misread> {
    let mut statement =
        db.prepare_cached("SELECT DISTINCT agent FROM turns WHERE ended IS NULL ORDER BY agent")?;
    let mut rows = statement.query(())?;
    let mut serials = Vec::new();
    while let Some(row) = rows.next()? {
        serials.push(natural(row.get(0)?, "a serial")?);
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
fn read_turn(db: &Connection, agent: Serial, request_id: &RequestId) -> Result<Option<StoredTurn>, Misread> {
    let mut statement = db.prepare_cached(
        "SELECT accepted, turn, content, sum, ended, ended_at FROM turns WHERE agent = ?1 AND request = ?2 \
         AND EXISTS (SELECT 1 FROM agents WHERE serial = ?1 AND gone = 0)",
    )?;
    let key = digest::request_key(request_id);
    let mut rows = statement.query(params![whole(agent)?, key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (accepted, turn, content): (i64, i64, Digest) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let about = |what: &str| odd(&format!("turn {turn} of agent {agent}"), what);
    let (ended, ended_at): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
    if turn_sum(accepted, whole(agent)?, &key, turn, &content) != row.get::<_, i64>(3)?
        || ended.is_some() != ended_at.is_some()
    {
        return Err(about("its row is not as it was written").into());
    }
    let turn = natural(turn, "a turn")?;
    let end = ended.map(|ended| end_of_turn(db, ended, request_id)).transpose()?;
    if end.as_ref().is_some_and(Option::is_none) {
        return Err(about("its end is not where it should be").into());
    }
    Ok(Some(StoredTurn { turn, content_digest: content, end: end.flatten() }))
}

/// The end of a turn in the entry of this sequence, if it is of that send.
fn end_of_turn(db: &Connection, sequence: i64, request: &RequestId) -> Result<Option<TurnEnd>, Misread> {
    let mut statement = db.prepare_cached(&format!("{ENTRIES} WHERE sequence = ?1"))?;
    let mut rows = statement.query([sequence])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(match record(row)? {
        Record::TurnEnded { request_id, end, .. } if request_id == *request => Some(*end),
        _ => None,
    })
}

pub(super) fn read(db: &Connection, span: EntryRange) -> Result<Vec<Arc<JournalEntry>>, StoreFault> {
    Ok(read_span(db, span)?)
}

fn read_span(db: &Connection, span: EntryRange) -> Result<Vec<Arc<JournalEntry>>, Misread> {
    let after = i64::try_from(span.after).unwrap_or(i64::MAX);
    if let Some(agent) = span.agent {
        return read_own(db, agent, after, span.limit);
    }
    let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
    let mut statement =
        db.prepare_cached(&format!("{ENTRIES} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"))?;
    let mut rows = statement.query([after, limit])?;
    let (mut entries, mut last): (Vec<Arc<JournalEntry>>, _) = (Vec::new(), span.after);
    while let Some(row) = rows.next()? {
        let entry = entry(row)?;
        // Whoever reads on behind the last one must never come back to where it was.
        if entry.sequence <= last {
            return Err(odd(&format!("entry {}", entry.sequence), format!("it stands behind {last}")).into());
        }
        last = entry.sequence;
        entries.push(Arc::new(entry));
    }
    Ok(entries)
}

/// One agent's entries, from one milestone to the next: each stretch is read backwards from its end.
fn read_own(
    db: &Connection,
    agent: Serial,
    mut after: i64,
    limit: usize,
) -> Result<Vec<Arc<JournalEntry>>, Misread> {
    let mut entries = Vec::new();
    let Some(tail) = tail(db, agent)? else { return Ok(entries) };
    while entries.len() < limit && after < tail.last {
        let milestone: Option<i64> = db
            .prepare_cached(
                "SELECT sequence FROM journal WHERE agent = ?1 AND number % 64 = 0 AND sequence > ?2 \
                 ORDER BY sequence LIMIT 1",
            )?
            .query_row([whole(agent)?, after], |row| row.get(0))
            .optional()?;
        let end = milestone.map_or(Tail { ..tail }, |last| Tail { last, number: None });
        let begun = entries.len();
        walk_back(db, agent, &end, after, |row| {
            entries.push(Arc::new(entry(row)?));
            Ok(())
        })?;
        entries[begun..].reverse();
        after = end.last;
    }
    entries.truncate(limit);
    Ok(entries)
}

/// A row of [`ENTRIES`] as an entry.
fn entry(row: &Row<'_>) -> Result<JournalEntry, Misread> {
    let entry = kept(row)?;
    let name = Some(entry.content.name).filter(|name| !name.is_empty()).map(body::read_agent_id).transpose();
    Ok(JournalEntry {
        sequence: entry.sequence,
        agent: entry.content.agent,
        agent_id: name.map_err(|fault| odd(&format!("entry {}", entry.sequence), fault))?,
        agent_sequence: entry.number,
        at: Moment(entry.content.at),
        record: record(row)?,
    })
}

/// What a row of [`ENTRIES`] says, if it is what was written.
fn record(row: &Row<'_>) -> Result<Record, Misread> {
    let entry = kept(row)?;
    let about = |why: String| odd(&format!("entry {}", entry.sequence), why);
    if !entry.is_as_written() {
        return Err(about("it is not as it was written".to_owned()).into());
    }
    let Content { kind, body, .. } = entry.content;
    Ok(body::read_record(kind, body).map_err(|fault| about(format!("{kind}: {fault}")))?)
}

pub(super) fn bounds(db: &Connection) -> Result<JournalBounds, StoreFault> {
    let first: Option<i64> = one(db, "SELECT min(sequence) FROM journal")?;
    let last: Option<i64> = one(db, "SELECT max(sequence) FROM journal")?;
    let last = last.map_or(Ok(0), |last| natural(last, "a sequence"))?;
    let first = first.map_or(Ok(last + 1), |first| natural(first, "a sequence"))?;
    Ok(JournalBounds { first, last })
}

fn one(db: &Connection, sql: &str) -> Result<Option<i64>, StoreFault> {
    let mut statement = db.prepare_cached(sql).map_err(|error| damage(&error))?;
    let found = statement.query_row((), |row| row.get(0)).optional().map_err(|error| damage(&error))?;
    Ok(found.flatten())
}

fn odd(what: &str, why: impl std::fmt::Display) -> StoreFault {
    StoreFault::Corrupt(format!("{what}: {why}"))
}

fn natural(number: i64, what: &str) -> Result<u64, StoreFault> {
    u64::try_from(number).map_err(|_| odd(what, format!("{number} is below zero")))
}
