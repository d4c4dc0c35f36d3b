//! Writes calls into an open transaction: entries with their places and hashes, and the rows that follow from them.
//! Knows nothing of commits.

use std::collections::HashMap;

use agent::journal::{AgentRecord, AgentState, DAEMON, StoredLedger, Record, Serial};
use agent::outside::StoreFault;
use rusqlite::{Connection, OptionalExtension as _, Statement, params};

use super::sums::{AGENT_SUMMED, agent_sum, turn_sum};
use crate::call::{Call, Change, Line, Part, is_of_the_daemon, needs_its_agent, refusal};
use crate::digest::{Digest, link, sum};

/// Agents whose places are remembered.
const SEATS_MAX: usize = 32_768;
/// Turns of a destroyed agent that are forgotten at once. The rest goes when its time comes, so that no commit is long.
const TURNS_AT_ONCE: u32 = 1024;

/// The end of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(super) sequence: u64,
    pub(super) hash: Digest,
}

/// Where a record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sequence: u64,
    pub(super) number: u64,
}

/// Why a call was not written.
#[derive(Debug)]
pub(super) enum Setback {
    /// It may not be; others may.
    Refused(StoreFault),
    /// SQLite could not.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Setback {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreFault> for Setback {
    fn from(fault: StoreFault) -> Self {
        Self::Refused(fault)
    }
}

/// Knows the end of the journal and of the records of agents that wrote lately.
pub(super) struct Scribe<'db> {
    db: &'db Connection,
    head: Head,
    seats: HashMap<Serial, Seat>,
    /// What every turn needs; the rest is looked up in the connection's cache.
    enter: Statement<'db>,
    settle: Statement<'db>,
    accept: Statement<'db>,
    end: Statement<'db>,
}

#[derive(Debug, Clone, Copy)]
struct Seat {
    /// The agent's last entry.
    last: Option<u64>,
    /// Its number.
    number: u64,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It never was there, or is forgotten.
    Absent,
    /// It was destroyed, and somebody below it lives on.
    Gone,
    Lives,
}

const ENTER: &str = "INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const SETTLE: &str = "UPDATE states SET last = ?2, number = ?3, is_finished = coalesce(?4, is_finished), \
                      state = coalesce(?5, state), \
                      ledger = CASE WHEN ?6 > ledger_version THEN ?7 ELSE ledger END, \
                      ledger_version = max(?6, ledger_version) WHERE serial = ?1";
const ACCEPT: &str = "INSERT INTO turns (accepted, agent, request, turn, content, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                      ON CONFLICT (agent, request) DO NOTHING";
const END: &str =
    "UPDATE turns SET ended = ?3, ended_at = ?4 WHERE agent = ?1 AND request = ?2 AND ended IS NULL";

impl<'db> Scribe<'db> {
    pub(super) fn at(head: Head, db: &'db Connection) -> rusqlite::Result<Self> {
        let [enter, settle, accept, end] = [ENTER, SETTLE, ACCEPT, END].map(|sql| db.prepare(sql));
        Ok(Self {
            db,
            head,
            seats: HashMap::new(),
            enter: enter?,
            settle: settle?,
            accept: accept?,
            end: end?,
        })
    }

    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Goes back to an earlier end; what was written behind it is not there any more.
    pub(super) fn go_back(&mut self, head: Head) {
        self.head = head;
        self.seats.clear();
    }

    /// Writes a call. After a setback the caller takes back what was written, and calls [`Scribe::go_back`].
    pub(super) fn write(&mut self, call: &Call) -> Result<Vec<Place>, Setback> {
        let mut places = Vec::with_capacity(call.records());
        for part in &call.parts {
            self.check(part)?;
            // What records change comes before all entries: what is refused is refused before anything was written.
            let sequences = self.head.sequence + 1..;
            for ((record, line), sequence) in part.append.records.iter().zip(&part.lines).zip(sequences) {
                self.change(part, record, line, sequence)?;
            }
            self.enter_all(part, &mut places)?;
            self.settle(part)?;
        }
        Ok(places)
    }

    /// What can be refused before anything is written.
    fn check(&mut self, part: &Part) -> Result<(), Setback> {
        let agent = part.append.agent;
        if agent == DAEMON {
            if let Some(record) = part.append.records.iter().find(|record| !is_of_the_daemon(record)) {
                return Err(refusal::not_of_the_daemon(record.kind()).into());
            }
            if part.append.state.is_some() {
                return Err(refusal::not_of_the_daemon("state").into());
            }
        }
        let is_new = matches!(part.append.records.first(), Some(Record::Created(_)));
        if part.append.state.is_some() && !is_new && self.seat(agent)?.standing != Standing::Lives {
            return Err(refusal::no_agent().into());
        }
        Ok(())
    }

