//! Full, read-only check of a store: pages, references, schema, hash chain, and whether the derived tables agree with
//! the journal. Reports every problem with its remedy.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rusqlite::{Connection, Row};

use super::chain::walk_chain;
use super::journaled_agents::JournaledAgents;
use super::{io_fault, with_store};
use crate::batch::later_parent;
use crate::codec;
use crate::digest::EntryContent;
use crate::maintenance::{CheckReport, MaintenanceFault, Problem};
use crate::sqlite::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum, turn_checksum};
use crate::sqlite::file_changes::{CHANGE_CHECKSUM_COLUMNS, change_checksum};
use crate::sqlite::files::StoreFiles;
use crate::sqlite::high_water_mark::HighWaterMark;
use crate::sqlite::schema::schema_problems;
use crate::sqlite::startup_check::{DatabaseState, inspect_database};
use crate::sqlite::values::{VALUE_CHECKSUM_COLUMNS, value_checksum};

/// Maximum number of reported problems of one kind.
const PROBLEMS_MAX: usize = 100;

const RESTORE_ADVICE: &str = "restore a backup: stop the daemon, remove the store's -wal, -shm and .mark files, put the \
     backup in the store's place. Without a backup, move the files away to start with an empty store";
const REINDEX_ADVICE: &str = "the rows are intact: stop the daemon and run `sqlite3 FILE REINDEX`";

/// Checks a store, also while a daemon uses it.
pub(super) fn check(path: &Path) -> Result<CheckReport, MaintenanceFault> {
    let files = StoreFiles::new(path);
    let file = match std::fs::metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(MaintenanceFault::Missing(path.to_owned()));
        }
        Err(error) => return Err(io_fault(path, error)),
    };
    let mut report = CheckReport {
        path: path.to_owned(),
        version: 0,
        bytes: file.len(),
        wal_bytes: std::fs::metadata(files.wal()).map_or(0, |file| file.len()),
        agents: 0,
        destroyed: 0,
        turns: 0,
        open_turns: 0,
        values: 0,
        chain: None,
        problems: Vec::new(),
    };
    if file.permissions().mode() & 0o077 != 0 {
        report.add_problem("other users can read it", "run chmod 600 on it and its companion files");
    }
    // Read the mark before the journal, which only grows.
    let mark = HighWaterMark::read(&files.high_water_mark())
        .map_err(|error| io_fault(&files.high_water_mark(), error))?;
    let run = |db: &Connection| {
        let mut report = report.clone();
        report.run_checks(db, mark.as_ref());
        Ok(report)
    };
    match with_store(path, run, CheckReport::is_sound) {
        Err(MaintenanceFault::Database { why, .. }) => {
            report.add_problem(&format!("cannot be opened: {why}"), RESTORE_ADVICE);
            Ok(report)
        }
        result => result,
    }
}

impl CheckReport {
    fn add_problem(&mut self, what: &str, repair: &str) {
        self.problems.push(Problem { what: what.to_owned(), repair: repair.to_owned() });
    }

    fn run_checks(&mut self, db: &Connection, mark: Option<&HighWaterMark>) {
        self.version = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap_or_default();
        let state = match inspect_database(db, mark) {
            Ok(state) => state,
            Err(error) => {
                self.add_problem(&format!("cannot be read: {error}"), RESTORE_ADVICE);
                if error.sqlite_error_code() != Some(rusqlite::ErrorCode::NotADatabase) {
                    self.check_content(db, mark);
                }
                return;
            }
        };
        let what = state.to_string();
        match state {
            DatabaseState::Current { .. } => self.check_content(db, mark),
            DatabaseState::Damaged(_) => {
                let count = self.problems.len();
                self.check_content(db, mark);
                // The checks of the content describe most damage in more detail.
                if self.problems.len() == count {
                    self.add_problem(&what, RESTORE_ADVICE);
                }
            }
            DatabaseState::JournalTruncated { .. } => {
                self.add_problem(&what, "put the -wal back or restore a newer backup; if this file is older on purpose, remove its .mark");
                self.check_content(db, mark);
            }
            DatabaseState::Empty => self.add_problem(&what, "start the daemon, or restore a backup"),
            DatabaseState::Foreign(_) => self.add_problem(&what, "move it away"),
            DatabaseState::Newer(_) => self.add_problem(&what, "use the nexus3 that wrote it"),
            DatabaseState::Older(_) => {
                self.add_problem(&what, "start the daemon once: it makes a backup and migrates the store");
            }
        }
    }

