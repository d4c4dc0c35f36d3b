//! Failing models: the caller gets a clear error, the next turn a valid history, and the API key is never disclosed.

use serde_json::{Value, json};
use testkit::{ModelOptions, ScriptedModel, TestDaemon};

use crate::support::model_requests::assert_all_valid;
use crate::support::{BIN, ExpectError as _, Fixture, agent_path, daemon_builder, files_below};

const INTERRUPTED: &str = "Streaming response was interrupted before completion: the connection was cut. Partial output may have been displayed; retry the request.";
const CUT_BEFORE_DATA: &str =
    "Streaming response failed before any data was received: the connection was cut.";
const EMPTY_RESPONSE: &str =
    "Streaming response failed before any data was received: the response was empty.";

fn fixture_with_worker(config: &str) -> Fixture {
    let fixture = Fixture::with_config(config);
    fixture.create("worker");
    fixture
}

/// Asserts that the turn fails with this message and that the next one succeeds.
fn assert_fails(fixture: &Fixture, content: &str, message: &str) {
    let error = fixture.send_expecting_error("worker", content);
    assert_eq!(error, json!({ "code": -32603, "message": message }), "{content}");
    assert_eq!(fixture.send("worker", "still there?")["content"], "echo: still there?", "after {content}");
    assert_all_valid(&fixture.model);
}

#[test]
fn error_status_gets_the_message_of_the_original() {
    let fixture = fixture_with_worker("");
    assert_fails(&fixture, "!status 401", "Authentication failed. Check your API key.");
    assert_fails(&fixture, "!status 403", "Access forbidden. Check your API permissions.");
    assert_fails(&fixture, "!status 404", "API endpoint not found. Check your configuration.");
    assert_fails(&fixture, "!status 429 slow down", "API request failed (429): slow down");
    assert_fails(&fixture, "!status 500 boom", "API request failed (500): boom");
    assert_fails(&fixture, "!status 503 down", "API request failed (503): down");
    assert_fails(&fixture, "!status 302 elsewhere", "API request failed (302): elsewhere");
}

#[test]
fn key_is_removed_from_provider_errors() {
    let model = ScriptedModel::with_key("sk-canary-1");
    let daemon = daemon_builder(&model).start();
    let error = daemon.error("/", "send", json!({ "content": "!status 500 bad key sk-canary-1, sorry" }));
    assert_eq!(error["message"], "API request failed (500): bad key [key], sorry");
    assert!(!daemon.stderr().contains("sk-canary-1"));
}

#[test]
fn long_provider_error_is_truncated() {
    let fixture = fixture_with_worker("");
    let error = fixture.send_expecting_error("worker", &format!("!status 500 {}", "x".repeat(100_000)));
    let length = error["message"].as_str().unwrap().len();
    assert!((9_000..11_000).contains(&length), "{length}");
}

#[test]
fn interrupted_response_fails_and_its_text_stays() {
    let fixture = fixture_with_worker("");
    assert_fails(&fixture, "!cut half", INTERRUPTED);
    assert_fails(&fixture, "!cut", CUT_BEFORE_DATA);
    let page = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["content"], "half");
    assert_eq!(page["messages"][1]["meta"], json!({ "failed": true }));
    assert_eq!(page["messages"][5]["content"], "", "no text was received");
}

#[test]
fn empty_response_fails_the_turn() {
    let fixture = fixture_with_worker("");
    assert_fails(&fixture, "!html", EMPTY_RESPONSE);
    assert_fails(&fixture, "!garbage", EMPTY_RESPONSE);
    assert_fails(&fixture, "!status 204", EMPTY_RESPONSE);
    assert_fails(&fixture, "!status 200 hello", EMPTY_RESPONSE);
}

#[test]
fn undecodable_response_leaves_no_text_in_the_history() {
    let fixture = fixture_with_worker("");
    let response = fixture.daemon.call(&agent_path("worker"), "send", json!({ "content": "!garbage" }));
    assert!(!response.to_string().contains("chatcmpl"), "{response}");
    assert_eq!(fixture.send("worker", "still there?")["content"], "echo: still there?");
    assert!(fixture.messages("worker").iter().all(|(_, text)| !text.contains("json")));
    assert_all_valid(&fixture.model);
}

#[test]
fn unreachable_model_fails_the_turn() {
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).start();
    let address = model.anthropic_base_url().replace("http://", "");
    drop(model);
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    let text = format!("Failed to connect to API after 4 attempts: openai cannot be reached at {address}");
    assert_eq!(error, json!({ "code": -32603, "message": text }));
    assert_eq!(daemon.call_result("/", "get_context", json!({}))["message_count"], 2);
}

