//! `nexus3 backup`, `check` and `audit verify`: beside a daemon that works, on what it has left, and on what somebody
//! has changed.

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

/// Sends until it is told to stop; how many were acknowledged.
fn keep_sending(stage: &Fixture, agent: &str, stop: &AtomicBool) -> usize {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = format!("{agent}-{acknowledged}");
        let sent = stage.daemon.call_result(&agent_path(agent), "send", send_params(&id, &id));
        assert_eq!(sent["content"], format!("echo: {id}"));
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn a_backup_that_is_taken_while_sends_run_is_a_whole_store_of_one_moment() {
    let stage = Fixture::start();
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| stage.create(name));
    let (stop, copies) = (AtomicBool::new(false), TestDirectory::new());
    let before = thread::scope(|scope| {
        let sending: Vec<_> =
            names.iter().map(|name| scope.spawn(|| keep_sending(&stage, name, &stop))).collect();
        let mut before = Vec::new();
        for copy in ["one.db", "two.db", "three.db"] {
            // What is acknowledged before a backup begins has to be in it.
            wait_until("more sends", || {
                stage.messages("a").len() > before.last().map_or(4, |last: &usize| last + 4)
            });
            before.push(stage.messages("a").len());
            let target = copies.path_of(copy);
            let backup = run(BIN, &["backup", &target, "--json"], &[], stage.daemon.home());
            assert_eq!(backup.code, 0, "{}", backup.stderr);
            assert_eq!(
                (&json_of(&backup)["agents"], &json_of(&backup)["chain"]["whole"]),
                (&json!(3), &json!(true))
            );
            let again = run(BIN, &["backup", &target], &[], stage.daemon.home());
            assert_eq!(again.code, 1, "nothing is overwritten: {}", again.stdout);
        }
        stop.store(true, Ordering::Relaxed);
        let acknowledged: usize = sending.into_iter().map(|sending| sending.join().expect("no fault")).sum();
        assert!(acknowledged > 6);
        before
    });
    let journal = JournalReader::read_all(&stage.daemon);
    for (copy, before) in ["one.db", "two.db", "three.db"].into_iter().zip(before) {
        assert_restores(&stage, &copies.path_of(copy), &journal, before);
    }
}

/// A daemon on the copy knows what the first knew at that moment, and goes on from there.
fn assert_restores(stage: &Fixture, copy: &str, journal: &[Value], messages: usize) {
    let check = run(BIN, &["check", copy, "--json"], &[], stage.daemon.home());
    assert_eq!(check.code, 0, "{}", check.stdout);
    let home = TestDirectory::new();
    fs::copy(copy, home.path_of("nexus3.db")).expect("a copy can be copied");
    let model = testkit::ScriptedModel::start();
    let restored = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
    let kept = json_of(&check)["chain"]["last"].as_u64().expect("a number");
    let next = restored.daemon.events("/events", Some(kept)).next_event(WAIT_MAX);
    assert_eq!((next.sequence(), next.kind.as_str()), (Some(kept + 1), "daemon_started"));
    let entries = super::wait_turns_ended(&restored.daemon, &[]);
    let kept = usize::try_from(kept).expect("a small number");
    assert_eq!(entries[..kept], journal[..kept], "up to then they are one");
    assert_eq!(agent_ids(&restored.daemon), agent_ids(&stage.daemon));
    assert!(restored.messages("a").len() >= messages, "{} of {messages}", restored.messages("a").len());
    let now = restored.messages("a").len();
    assert_eq!(restored.messages("a"), stage.messages("a")[..now]);
    assert_eq!(restored.send_text("a", "and on"), "echo: and on");
}

#[test]
fn a_store_is_checked_beside_the_daemon_and_without_it() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.create("gone");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "gone" }));
    stage.send("worker", "hello");
    let open = stage.start_send("worker", "!stall", "r");
    stage.model.wait_stalled(1);
    let home = stage.daemon.home().to_owned();
    let check = run(BIN, &["check", "--json"], &[], &home);
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);
    let report = json_of(&check);
    assert_eq!(
        (&report["sound"], &report["agents"], &report["open_turns"]),
        (&json!(true), &json!(1), &json!(1))
    );
    assert_eq!(report["file"], home.join("nexus3.db").to_str().unwrap());
    let verify = run(BIN, &["audit", "verify", "--json"], &[], &home);
    let entries = JournalReader::read_all(&stage.daemon).len();
    assert_eq!((&json_of(&verify)["whole"], &json_of(&verify)["entries"]), (&json!(true), &json!(entries)));
    let stopped = stage.daemon.kill();
    drop(open);
    let check = stopped.run(&["check"]);
    assert_eq!((check.code, check.stdout.ends_with("\nsound\n")), (0, true), "{}", check.stdout);
    let head = json_of(&verify)["head"].as_str().unwrap().to_owned();
    let verify = stopped.run(&["audit", "verify"]);
    assert!(
        verify.stdout.contains(&format!("whole, {entries} entries, 1 to {entries}, head {head}")),
        "{}",
        verify.stdout
    );
}

/// Where a text stands in a file.
fn offsets_of(file: &Path, text: &[u8]) -> Vec<u64> {
    let bytes = fs::read(file).expect("the file can be read");
    let found = bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text);
    found.map(|(place, _)| place as u64).collect()
}

#[test]
fn an_entry_that_somebody_changed_is_named() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.model.set_response("a needle in the hay", "short");
    stage.send("worker", "a needle in the hay");
    for _ in 0..20 {
        stage.send("worker", "hay");
    }
    let entries = JournalReader::read_all(&stage.daemon);
    let accepted = entries_of_kind(&entries, "turn_accepted")[0]["sequence"].as_u64().expect("a sequence");
    let stopped = stage.daemon.stop();
    assert_eq!(stopped.run(&["audit", "verify"]).code, 0);
    let file = stopped.home().join("nexus3.db");
    let database = OpenOptions::new().write(true).open(&file).expect("the file is there");
    let mut broken = 0;
    // Copies that nothing leads to may be left in a page; changing them changes nothing.
    for place in offsets_of(&file, b"a needle in the hay") {
        database.write_all_at(b"a NEEDLE in the hay", place).expect("it can be written");
        let verify = stopped.run(&["audit", "verify", "--json"]);
        let report = json_of(&verify);
        if verify.code == 1 {
            broken += 1;
            assert_eq!(report["whole"], false);
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
            assert_eq!(backup.code, 1, "what is broken is not copied as if it were whole: {}", backup.stdout);
            assert!(!file.with_extension("copy").exists());
        }
        database.write_all_at(b"a needle in the hay", place).expect("it can be written");
    }
    assert_eq!(broken, 1, "one place is the entry");
    assert_eq!(stopped.run(&["audit", "verify"]).code, 0, "and all is well when it is as it was");
}

#[test]
fn entries_that_were_cut_off_at_the_end_are_missed() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.send("worker", "before");
    let copies = TestDirectory::new();
    let old = copies.path_of("old.db");
    assert_eq!(run(BIN, &["backup", &old], &[], stage.daemon.home()).code, 0);
    stage.send("worker", "after");
    let stopped = stage.daemon.stop();
    fs::copy(&old, stopped.home().join("nexus3.db")).expect("a copy can be copied");
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
