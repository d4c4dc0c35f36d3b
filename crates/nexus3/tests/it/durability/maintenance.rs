//! `nexus3 backup`, `check` and `audit verify`: with a running daemon, with a stopped one, and with changed files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use testkit::{CommandOutput, run};

use super::{JournalReader, entries_of_kind, send_params};
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, WAIT_MAX, agent_ids, agent_path, daemon_builder, wait_until};

fn json_of(finished: &CommandOutput) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {}", finished.stdout))
}

/// Sends messages until `stop` is set, and returns how many were acknowledged.
fn keep_sending(fixture: &Fixture, agent: &str, stop: &AtomicBool) -> usize {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = format!("{agent}-{acknowledged}");
        let sent = fixture.daemon.call_result(&agent_path(agent), "send", send_params(&id, &id));
        assert_eq!(sent["content"], format!("echo: {id}"));
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn a_backup_under_load_is_a_consistent_snapshot() {
    let fixture = Fixture::start();
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| fixture.create(name));
    let (stop, copies) = (AtomicBool::new(false), TestDirectory::new());
    let before = thread::scope(|scope| {
        let sending: Vec<_> =
            names.iter().map(|name| scope.spawn(|| keep_sending(&fixture, name, &stop))).collect();
        let mut before = Vec::new();
        for copy in ["one.db", "two.db", "three.db"] {
            // Messages that were acknowledged before the backup began have to be in it.
            wait_until("more sends", || {
                fixture.messages("a").len() > before.last().map_or(4, |last: &usize| last + 4)
            });
            before.push(fixture.messages("a").len());
            let target = copies.path_of(copy);
            let backup = run(BIN, &["backup", &target, "--json"], &[], fixture.daemon.home());
            assert_eq!(backup.code, 0, "{}", backup.stderr);
            assert_eq!(
                (&json_of(&backup)["agents"], &json_of(&backup)["chain"]["intact"]),
                (&json!(3), &json!(true))
            );
            let again = run(BIN, &["backup", &target], &[], fixture.daemon.home());
            assert_eq!(again.code, 1, "a backup should not overwrite a file: {}", again.stdout);
        }
        stop.store(true, Ordering::Relaxed);
        let acknowledged: usize =
            sending.into_iter().map(|sending| sending.join().expect("the sender did not panic")).sum();
        assert!(acknowledged > 6);
        before
    });
    let journal = JournalReader::read_all(&fixture.daemon);
    for (copy, before) in ["one.db", "two.db", "three.db"].into_iter().zip(before) {
        assert_restores(&fixture, &copies.path_of(copy), &journal, before);
    }
}

/// Asserts that a daemon on the copy has the state at the time of the backup, and continues from there.
fn assert_restores(fixture: &Fixture, copy: &str, journal: &[Value], messages: usize) {
    let check = run(BIN, &["check", copy, "--json"], &[], fixture.daemon.home());
    assert_eq!(check.code, 0, "{}", check.stdout);
    let home = TestDirectory::new();
    fs::copy(copy, home.path_of("nexus3.db")).expect("the backup can be copied");
    let model = testkit::ScriptedModel::start();
    let restored = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
    let last = json_of(&check)["chain"]["last"].as_u64().expect("a number");
    let next = restored.daemon.events("/events", Some(last)).next_event(WAIT_MAX);
    assert_eq!((next.sequence(), next.kind.as_str()), (Some(last + 1), "daemon_started"));
    let entries = super::wait_turns_ended(&restored.daemon, &[]);
    let last = usize::try_from(last).expect("a small number");
    assert_eq!(entries[..last], journal[..last], "both journals are equal up to the backup");
    assert_eq!(agent_ids(&restored.daemon), agent_ids(&fixture.daemon));
    assert!(restored.messages("a").len() >= messages, "{} of {messages}", restored.messages("a").len());
    let restored_count = restored.messages("a").len();
    assert_eq!(restored.messages("a"), fixture.messages("a")[..restored_count]);
    assert_eq!(restored.send_text("a", "and on"), "echo: and on");
}

