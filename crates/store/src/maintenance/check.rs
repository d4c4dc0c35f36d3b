//! The full check of a store: its pages, its rules, its chain, and whether the tables follow from one another. Says
//! everything that is wrong, and what to do about it. Changes nothing.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Row};

use super::chain::{ChainReport, walk_chain};
use super::{MaintenanceFault, with_store};
use crate::codec;
use crate::digest::EntryContent;
use crate::sqlite::{
    AGENT_CHECKSUM_COLUMNS, DatabaseState, HighWaterMark, StoreFiles, agent_checksum, current_version,
    inspect_database, turn_checksum,
};

/// Problems of one sort that are told.
const PROBLEMS_MAX: usize = 100;

const RESTORE_ADVICE: &str = "restore a backup: stop the daemon; remove the -wal, -shm and .mark files of the store; put the backup in \
                       its place. Without one, move the files away to begin anew";
const REINDEX_ADVICE: &str = "the rows are whole: stop the daemon and run `sqlite3 FILE REINDEX`";

/// What a full check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The file.
    pub path: PathBuf,
    /// The version of its schema; zero when it could not be read.
    pub version: u32,
    /// Bytes of the database.
    pub bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Agents there are.
    pub agents: u64,
    /// Agents that are gone, and kept because somebody below them lives on.
    pub destroyed: u64,
    /// Names of sends that are remembered.
    pub turns: u64,
    /// Turns that are open.
    pub open_turns: u64,
    /// The journal.
    pub chain: Option<ChainReport>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What.
    pub what: String,
    /// What to do.
    pub repair: String,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n    to repair: {}", self.what, self.repair)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            version,
            bytes,
            wal_bytes,
            agents,
            destroyed: gone,
            turns,
            open_turns,
            chain,
            problems,
        } = self;
        let kibibytes = |bytes: &u64| bytes.div_ceil(1024);
        writeln!(
            out,
            "{}: schema {version}, {} KiB, log {} KiB",
            path.display(),
            kibibytes(bytes),
            kibibytes(wal_bytes)
        )?;
        writeln!(out, "{agents} agents ({gone} gone), {turns} sends remembered, {open_turns} turns open")?;
        if let Some(chain) = chain {
            writeln!(out, "{chain}")?;
        }
        if problems.is_empty() {
            return write!(out, "sound");
        }
        write!(out, "{} problems:", problems.len())?;
        problems.iter().try_for_each(|problem| write!(out, "\n  {problem}"))
    }
}

/// Checks the store of a file, also while a daemon uses it.
///
/// # Errors
/// When there is no file, or the system does not let it be read. Everything else is in the report.
pub fn check(path: &Path) -> Result<CheckReport, MaintenanceFault> {
    let files = StoreFiles::new(path);
    let file = match std::fs::metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(MaintenanceFault::Missing(path.to_owned()));
        }
        Err(error) => return Err(MaintenanceFault::io(path, error)),
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
        chain: None,
        problems: Vec::new(),
    };
    if file.permissions().mode() & 0o077 != 0 {
        report.add_problem("other users can read it", "chmod 600 it and the files beside it");
    }
    // The mark first: the journal only grows.
    let mark = HighWaterMark::read(&files.high_water_mark())
        .map_err(|error| MaintenanceFault::io(&files.high_water_mark(), error))?;
    let examined = |db: &Connection| {
        let mut report = report.clone();
        report.run_checks(db, mark.as_ref());
        Ok(report)
    };
    match with_store(path, examined, CheckReport::is_sound) {
        Err(MaintenanceFault::Sql { error, .. }) => {
            report.add_problem(&format!("it cannot be opened: {error}"), RESTORE_ADVICE);
            Ok(report)
        }
        done => done,
    }
}

impl CheckReport {
    fn add_problem(&mut self, what: &str, repair: &str) {
        self.problems.push(Problem { what: what.to_owned(), repair: repair.to_owned() });
    }