#[test]
fn model_that_disconnects_midway_fails_the_turn() {
    let Fixture { daemon, model } = fixture_with_worker("");
    let pending = crate::support::pending_calls::PendingCalls::single(
        &daemon,
        &agent_path("worker"),
        "send",
        json!({ "content": "!stall x" }),
    );
    model.wait_stalled(1);
    drop(model);
    let response = pending.next_response();
    assert_eq!(response["error"]["code"], -32603, "{response}");
    let error = daemon.error(&agent_path("worker"), "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603, "{error}");
}

#[test]
fn restarted_model_is_reached_again() {
    let model = ScriptedModel::start();
    let port = model.port();
    let daemon = daemon_builder(&model).start();
    let mut model = Some(model);
    for round in 0..5 {
        let result = daemon.call_result("/", "send", json!({ "content": round.to_string() }));
        assert_eq!(result["content"], format!("echo: {round}"));
        drop(model.take());
        model = Some(ScriptedModel::open(ModelOptions { port, ..ModelOptions::default() }).unwrap());
    }
}

#[test]
fn silent_model_call_times_out() {
    let fixture = fixture_with_worker("limits.model_idle_ms = 1000");
    fixture.create("other");
    let silent = fixture.start_send("other", "!silent", "r");
    let error = fixture.send_expecting_error("worker", "!stall half");
    let text = "API request timed out: the model was silent for 1 s";
    assert_eq!(error, json!({ "code": -32603, "message": text }));
    assert_eq!(silent.next_response()["error"]["message"], text);
    fixture.model.wait_aborted(2);
    let messages = fixture.messages("worker");
    assert_eq!(messages[1], ("assistant".to_owned(), "half".to_owned()));
    fixture.send("worker", "hi");
    assert_all_valid(&fixture.model);
}

#[test]
fn send_without_a_model_explains_how_to_configure_one() {
    let daemon = TestDaemon::builder(BIN).start();
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603);
    let text = error["message"].as_str().unwrap();
    assert!(text.starts_with("No model is configured. Start the daemon with --model openai/NAME"), "{text}");
}

#[test]
fn model_fault_affects_only_its_agent() {
    let fixture = fixture_with_worker("[providers.openai]\ntries_max = 1\n");
    fixture.create("other");
    let held = fixture.start_send("other", "!hold gate fine", "r");
    fixture.model.wait_stalled(1);
    for content in ["!status 500", "!cut", "!garbage", "!html"] {
        fixture.daemon.call(&agent_path("worker"), "send", json!({ "content": content }));
    }
    fixture.model.release("gate");
    assert_eq!(held.next_result()["content"], "fine released gate");
}

#[test]
fn fifty_sends_reuse_the_connection_to_the_model() {
    let fixture = fixture_with_worker("");
    for number in 0..50 {
        fixture.send("worker", &number.to_string());
    }
    assert!(fixture.model.connections() <= 2, "{} connections", fixture.model.connections());
}

#[test]
fn wrong_key_is_reported_without_disclosing_it() {
    let model = ScriptedModel::with_key("sk-the-right-key");
    let daemon = TestDaemon::builder(BIN)
        .arg("--model")
        .arg("openai/scripted")
        .arg("--log-level")
        .arg("trace")
        .arg("--log-verbose")
        .arg("--log-raw")
        .env("OPENAI_BASE_URL", model.base_url())
        .env("OPENAI_API_KEY", "sk-the-wrong-key")
        .start();
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(error, json!({ "code": -32603, "message": "Authentication failed. Check your API key." }));
    assert_eq!(model.requests()[0].header("authorization"), Some("Bearer sk-the-wrong-key"));
    assert_nowhere(&daemon, "sk-the-wrong-key");
}

#[test]
fn key_is_in_no_response_no_output_and_no_log() {
    let key = "sk-0123456789abcdef-secret";
    let model = ScriptedModel::with_key(key);
    let daemon = daemon_builder(&model).arg("--log-level").arg("trace").arg("--log-verbose").arg("--log-raw");
    let daemon = daemon.config("[providers.openai]\ntries_max = 1\n").start();
    let scripts =
        ["hi", "!status 401", "!status 500", "!cut half", "!garbage", "!html", "!empty", "!tool x {}"];
    for content in scripts {
        let response: Value = daemon.call("/", "send", json!({ "content": content }));
        assert!(!response.to_string().contains(key), "{response}");
    }
    assert!(model.requests().iter().all(|request| {
        request.header("authorization").is_some_and(|value| value == format!("Bearer {key}"))
    }));
    for method in ["list_agents", "get_messages", "get_context", "get_tokens", "rpc.discover"] {
        assert!(!daemon.call("/", method, json!({})).to_string().contains(key), "{method}");
    }
    drop(model);
    assert!(!daemon.call("/", "send", json!({ "content": "hi" })).to_string().contains(key));
    assert_nowhere(&daemon, key);
}

/// Stops the daemon, which flushes its logs, and asserts that its output and files do not contain the secret.
fn assert_nowhere(daemon: &TestDaemon, secret: &str) {
    daemon.signal("SIGTERM");
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(!daemon.stdout().contains(secret) && !daemon.stderr().contains(secret));
    let files = files_below(daemon.home());
    assert!(files.len() >= 3, "context, verbose and raw logs: {files:?}");
    for (path, text) in files {
        assert!(!text.contains(secret), "{}", path.display());
    }
}
