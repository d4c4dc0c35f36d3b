//! Background processes in the sandbox, and the output of commands while they run.

use std::fs::File;
use std::sync::Arc;

use agent::ToolOutcome;
use agent::outside::Toolbox;
use agent::permission::NameSet;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::sandbox::Sandbox;

/// Answers each line of its input, until the end of file.
const SERVER: &str = "echo ready; while read line; do echo \"got $line\"; done; echo bye >&2; exit 3";

/// Holds a lock until it is killed; SIGTERM does not help.
const STUBBORN: &str = "trap '' TERM; flock lock sh -c 'trap \"\" TERM; echo locked; sleep 1000'";

fn parse(outcome: &ToolOutcome) -> Value {
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
    serde_json::from_str(outcome.text()).expect("JSON")
}

struct Processes {
    sandbox: Sandbox,
    fixture: Fixture,
}

impl Processes {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let fixture = sandbox.fixture().running_commands();
        Self { sandbox, fixture }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        parse(&self.fixture.call(tool, &arguments).await)
    }

    async fn start(&self, line: &str) -> String {
        let started = self.call("process.start", json!({ "command": "sh", "args": ["-c", line] })).await;
        assert_eq!(started["state"], "running");
        started["id"].as_str().expect("an id").to_owned()
    }

    /// Reads until the process has printed this text on its standard output.
    async fn read_until(&self, id: &str, text: &str) {
        let mut stdout = String::new();
        while !stdout.contains(text) {
            let read = self.call("process.read", json!({ "id": id, "wait_secs": 60 })).await;
            assert_eq!(read["state"], "running", "{read}");
            stdout.push_str(read["stdout"].as_str().expect("text"));
        }
    }

    /// Starts a process that holds a lock, which SIGTERM does not end.
    async fn start_stubborn(&self) -> String {
        let id = self.start(STUBBORN).await;
        self.read_until(&id, "locked").await;
        id
    }

    fn lock(&self) -> File {
        File::open(self.sandbox.path("inside/lock")).expect("a file")
    }
}

#[tokio::test]
async fn process_is_read_written_to_and_ends_by_itself() {
    let processes = Processes::new();
    let id = processes.start(SERVER).await;
    processes.read_until(&id, "ready").await;
    let written = processes.call("process.write", json!({ "id": id, "text": "one\n" })).await;
    assert_eq!(written, json!({ "bytes_written": 4 }));
    processes.read_until(&id, "got one").await;
    processes.call("process.write", json!({ "id": id, "text": "two", "close": true })).await;
    let ended = json!({ "id": id, "wait_secs": 60, "wait_for": "exit" });
    let read = processes.call("process.read", ended.clone()).await;
    assert_eq!(read, json!({ "exit_code": 3, "state": "exited", "stderr": "bye\n", "stdout": "" }));
    let again = processes.call("process.read", ended).await;
    assert_eq!((&again["state"], &again["stderr"]), (&json!("exited"), &json!("")));
    let late = processes.fixture.call("process.write", &json!({ "id": id, "text": "x" })).await;
    assert_eq!(late.text(), format!("Execution failed: cannot write to process {id}: it has ended"));
    let list = processes.call("process.list", json!({})).await;
    let row = json!([{ "command": format!("sh -c {SERVER}"), "exit_code": 3, "id": id, "state": "exited",
                       "unread_bytes": 0 }]);
    assert_eq!(list, row);
}

#[tokio::test]
async fn stopped_process_is_dead_with_its_descendants() {
    let processes = Processes::new();
    let id = processes.start_stubborn().await;
    let stopped = processes.call("process.stop", json!({ "id": id })).await;
    assert_eq!((&stopped["state"], &stopped["signal"]), (&json!("killed"), &json!(9)));
    processes.lock().try_lock().expect("nothing holds the lock");
    let polite =
        processes.start("trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.1; done").await;
    processes.read_until(&polite, "ready").await;
    let stopped = processes.call("process.stop", json!({ "id": polite })).await;
    assert_eq!((&stopped["exit_code"], &stopped["stdout"]), (&json!(0), &json!("cleaned\n")));
}