    fn run_checks(&mut self, db: &Connection, mark: Option<&HighWaterMark>) {
        self.version = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap_or_default();
        if self.is_unsupported(db, mark) {
            return;
        }
        self.run_check("its pages", |report| report.check_pages(db));
        self.run_check("its references", |report| report.check_references(db));
        self.run_check("its schema", |report| {
            for problem in crate::sqlite::schema_problems(db)? {
                report.add_problem(&problem, RESTORE_ADVICE);
            }
            Ok(())
        });
        self.run_check("its journal", |report| report.check_journal(db));
        self.run_check("its agents", |report| report.check_agents(db));
        self.run_check("its turns", |report| report.check_turns(db));
    }

    /// Does one part of the check; a part that cannot be done is a problem, and the next is done all the same.
    fn run_check(&mut self, what: &str, part: impl FnOnce(&mut Self) -> rusqlite::Result<()>) {
        if let Err(error) = part(self) {
            self.add_problem(&format!("{what} cannot be read: {error}"), RESTORE_ADVICE);
        }
    }

    /// Whether it makes no sense to look further.
    fn is_unsupported(&mut self, db: &Connection, mark: Option<&HighWaterMark>) -> bool {
        let look = match inspect_database(db, mark) {
            Ok(look) => look,
            Err(error) => {
                self.add_problem(&format!("it cannot be read: {error}"), RESTORE_ADVICE);
                // What is no database has nothing more to be looked at.
                return error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase);
            }
        };
        match look {
            DatabaseState::Current { .. } | DatabaseState::Damaged(_) => false,
            DatabaseState::JournalTruncated { last, marked } => {
                let what = format!(
                    "the journal ends at entry {last}, but {marked} were kept: its -wal was cut, changed or removed"
                );
                self.add_problem(&what, "put the -wal back or restore a newer backup; if this file is older on purpose, remove its .mark");
                false
            }
            DatabaseState::Empty => {
                self.add_problem("nothing was ever written to it", "start the daemon, or restore a backup");
                true
            }
            DatabaseState::Foreign(application) => {
                self.add_problem(
                    &format!("it is another program's (application id {application:#x})"),
                    "move it away",
                );
                true
            }
            DatabaseState::Newer(version) => {
                let what = format!(
                    "schema version {version} is newer than {}, the last this nexus3 knows",
                    current_version()
                );
                self.add_problem(&what, "use the nexus3 that wrote it");
                true
            }
            DatabaseState::Older(version) => {
                let what = format!("schema version {version} is older than {}", current_version());
                self.add_problem(&what, "start the daemon once: it takes a copy and migrates");
                true
            }
        }
    }

    fn check_pages(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let said: String = row.get(0)?;
            // One row may have several lines.
            for line in said.lines().filter(|line| *line != "ok") {
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
                    &format!("{table}: row {} refers to nothing", serial.unwrap_or_default()),
                    RESTORE_ADVICE,
                );
            }
        }
        Ok(())
    }

    fn check_journal(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut tails: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut found = Vec::new();
        let chain = walk_chain(db, &self.path.clone(), |entry| {
            let EntryContent { agent, kind, body, .. } = entry.content;
            let (last, number) = tails.get(&agent).map_or((None, 0), |(last, number)| (Some(*last), *number));
            if (entry.previous, entry.number) != (last, number + 1) {
                found.push(format!(
                    "entry {}: it does not follow its agent's entry before it",
                    entry.sequence
                ));
            }
            if let Err(fault) = codec::decode_record(kind, body) {
                found.push(format!("entry {}: {kind} makes no sense: {fault}", entry.sequence));
            }
            found.truncate(PROBLEMS_MAX);
            tails.insert(agent, (entry.sequence, entry.number));
        })?;
        for broken in &chain.breaks {
            self.add_problem(&format!("the chain breaks at {broken}"), RESTORE_ADVICE);
        }
        found.iter().for_each(|what| self.add_problem(what, RESTORE_ADVICE));
        let end = chain.last;
        self.chain = Some(chain);
        self.check_tails(db, &mut tails, end)
    }

    /// The tails are those of the entries; a daemon may have gone on meanwhile.
    fn check_tails(
        &mut self,
        db: &Connection,
        tails: &mut HashMap<u64, (u64, u64)>,
        end: u64,
    ) -> rusqlite::Result<()> {
        let mut statement = db.prepare("SELECT serial, last, number FROM states")?;
        let mut rows = statement.query(())?;
        let mut wrong = Vec::new();
        while let Some(row) = rows.next()? {
            let [agent, last, number] = [row.get(0)?, row.get(1)?, row.get(2)?].map(i64::unsigned_abs);
            if tails.remove(&agent) != Some((last, number)) && last <= end {
                wrong.push(agent);
            }
        }
        wrong.extend(tails.keys());
        for agent in wrong.into_iter().take(PROBLEMS_MAX) {
            self.add_problem(
                &format!("agent {agent}: its last entry is not where it should be"),
                RESTORE_ADVICE,
            );
        }
        Ok(())
    }

    fn check_agents(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!(
            "SELECT {AGENT_CHECKSUM_COLUMNS}, sum, state, ledger_version, ledger, is_finished, \
             EXISTS (SELECT 1 FROM agents AS child WHERE child.parent = agents.serial) \
             FROM agents LEFT JOIN states USING (serial)",
        ))?;
        let mut rows = statement.query(())?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            let gone: bool = row.get(3)?;
            self.agents += u64::from(!gone);
            self.destroyed += u64::from(gone);
            if let Some(what) = agent_problem(row)? {
                found += 1;
                if found <= PROBLEMS_MAX {
                    self.add_problem(&format!("agent {}: {what}", row.get::<_, i64>(0)?), RESTORE_ADVICE);
                }
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

/// What is wrong with a row of turns.
fn turn_problem(row: &Row<'_>) -> rusqlite::Result<Option<&'static str>> {
    let (accepted, agent, turn): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let sum = turn_checksum(accepted, agent, &row.get(2)?, turn, &row.get(4)?);
    let (ended, ended_at): (Option<i64>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let (has_end, has_agent): (bool, bool) = (row.get(8)?, row.get(9)?);
    Ok(match ended {
        _ if sum != row.get::<_, i64>(5)? => Some("its row is not as it was written"),
        _ if ended.is_some() != ended_at.is_some() => Some("it is half open"),
        Some(_) if !has_end => Some("its end is not in the journal"),
        None if !has_agent => Some("it is open and its agent is not there"),
        _ => None,
    })
}

/// What is wrong with a row of agents.
fn agent_problem(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    if agent_checksum(row, 0)? != row.get::<_, i64>(7)? {
        return Ok(Some("its row is not as it was written".to_owned()));
    }
    let text = |place| row.get_ref(place)?.as_str().map_err(rusqlite::Error::from);
    let (Some(state), Some(ledger)) = (row.get_ref(8)?.as_str_or_null()?, row.get_ref(10)?.as_str_or_null()?)
    else {
        return Ok(Some("it has no state".to_owned()));
    };
    let record = match codec::decode_agent(text(5)?, text(1)?, text(6)?) {
        Ok(record) => record,
        Err(fault) => return Ok(Some(format!("what it is made from makes no sense: {fault}"))),
    };
    let is_finished: bool = row.get(11)?;
    match codec::decode_state(state) {
        Ok(state) if state.is_finished == is_finished => {}
        Ok(_) => return Ok(Some("its state and its row disagree on whether it is finished".to_owned())),
        Err(fault) => return Ok(Some(format!("its state makes no sense: {fault}"))),
    }
    match codec::decode_ledger(ledger) {
        Ok(ledger) if ledger.version == row.get::<_, i64>(9)?.unsigned_abs() => {}
        Ok(_) => return Ok(Some("its ledger and its row disagree on the version".to_owned())),
        Err(fault) => return Ok(Some(format!("its ledger makes no sense: {fault}"))),
    }
    let parent = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
    if record.parent != parent || row.get::<_, [u8; 32]>(4)? != record.capability_digest {
        return Ok(Some("its row and what it is made from disagree".to_owned()));
    }
    let (gone, has_children): (bool, bool) = (row.get(3)?, row.get(12)?);
    Ok((gone && !has_children).then(|| "it is gone and nobody is below it".to_owned()))
}
