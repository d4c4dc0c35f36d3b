//! A disk that is full: told as what it is, nothing half kept, reads go on, and all is well when there is room again.

use std::fs::{self, File};
use std::io::Write as _;

use serde_json::{Value, json};
use testkit::{ScriptedModel, StoppedDaemon, run};

use super::{
    FAILPOINTS_VARIABLE, JournalReader, assert_sound, curl, entries_of_kind, send_params, wait_turns_ended,
};
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, agent_ids, agent_path, daemon_builder, wait_until};

/// A small disk of its own, as long as it lives.
struct SmallDisk {
    folder: TestDirectory,
}

impl SmallDisk {
    /// None where a test may not mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = TestDirectory::new();
        let options = format!("size={size},mode=700");
        let args = ["-t", "tmpfs", "-o", &options, "tmpfs", folder.path_str()];
        let mounted = run("mount", &args, &[], folder.path());
        if mounted.code != 0 {
            eprintln!("no disk can be mounted here, a failpoint stands in for it: {}", mounted.stderr);
            return None;
        }
        Some(Self { folder })
    }

    /// Takes all the room there is, to the last byte.
    fn fill(&self) {
        let mut file = File::create(self.folder.path_of("filler")).expect("a file can be made");
        for bytes in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
    }

    /// Gives it more room.
    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let grown = run("mount", &["-o", &options, self.folder.path_str()], &[], self.folder.path());
        assert_eq!(grown.code, 0, "{}", grown.stderr);
    }

    fn free_space(&self) {
        fs::remove_file(self.folder.path_of("filler")).expect("the filler is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that a daemon of a failed test does not keep it.
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

/// Asks again for as long as it is told to: an agent that could not keep its work takes a moment to come back.
fn retry_while_busy(mut ask: impl FnMut() -> Value) -> Value {
    let mut answer = Value::Null;
    wait_until("room", || {
        answer = ask();
        answer["error"]["code"] != -32001
    });
    answer
}

/// What holds with any disk: refused, then taken, and nothing doubled.
fn assert_recovers(stage: &Fixture, make_room: impl FnOnce()) {
    let params = send_params("more", "r");
    let refused = curl(&stage.daemon, "/agent/worker", "send", &params);
    assert_disk_full(&refused);
    assert_eq!(stage.model.call_counts("more", 0).requests, 0, "nobody is asked what cannot be kept");
    assert_eq!(stage.messages("worker").len(), 2, "reads go on");
    make_room();
    let again = retry_while_busy(|| curl(&stage.daemon, "/agent/worker", "send", &params));
    assert_eq!(again["result"]["content"], "echo: more", "{again}");
    assert_eq!(curl(&stage.daemon, "/agent/worker", "send", &params), again);
    let said: Vec<String> = stage.messages("worker").into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["hello", "echo: hello", "more", "echo: more"]);
    assert_eq!(stage.model.call_counts("more", 0).requests, 1);
    assert_sound(stage.daemon.home());
}

#[test]
fn a_send_without_room_is_told_so_and_passes_when_there_is_room_again() {
    let Some(disk) = SmallDisk::mount("4m") else { return assert_recovers_at_failpoint() };
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).home(disk.folder.path()).start();
    let stage = Fixture { daemon, model };
    stage.create("worker");
    stage.send("worker", "hello");
    disk.fill();
    assert_disk_full(&stage.daemon.call("/", "create_agent", json!({ "agent_id": "another" })));
    assert_disk_full(&stage.daemon.call(
        "/",
        "rename_agent",
        json!({ "agent_id": "worker", "new_agent_id": "x" }),
    ));
    assert_disk_full(&stage.daemon.call("/", "destroy_agent", json!({ "agent_id": "worker" })));
    let rollback = json!({ "agent_id": "worker", "messages": 0 });
    assert_disk_full(&stage.daemon.call("/", "rollback_agent", rollback));
    let permissions = json!({ "disable_tools": ["echo"] });
    assert_disk_full(&stage.daemon.call(&agent_path("worker"), "set_permissions", permissions));
    assert!(stage.agent("worker")["tools"].to_string().contains("echo"), "what was refused is not done");
    assert_eq!(agent_ids(&stage.daemon), ["worker"]);
    assert!(!JournalReader::read_all(&stage.daemon).is_empty(), "events are read");
    assert_recovers(&stage, || disk.free_space());
    stage.create("another");
    let Fixture { daemon, model } = stage;
    let stage = Fixture { daemon: daemon.kill().start(), model };
    assert_eq!(agent_ids(&stage.daemon), ["worker", "another"]);
    assert_eq!(stage.messages("worker").len(), 4);
    drop(stage);
}

/// As if the disk were full for one commit.
#[test]
fn a_commit_that_finds_no_room_is_no_commit() {
    assert_recovers_at_failpoint();
}

fn assert_recovers_at_failpoint() {
    let stage = Fixture::with_failpoints("commit.before:turn_accepted@2=full");
    stage.create("worker");
    stage.send("worker", "hello");
    assert_recovers(&stage, || {});
}

/// The disk is full when the answer comes.
fn assert_response_recovers(stage: &Fixture, fill: impl FnOnce(), make_room: impl FnOnce()) {
    stage.create("worker");
    let open = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    fill();
    stage.model.release("gate");
    assert_disk_full(&open.next_response());
    assert_eq!(stage.messages("worker").len(), 1, "the question was kept, the answer was not");
    make_room();
    let again = retry_while_busy(|| stage.send_with_request_id("worker", "!hold gate so far", "r"));
    assert_eq!(again["result"]["content"], "so far released gate", "{again}");
    assert_eq!(stage.messages("worker").len(), 2);
    assert_eq!(
        stage.model.call_counts("!hold gate so far", 0).requests,
        2,
        "what was not kept is asked for again"
    );
    let entries = wait_turns_ended(&stage.daemon, &[]);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), 1);
}

