//! Full and failing disks: calls fail with `storage_full` and commit nothing, reads still work, and the daemon recovers
//! when space is free again.

use std::fs::{self, File};
use std::io::Write as _;

use serde_json::{Value, json};
use testkit::{ScriptedModel, StoppedDaemon, run};

use super::{
    FAILPOINTS_VARIABLE, JournalReader, assert_sound, curl, entries_of_kind, send_params, wait_turns_ended,
};
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, agent_ids, agent_path, daemon_builder, wait_until};

/// A small tmpfs, mounted as long as the value lives.
struct SmallDisk {
    folder: TestDirectory,
}

impl SmallDisk {
    /// Returns `None` where the test may not mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = TestDirectory::new();
        let options = format!("size={size},mode=700");
        let args = ["-t", "tmpfs", "-o", &options, "tmpfs", folder.path_str()];
        let mounted = run("mount", &args, &[], folder.path());
        if mounted.code != 0 {
            eprintln!("cannot mount a tmpfs, using a failpoint instead: {}", mounted.stderr);
            return None;
        }
        Some(Self { folder })
    }

    /// Fills the disk to the last byte.
    fn fill(&self) {
        let mut file = File::create(self.folder.path_of("filler")).expect("the filler can be created");
        for bytes in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
    }

    /// Remounts the disk with this larger size.
    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let grown = run("mount", &["-o", &options, self.folder.path_str()], &[], self.folder.path());
        assert_eq!(grown.code, 0, "{}", grown.stderr);
    }

    fn free_space(&self) {
        fs::remove_file(self.folder.path_of("filler")).expect("the filler exists");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that the daemon of a failed test does not block the unmount.
        let unmounted = run("umount", &["-l", self.folder.path_str()], &[], self.folder.path());
        assert_eq!(unmounted.code, 0, "{} stays mounted: {}", self.folder.path_str(), unmounted.stderr);
    }
}

fn assert_disk_full(response: &Value) {
    let error = &response["error"];
    assert_eq!(
        (&error["code"], &error["data"]["kind"]),
        (&json!(-32001), &json!("storage_full")),
        "{response}"
    );
    assert!(error["data"]["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{response}");
}

/// Repeats a call while it fails with -32001 (`busy`, `storage_full`): an agent whose commit failed is reloaded from
/// the store first.
fn retry_while_busy(mut call: impl FnMut() -> Value) -> Value {
    let mut response = Value::Null;
    wait_until("a response other than busy or storage_full", || {
        response = call();
        response["error"]["code"] != -32001
    });
    response
}

/// Asserts that a send fails on the full disk, succeeds after `free_space`, and happens once.
fn assert_recovers(fixture: &Fixture, free_space: impl FnOnce()) {
    let params = send_params("more", "r");
    let refused = curl(&fixture.daemon, "/agent/worker", "send", &params);
    assert_disk_full(&refused);
    assert_eq!(fixture.model.call_counts("more", 0).requests, 0, "no model call without a committed turn");
    assert_eq!(fixture.messages("worker").len(), 2, "reads should still work");
    free_space();
    let retried = retry_while_busy(|| curl(&fixture.daemon, "/agent/worker", "send", &params));
    assert_eq!(retried["result"]["content"], "echo: more", "{retried}");
    assert_eq!(curl(&fixture.daemon, "/agent/worker", "send", &params), retried);
    let texts: Vec<String> = fixture.messages("worker").into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["hello", "echo: hello", "more", "echo: more"]);
    assert_eq!(fixture.model.call_counts("more", 0).requests, 1);
    assert_sound(fixture.daemon.home());
}