    fn check_content(&mut self, db: &Connection, mark: Option<&HighWaterMark>) {
        self.run_check("pages", |report| report.check_pages(db));
        self.run_check("references", |report| report.check_references(db));
        self.run_check("schema", |report| {
            for problem in schema_problems(db)? {
                report.add_problem(&problem, RESTORE_ADVICE);
            }
            Ok(())
        });
        let mut journaled = JournaledAgents::default();
        self.run_check("journal", |report| report.check_journal(db, mark, &mut journaled));
        self.run_check("agents", |report| report.check_agents(db, &journaled));
        self.run_check("turns", |report| report.check_turns(db));
        self.run_check("stored values", |report| report.check_values(db));
        self.run_check("file changes", |report| report.check_file_changes(db));
    }

    /// Runs one part of the check. An error is recorded as a problem, and the next part still runs.
    fn run_check(&mut self, what: &str, check: impl FnOnce(&mut Self) -> rusqlite::Result<()>) {
        if let Err(error) = check(self) {
            self.add_problem(&format!("{what} cannot be read: {error}"), RESTORE_ADVICE);
        }
    }

    fn check_pages(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let result: String = row.get(0)?;
            // One row may have several lines.
            for line in result.lines().filter(|line| *line != "ok") {
                let is_index = line.contains("missing from index") || line.contains("entries in index");
                self.add_problem(line, if is_index { REINDEX_ADVICE } else { RESTORE_ADVICE });
            }
        }
        Ok(())
    }

    fn check_references(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare("PRAGMA foreign_key_check")?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            found += 1;
            if found <= PROBLEMS_MAX {
                let (table, serial): (String, Option<i64>) = (row.get(0)?, row.get(1)?);
                self.add_problem(
                    &format!("{table}: row {} refers to a missing row", serial.unwrap_or_default()),
                    RESTORE_ADVICE,
                );
            }
        }
        Ok(())
    }

    fn check_journal(
        &mut self,
        db: &Connection,
        mark: Option<&HighWaterMark>,
        journaled: &mut JournaledAgents,
    ) -> rusqlite::Result<()> {
        let mut tails: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut found = Vec::new();
        let chain = walk_chain(db, &self.path.clone(), mark, |entry| {
            let EntryContent { agent, kind, body, .. } = entry.content;
            let (last, number) = tails.get(&agent).map_or((None, 0), |(last, number)| (Some(*last), *number));
            if (entry.previous, entry.agent_sequence) != (last, number + 1) {
                found.push(format!("entry {}: not linked to its agent's previous entry", entry.sequence));
            }
            let decoded = codec::decode_record(kind, body);
            if let Err(fault) = decoded.and_then(|record| journaled.apply(agent, &record)) {
                found.push(format!("entry {}: {kind} cannot be decoded: {fault}", entry.sequence));
            }
            found.truncate(PROBLEMS_MAX);
            tails.insert(agent, (entry.sequence, entry.agent_sequence));
        })?;
        for chain_break in &chain.breaks {
            self.add_problem(&format!("the chain breaks at {chain_break}"), RESTORE_ADVICE);
        }
        found.iter().for_each(|what| self.add_problem(what, RESTORE_ADVICE));
        let end = chain.last;
        self.chain = Some(chain);
        self.check_tails(db, &mut tails, end)
    }

    /// Compares the positions in `states` with the journal, ignoring entries a daemon added after `end`.
    fn check_tails(
        &mut self,
        db: &Connection,
        tails: &mut HashMap<u64, (u64, u64)>,
        end: u64,
    ) -> rusqlite::Result<()> {
        let mut statement = db.prepare("SELECT serial, last, number FROM states")?;
        let mut rows = statement.query(())?;
        let mut mismatched = Vec::new();
        while let Some(row) = rows.next()? {
            let [agent, last, number] = [row.get(0)?, row.get(1)?, row.get(2)?].map(i64::unsigned_abs);
            if tails.remove(&agent) != Some((last, number)) && last <= end {
                mismatched.push(agent);
            }
        }
        mismatched.extend(tails.keys());
        for agent in mismatched.into_iter().take(PROBLEMS_MAX) {
            let what = format!("agent {agent}: its last entry is not at the stored position");
            self.add_problem(&what, RESTORE_ADVICE);
        }
        Ok(())
    }

    /// Checks the rows of all agents, and compares them with the journal, except those that a daemon has changed since
    /// the journal was read.
    fn check_agents(&mut self, db: &Connection, journaled: &JournaledAgents) -> rusqlite::Result<()> {
        let end = self.chain.as_ref().map_or(0, |chain| chain.last);
        let mut statement = db.prepare(&format!(
            "SELECT {AGENT_CHECKSUM_COLUMNS}, sum, state, ledger_version, ledger, is_finished, \
             EXISTS (SELECT 1 FROM agents AS child WHERE child.parent = agents.serial), last \
             FROM agents LEFT JOIN states USING (serial)",
        ))?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            let is_destroyed: bool = row.get(3)?;
            self.agents += u64::from(!is_destroyed);
            self.destroyed += u64::from(is_destroyed);
            let is_newer = row.get::<_, Option<i64>>(13)?.is_some_and(|last| last.unsigned_abs() > end);
            if let Some(what) = agent_problem(row, Some(journaled).filter(|_| !is_newer))? {
                found += 1;
                if found <= PROBLEMS_MAX {
                    self.add_problem(&format!("agent {}: {what}", row.get::<_, i64>(0)?), RESTORE_ADVICE);
                }
            }
        }
        Ok(())
    }

    fn check_values(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!(
            "SELECT {VALUE_CHECKSUM_COLUMNS}, sum, \
             namespace = 0 OR EXISTS (SELECT 1 FROM agents WHERE serial = namespace) FROM key_values",
        ))?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            self.values += 1;
            let what = match (value_checksum(row)? == row.get::<_, i64>(6)?, row.get(7)?) {
                (false, _) => "row checksum mismatch",
                (true, false) => "its agent does not exist",
                (true, true) => continue,
            };
            found += 1;
            if found <= PROBLEMS_MAX {
                let (namespace, key): (i64, String) = (row.get(0)?, row.get(1)?);
                self.add_problem(&format!("value {key:?} of agent {namespace}: {what}"), RESTORE_ADVICE);
            }
        }
        Ok(())
    }

    fn check_file_changes(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!(
            "SELECT {CHANGE_CHECKSUM_COLUMNS}, sum, \
             EXISTS (SELECT 1 FROM agents WHERE serial = agent AND gone = 0) FROM file_changes",
        ))?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            let what = match (change_checksum(row)? == row.get::<_, i64>(8)?, row.get(9)?) {
                (false, _) => "row checksum mismatch",
                (true, false) => "its agent does not exist",
                (true, true) => continue,
            };
            found += 1;
            if found <= PROBLEMS_MAX {
                let (agent, path): (i64, String) = (row.get(0)?, row.get(2)?);
                self.add_problem(&format!("file change {path:?} of agent {agent}: {what}"), RESTORE_ADVICE);
            }
        }
        Ok(())
    }

    fn check_turns(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let count = |sql| db.query_row(sql, (), |row| row.get::<_, i64>(0)).map(i64::unsigned_abs);
        self.turns = count("SELECT count(*) FROM turns")?;
        self.open_turns = count("SELECT count(*) FROM turns WHERE ended IS NULL")?;
        let mut statement = db.prepare(
            "SELECT accepted, turns.agent, request, turn, content, turns.sum, ended, ended_at, \
             (kind IS 'turn_ended' AND journal.agent IS turns.agent), \
             EXISTS (SELECT 1 FROM agents WHERE serial = turns.agent AND gone = 0) \
             FROM turns LEFT JOIN journal ON sequence = ended",
        )?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            if let Some(what) = turn_problem(row)? {
                found += 1;
                if found <= PROBLEMS_MAX {
                    let (agent, turn): (i64, i64) = (row.get(1)?, row.get(3)?);
                    self.add_problem(&format!("turn {turn} of agent {agent}: {what}"), RESTORE_ADVICE);
                }
            }
        }
        Ok(())
    }
}

