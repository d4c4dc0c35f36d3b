//! The embedded model for real: the weights that `NEXUS3_TEST_MODEL` names, pulled into a home and asked through the daemon.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{TestDaemon, run};

use crate::support::pending_calls::PendingCalls;
use crate::support::{BIN, WAIT_MAX, agent_path, wait_until};

#[expect(
    clippy::disallowed_methods,
    reason = "the weights are too large for the project; ci says where they are"
)]
fn weights() -> String {
    std::env::var("NEXUS3_TEST_MODEL")
        .expect("set NEXUS3_TEST_MODEL to the path of the pulled smollm2-135m, or run cargo xtask ci")
}

/// One model after the other: each wants the whole machine, and stands back behind everybody else.
fn lock_machine() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pull_weights(home: &Path) {
    let pull = ["models", "pull", "smollm2-135m", "--from", &weights(), "--yes"];
    let finished = run(BIN, &pull, &[], home);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
}

/// The process of the model server that a daemon has started.
fn model_server_pid(daemon: &TestDaemon) -> Option<Pid> {
    let children = format!("/proc/{}/task", daemon.pid());
    let tasks = std::fs::read_dir(children).ok()?;
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let all: String = tasks.filter_map(of_task).collect();
    all.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?))
}

fn ask(daemon: &TestDaemon, agent: &str, content: &str) -> Value {
    daemon.call_result(&agent_path(agent), "send", json!({ "content": content }))
}

fn kill_model_server(daemon: &TestDaemon) -> Pid {
    let child = model_server_pid(daemon).expect("the model server is a child of the daemon");
    kill_process(child, Signal::KILL).expect("it was running");
    child
}

#[test]
fn an_agent_answers_from_the_embedded_model_and_a_crash_between_two_turns_costs_nothing() {
    let (_alone, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    // Nothing is configured: the weights that are there are found.
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let answer = ask(&daemon, "a", "What is the capital of France?");
    assert!(answer["content"].as_str().is_some_and(|text| text.contains("Paris")), "{answer}");
    assert!(answer["usage"]["input_tokens"].as_u64() > Some(5), "{answer}");
    // Whether it is still falling over when the next one asks, or gone already: nobody sees it.
    for agent in ["b", "c"] {
        let killed = kill_model_server(&daemon);
        daemon.call_result(
            "/",
            "create_agent",
            json!({ "agent_id": agent, "system_prompt": "Answer briefly." }),
        );
        let answer = ask(&daemon, agent, "What is the capital of France?");
        assert!(answer["content"].as_str().is_some_and(|text| text.contains("Paris")), "{answer}");
        assert_ne!(model_server_pid(&daemon), Some(killed), "another one has answered");
    }
    let child = model_server_pid(&daemon).expect("it was started again");
    daemon.kill();
    wait_until("the child to end with the daemon", || {
        !Path::new(&format!("/proc/{}", child.as_raw_nonzero())).exists()
    });
}

#[test]
fn a_crash_in_the_middle_of_an_answer_costs_that_turn_and_the_next_send_works() {
    let (_alone, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let mut events = daemon.events("/agent/a/events?kind=text_delta", None);
    let send = json!({ "content": "Count from one to two hundred, one number a line." });
    let open = PendingCalls::single(&daemon, &agent_path("a"), "send", send);
    events.next_event(WAIT_MAX);
    kill_model_server(&daemon);
    let response = open.next_response();
    let told = response["error"]["message"].as_str().unwrap_or_default();
    let words = "The embedded model local/smollm2-135m failed: it exited in the middle of its response (signal: 9 (SIGKILL))";
    assert!(told.starts_with(words), "{response}");
    let messages = daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(messages[1]["meta"], json!({ "failed": true }), "{messages}");
    assert_ne!(messages[1]["content"], "", "what was said stays");
    let answer = ask(&daemon, "a", "What is the capital of France?");
    assert_ne!(answer["content"], "", "{answer}");
}

#[test]
fn a_home_with_a_long_path_has_its_sockets_elsewhere() {
    let (_alone, outer) = (lock_machine(), tempfile::tempdir().unwrap());
    let home = outer.path().join("a".repeat(60)).join("b".repeat(60));
    pull_weights(&home);
    let daemon = TestDaemon::builder(BIN).home(&home).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let answer = ask(&daemon, "a", "What is the capital of France?");
    assert!(answer["content"].as_str().is_some_and(|text| text.contains("Paris")), "{answer}");
}

#[test]
fn weights_that_were_damaged_on_the_disk_are_not_used() {
    let (_alone, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let file = home.path().join("models/smollm2-135m.gguf");
    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    let refused = daemon.call(&agent_path("a"), "send", json!({ "content": "Hi" }));
    let told = refused["error"]["message"].as_str().unwrap_or_default();
    let words = "The embedded model local/smollm2-135m failed: ";
    assert!(told.starts_with(words), "{refused}");
    assert!(told.contains("smollm2-135m.gguf was changed since it was pulled"), "{refused}");
    assert!(told.contains("remove it and pull it again"), "{refused}");
    let again = run(BIN, &["models", "pull", "smollm2-135m", "--yes"], &[], home.path());
    assert_eq!(again.code, 1, "{}", again.stderr);
    assert!(again.stderr.contains("was changed since it was pulled"), "{}", again.stderr);
}

/// What a small model is told by default, in its own tokens and as its own template writes it.
#[test]
fn a_small_model_is_told_at_most_300_tokens_and_6_tools_by_default() {
    let (_alone, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let tape = home.path().join("first.tape");
    // What is asked matters here, not what is answered.
    let config = "model = 'brief'\n[models.brief]\nmodel = 'local/smollm2-135m'\nanswer_tokens_max = 1\n";
    let builder = TestDaemon::builder(BIN).home(home.path()).config(config);
    let daemon = builder.arg("--record").arg(&tape).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    ask(&daemon, "a", "Hi");
    daemon.call_result("/", "create_agent", json!({ "agent_id": "b", "preset": "trusted" }));
    ask(&daemon, "b", "Hi");
    let tape = std::fs::read_to_string(&tape).expect("the exchanges were recorded");
    let exchanges: Vec<Value> = tape.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exchanges.len(), 2);
    for exchange in exchanges {
        let usage = exchange["events"].as_array().into_iter().flatten().find_map(|event| event.get("usage"));
        let told = usage.and_then(|usage| usage["input"].as_u64()).expect("the model counts its prompt");
        let tools = exchange["request"]["tools"].as_array().map_or(0, Vec::len);
        assert!(exchange["request"]["system"].as_str().is_some_and(|system| !system.is_empty()));
        // The words of the user and what rides behind them are in it too.
        assert!(told <= 300 && (1..=6).contains(&tools), "{told} tokens, {tools} tools: {exchange}");
    }
}