    fn seat(&mut self, agent: Serial) -> Result<Seat, Setback> {
        if let Some(seat) = self.seats.get(&agent) {
            return Ok(*seat);
        }
        let tail: Option<(i64, i64)> = self
            .db
            .prepare_cached("SELECT last, number FROM states WHERE serial = ?1")?
            .query_row([whole(agent)?], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let gone: Option<bool> = self
            .db
            .prepare_cached("SELECT gone FROM agents WHERE serial = ?1")?
            .query_row([whole(agent)?], |row| row.get(0))
            .optional()?;
        let seat = Seat {
            last: tail.map(|(last, _)| last.unsigned_abs()),
            number: tail.map_or(0, |(_, number)| number.unsigned_abs()),
            standing: match gone {
                None => Standing::Absent,
                Some(true) => Standing::Gone,
                Some(false) => Standing::Lives,
            },
        };
        self.keep_seat(agent, seat);
        Ok(seat)
    }

    fn keep_seat(&mut self, agent: Serial, seat: Seat) {
        if self.seats.len() >= SEATS_MAX && !self.seats.contains_key(&agent) {
            self.seats.clear();
        }
        self.seats.insert(agent, seat);
    }

    fn set_standing(&mut self, agent: Serial, standing: Standing) -> Result<(), Setback> {
        let seat = self.seat(agent)?;
        self.keep_seat(agent, Seat { standing, ..seat });
        Ok(())
    }

    fn enter_all(&mut self, part: &Part, places: &mut Vec<Place>) -> Result<(), Setback> {
        let agent = part.append.agent;
        let mut seat = self.seat(agent)?;
        let name = part.append.agent_id.as_ref().map(agent::AgentId::as_str);
        for (record, line) in part.append.records.iter().zip(&part.lines) {
            let (sequence, number) = (self.head.sequence + 1, seat.number + 1);
            let hash = link(&self.head.hash, sequence, number, &line.content);
            self.enter.execute(params![
                whole(sequence)?,
                whole(agent)?,
                whole(number)?,
                seat.last.map(whole).transpose()?,
                name,
                part.append.at.0,
                record.kind(),
                line.body,
                sum(&line.content),
                hash
            ])?;
            self.head = Head { sequence, hash };
            seat = Seat { last: Some(sequence), number, ..seat };
            places.push(Place { sequence, number });
        }
        self.keep_seat(agent, seat);
        Ok(())
    }

    /// Writes where the agent's last entry is and what it is now, and the ledgers of others.
    fn settle(&mut self, part: &Part) -> Result<(), Setback> {
        let agent = part.append.agent;
        let seat = self.seat(agent)?;
        let is_there = seat.standing != Standing::Absent;
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
        if part.lines.is_empty() && state.is_none() && own.is_none() {
            return Ok(());
        }
        let is_finished = state.map(|(state, _)| state.is_finished);
        let version = own.map_or(Ok(0), |(ledger, _)| whole(ledger.version))?;
        let (state, ledger) = (state.map(|(_, text)| text), own.map(|(_, text)| text));
        let (serial, last, number) = (whole(agent)?, whole(last)?, whole(seat.number)?);
        let found =
            self.settle.execute(params![serial, last, number, is_finished, state, version, ledger])?;
        if found == 0 {
            let [blank_state, blank_ledger] = blank(is_there)?;
            let ledger = ledger.filter(|_| version > 0).or(blank_ledger.as_deref());
            let (state, is_finished) = (state.or(blank_state.as_deref()), is_finished.unwrap_or_default());
            self.db
                .prepare_cached("INSERT INTO states VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .execute(params![serial, last, number, is_finished, state, version, ledger])?;
        }
        Ok(())
    }

    /// A ledger of somebody who is not there, or an old one, is left out.
    fn write_ledger(&self, serial: Serial, ledger: &StoredLedger, text: &str) -> Result<(), Setback> {
        self.db
            .prepare_cached(
                "UPDATE states SET ledger = ?2, ledger_version = ?3 \
                 WHERE serial = ?1 AND ledger_version < ?3 AND ledger IS NOT NULL",
            )?
            .execute(params![whole(serial)?, text, whole(ledger.version)?])?;
        Ok(())
    }

    fn change(&mut self, part: &Part, record: &Record, line: &Line, sequence: u64) -> Result<(), Setback> {
        let agent = part.append.agent;
        if agent != DAEMON && needs_its_agent(record) && self.seat(agent)?.standing != Standing::Lives {
            return Err(refusal::no_agent().into());
        }
        match (&line.change, record) {
            (Change::Create { record: text, permissions }, Record::Created(record)) => {
                self.create(agent, record, [text, permissions])
            }
            (Change::Rights(permissions), _) => {
                self.db
                    .prepare_cached("UPDATE agents SET rights = ?2 WHERE serial = ?1")?
                    .execute(params![whole(agent)?, permissions])?;
                sum_agent(self.db, agent)
            }
            (Change::Rename, Record::Renamed { id, .. }) => rename(self.db, agent, id.as_str()),
            (Change::Destroy, _) => self.destroy(agent),
            (Change::Accept { key, content }, Record::TurnAccepted(accepted)) => {
                let (accepted, agent, turn) = (whole(sequence)?, whole(agent)?, whole(accepted.turn)?);
                let sum = turn_sum(accepted, agent, key, turn, content);
                let taken = self.accept.execute(params![accepted, agent, key, turn, content, sum])?;
                if taken == 0 { Err(StoreFault::DuplicateRequestId.into()) } else { Ok(()) }
            }
            (Change::End(key), _) => {
                let at = part.append.at.0;
                let ended = self.end.execute(params![whole(agent)?, key, whole(sequence)?, at])?;
                if ended == 0 { Err(refusal::no_open_turn().into()) } else { Ok(()) }
            }
            (Change::Reopen(key), _) => {
                let opened = self
                    .db
                    .prepare_cached(
                        "UPDATE turns SET ended = NULL, ended_at = NULL WHERE agent = ?1 AND request = ?2",
                    )?
                    .execute(params![whole(agent)?, key])?;
                if opened == 0 { Err(refusal::no_turn().into()) } else { Ok(()) }
            }
            (Change::Nothing | Change::Create { .. } | Change::Rename | Change::Accept { .. }, _) => Ok(()),
        }
    }

    fn create(
        &mut self,
        agent: Serial,
        record: &AgentRecord,
        [text, permissions]: [&str; 2],
    ) -> Result<(), Setback> {
        let seat = self.seat(agent)?;
        if seat.standing != Standing::Absent || seat.last.is_some() {
            return Err(refusal::serial_given_before(agent).into());
        }
        if let Some(parent) = record.parent
            && self.seat(parent)?.standing == Standing::Absent
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
                whole(agent)?,
                record.id.as_str(),
                record.parent.map(whole).transpose()?,
                record.capability_digest,
                text,
                permissions
            ])?;
        if made == 0 {
            return Err(StoreFault::DuplicateAgentId.into());
        }
        sum_agent(self.db, agent)?;
        self.set_standing(agent, Standing::Lives)
    }

