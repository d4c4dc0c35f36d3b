//! A store that cannot be trusted is refused before anything is written to it, by the file's name and with a way out.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{CommandOutput, TestDaemon, run};

use crate::support::folder::TestDirectory;
use crate::support::rng::TestRng;
use crate::support::{BIN, Fixture, daemon_builder};

/// A home that a daemon has left.
struct StoppedHome {
    home: TestDirectory,
}

/// How a daemon leaves its home.
#[derive(Clone, Copy, PartialEq)]
enum ExitMode {
    /// Killed: commits are in the write-ahead log.
    Killed,
    /// In order: they are in the database.
    Graceful,
}

const PAGE_BYTES: usize = 4096;

/// Bits that are flipped.
const FLIPS: usize = 100;

impl StoppedHome {
    fn after(way: ExitMode) -> Self {
        let home = TestDirectory::new();
        let model = testkit::ScriptedModel::start();
        let stage = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
        stage.create("worker");
        for text in ["one", "two", "three"] {
            stage.send("worker", text);
        }
        drop(if way == ExitMode::Killed { stage.daemon.kill() } else { stage.daemon.stop() });
        Self { home }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.home.path().join(format!("nexus3.db{ending}"))
    }

    fn read(&self, ending: &str) -> Vec<u8> {
        fs::read(self.file(ending)).expect("the file is there")
    }

    /// Writes over a part of a file.
    fn write(&self, ending: &str, at: usize, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.file(ending)).expect("the file is there");
        file.write_all_at(bytes, at as u64).expect("it can be written");
    }

    fn truncate(&self, ending: &str, bytes: usize) {
        let file = OpenOptions::new().write(true).open(self.file(ending)).expect("the file is there");
        file.set_len(bytes as u64).expect("it can be cut");
    }

    fn serve(&self) -> CommandOutput {
        run(BIN, &["serve", "0"], &[], self.home.path())
    }

    /// What a daemon on it says of the agent.
    fn exported(&self) -> Value {
        let daemon = TestDaemon::builder(BIN).home(self.home.path()).start();
        let export = daemon.call_result("/", "export_agent", json!({ "agent_id": "worker" }));
        assert!(daemon.stop().status.success());
        export
    }

    fn check(&self) -> CommandOutput {
        run(BIN, &["check"], &[], self.home.path())
    }

    /// What must not change: everything but who holds the store, and what SQLite makes to read: an index of its log, and an
    /// empty log.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.home.path()).expect("the home can be read");
        let named = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let kept = named.filter(|name| {
            name.starts_with("nexus3.db") && !name.ends_with(".lock") && !name.ends_with("-shm")
        });
        let read = kept.map(|name| (name.clone(), fs::read(self.home.path_of(&name)).expect("a file")));
        read.filter(|(name, bytes)| !(name.ends_with("-wal") && bytes.is_empty())).collect()
    }

    /// The daemon does not start, says this, and leaves everything as it is.
    fn assert_refused(&self, texts: &[&str]) {
        let before = self.contents();
        let refused = self.serve();
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
        let name = self.file("").display().to_string();
        for text in texts.iter().chain([&name.as_str()]) {
            assert!(refused.stderr.contains(text), "{text:?} is not in: {}", refused.stderr);
        }
        assert!(self.contents() == before, "the files are as they were: {texts:?}");
    }

    /// The same daemon starts when the files are as they were.
    fn assert_starts(&self, messages: usize) {
        let model = testkit::ScriptedModel::start();
        let stage = Fixture { daemon: daemon_builder(&model).home(self.home.path()).start(), model };
        assert_eq!(stage.messages("worker").len(), messages);
    }
}

#[test]
fn a_read_only_file_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    fs::set_permissions(left.file(""), Permissions::from_mode(0o400)).unwrap();
    left.assert_refused(&["read-only", "chmod u+w"]);
    fs::set_permissions(left.file(""), Permissions::from_mode(0o600)).unwrap();
    left.assert_starts(6);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    fs::write(left.file(""), "these are not the pages you are looking for").unwrap();
    left.assert_refused(&["not a database", "restore a backup"]);
    let found = left.check();
    assert_eq!(found.code, 1);
    assert!(
        found.stdout.contains("not a database") && found.stdout.contains("to repair"),
        "{}",
        found.stdout
    );
}

#[test]
fn a_database_of_a_newer_program_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    let version = left.read("")[60..64].to_vec();
    left.write("", 60, &99_u32.to_be_bytes());
    left.assert_refused(&["schema version 99", "use the newer nexus3"]);
    assert_eq!(left.check().code, 1);
    left.write("", 60, &version);
    left.assert_starts(6);
}

#[test]
fn a_database_of_another_program_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    left.write("", 68, &0x1234_5678_u32.to_be_bytes());
    left.assert_refused(&["a database of another program", "application id 0x12345678", "move it away"]);
}

#[test]
fn a_page_that_was_overwritten_is_refused_whichever_it_is() {
    let left = StoppedHome::after(ExitMode::Graceful);
    let whole = left.read("");
    let pages = whole.len() / PAGE_BYTES;
    assert!(pages > 10, "{pages} pages");
    for page in 0..pages {
        for byte in [0, 0xa5] {
            let at = page * PAGE_BYTES;
            left.write("", at, &[byte; PAGE_BYTES]);
            let texts: &[&str] = if page == 0 { &["not a database"] } else { &["damaged", "nexus3 check"] };
            left.assert_refused(texts);
            let found = left.check();
            assert_eq!(found.code, 1, "page {page}: {}", found.stdout);
            assert!(found.stdout.contains("to repair"), "{}", found.stdout);
            left.write("", at, &whole[at..at + PAGE_BYTES]);
        }
    }
    left.assert_starts(6);
}

