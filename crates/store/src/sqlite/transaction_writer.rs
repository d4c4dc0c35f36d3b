//! Writes calls into an open transaction: entries with their places and hashes, and the rows that follow from them.
//! Knows nothing of commits.

use std::collections::HashMap;

use agent::journal::{AgentRecord, AgentState, DAEMON, Record, Serial, StoredLedger};
use agent::outside::StoreFault;
use rusqlite::{Connection, OptionalExtension as _, Statement, params};

use super::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum, turn_checksum};
use crate::batch::{
    EncodedRecord, PreparedAppend, PreparedBatch, RowUpdate, is_daemon_record, refusal, requires_live_agent,
};
use crate::digest::{Digest, chain_hash, checksum};

/// Agents whose places are remembered.
const POSITIONS_MAX: usize = 32_768;
/// Turns of a destroyed agent that are forgotten at once. The rest goes when its time comes, so that no commit is long.
const TURNS_DELETED_MAX: u32 = 1024;

/// The end of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalHead {
    pub(super) sequence: u64,
    pub(super) hash: Digest,
}

/// Where a record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPosition {
    pub(super) sequence: u64,
    pub(super) number: u64,
}

/// Why a call was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// It may not be; others may.
    Refused(StoreFault),
    /// SQLite could not.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreFault> for WriteError {
    fn from(fault: StoreFault) -> Self {
        Self::Refused(fault)
    }
}

/// Knows the end of the journal and of the records of agents that wrote lately.
pub(super) struct TransactionWriter<'db> {
    db: &'db Connection,
    head: JournalHead,
    positions: HashMap<Serial, AgentPosition>,
    /// What every turn needs; the rest is looked up in the connection's cache.
    insert_entry: Statement<'db>,
    update_state: Statement<'db>,
    insert_turn: Statement<'db>,
    end_turn: Statement<'db>,
}

#[derive(Debug, Clone, Copy)]
struct AgentPosition {
    /// The agent's last entry.
    last: Option<u64>,
    /// Its number.
    number: u64,
    liveness: AgentLiveness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentLiveness {
    /// It never was there, or is forgotten.
    Absent,
    /// It was destroyed, and somebody below it lives on.
    Destroyed,
    Live,
}

const INSERT_ENTRY: &str = "INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const UPDATE_STATE: &str = "UPDATE states SET last = ?2, number = ?3, is_finished = coalesce(?4, is_finished), \
                      state = coalesce(?5, state), \
                      ledger = CASE WHEN ?6 > ledger_version THEN ?7 ELSE ledger END, \
                      ledger_version = max(?6, ledger_version) WHERE serial = ?1";
const INSERT_TURN: &str = "INSERT INTO turns (accepted, agent, request, turn, content, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                      ON CONFLICT (agent, request) DO NOTHING";
const END_TURN: &str =
    "UPDATE turns SET ended = ?3, ended_at = ?4 WHERE agent = ?1 AND request = ?2 AND ended IS NULL";

impl<'db> TransactionWriter<'db> {
    pub(super) fn new(head: JournalHead, db: &'db Connection) -> rusqlite::Result<Self> {
        let [enter, settle, accept, end] =
            [INSERT_ENTRY, UPDATE_STATE, INSERT_TURN, END_TURN].map(|sql| db.prepare(sql));
        Ok(Self {
            db,
            head,
            positions: HashMap::new(),
            insert_entry: enter?,
            update_state: settle?,
            insert_turn: accept?,
            end_turn: end?,
        })
    }

    pub(super) fn head(&self) -> JournalHead {
        self.head
    }

    /// Goes back to an earlier end; what was written behind it is not there any more.
    pub(super) fn reset_to(&mut self, head: JournalHead) {
        self.head = head;
        self.positions.clear();
    }

    /// Writes a call. After a setback the caller takes back what was written, and calls [`Scribe::go_back`].
    pub(super) fn write_batch(&mut self, call: &PreparedBatch) -> Result<Vec<EntryPosition>, WriteError> {
        let mut places = Vec::with_capacity(call.record_count());
        for part in &call.appends {
            self.check_append(part)?;
            // What records change comes before all entries: what is refused is refused before anything was written.
            let sequences = self.head.sequence + 1..;
            for ((record, line), sequence) in
                part.append.records.iter().zip(&part.encoded_records).zip(sequences)
            {
                self.apply_row_update(part, record, line, sequence)?;
            }
            self.insert_entries(part, &mut places)?;
            self.update_state(part)?;
        }
        Ok(places)
    }