    /// Forgets it, and those gone before it that nobody is below now.
    fn destroy(&mut self, agent: Serial) -> Result<(), Setback> {
        let db = self.db;
        db.prepare_cached("DELETE FROM turns WHERE agent = ?1 AND ended IS NULL")?
            .execute([whole(agent)?])?;
        db.prepare_cached(
            "DELETE FROM turns WHERE accepted IN (SELECT accepted FROM turns WHERE agent = ?1 LIMIT ?2)",
        )?
        .execute(params![whole(agent)?, TURNS_AT_ONCE])?;
        db.prepare_cached("UPDATE agents SET gone = 1 WHERE serial = ?1")?.execute([whole(agent)?])?;
        sum_agent(db, agent)?;
        self.set_standing(agent, Standing::Gone)?;
        let mut next = Some(agent);
        while let Some(serial) = next {
            let forgotten = db
                .prepare_cached(
                    "DELETE FROM agents WHERE serial = ?1 AND gone = 1 \
                     AND NOT EXISTS (SELECT 1 FROM agents AS child WHERE child.parent = ?1) RETURNING parent",
                )?
                .query_row([whole(serial)?], |row| row.get::<_, Option<i64>>(0))
                .optional()?;
            let Some(parent) = forgotten else { break };
            db.prepare_cached(
                "UPDATE states SET is_finished = 0, state = NULL, ledger_version = 0, ledger = NULL \
                 WHERE serial = ?1",
            )?
            .execute([whole(serial)?])?;
            self.set_standing(serial, Standing::Absent)?;
            next = parent.map(i64::unsigned_abs);
        }
        Ok(())
    }
}

fn rename(db: &Connection, agent: Serial, id: &str) -> Result<(), Setback> {
    let is_taken = db
        .prepare_cached("SELECT 1 FROM agents WHERE id = ?1 AND gone = 0 AND serial <> ?2")?
        .exists(params![id, whole(agent)?])?;
    if is_taken {
        return Err(StoreFault::DuplicateAgentId.into());
    }
    db.prepare_cached("UPDATE agents SET id = ?2 WHERE serial = ?1")?.execute(params![whole(agent)?, id])?;
    sum_agent(db, agent)
}

/// Writes the sum of an agent's row anew, if it is there.
fn sum_agent(db: &Connection, agent: Serial) -> Result<(), Setback> {
    let sum: Option<i64> = db
        .prepare_cached(&format!("SELECT {AGENT_SUMMED} FROM agents WHERE serial = ?1"))?
        .query_row([whole(agent)?], |row| agent_sum(row, 0))
        .optional()?;
    if let Some(sum) = sum {
        db.prepare_cached("UPDATE agents SET sum = ?2 WHERE serial = ?1")?.execute([whole(agent)?, sum])?;
    }
    Ok(())
}

/// The state and the ledger of an agent that has done nothing; none for whoever is not there.
fn blank(is_there: bool) -> Result<[Option<String>; 2], Setback> {
    if !is_there {
        return Ok([None, None]);
    }
    let texts = crate::body::write_state(&AgentState::default())
        .and_then(|state| Ok([Some(state), Some(crate::body::write_ledger(&StoredLedger::default())?)]));
    texts.map_err(|fault| StoreFault::Corrupt(fault.to_string()).into())
}

/// SQLite's numbers have a sign; ours never come so far that it would matter.
pub(super) fn whole(number: u64) -> Result<i64, StoreFault> {
    i64::try_from(number).map_err(|_| StoreFault::Corrupt(format!("{number} is too large a number")))
}
