//! Writes batches into an open transaction: journal entries with their positions and hashes, and the derived rows.
//! The writer thread begins, commits and rolls back.
// tidy: allow retired-word because the stored format names a field `rights`

use std::collections::HashMap;

use agent::journal::{AgentRecord, AgentState, DAEMON, Record, Serial, StoredLedger};
use agent::outside::StoreFault;
use rusqlite::{Connection, OptionalExtension as _, Statement, params};

use super::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum, turn_checksum};
use super::file_changes::{delete_agent_changes, mark_undone};
use super::values::delete_tree_values;
use crate::batch::{
    EncodedRecord, PreparedAppend, PreparedBatch, RowUpdate, is_daemon_record, later_parent, refusal,
    requires_live_agent,
};
use crate::digest::{Digest, chain_hash, checksum};

/// Maximum number of cached agent positions.
const POSITIONS_MAX: usize = 32_768;
/// Maximum number of a destroyed agent's turns deleted with it. Pruning deletes the others, so that no commit is long.
const TURNS_DELETED_MAX: u32 = 1024;

/// Sequence and hash of the last journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalHead {
    pub(super) sequence: u64,
    pub(super) hash: Digest,
}

/// Position of a written entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPosition {
    pub(super) sequence: u64,
    pub(super) agent_sequence: u64,
}

/// Why a batch was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The batch is invalid; others of the group may succeed.
    Refused(StoreFault),
    /// SQLite failed.
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

/// Writes batches and caches the journal's head and the positions of recently active agents.
pub(super) struct TransactionWriter<'db> {
    db: &'db Connection,
    head: JournalHead,
    positions: HashMap<Serial, AgentPosition>,
    /// Statements that every turn needs; the connection's cache holds the others.
    insert_entry: Statement<'db>,
    update_state: Statement<'db>,
    insert_turn: Statement<'db>,
    end_turn: Statement<'db>,
}

#[derive(Debug, Clone, Copy)]
struct AgentPosition {
    /// Sequence of the agent's last entry.
    last: Option<u64>,
    /// Number of the agent's entries.
    agent_sequence: u64,
    liveness: AgentLiveness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentLiveness {
    /// Never created, or removed.
    Absent,
    /// Destroyed, but retained because it has descendants.
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
        Ok(Self {
            db,
            head,
            positions: HashMap::new(),
            insert_entry: db.prepare(INSERT_ENTRY)?,
            update_state: db.prepare(UPDATE_STATE)?,
            insert_turn: db.prepare(INSERT_TURN)?,
            end_turn: db.prepare(END_TURN)?,
        })
    }

    pub(super) fn head(&self) -> JournalHead {
        self.head
    }

    /// Resets to an earlier head after a rollback, and drops the cached positions.
    pub(super) fn reset_to(&mut self, head: JournalHead) {
        self.head = head;
        self.positions.clear();
    }

    /// Writes a batch. After an error the caller rolls back and calls [`TransactionWriter::reset_to`].
    pub(super) fn write_batch(&mut self, batch: &PreparedBatch) -> Result<Vec<EntryPosition>, WriteError> {
        let mut positions = Vec::with_capacity(batch.record_count());
        for prepared in &batch.appends {
            self.check_append(prepared)?;
            // Row updates run before the entries are inserted, so that most refusals come before any row is written.
            let sequences = self.head.sequence + 1..;
            let records = prepared.append.records.iter().zip(&prepared.encoded_records);
            for ((record, encoded), sequence) in records.zip(sequences) {
                self.apply_row_update(prepared, record, encoded, sequence)?;
            }
            self.insert_entries(prepared, &mut positions)?;
            self.write_state(prepared)?;
        }
        Ok(positions)
    }

    /// Checks what can be refused before any row is written.
    fn check_append(&mut self, prepared: &PreparedAppend) -> Result<(), WriteError> {
        let append = &prepared.append;
        if append.agent == DAEMON {
            if let Some(record) = append.records.iter().find(|record| !is_daemon_record(record)) {
                return Err(refusal::invalid_for_daemon(record.kind()).into());
            }
            if append.state.is_some() {
                return Err(refusal::invalid_for_daemon("state").into());
            }
        }
        let is_new = matches!(append.records.first(), Some(Record::Created(_)));
        if append.state.is_some() && !is_new && self.position(append.agent)?.liveness != AgentLiveness::Live {
            return Err(refusal::no_agent().into());
        }
        Ok(())
    }