#[test]
fn an_answer_without_room_is_told_so_and_asked_for_again() {
    let Some(disk) = SmallDisk::mount("4m") else {
        let stage = Fixture::with_failpoints("commit.before:turn_ended@1=full");
        return assert_response_recovers(&stage, || {}, || {});
    };
    let model = ScriptedModel::start();
    let stage = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
    assert_response_recovers(&stage, || disk.fill(), || disk.free_space());
    drop(stage);
}

/// The daemon fills the disk by itself: its log, its index, or its database where the log is moved into it.
#[test]
fn a_disk_that_fills_up_by_work_keeps_all_that_was_acknowledged() {
    for size in ["300k", "1m", "12m"] {
        let Some(disk) = SmallDisk::mount(size) else { return assert_recovers_at_failpoint() };
        let model = ScriptedModel::start();
        let long = "x".repeat(if size == "12m" { 400_000 } else { 20_000 });
        model.set_response(&long, "short");
        let stage = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
        let mut acknowledged = 0;
        let refused = loop {
            let name = format!("a{acknowledged}");
            let created = stage.daemon.call("/", "create_agent", json!({ "agent_id": name }));
            if created.get("error").is_some() {
                break created;
            }
            let sent = stage.send_with_request_id(&name, &long, &name);
            if sent.get("error").is_some() {
                break sent;
            }
            acknowledged += 1;
        };
        assert_disk_full(&refused);
        assert!(acknowledged > 0, "{size}");
        // A daemon that is killed now may or may not find the room to start.
        let Fixture { daemon, model } = stage;
        daemon.kill();
        match daemon_builder(&model).home(disk.folder.path()).try_start() {
            Ok(daemon) => drop(daemon.kill()),
            Err(failed) => assert!(failed.stderr.contains("space"), "{size}: {failed}"),
        }
        disk.grow("64m");
        let stage = Fixture { daemon: daemon_builder(&model).home(disk.folder.path()).start(), model };
        wait_turns_ended(&stage.daemon, &[]);
        for number in 0..acknowledged {
            let name = format!("a{number}");
            assert_eq!(stage.messages(&name).len(), 2, "{size}: {name}");
            assert_eq!(stage.send_with_request_id(&name, &long, &name)["result"]["content"], "short");
        }
        assert_sound(stage.daemon.home());
        drop(stage);
    }
}

#[test]
fn a_turn_that_nobody_waits_for_goes_on_when_there_is_room_again() {
    let stage = Fixture::with_failpoints("commit.before:turn_ended@1=full");
    let params = json!({ "agent_id": "worker", "initial_message": "hello" });
    stage.daemon.call_result("/", "create_agent", params);
    wait_turns_ended(&stage.daemon, &[]);
    wait_until("the answer", || stage.messages("worker").len() == 2);
    assert_eq!(stage.model.call_counts("hello", 0).requests, 2);
}

#[test]
fn a_disk_without_room_for_a_store_is_no_start() {
    let refused = match SmallDisk::mount("40k") {
        Some(disk) => run(BIN, &["serve", "0"], &[], disk.folder.path()),
        None => {
            let home = TestDirectory::new();
            run(BIN, &["serve", "0"], &[(FAILPOINTS_VARIABLE, "migrate.middle=full")], home.path())
        }
    };
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("nexus3.db: no space is left on this disk; make room"),
        "{}",
        refused.stderr
    );
}

/// The disk says that it has not taken what was written: nobody knows what it has.
#[test]
fn a_disk_that_fails_ends_the_daemon_and_the_next_one_knows_all_that_was_acknowledged() {
    let stage = Fixture::with_failpoints("commit.before:turn_ended@2=fsync");
    stage.create("worker");
    stage.create("another");
    assert_eq!(stage.send_with_request_id("worker", "hello", "first")["result"]["content"], "echo: hello");
    let held = stage.start_send("another", "!stall", "held");
    stage.model.wait_stalled(1);
    if let Some(answer) =
        super::try_call(&stage.daemon, &agent_path("worker"), "send", send_params("more", "second"))
    {
        assert!(answer.get("result").is_none(), "nothing is acknowledged any more: {answer}");
    }
    let Fixture { daemon, model } = stage;
    let stopped: StoppedDaemon = daemon.wait_stopped();
    assert_eq!(stopped.status.code(), Some(1), "{}", stopped.stderr);
    for text in ["the store failed", "all completed responses are saved"] {
        assert!(stopped.stderr.contains(text), "{}", stopped.stderr);
    }
    drop(held);
    let stage =
        Fixture { daemon: stopped.start_with(|builder| builder.without_env(FAILPOINTS_VARIABLE)), model };
    wait_turns_ended(&stage.daemon, &["held"]);
    assert_eq!(stage.send_with_request_id("worker", "hello", "first")["result"]["content"], "echo: hello");
    assert_eq!(stage.send_with_request_id("worker", "more", "second")["result"]["content"], "echo: more");
    assert_eq!(stage.messages("worker").len(), 4);
    assert_eq!(stage.model.call_counts("hello", 0).requests, 1);
    assert_sound(stage.daemon.home());
}