/// Returns the first problem of a `turns` row.
fn turn_problem(row: &Row<'_>) -> rusqlite::Result<Option<&'static str>> {
    let (accepted, agent, turn): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let sum = turn_checksum(accepted, agent, &row.get(2)?, turn, &row.get(4)?);
    let (ended, ended_at): (Option<i64>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let (has_end, has_agent): (bool, bool) = (row.get(8)?, row.get(9)?);
    Ok(match ended {
        _ if sum != row.get::<_, i64>(5)? => Some("row checksum mismatch"),
        _ if ended.is_some() != ended_at.is_some() => {
            Some("has an end without a time, or a time without an end")
        }
        Some(_) if !has_end => Some("its end is not in the journal"),
        None if !has_agent => Some("open, but its agent does not exist"),
        _ => None,
    })
}

/// Returns the first problem of an `agents` row.
fn agent_problem(row: &Row<'_>, journaled: Option<&JournaledAgents>) -> rusqlite::Result<Option<String>> {
    if agent_checksum(row, 0)? != row.get::<_, i64>(7)? {
        return Ok(Some("row checksum mismatch".to_owned()));
    }
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (Some(state), Some(ledger)) = (row.get_ref(8)?.as_str_or_null()?, row.get_ref(10)?.as_str_or_null()?)
    else {
        return Ok(Some("has no state".to_owned()));
    };
    let record = match codec::decode_agent(text(5)?, text(1)?, text(6)?) {
        Ok(record) => record,
        Err(fault) => return Ok(Some(format!("its record cannot be decoded: {fault}"))),
    };
    let is_finished: bool = row.get(11)?;
    match codec::decode_state(state) {
        Ok(state) if state.is_finished == is_finished => {}
        Ok(_) => return Ok(Some("its state and its row disagree on whether it is finished".to_owned())),
        Err(fault) => return Ok(Some(format!("its state cannot be decoded: {fault}"))),
    }
    match codec::decode_ledger(ledger) {
        Ok(ledger) if ledger.version == row.get::<_, i64>(9)?.unsigned_abs() => {}
        Ok(_) => return Ok(Some("its ledger and its row disagree on the version".to_owned())),
        Err(fault) => return Ok(Some(format!("its ledger cannot be decoded: {fault}"))),
    }
    let parent = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
    if record.parent != parent || row.get::<_, [u8; 32]>(4)? != record.capability_digest {
        return Ok(Some("its row and its record disagree".to_owned()));
    }
    let (is_destroyed, has_children): (bool, bool) = (row.get(3)?, row.get(12)?);
    let serial = row.get::<_, i64>(0)?.unsigned_abs();
    if later_parent(serial, &record).is_some() {
        return Ok(Some("its parent was not created before it".to_owned()));
    }
    match journaled.map(|journaled| journaled.difference(serial, &record, is_destroyed)).transpose() {
        Ok(difference) => {
            if let Some(what) = difference.flatten() {
                return Ok(Some(what.to_owned()));
            }
        }
        Err(fault) => return Ok(Some(format!("its record cannot be encoded: {fault}"))),
    }
    Ok((is_destroyed && !has_children).then(|| "destroyed without children, but not removed".to_owned()))
}