    /// What can be refused before anything is written.
    fn check_append(&mut self, part: &PreparedAppend) -> Result<(), WriteError> {
        let agent = part.append.agent;
        if agent == DAEMON {
            if let Some(record) = part.append.records.iter().find(|record| !is_daemon_record(record)) {
                return Err(refusal::invalid_for_daemon(record.kind()).into());
            }
            if part.append.state.is_some() {
                return Err(refusal::invalid_for_daemon("state").into());
            }
        }
        let is_new = matches!(part.append.records.first(), Some(Record::Created(_)));
        if part.append.state.is_some() && !is_new && self.position(agent)?.liveness != AgentLiveness::Live {
            return Err(refusal::no_agent().into());
        }
        Ok(())
    }

    fn position(&mut self, agent: Serial) -> Result<AgentPosition, WriteError> {
        if let Some(seat) = self.positions.get(&agent) {
            return Ok(*seat);
        }
        let tail: Option<(i64, i64)> = self
            .db
            .prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?
            .query_row([to_i64(agent)?], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let gone: Option<bool> = self
            .db
            .prepare_cached("SELECT gone FROM agents WHERE serial = ?1")?
            .query_row([to_i64(agent)?], |row| row.get(0))
            .optional()?;
        let seat = AgentPosition {
            last: tail.map(|(last, _)| last.unsigned_abs()),
            number: tail.map_or(0, |(_, number)| number.unsigned_abs()),
            liveness: match gone {
                None => AgentLiveness::Absent,
                Some(true) => AgentLiveness::Destroyed,
                Some(false) => AgentLiveness::Live,
            },
        };
        self.cache_position(agent, seat);
        Ok(seat)
    }

    fn cache_position(&mut self, agent: Serial, seat: AgentPosition) {
        if self.positions.len() >= POSITIONS_MAX && !self.positions.contains_key(&agent) {
            self.positions.clear();
        }
        self.positions.insert(agent, seat);
    }

    fn set_liveness(&mut self, agent: Serial, standing: AgentLiveness) -> Result<(), WriteError> {
        let seat = self.position(agent)?;
        self.cache_position(agent, AgentPosition { liveness: standing, ..seat });
        Ok(())
    }

    fn insert_entries(
        &mut self,
        part: &PreparedAppend,
        places: &mut Vec<EntryPosition>,
    ) -> Result<(), WriteError> {
        let agent = part.append.agent;
        let mut seat = self.position(agent)?;
        let name = part.append.agent_id.as_ref().map(agent::AgentId::as_str);
        for (record, line) in part.append.records.iter().zip(&part.encoded_records) {
            let (sequence, number) = (self.head.sequence + 1, seat.number + 1);
            let hash = chain_hash(&self.head.hash, sequence, number, &line.content_digest);
            self.insert_entry.execute(params![
                to_i64(sequence)?,
                to_i64(agent)?,
                to_i64(number)?,
                seat.last.map(to_i64).transpose()?,
                name,
                part.append.at.0,
                record.kind(),
                line.body,
                checksum(&line.content_digest),
                hash
            ])?;
            self.head = JournalHead { sequence, hash };
            seat = AgentPosition { last: Some(sequence), number, ..seat };
            places.push(EntryPosition { sequence, number });
        }
        self.cache_position(agent, seat);
        Ok(())
    }

    /// Writes where the agent's last entry is and what it is now, and the ledgers of others.
    fn update_state(&mut self, part: &PreparedAppend) -> Result<(), WriteError> {
        let agent = part.append.agent;
        let seat = self.position(agent)?;
        let is_there = seat.liveness != AgentLiveness::Absent;
        let state = part.append.state.as_ref().zip(part.state.as_deref()).filter(|_| is_there);
        let mut own: Option<(&StoredLedger, &str)> = None;
        for ((serial, ledger), text) in part.append.ledgers.iter().zip(&part.ledgers) {
            if *serial == agent && own.is_none_or(|(earlier, _)| ledger.version > earlier.version) {
                own = Some((ledger, text.as_str())).filter(|_| is_there);
            } else if *serial != agent {
                self.write_ledger(*serial, ledger, text)?;
            }
        }
        let Some(last) = seat.last else { return Ok(()) };
        if part.encoded_records.is_empty() && state.is_none() && own.is_none() {
            return Ok(());
        }
        let is_finished = state.map(|(state, _)| state.is_finished);
        let version = own.map_or(Ok(0), |(ledger, _)| to_i64(ledger.version))?;
        let (state, ledger) = (state.map(|(_, text)| text), own.map(|(_, text)| text));
        let (serial, last, number) = (to_i64(agent)?, to_i64(last)?, to_i64(seat.number)?);
        let found =
            self.update_state.execute(params![serial, last, number, is_finished, state, version, ledger])?;
        if found == 0 {
            let [blank_state, blank_ledger] = initial_state_and_ledger(is_there)?;
            let ledger = ledger.filter(|_| version > 0).or(blank_ledger.as_deref());
            let (state, is_finished) = (state.or(blank_state.as_deref()), is_finished.unwrap_or_default());
            self.db
                .prepare_cached("INSERT INTO states VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .execute(params![serial, last, number, is_finished, state, version, ledger])?;
        }
        Ok(())
    }

    /// A ledger of somebody who is not there, or an old one, is left out.
    fn write_ledger(&self, serial: Serial, ledger: &StoredLedger, text: &str) -> Result<(), WriteError> {
        self.db
            .prepare_cached(
                "UPDATE states SET ledger = ?2, ledger_version = ?3 \
                 WHERE serial = ?1 AND ledger_version < ?3 AND ledger IS NOT NULL",
            )?
            .execute(params![to_i64(serial)?, text, to_i64(ledger.version)?])?;
        Ok(())
    }

    fn apply_row_update(
        &mut self,
        part: &PreparedAppend,
        record: &Record,
        line: &EncodedRecord,
        sequence: u64,
    ) -> Result<(), WriteError> {
        let agent = part.append.agent;
        if agent != DAEMON
            && requires_live_agent(record)
            && self.position(agent)?.liveness != AgentLiveness::Live
        {
            return Err(refusal::no_agent().into());
        }
        match (&line.row_update, record) {
            (RowUpdate::Create { record: text, permissions }, Record::Created(record)) => {
                self.create(agent, record, [text, permissions])
            }
            (RowUpdate::SetPermissions(permissions), _) => {
                self.db
                    .prepare_cached("UPDATE agents SET rights = ?2 WHERE serial = ?1")?
                    .execute(params![to_i64(agent)?, permissions])?;
                update_agent_checksum(self.db, agent)
            }
            (RowUpdate::Rename, Record::Renamed { id, .. }) => rename(self.db, agent, id.as_str()),
            (RowUpdate::Destroy, _) => self.destroy(agent),
            (RowUpdate::AcceptTurn { key, content_digest: content }, Record::TurnAccepted(accepted)) => {
                let (accepted, agent, turn) = (to_i64(sequence)?, to_i64(agent)?, to_i64(accepted.turn)?);
                let sum = turn_checksum(accepted, agent, key, turn, content);
                let taken = self.insert_turn.execute(params![accepted, agent, key, turn, content, sum])?;
                if taken == 0 { Err(StoreFault::DuplicateRequestId.into()) } else { Ok(()) }
            }
            (RowUpdate::EndTurn(key), _) => {
                let at = part.append.at.0;
                let ended = self.end_turn.execute(params![to_i64(agent)?, key, to_i64(sequence)?, at])?;
                if ended == 0 { Err(refusal::no_open_turn().into()) } else { Ok(()) }
            }
            (RowUpdate::ReopenTurn(key), _) => {
                let opened = self
                    .db
                    .prepare_cached(
                        "UPDATE turns SET ended = NULL, ended_at = NULL WHERE agent = ?1 AND request = ?2",
                    )?
                    .execute(params![to_i64(agent)?, key])?;
                if opened == 0 { Err(refusal::no_turn().into()) } else { Ok(()) }
            }
            (
                RowUpdate::Unchanged
                | RowUpdate::Create { .. }
                | RowUpdate::Rename
                | RowUpdate::AcceptTurn { .. },
                _,
            ) => Ok(()),
        }
    }

    fn create(
        &mut self,
        agent: Serial,
        record: &AgentRecord,
        [text, permissions]: [&str; 2],
    ) -> Result<(), WriteError> {
        let seat = self.position(agent)?;
        if seat.liveness != AgentLiveness::Absent || seat.last.is_some() {
            return Err(refusal::serial_reused(agent).into());
        }
        if let Some(parent) = record.parent
            && self.position(parent)?.liveness == AgentLiveness::Absent
        {
            return Err(refusal::no_parent(parent).into());
        }
        let made = self
            .db
            .prepare_cached(
                "INSERT INTO agents (serial, id, parent, capability, record, rights, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0) \
                 ON CONFLICT (id) WHERE gone = 0 DO NOTHING",
            )?
            .execute(params![
                to_i64(agent)?,
                record.id.as_str(),
                record.parent.map(to_i64).transpose()?,
                record.capability_digest,
                text,
                permissions
            ])?;
        if made == 0 {
            return Err(StoreFault::DuplicateAgentId.into());
        }
        update_agent_checksum(self.db, agent)?;
        self.set_liveness(agent, AgentLiveness::Live)
    }

    /// Forgets it, and those gone before it that nobody is below now.
    fn destroy(&mut self, agent: Serial) -> Result<(), WriteError> {
        let db = self.db;
        db.prepare_cached("DELETE FROM turns WHERE agent = ?1 AND ended IS NULL")?
            .execute([to_i64(agent)?])?;
        db.prepare_cached(
            "DELETE FROM turns WHERE accepted IN (SELECT accepted FROM turns WHERE agent = ?1 LIMIT ?2)",
        )?
        .execute(params![to_i64(agent)?, TURNS_DELETED_MAX])?;
        db.prepare_cached("UPDATE agents SET gone = 1 WHERE serial = ?1")?.execute([to_i64(agent)?])?;
        update_agent_checksum(db, agent)?;
        self.set_liveness(agent, AgentLiveness::Destroyed)?;
        let mut next = Some(agent);
        while let Some(serial) = next {
            let forgotten = db
                .prepare_cached(
                    "DELETE FROM agents WHERE serial = ?1 AND gone = 1 \
                     AND NOT EXISTS (SELECT 1 FROM agents AS child WHERE child.parent = ?1) RETURNING parent",
                )?
                .query_row([to_i64(serial)?], |row| row.get::<_, Option<i64>>(0))
                .optional()?;
            let Some(parent) = forgotten else { break };
            db.prepare_cached(
                "UPDATE states SET is_finished = 0, state = NULL, ledger_version = 0, ledger = NULL \
                 WHERE serial = ?1",
            )?
            .execute([to_i64(serial)?])?;
            self.set_liveness(serial, AgentLiveness::Absent)?;
            next = parent.map(i64::unsigned_abs);
        }
        Ok(())
    }
}

fn rename(db: &Connection, agent: Serial, id: &str) -> Result<(), WriteError> {
    let is_taken = db
        .prepare_cached("SELECT 1 FROM agents WHERE id = ?1 AND gone = 0 AND serial <> ?2")?
        .exists(params![id, to_i64(agent)?])?;
    if is_taken {
        return Err(StoreFault::DuplicateAgentId.into());
    }
    db.prepare_cached("UPDATE agents SET id = ?2 WHERE serial = ?1")?.execute(params![to_i64(agent)?, id])?;
    update_agent_checksum(db, agent)
}

/// Writes the sum of an agent's row anew, if it is there.
fn update_agent_checksum(db: &Connection, agent: Serial) -> Result<(), WriteError> {
    let sum: Option<i64> = db
        .prepare_cached(&format!("SELECT {AGENT_CHECKSUM_COLUMNS} FROM agents WHERE serial = ?1"))?
        .query_row([to_i64(agent)?], |row| agent_checksum(row, 0))
        .optional()?;
    if let Some(sum) = sum {
        db.prepare_cached("UPDATE agents SET sum = ?2 WHERE serial = ?1")?.execute([to_i64(agent)?, sum])?;
    }
    Ok(())
}

/// The state and the ledger of an agent that has done nothing; none for whoever is not there.
fn initial_state_and_ledger(is_there: bool) -> Result<[Option<String>; 2], WriteError> {
    if !is_there {
        return Ok([None, None]);
    }
    let texts = crate::codec::encode_state(&AgentState::default())
        .and_then(|state| Ok([Some(state), Some(crate::codec::encode_ledger(&StoredLedger::default())?)]));
    texts.map_err(|fault| StoreFault::Corrupt(fault.to_string()).into())
}

/// SQLite's numbers have a sign; ours never come so far that it would matter.
pub(super) fn to_i64(number: u64) -> Result<i64, StoreFault> {
    i64::try_from(number).map_err(|_| StoreFault::Corrupt(format!("{number} is too large a number")))
}
