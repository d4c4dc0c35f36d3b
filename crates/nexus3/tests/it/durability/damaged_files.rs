//! Startup rejects a damaged or foreign store before anything is written to it. The error names the file and a way to
//! recover.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{CommandOutput, TestDaemon, TestRng, run};

use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, daemon_builder};

/// The home of a daemon that has exited.
struct StoppedHome {
    home: TestDirectory,
}

/// How the daemon exited.
#[derive(Clone, Copy, PartialEq)]
enum ExitMode {
    /// Killed: the commits are in the write-ahead log.
    Killed,
    /// Stopped gracefully: the commits are in the database file.
    Graceful,
}

const PAGE_BYTES: usize = 4096;

/// Number of bits that are flipped.
const FLIPS: usize = 100;

impl StoppedHome {
    fn after(exit: ExitMode) -> Self {
        let home = TestDirectory::new();
        let model = testkit::ScriptedModel::start();
        let fixture = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
        fixture.create("worker");
        for text in ["one", "two", "three"] {
            fixture.send("worker", text);
        }
        drop(if exit == ExitMode::Killed { fixture.daemon.kill() } else { fixture.daemon.stop() });
        Self { home }
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.home.path().join(format!("nexus3.db{suffix}"))
    }

    fn read(&self, suffix: &str) -> Vec<u8> {
        fs::read(self.file(suffix)).expect("the file exists")
    }

    /// Overwrites a part of a file.
    fn write(&self, suffix: &str, at: usize, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.file(suffix)).expect("the file exists");
        file.write_all_at(bytes, at as u64).expect("the file can be written");
    }

    fn truncate(&self, suffix: &str, bytes: usize) {
        let file = OpenOptions::new().write(true).open(self.file(suffix)).expect("the file exists");
        file.set_len(bytes as u64).expect("the file can be truncated");
    }

    fn serve(&self) -> CommandOutput {
        run(BIN, &["serve", "0"], &[], self.home.path())
    }

    /// Starts a daemon with this home and returns its export of the agent.
    fn exported(&self) -> Value {
        let daemon = TestDaemon::builder(BIN).home(self.home.path()).start();
        let export = daemon.call_result("/", "export_agent", json!({ "agent_id": "worker" }));
        assert!(daemon.stop().status.success());
        export
    }

    fn check(&self) -> CommandOutput {
        run(BIN, &["check"], &[], self.home.path())
    }

    /// Contents of the store's files that must not change. Excludes the files that SQLite creates to read: the index of the
    /// write-ahead log, and an empty log.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.home.path()).expect("the home can be read");
        let named = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let store_files = named.filter(|name| name.starts_with("nexus3.db") && !name.ends_with("-shm"));
        let read =
            store_files.map(|name| (name.clone(), fs::read(self.home.path_of(&name)).expect("a file")));
        read.filter(|(name, bytes)| !(name.ends_with("-wal") && bytes.is_empty())).collect()
    }

    /// Asserts that the daemon does not start, that its error contains these texts, and that no file has changed.
    fn assert_rejected(&self, texts: &[&str]) {
        let before = self.contents();
        let refused = self.serve();
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
        let name = self.file("").display().to_string();
        for text in texts.iter().chain([&name.as_str()]) {
            assert!(refused.stderr.contains(text), "{text:?} is not in: {}", refused.stderr);
        }
        assert!(self.contents() == before, "the files should be unchanged: {texts:?}");
    }

    /// Asserts that a daemon starts with this home, and that the agent has this many messages.
    fn assert_starts(&self, messages: usize) {
        let model = testkit::ScriptedModel::start();
        let fixture = Fixture { daemon: daemon_builder(&model).home(self.home.path()).start(), model };
        assert_eq!(fixture.messages("worker").len(), messages);
    }
}

#[test]
fn a_read_only_database_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    fs::set_permissions(home.file(""), Permissions::from_mode(0o400)).unwrap();
    home.assert_rejected(&["read-only", "chmod u+w"]);
    fs::set_permissions(home.file(""), Permissions::from_mode(0o600)).unwrap();
    home.assert_starts(6);
}

#[test]
fn a_file_that_is_not_a_database_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    fs::write(home.file(""), "these are not the pages you are looking for").unwrap();
    home.assert_rejected(&["not a database", "restore a backup"]);
    let found = home.check();
    assert_eq!(found.code, 1);
    assert!(
        found.stdout.contains("not a database") && found.stdout.contains("to repair"),
        "{}",
        found.stdout
    );
}

#[test]
fn a_database_of_a_newer_version_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    let version = home.read("")[60..64].to_vec();
    home.write("", 60, &99_u32.to_be_bytes());
    home.assert_rejected(&["schema version 99", "use the newer nexus3"]);
    assert_eq!(home.check().code, 1);
    home.write("", 60, &version);
    home.assert_starts(6);
}

#[test]
fn a_database_of_another_program_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    home.write("", 68, &0x1234_5678_u32.to_be_bytes());
    home.assert_rejected(&["a database of another program", "application id 0x12345678", "move it away"]);
}

#[test]
fn a_database_with_any_page_overwritten_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    let whole = home.read("");
    let pages = whole.len() / PAGE_BYTES;
    assert!(pages > 10, "{pages} pages");
    for page in 0..pages {
        for byte in [0, 0xa5] {
            let at = page * PAGE_BYTES;
            home.write("", at, &[byte; PAGE_BYTES]);
            let texts: &[&str] = if page == 0 { &["not a database"] } else { &["damaged", "nexus3 check"] };
            home.assert_rejected(texts);
            let found = home.check();
            assert_eq!(found.code, 1, "page {page}: {}", found.stdout);
            assert!(found.stdout.contains("to repair"), "{}", found.stdout);
            home.write("", at, &whole[at..at + PAGE_BYTES]);
        }
    }
    home.assert_starts(6);
}