    fn position(&mut self, agent: Serial) -> Result<AgentPosition, WriteError> {
        if let Some(position) = self.positions.get(&agent) {
            return Ok(*position);
        }
        let tail: Option<(i64, i64)> = self
            .db
            .prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?
            .query_row([to_i64(agent)?], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let is_destroyed: Option<bool> = self
            .db
            .prepare_cached("SELECT gone FROM agents WHERE serial = ?1")?
            .query_row([to_i64(agent)?], |row| row.get(0))
            .optional()?;
        let position = AgentPosition {
            last: tail.map(|(last, _)| last.unsigned_abs()),
            agent_sequence: tail.map_or(0, |(_, number)| number.unsigned_abs()),
            liveness: match is_destroyed {
                None => AgentLiveness::Absent,
                Some(true) => AgentLiveness::Destroyed,
                Some(false) => AgentLiveness::Live,
            },
        };
        self.cache_position(agent, position);
        Ok(position)
    }

    fn cache_position(&mut self, agent: Serial, position: AgentPosition) {
        if self.positions.len() >= POSITIONS_MAX && !self.positions.contains_key(&agent) {
            self.positions.clear();
        }
        self.positions.insert(agent, position);
    }

    fn set_liveness(&mut self, agent: Serial, liveness: AgentLiveness) -> Result<(), WriteError> {
        let position = self.position(agent)?;
        self.cache_position(agent, AgentPosition { liveness, ..position });
        Ok(())
    }

    fn insert_entries(
        &mut self,
        prepared: &PreparedAppend,
        positions: &mut Vec<EntryPosition>,
    ) -> Result<(), WriteError> {
        let append = &prepared.append;
        let agent = append.agent;
        let mut position = self.position(agent)?;
        let agent_id = append.agent_id.as_ref().map(agent::AgentId::as_str);
        for (record, encoded) in append.records.iter().zip(&prepared.encoded_records) {
            let (sequence, agent_sequence) = (self.head.sequence + 1, position.agent_sequence + 1);
            let hash = chain_hash(&self.head.hash, sequence, agent_sequence, &encoded.content_digest);
            self.insert_entry.execute(params![
                to_i64(sequence)?,
                to_i64(agent)?,
                to_i64(agent_sequence)?,
                position.last.map(to_i64).transpose()?,
                agent_id,
                append.at.0,
                record.kind(),
                encoded.body,
                checksum(&encoded.content_digest),
                hash
            ])?;
            self.head = JournalHead { sequence, hash };
            position = AgentPosition { last: Some(sequence), agent_sequence, ..position };
            positions.push(EntryPosition { sequence, agent_sequence });
        }
        self.cache_position(agent, position);
        Ok(())
    }

    /// Writes the agent's last position, state and ledger, and the ledgers of other agents.
    fn write_state(&mut self, prepared: &PreparedAppend) -> Result<(), WriteError> {
        let agent = prepared.append.agent;
        let position = self.position(agent)?;
        let exists = position.liveness != AgentLiveness::Absent;
        let state = prepared.append.state.as_ref().zip(prepared.state.as_deref()).filter(|_| exists);
        let mut own_ledger: Option<(&StoredLedger, &str)> = None;
        for ((serial, ledger), text) in prepared.append.ledgers.iter().zip(&prepared.ledgers) {
            if *serial == agent && own_ledger.is_none_or(|(earlier, _)| ledger.version > earlier.version) {
                own_ledger = Some((ledger, text.as_str())).filter(|_| exists);
            } else if *serial != agent {
                self.write_ledger(*serial, ledger, text)?;
            }
        }
        let Some(last) = position.last else { return Ok(()) };
        if prepared.encoded_records.is_empty() && state.is_none() && own_ledger.is_none() {
            return Ok(());
        }
        let is_finished = state.map(|(state, _)| state.is_finished);
        let version = own_ledger.map_or(Ok(0), |(ledger, _)| to_i64(ledger.version))?;
        let (state, ledger) = (state.map(|(_, text)| text), own_ledger.map(|(_, text)| text));
        let (serial, last, number) = (to_i64(agent)?, to_i64(last)?, to_i64(position.agent_sequence)?);
        let updated =
            self.update_state.execute(params![serial, last, number, is_finished, state, version, ledger])?;
        if updated == 0 {
            let [initial_state, initial_ledger] = initial_state_and_ledger(exists)?;
            let ledger = ledger.filter(|_| version > 0).or(initial_ledger.as_deref());
            let (state, is_finished) = (state.or(initial_state.as_deref()), is_finished.unwrap_or_default());
            self.db
                .prepare_cached("INSERT INTO states VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .execute(params![serial, last, number, is_finished, state, version, ledger])?;
        }
        Ok(())
    }

    /// Writes another agent's ledger, unless that agent was removed or its stored ledger is newer.
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
        prepared: &PreparedAppend,
        record: &Record,
        encoded: &EncodedRecord,
        sequence: u64,
    ) -> Result<(), WriteError> {
        let agent = prepared.append.agent;
        if agent != DAEMON
            && requires_live_agent(record)
            && self.position(agent)?.liveness != AgentLiveness::Live
        {
            return Err(refusal::no_agent().into());
        }
        match (&encoded.row_update, record) {
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
                let inserted = self.insert_turn.execute(params![accepted, agent, key, turn, content, sum])?;
                if inserted == 0 { Err(StoreFault::DuplicateRequestId.into()) } else { Ok(()) }
            }
            (RowUpdate::EndTurn(key), _) => {
                let at = prepared.append.at.0;
                let ended = self.end_turn.execute(params![to_i64(agent)?, key, to_i64(sequence)?, at])?;
                if ended == 0 { Err(refusal::no_open_turn().into()) } else { Ok(()) }
            }
            (RowUpdate::ReopenTurn(key), _) => {
                let reopened = self
                    .db
                    .prepare_cached(
                        "UPDATE turns SET ended = NULL, ended_at = NULL WHERE agent = ?1 AND request = ?2",
                    )?
                    .execute(params![to_i64(agent)?, key])?;
                if reopened == 0 { Err(refusal::no_turn().into()) } else { Ok(()) }
            }
            (RowUpdate::UndoTurn, Record::TurnUndone { turn, .. }) => {
                mark_undone(self.db, to_i64(agent)?, to_i64(*turn)?)
            }
            (
                RowUpdate::Unchanged
                | RowUpdate::UndoTurn
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
        let position = self.position(agent)?;
        if position.liveness != AgentLiveness::Absent || position.last.is_some() {
            return Err(refusal::serial_reused(agent).into());
        }
        if let Some(parent) = later_parent(agent, record) {
            return Err(refusal::later_parent(parent).into());
        }
        if let Some(parent) = record.parent
            && self.position(parent)?.liveness == AgentLiveness::Absent
        {
            return Err(refusal::no_parent(parent).into());
        }
        let inserted = self
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
        if inserted == 0 {
            return Err(StoreFault::DuplicateAgentId.into());
        }
        update_agent_checksum(self.db, agent)?;
        self.set_liveness(agent, AgentLiveness::Live)
    }

    /// Destroys an agent, and removes it and its destroyed ancestors as far as they have no children.
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
        delete_agent_changes(db, to_i64(agent)?)?;
        self.set_liveness(agent, AgentLiveness::Destroyed)?;
        let mut next = Some(agent);
        while let Some(serial) = next {
            let removed = db
                .prepare_cached(
                    "DELETE FROM agents WHERE serial = ?1 AND gone = 1 \
                     AND NOT EXISTS (SELECT 1 FROM agents AS child WHERE child.parent = ?1) RETURNING parent",
                )?
                .query_row([to_i64(serial)?], |row| row.get::<_, Option<i64>>(0))
                .optional()?;
            let Some(parent) = removed else { break };
            db.prepare_cached(
                "UPDATE states SET is_finished = 0, state = NULL, ledger_version = 0, ledger = NULL \
                 WHERE serial = ?1",
            )?
            .execute([to_i64(serial)?])?;
            delete_tree_values(db, to_i64(serial)?)?;
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

/// Recomputes the checksum of an agent's row, if the row exists.
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

/// Returns the encoded state and ledger of a new agent; `None` for one that does not exist.
fn initial_state_and_ledger(exists: bool) -> Result<[Option<String>; 2], WriteError> {
    if !exists {
        return Ok([None, None]);
    }
    let texts = crate::codec::encode_state(&AgentState::default())
        .and_then(|state| Ok([Some(state), Some(crate::codec::encode_ledger(&StoredLedger::default())?)]));
    texts.map_err(|fault| StoreFault::Corrupt(fault.to_string()).into())
}

/// Converts to SQLite's signed integer. Sequences and serials never get large enough to fail.
pub(super) fn to_i64(number: u64) -> Result<i64, StoreFault> {
    i64::try_from(number).map_err(|_| refusal::too_large(number))
}
