//! Background processes in a daemon: they run on between turns and through sleep, and end with their agent and the daemon.
//! The output of commands is an event before they end.

use std::fs::File;

use serde_json::{Value, json};

use super::fixture_with;
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, WAIT_MAX, wait_until};

/// Has an agent make a tool call and returns the result.
fn call_as(fixture: &Fixture, agent: &str, tool: &str, arguments: &Value) -> String {
    let text = fixture.send_text(agent, &format!("!tool {tool} {arguments}"));
    text.strip_prefix("tool said: ").unwrap_or_else(|| panic!("{tool}: {text}")).to_owned()
}

fn call(fixture: &Fixture, tool: &str, arguments: &Value) -> Value {
    let text = call_as(fixture, "worker", tool, arguments);
    serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// Starts a line in a shell and returns the id of the process.
fn start(fixture: &Fixture, line: &str) -> String {
    let started = call(fixture, "process.start", &json!({ "command": "sh", "args": ["-c", line] }));
    started["id"].as_str().expect("an id").to_owned()
}

/// Starts a process that holds the file `lock` as long as it lives, and ignores SIGTERM.
fn start_locked(fixture: &Fixture, directory: &TestDirectory) -> String {
    let id = start(fixture, "trap '' TERM; flock lock sh -c 'trap \"\" TERM; echo > ready; sleep 1000'");
    wait_until("the process runs", || directory.read("ready").is_some());
    id
}

/// Blocks until the process that holds the lock is dead.
fn await_death(directory: &TestDirectory) {
    File::open(directory.path_of("lock")).unwrap().lock().unwrap();
}

#[test]
fn agent_works_with_a_process_over_several_turns() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    fixture.create_with(json!({ "agent_id": "other", "preset": "trusted", "cwd": directory.path_str() }));
    let server = "echo ready; while read line; do echo \"got $line\"; done; exit 3";
    let id = start(&fixture, server);
    let read = |wait_for: &str| {
        call(&fixture, "process.read", &json!({ "id": id, "wait_secs": 60, "wait_for": wait_for }))
    };
    assert_eq!(read("output"), json!({ "state": "running", "stderr": "", "stdout": "ready\n" }));
    call(&fixture, "process.write", &json!({ "id": id, "text": "hello\n" }));
    assert_eq!(read("output")["stdout"], "got hello\n");
    for (tool, arguments) in [
        ("process.read", json!({ "id": id })),
        ("process.write", json!({ "id": id, "text": "x\n" })),
        ("process.stop", json!({ "id": id })),
    ] {
        let refused = call_as(&fixture, "other", tool, &arguments);
        assert!(refused.contains(&format!("no process {id}")), "{refused}");
    }
    assert_eq!(call_as(&fixture, "other", "process.list", &json!({})), "[]");
    call(&fixture, "process.write", &json!({ "id": id, "text": "", "close": true }));
    assert_eq!(read("exit")["exit_code"], 3);
}

#[test]
fn process_outlives_sleep_and_cancel_and_dies_with_its_agent() {
    let directory = TestDirectory::new();
    let fixture = Fixture::with_config("idle_sleep_s = 1\n");
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str() }));
    let id = start_locked(&fixture, &directory);
    let reading = format!("!tool process.read {}", json!({ "id": id, "wait_secs": 60 }));
    let running = fixture.start_send("worker", &reading, "r");
    wait_until("the turn is cancelled", || fixture.cancel("worker", "r")["cancelled"] == true);
    running.next_result();
    let agents = || fixture.daemon.call_result("/", "list_agents", json!({}));
    wait_until("the agent sleeps", || agents()["agents"][0]["state"] == "asleep");
    assert_eq!(call(&fixture, "process.list", &json!({}))[0]["state"], "running");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    await_death(&directory);
}

#[test]
fn killed_daemon_leaves_no_process_and_says_so() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let id = start_locked(&fixture, &directory);
    let Fixture { daemon, model } = fixture;
    let stopped = daemon.kill();
    await_death(&directory);
    let fixture = Fixture { daemon: stopped.start(), model };
    let read = call_as(&fixture, "worker", "process.read", &json!({ "id": id }));
    assert!(
        read.contains(&format!("no process {id}; background processes end when the daemon stops")),
        "{read}"
    );
}

#[test]
fn stopped_daemon_has_killed_all_processes() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    start_locked(&fixture, &directory);
    fixture.daemon.signal("SIGTERM");
    assert!(fixture.daemon.wait_exit().success());
    fixture.daemon.wait_stderr("killed 1 background processes");
    File::open(directory.path_of("lock")).unwrap().try_lock().expect("nothing holds the lock");
}

#[test]
fn output_of_a_command_is_an_event_before_it_ends() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let mut events = fixture.daemon.events("/agent/worker/events?kind=tool_output_delta,tool_begun", None);
    let line = "echo building; echo careful >&2; until [ -e go ]; do sleep 0.05; done; echo built";
    let shell = format!("!tool shell.exec {}", json!({ "command": line }));
    let running = fixture.start_send("worker", &shell, "r");
    let begun = events.next_event(WAIT_MAX).json();
    let mut next = || events.next_event(WAIT_MAX).json();
    let mut first = [next(), next()];
    first.sort_by_key(|delta| delta["stream"].to_string());
    let delta = |stream: &str, text: &str| {
        json!({ "kind": "tool_output_delta", "journalled": false, "agent_id": "worker", "request_id": "r",
                "turn": 1, "call_id": begun["call_id"], "stream": stream, "text": text })
    };
    assert_eq!(first, [delta("stderr", "careful\n"), delta("stdout", "building\n")]);
    assert!(running.has_no_response());
    directory.write("go", "");
    assert_eq!(next(), delta("stdout", "built\n"));
    assert!(running.next_result()["content"].to_string().contains("building"));
}