#[test]
fn calls_fail_on_a_full_disk_and_succeed_when_space_is_free() {
    let Some(disk) = SmallDisk::mount("4m") else { return assert_recovers_at_failpoint() };
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).home(disk.folder.path()).start();
    let fixture = Fixture { daemon, model };
    fixture.create("worker");
    fixture.send("worker", "hello");
    disk.fill();
    assert_disk_full(&fixture.daemon.call("/", "create_agent", json!({ "agent_id": "another" })));
    assert_disk_full(&fixture.daemon.call(
        "/",
        "rename_agent",
        json!({ "agent_id": "worker", "new_agent_id": "x" }),
    ));
    assert_disk_full(&fixture.daemon.call("/", "destroy_agent", json!({ "agent_id": "worker" })));
    let rollback = json!({ "agent_id": "worker", "messages": 0 });
    assert_disk_full(&fixture.daemon.call("/", "rollback_agent", rollback));
    let permissions = json!({ "disable_tools": ["fs.read_file"] });
    assert_disk_full(&fixture.daemon.call(&agent_path("worker"), "set_permissions", permissions));
    assert!(
        fixture.agent("worker")["tools"].to_string().contains("fs.read_file"),
        "a failed change has no effect"
    );
    assert_eq!(agent_ids(&fixture.daemon), ["worker"]);
    assert!(!JournalReader::read_all(&fixture.daemon).is_empty(), "the journal can be read");
    assert_recovers(&fixture, || disk.free_space());
    fixture.create("another");
    let Fixture { daemon, model } = fixture;
    let fixture = Fixture { daemon: daemon.kill().start(), model };
    assert_eq!(agent_ids(&fixture.daemon), ["worker", "another"]);
    assert_eq!(fixture.messages("worker").len(), 4);
    drop(fixture);
}

/// The failpoint reports a full disk for one commit.
#[test]
fn a_commit_that_fails_for_lack_of_space_can_be_retried() {
    assert_recovers_at_failpoint();
}

fn assert_recovers_at_failpoint() {
    let fixture = Fixture::with_failpoints("commit.before:turn_accepted@2=full");
    fixture.create("worker");
    fixture.send("worker", "hello");
    assert_recovers(&fixture, || {});
}

/// Asserts that a turn whose response meets a full disk fails, and that a retry completes it.
fn assert_response_recovers(fixture: &Fixture, fill: impl FnOnce(), free_space: impl FnOnce()) {
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    fill();
    fixture.model.release("gate");
    assert_disk_full(&pending.next_response());
    assert_eq!(fixture.messages("worker").len(), 1, "the user message is committed, the response is not");
    free_space();
    let retried = retry_while_busy(|| fixture.send_with_request_id("worker", "!hold gate so far", "r"));
    assert_eq!(retried["result"]["content"], "so far released gate", "{retried}");
    assert_eq!(fixture.messages("worker").len(), 2);
    assert_eq!(
        fixture.model.call_counts("!hold gate so far", 0).requests,
        2,
        "the uncommitted response is requested again"
    );
    let entries = wait_turns_ended(&fixture.daemon, &[]);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), 1);
}

#[test]
fn a_response_that_meets_a_full_disk_is_requested_again() {
    let Some(disk) = SmallDisk::mount("4m") else {
        let fixture = Fixture::with_failpoints("commit.before:turn_ended@1=full");
        return assert_response_recovers(&fixture, || {}, || {});
    };
    let model = ScriptedModel::start();
    let fixture = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
    assert_response_recovers(&fixture, || disk.fill(), || disk.free_space());
    drop(fixture);
}

