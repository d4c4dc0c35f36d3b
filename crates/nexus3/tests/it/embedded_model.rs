//! The embedded model with real weights: the file of `NEXUS3_TEST_MODEL`, pulled into a home, used through the daemon.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{TestDaemon, run};

use crate::support::pending_calls::PendingCalls;
use crate::support::{BIN, WAIT_MAX, agent_path, wait_until};

#[expect(
    clippy::disallowed_methods,
    reason = "the weights are too large for the repository; ci passes their path"
)]
fn weights() -> String {
    std::env::var("NEXUS3_TEST_MODEL")
        .expect("set NEXUS3_TEST_MODEL to the path of the pulled smollm2-135m, or run cargo xtask ci")
}

/// Serializes the tests: each model uses the whole machine, at a lower priority than all other processes.
fn lock_machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pull_weights(home: &Path) {
    let pull = ["models", "pull", "smollm2-135m", "--from", &weights(), "--yes"];
    let finished = run(BIN, &pull, &[], home);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
}

/// The process id of the model server that the daemon started.
fn model_server_pid(daemon: &TestDaemon) -> Option<Pid> {
    let children = format!("/proc/{}/task", daemon.pid());
    let tasks = std::fs::read_dir(children).ok()?;
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let all: String = tasks.filter_map(of_task).collect();
    all.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?))
}

fn send(daemon: &TestDaemon, agent: &str, content: &str) -> Value {
    daemon.call_result(&agent_path(agent), "send", json!({ "content": content }))
}

fn kill_model_server(daemon: &TestDaemon) -> Pid {
    let child = model_server_pid(daemon).expect("the model server is a child of the daemon");
    kill_process(child, Signal::KILL).expect("the model server was running");
    child
}

#[test]
fn embedded_model_responds_and_survives_crashes_between_turns() {
    let (_machine, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    // Without configuration, the daemon finds the downloaded weights.
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let response = send(&daemon, "a", "What is the capital of France?");
    assert!(response["content"].as_str().is_some_and(|text| text.contains("Paris")), "{response}");
    assert!(response["usage"]["input_tokens"].as_u64() > Some(5), "{response}");
    // The crash is invisible, whether the model server is still exiting or already gone at the next request.
    for agent in ["b", "c"] {
        let killed = kill_model_server(&daemon);
        daemon.call_result(
            "/",
            "create_agent",
            json!({ "agent_id": agent, "system_prompt": "Answer briefly." }),
        );
        let response = send(&daemon, agent, "What is the capital of France?");
        assert!(response["content"].as_str().is_some_and(|text| text.contains("Paris")), "{response}");
        assert_ne!(model_server_pid(&daemon), Some(killed), "a new model server responded");
    }
    let child = model_server_pid(&daemon).expect("the daemon restarted the model server");
    daemon.kill();
    wait_until("the model server to exit with the daemon", || {
        !Path::new(&format!("/proc/{}", child.as_raw_nonzero())).exists()
    });
}

#[test]
fn crash_during_a_response_fails_only_that_turn() {
    let (_machine, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let mut events = daemon.events("/agent/a/events?kind=text_delta", None);
    let params = json!({ "content": "Count from one to two hundred, one number a line." });
    let pending = PendingCalls::single(&daemon, &agent_path("a"), "send", params);
    events.next_event(WAIT_MAX);
    kill_model_server(&daemon);
    let response = pending.next_response();
    let message = response["error"]["message"].as_str().unwrap_or_default();
    let prefix = "The embedded model local/smollm2-135m failed: it exited in the middle of its response (signal: 9 (SIGKILL))";
    assert!(message.starts_with(prefix), "{response}");
    let messages = daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(messages[1]["meta"], json!({ "failed": true }), "{messages}");
    assert_ne!(messages[1]["content"], "", "the partial text is retained");
    let response = send(&daemon, "a", "What is the capital of France?");
    assert_ne!(response["content"], "", "{response}");
}

#[test]
fn home_with_a_long_path_has_its_sockets_elsewhere() {
    let (_machine, outer) = (lock_machine(), tempfile::tempdir().unwrap());
    let home = outer.path().join("a".repeat(60)).join("b".repeat(60));
    pull_weights(&home);
    let daemon = TestDaemon::builder(BIN).home(&home).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Answer briefly." }));
    let response = send(&daemon, "a", "What is the capital of France?");
    assert!(response["content"].as_str().is_some_and(|text| text.contains("Paris")), "{response}");
}

#[test]
fn damaged_weights_are_not_used() {
    let (_machine, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let file = home.path().join("models/smollm2-135m.gguf");
    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let daemon = TestDaemon::builder(BIN).home(home.path()).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    let response = daemon.call(&agent_path("a"), "send", json!({ "content": "Hi" }));
    let message = response["error"]["message"].as_str().unwrap_or_default();
    let prefix = "The embedded model local/smollm2-135m failed: ";
    assert!(message.starts_with(prefix), "{response}");
    assert!(message.contains("smollm2-135m.gguf was changed since it was pulled"), "{response}");
    assert!(message.contains("remove it and pull it again"), "{response}");
    let again = run(BIN, &["models", "pull", "smollm2-135m", "--yes"], &[], home.path());
    assert_eq!(again.code, 1, "{}", again.stderr);
    assert!(again.stderr.contains("was changed since it was pulled"), "{}", again.stderr);
}

/// The default prompt of a small model, counted in the model's tokens and with the model's chat template.
#[test]
fn default_prompt_has_at_most_400_tokens_and_6_tools() {
    let (_machine, home) = (lock_machine(), tempfile::tempdir().unwrap());
    pull_weights(home.path());
    let recording = home.path().join("first.jsonl");
    // Only the request matters here, so the response may be short.
    let config = "model = 'brief'\n[models.brief]\nmodel = 'local/smollm2-135m'\nanswer_tokens_max = 1\n";
    let builder = TestDaemon::builder(BIN).home(home.path()).config(config);
    let daemon = builder.arg("--record").arg(&recording).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    send(&daemon, "a", "Hi");
    daemon.call_result("/", "create_agent", json!({ "agent_id": "b", "preset": "trusted" }));
    send(&daemon, "b", "Hi");
    let recording = std::fs::read_to_string(&recording).expect("the exchanges were recorded");
    let exchanges: Vec<Value> = recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exchanges.len(), 2);
    for exchange in exchanges {
        let usage = exchange["events"].as_array().into_iter().flatten().find_map(|event| event.get("usage"));
        let input_tokens =
            usage.and_then(|usage| usage["input"].as_u64()).expect("the model reports its input tokens");
        let tools = exchange["request"]["tools"].as_array().map_or(0, Vec::len);
        assert!(exchange["request"]["system"].as_str().is_some_and(|system| !system.is_empty()));
        // The count includes the user message and the volatile suffix.
        assert!(
            input_tokens <= 400 && (1..=6).contains(&tools),
            "{input_tokens} tokens, {tools} tools: {exchange}"
        );
    }
}