#[test]
fn a_truncated_database_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    let whole = home.read("");
    for pages in [1, whole.len() / PAGE_BYTES / 2, whole.len() / PAGE_BYTES - 1] {
        home.truncate("", pages * PAGE_BYTES);
        home.assert_rejected(&["damaged"]);
        fs::write(home.file(""), &whole).unwrap();
    }
    home.assert_starts(6);
}

/// The log is truncated between two frames and in the middle of a frame.
#[test]
fn a_truncated_write_ahead_log_is_rejected() {
    let home = StoppedHome::after(ExitMode::Killed);
    let (database, log) = (home.read(""), home.read("-wal"));
    let frame = PAGE_BYTES + 24;
    let frames = (log.len() - 32) / frame;
    assert!(frames > 10, "{frames} frames");
    for cut in [frames - 1, frames / 2, frames / 4] {
        for bytes in [32 + cut * frame, 32 + cut * frame + 100] {
            home.truncate("-wal", bytes);
            home.assert_rejected(&["the journal ends at entry", "-wal was cut, changed or removed", ".mark"]);
            assert_eq!(home.check().code, 1);
            fs::write(home.file(""), &database).unwrap();
            fs::write(home.file("-wal"), &log).unwrap();
        }
    }
    home.assert_starts(6);
}

#[test]
fn a_changed_or_missing_write_ahead_log_is_rejected() {
    let home = StoppedHome::after(ExitMode::Killed);
    let (database, log) = (home.read(""), home.read("-wal"));
    let middle = log.len() / 2;
    home.write("-wal", middle, &[!log[middle]]);
    home.assert_rejected(&["the journal ends at entry", "put it back"]);
    fs::remove_file(home.file("-wal")).unwrap();
    home.assert_rejected(&["the journal ends at entry 0", "put it back"]);
    fs::write(home.file(""), &database).unwrap();
    fs::write(home.file("-wal"), &log).unwrap();
    home.assert_starts(6);
}

#[test]
fn a_write_ahead_log_without_its_database_is_rejected() {
    let home = StoppedHome::after(ExitMode::Killed);
    let database = home.read("");
    fs::remove_file(home.file("")).unwrap();
    home.assert_rejected(&["not there or empty", "-wal holds commits", "put the database back"]);
    fs::write(home.file(""), &database).unwrap();
    home.assert_starts(6);
}

#[test]
fn a_missing_index_of_the_log_is_rebuilt() {
    let home = StoppedHome::after(ExitMode::Killed);
    fs::remove_file(home.file("-shm")).unwrap();
    home.assert_starts(6);
}

#[test]
fn a_changed_journal_entry_is_rejected() {
    let home = StoppedHome::after(ExitMode::Graceful);
    let whole = home.read("");
    let reply = b"echo: two";
    let offsets =
        whole.windows(reply.len()).enumerate().filter(|(_, part)| part == reply).map(|(offset, _)| offset);
    for offset in offsets.collect::<Vec<_>>() {
        home.write("", offset, b"echo: TWO");
        home.assert_rejected(&["damaged: entry", "does not follow from the one before it"]);
        home.write("", offset, reply);
    }
    home.assert_starts(6);
}

/// Flips bits of bytes that are not zero. `nexus3 check` may miss a change only in bytes that no reader reaches: the
/// exported agent is then the same.
#[test]
fn a_flipped_bit_is_detected_or_has_no_effect() {
    let home = StoppedHome::after(ExitMode::Graceful);
    let (whole, mut rng) = (home.read(""), TestRng::new(7));
    let exported = home.exported();
    let used: Vec<usize> = (0..whole.len()).filter(|offset| whole[*offset] != 0).collect();
    let mut detected = 0;
    for _ in 0..FLIPS {
        let (offset, bit) = (*rng.pick(&used), 1 << rng.below(8));
        home.write("", offset, &[whole[offset] ^ bit]);
        if home.check().code == 1 {
            detected += 1;
        } else {
            assert_eq!(
                home.exported(),
                exported,
                "an undetected flip of bit {bit} of byte {offset} changed the agent"
            );
            // The daemon that exported the agent has written its own entries.
            fs::write(home.file(""), &whole).unwrap();
            fs::remove_file(home.file(".mark")).unwrap();
        }
        home.write("", offset, &[whole[offset]]);
    }
    assert!(detected > 0, "none of {FLIPS} flips was detected");
    home.assert_starts(6);
}

#[test]
fn a_store_that_another_daemon_uses_is_rejected() {
    let first = TestDaemon::builder(BIN).start();
    let refused = run(BIN, &["serve", "0"], &[], first.home());
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{}", refused.stderr);
    let database = first.home().join("nexus3.db");
    let holder = format!("another daemon (process {}) uses this store", first.pid());
    for text in [database.to_str().unwrap(), &holder, "stop it, or give this one another home"] {
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }
    let other = TestDirectory::new();
    fs::hard_link(&database, other.path_of("nexus3.db")).unwrap();
    let refused = run(BIN, &["serve", "0"], &[], other.path());
    assert_eq!(refused.code, 5, "the same file under another name: {}", refused.stderr);
    assert!(refused.stderr.contains(&holder), "{}", refused.stderr);
    assert!(
        first.call_result("/", "list_agents", serde_json::json!({}))["agents"].is_array(),
        "the first daemon continues"
    );
    // The kernel releases the lock of a killed daemon.
    drop(first.kill().start());
}