#[tokio::test]
async fn output_that_is_not_read_blocks_no_process() {
    let processes = Processes::new();
    let id = processes.start("yes 0123456789 | head -c 20000000; echo done >&2").await;
    let read = processes.call("process.read", json!({ "id": id, "wait_secs": 60, "wait_for": "exit" })).await;
    assert_eq!((&read["state"], &read["stderr"]), (&json!("exited"), &json!("done\n")));
    let stdout = read["stdout"].as_str().expect("text");
    assert!(stdout.contains("bytes omitted") && stdout.len() < 140_000);
}

#[tokio::test]
async fn input_that_is_not_read_ends_the_write_not_the_call() {
    let processes = Processes::new();
    let id = processes.start("sleep 1000").await;
    let text = "x".repeat(200_000);
    tokio::time::pause();
    let outcome = processes.fixture.call("process.write", &json!({ "id": id, "text": text })).await;
    assert!(outcome.text().contains("of 200000 bytes in 5 s: it does not read its input"), "{outcome:?}");
}

#[tokio::test]
async fn other_agent_reaches_no_process_and_its_end_kills_its_own() {
    let mut processes = Processes::new();
    let id = processes.start_stubborn().await;
    processes.fixture.serial = 2;
    let missing = format!(
        "Execution failed: no process {id}; background processes end when the daemon stops; process.list shows \
         those that exist"
    );
    for (tool, arguments) in [
        ("process.read", json!({ "id": id })),
        ("process.write", json!({ "id": id, "text": "x" })),
        ("process.stop", json!({ "id": id })),
    ] {
        assert_eq!(processes.fixture.call(tool, &arguments).await.text(), missing, "{tool}");
    }
    assert_eq!(processes.call("process.list", json!({})).await, json!([]));
    processes.fixture.registry.agent_ended(2);
    processes.fixture.serial = 1;
    assert_eq!(processes.call("process.list", json!({})).await[0]["state"], "running");
    processes.fixture.registry.agent_ended(1);
    let lock = processes.lock();
    tokio::task::spawn_blocking(move || lock.lock().expect("the process is dead")).await.expect("no panic");
    assert_eq!(processes.call("process.list", json!({})).await, json!([]));
}

#[tokio::test]
async fn stopping_the_daemon_kills_all_processes() {
    let processes = Processes::new();
    processes.start_stubborn().await;
    assert_eq!(processes.fixture.commands.stop_processes().await, 1);
    processes.lock().try_lock().expect("nothing holds the lock");
    let refused = processes.fixture.call("process.start", &json!({ "command": "true" })).await;
    assert_eq!(refused.text(), "Server shutting down");
}

#[tokio::test]
async fn revoked_command_is_not_written_to_but_can_be_stopped() {
    let mut processes = Processes::new();
    let id = processes.start(SERVER).await;
    processes.read_until(&id, "ready").await;
    processes.fixture.grant.commands = NameSet::only(["cat"]);
    let denied = processes.fixture.call("process.write", &json!({ "id": id, "text": "x\n" })).await;
    assert!(denied.text().contains("running 'sh' is not allowed"), "{denied:?}");
    let stopped = processes.call("process.stop", json!({ "id": id })).await;
    assert_eq!(stopped["signal"], 15);
}

#[tokio::test]
async fn process_that_cannot_start_leaves_nothing() {
    let processes = Processes::new();
    let outcome = processes.fixture.call("process.start", &json!({ "command": "no-such-program" })).await;
    assert_eq!(outcome.text(), "Execution failed: program not found: no-such-program");
    assert_eq!(processes.call("process.list", json!({})).await, json!([]));
}

#[tokio::test]
async fn commands_show_their_output_while_they_run() {
    let processes = Arc::new(Processes::new());
    let line = "echo out; echo err >&2; until [ -e go ]; do sleep 0.05; done; echo end";
    let running = tokio::spawn({
        let processes = Arc::clone(&processes);
        async move { processes.call("shell.exec", json!({ "command": line, "timeout_secs": 60 })).await }
    });
    let sink = &processes.fixture.output;
    while *sink.stdout.lock().unwrap() != b"out\n" || *sink.stderr.lock().unwrap() != b"err\n" {
        tokio::task::yield_now().await;
    }
    std::fs::write(processes.sandbox.path("inside/go"), "").expect("a file");
    assert_eq!(running.await.expect("no panic")["stdout"], "out\nend\n");
    assert_eq!(*sink.stdout.lock().unwrap(), b"out\nend\n");
}