/// The daemon fills the disk by itself: with the write-ahead log, the index of the log, or the database during a
/// checkpoint.
#[test]
fn acknowledged_work_survives_a_disk_that_fills_up() {
    for size in ["300k", "1m", "12m"] {
        let Some(disk) = SmallDisk::mount(size) else { return assert_recovers_at_failpoint() };
        let model = ScriptedModel::start();
        let long = "x".repeat(if size == "12m" { 400_000 } else { 20_000 });
        model.set_response(&long, "short");
        let fixture = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
        let mut acknowledged = 0;
        let refused = loop {
            let name = format!("a{acknowledged}");
            let created = fixture.daemon.call("/", "create_agent", json!({ "agent_id": name }));
            if created.get("error").is_some() {
                break created;
            }
            let sent = fixture.send_with_request_id(&name, &long, &name);
            if sent.get("error").is_some() {
                break sent;
            }
            acknowledged += 1;
        };
        assert_disk_full(&refused);
        assert!(acknowledged > 0, "{size}");
        // After a kill, the space may or may not suffice for a start.
        let Fixture { daemon, model } = fixture;
        daemon.kill();
        match daemon_builder(&model).home(disk.folder.path()).try_start() {
            Ok(daemon) => drop(daemon.kill()),
            Err(failed) => assert!(failed.stderr.contains("space"), "{size}: {failed}"),
        }
        disk.grow("64m");
        let fixture = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
        wait_turns_ended(&fixture.daemon, &[]);
        for number in 0..acknowledged {
            let name = format!("a{number}");
            assert_eq!(fixture.messages(&name).len(), 2, "{size}: {name}");
            assert_eq!(fixture.send_with_request_id(&name, &long, &name)["result"]["content"], "short");
        }
        assert_sound(fixture.daemon.home());
        drop(fixture);
    }
}

#[test]
fn a_queued_first_message_recovers_from_a_full_disk() {
    let fixture = Fixture::with_failpoints("commit.before:turn_ended@1=full");
    let params = json!({ "agent_id": "worker", "initial_message": "hello" });
    fixture.daemon.call_result("/", "create_agent", params);
    wait_turns_ended(&fixture.daemon, &[]);
    wait_until("the response", || fixture.messages("worker").len() == 2);
    assert_eq!(fixture.model.call_counts("hello", 0).requests, 2);
}

#[test]
fn a_disk_too_small_for_a_store_prevents_the_start() {
    let refused = match SmallDisk::mount("40k") {
        Some(disk) => run(BIN, &["serve", "0"], &[], disk.folder.path()),
        None => {
            let home = TestDirectory::new();
            run(BIN, &["serve", "0"], &[(FAILPOINTS_VARIABLE, "migrate.middle=full")], home.path())
        }
    };
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("nexus3.db: no space is left on its disk (")
            && refused.stderr.contains("make room"),
        "{}",
        refused.stderr
    );
}

/// `fsync` fails, so the state of the file on disk is unknown.
#[test]
fn a_failed_fsync_stops_the_daemon_and_loses_nothing() {
    let fixture = Fixture::with_failpoints("commit.before:turn_ended@2=fsync");
    fixture.create("worker");
    fixture.create("another");
    assert_eq!(fixture.send_with_request_id("worker", "hello", "first")["result"]["content"], "echo: hello");
    let held = fixture.start_send("another", "!stall", "held");
    fixture.model.wait_stalled(1);
    if let Some(response) =
        super::try_call(&fixture.daemon, &agent_path("worker"), "send", send_params("more", "second"))
    {
        assert!(response.get("result").is_none(), "nothing is acknowledged after the error: {response}");
    }
    let Fixture { daemon, model } = fixture;
    let stopped: StoppedDaemon = daemon.wait_stopped();
    assert_eq!(stopped.status.code(), Some(1), "{}", stopped.stderr);
    for text in ["the store failed", "responses were sent for saved turns only"] {
        assert!(stopped.stderr.contains(text), "{}", stopped.stderr);
    }
    drop(held);
    let fixture =
        Fixture { daemon: stopped.start_with(|builder| builder.without_env(FAILPOINTS_VARIABLE)), model };
    wait_turns_ended(&fixture.daemon, &["held"]);
    assert_eq!(fixture.send_with_request_id("worker", "hello", "first")["result"]["content"], "echo: hello");
    assert_eq!(fixture.send_with_request_id("worker", "more", "second")["result"]["content"], "echo: more");
    assert_eq!(fixture.messages("worker").len(), 4);
    assert_eq!(fixture.model.call_counts("hello", 0).requests, 1);
    assert_sound(fixture.daemon.home());
}