#[test]
fn check_and_verify_work_with_and_without_a_daemon() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.create("gone");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "gone" }));
    fixture.send("worker", "hello");
    let pending = fixture.start_send("worker", "!stall", "r");
    fixture.model.wait_stalled(1);
    let home = fixture.daemon.home().to_owned();
    let check = run(BIN, &["check", "--json"], &[], &home);
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);
    let report = json_of(&check);
    assert_eq!(
        (&report["sound"], &report["agents"], &report["open_turns"]),
        (&json!(true), &json!(1), &json!(1))
    );
    assert_eq!(report["file"], home.join("nexus3.db").to_str().unwrap());
    let verify = run(BIN, &["audit", "verify", "--json"], &[], &home);
    let entries = JournalReader::read_all(&fixture.daemon).len();
    assert_eq!((&json_of(&verify)["intact"], &json_of(&verify)["entries"]), (&json!(true), &json!(entries)));
    let stopped = fixture.daemon.kill();
    drop(pending);
    let check = stopped.run(&["check"]);
    assert_eq!((check.code, check.stdout.ends_with("\nsound\n")), (0, true), "{}", check.stdout);
    let head = json_of(&verify)["head"].as_str().unwrap().to_owned();
    let verify = stopped.run(&["audit", "verify"]);
    assert!(
        verify.stdout.contains(&format!("intact, {entries} entries, 1 to {entries}, head {head}")),
        "{}",
        verify.stdout
    );
}

/// Returns the offsets of a text in a file.
fn offsets_of(file: &Path, text: &[u8]) -> Vec<u64> {
    let bytes = fs::read(file).expect("the file can be read");
    let found = bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text);
    found.map(|(offset, _)| offset as u64).collect()
}

#[test]
fn a_changed_entry_is_reported_with_its_number() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.model.set_response("a needle in the hay", "short");
    fixture.send("worker", "a needle in the hay");
    for _ in 0..20 {
        fixture.send("worker", "hay");
    }
    let entries = JournalReader::read_all(&fixture.daemon);
    let accepted = entries_of_kind(&entries, "turn_accepted")[0]["sequence"].as_u64().expect("a sequence");
    let stopped = fixture.daemon.stop();
    assert_eq!(stopped.run(&["audit", "verify"]).code, 0);
    let file = stopped.home().join("nexus3.db");
    let database = OpenOptions::new().write(true).open(&file).expect("the file exists");
    let mut broken = 0;
    // Free space of a page may hold stale copies of the text; changing those has no effect.
    for offset in offsets_of(&file, b"a needle in the hay") {
        database.write_all_at(b"a NEEDLE in the hay", offset).expect("the file can be written");
        let verify = stopped.run(&["audit", "verify", "--json"]);
        let report = json_of(&verify);
        if verify.code == 1 {
            broken += 1;
            assert_eq!(report["intact"], false);
            assert_eq!(report["breaks"][0]["sequence"], accepted, "{report}");
            let text = stopped.run(&["audit", "verify"]).stdout;
            assert!(text.contains("BROKEN") && text.contains(&format!("entry {accepted}:")), "{text}");
            let check = stopped.run(&["check"]);
            assert_eq!(check.code, 1, "{}", check.stdout);
            assert!(
                check.stdout.contains(&format!("{accepted}")) && check.stdout.contains("to repair"),
                "{}",
                check.stdout
            );
            let backup = stopped.run(&["backup", file.with_extension("copy").to_str().unwrap()]);
            assert_eq!(backup.code, 1, "a broken store should not be backed up: {}", backup.stdout);
            assert!(!file.with_extension("copy").exists());
        }
        database.write_all_at(b"a needle in the hay", offset).expect("the file can be written");
    }
    assert_eq!(broken, 1, "one of the copies is the entry");
    assert_eq!(stopped.run(&["audit", "verify"]).code, 0, "the restored file should be valid");
}

#[test]
fn entries_missing_at_the_end_are_detected() {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture.send("worker", "before");
    let copies = TestDirectory::new();
    let old = copies.path_of("old.db");
    assert_eq!(run(BIN, &["backup", &old], &[], fixture.daemon.home()).code, 0);
    fixture.send("worker", "after");
    let stopped = fixture.daemon.stop();
    fs::copy(&old, stopped.home().join("nexus3.db")).expect("the backup can be copied");
    let verify = stopped.run(&["audit", "verify"]);
    assert_eq!(verify.code, 1, "{}", verify.stdout);
    assert!(verify.stdout.contains("missing"), "{}", verify.stdout);
    let refused = stopped.try_start_with(|builder| builder).expect_err("entries are missing");
    assert!(
        refused.stderr.contains("remove") && refused.stderr.contains("nexus3.db.mark"),
        "{}",
        refused.stderr
    );
}