#[test]
fn a_database_that_was_cut_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    let whole = left.read("");
    for pages in [1, whole.len() / PAGE_BYTES / 2, whole.len() / PAGE_BYTES - 1] {
        left.truncate("", pages * PAGE_BYTES);
        left.assert_refused(&["damaged"]);
        fs::write(left.file(""), &whole).unwrap();
    }
    left.assert_starts(6);
}

/// The log is cut at each of its frames, and in the middle of them.
#[test]
fn a_write_ahead_log_that_was_cut_is_refused() {
    let left = StoppedHome::after(ExitMode::Killed);
    let (database, log) = (left.read(""), left.read("-wal"));
    let frame = PAGE_BYTES + 24;
    let frames = (log.len() - 32) / frame;
    assert!(frames > 10, "{frames} frames");
    for cut in [frames - 1, frames / 2, frames / 4] {
        for bytes in [32 + cut * frame, 32 + cut * frame + 100] {
            left.truncate("-wal", bytes);
            left.assert_refused(&["the journal ends at entry", "-wal was cut, changed or removed", ".mark"]);
            assert_eq!(left.check().code, 1);
            fs::write(left.file(""), &database).unwrap();
            fs::write(left.file("-wal"), &log).unwrap();
        }
    }
    left.assert_starts(6);
}

#[test]
fn a_write_ahead_log_that_was_changed_or_removed_is_refused() {
    let left = StoppedHome::after(ExitMode::Killed);
    let (database, log) = (left.read(""), left.read("-wal"));
    let middle = log.len() / 2;
    left.write("-wal", middle, &[!log[middle]]);
    left.assert_refused(&["the journal ends at entry", "put it back"]);
    fs::remove_file(left.file("-wal")).unwrap();
    left.assert_refused(&["the journal ends at entry 0", "put it back"]);
    fs::write(left.file(""), &database).unwrap();
    fs::write(left.file("-wal"), &log).unwrap();
    left.assert_starts(6);
}

#[test]
fn a_write_ahead_log_without_its_database_is_refused() {
    let left = StoppedHome::after(ExitMode::Killed);
    let database = left.read("");
    fs::remove_file(left.file("")).unwrap();
    left.assert_refused(&["not there or empty", "-wal holds commits", "put the database back"]);
    fs::write(left.file(""), &database).unwrap();
    left.assert_starts(6);
}

#[test]
fn an_index_of_the_log_that_is_missing_is_made_again() {
    let left = StoppedHome::after(ExitMode::Killed);
    fs::remove_file(left.file("-shm")).unwrap();
    left.assert_starts(6);
}

#[test]
fn an_entry_that_was_changed_is_refused() {
    let left = StoppedHome::after(ExitMode::Graceful);
    let whole = left.read("");
    let told = b"echo: two";
    let places =
        whole.windows(told.len()).enumerate().filter(|(_, part)| part == told).map(|(place, _)| place);
    for place in places.collect::<Vec<_>>() {
        left.write("", place, b"echo: TWO");
        left.assert_refused(&["damaged: entry", "does not follow from the one before it"]);
        left.write("", place, told);
    }
    left.assert_starts(6);
}

/// Any byte of the file that holds something. What nothing leads to may change; what somebody would read may not, unless
/// it is told.
#[test]
fn a_byte_that_changed_is_told_or_changes_nothing() {
    let left = StoppedHome::after(ExitMode::Graceful);
    let (whole, mut dice) = (left.read(""), TestRng(7));
    let exported = left.exported();
    let used: Vec<usize> = (0..whole.len()).filter(|place| whole[*place] != 0).collect();
    let mut told = 0;
    for _ in 0..FLIPS {
        let (place, bit) = (dice.choose(&used), 1 << dice.next_below(8));
        left.write("", place, &[whole[place] ^ bit]);
        if left.check().code == 1 {
            told += 1;
        } else {
            assert_eq!(left.exported(), exported, "bit {bit} of byte {place} is silent");
            // The daemon has been there: it left its own entries.
            fs::write(left.file(""), &whole).unwrap();
            fs::remove_file(left.file(".mark")).unwrap();
        }
        left.write("", place, &[whole[place]]);
    }
    assert!(told > 0, "some of {FLIPS} flips hit something");
    left.assert_starts(6);
}

#[test]
fn a_store_that_another_daemon_uses_is_refused() {
    let first = TestDaemon::builder(BIN).start();
    let refused = run(BIN, &["serve", "0"], &[], first.home());
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{}", refused.stderr);
    let lock = first.home().join("nexus3.db.lock").display().to_string();
    let holder = format!("another daemon (process {}) uses this store", first.pid());
    for text in [lock.as_str(), &holder, "stop it, or give this one another home"] {
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }
    assert!(
        first.call_result("/", "list_agents", serde_json::json!({}))["agents"].is_array(),
        "the first goes on"
    );
    let home = first.home().to_owned();
    let stopped = first.kill();
    assert!(home.join("nexus3.db.lock").exists(), "the file stays, the lock does not");
    drop(stopped.start());
}
