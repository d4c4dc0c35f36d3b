//! Models that fail: a clear error for the caller, a valid history for the next turn, and the key in nobody's hands.

use serde_json::{Value, json};
use testkit::{ModelOptions, ScriptedModel, TestDaemon};

use crate::support::model_requests::assert_all_valid;
use crate::support::{BIN, ExpectError as _, Fixture, agent_path, daemon_builder, files_below};

const INTERRUPTED: &str = "Streaming response was interrupted before completion: the connection was cut. Partial output may have been displayed; retry the request.";
const UNBEGUN: &str = "Streaming response failed before any data was received: the connection was cut.";
const NO_ANSWER: &str = "Streaming response failed before any data was received: the response was empty.";

fn fixture_with_worker(config: &str) -> Fixture {
    let stage = Fixture::with_config(config);
    stage.create("worker");
    stage
}

/// The turn fails with this text, and the next one works.
fn assert_fails(stage: &Fixture, content: &str, message: &str) {
    let error = stage.send_expecting_error("worker", content);
    assert_eq!(error, json!({ "code": -32603, "message": message }), "{content}");
    assert_eq!(stage.send("worker", "still there?")["content"], "echo: still there?", "after {content}");
    assert_all_valid(&stage.model);
}

#[test]
fn a_refusal_by_status_is_told_in_the_originals_words() {
    let stage = fixture_with_worker("");
    assert_fails(&stage, "!status 401", "Authentication failed. Check your API key.");
    assert_fails(&stage, "!status 403", "Access forbidden. Check your API permissions.");
    assert_fails(&stage, "!status 404", "API endpoint not found. Check your configuration.");
    assert_fails(&stage, "!status 429 slow down", "API request failed (429): slow down");
    assert_fails(&stage, "!status 500 boom", "API request failed (500): boom");
    assert_fails(&stage, "!status 503 down", "API request failed (503): down");
    assert_fails(&stage, "!status 302 elsewhere", "API request failed (302): elsewhere");
}

#[test]
fn a_refusal_that_repeats_the_key_is_told_without_it() {
    let model = ScriptedModel::with_key("sk-canary-1");
    let daemon = daemon_builder(&model).start();
    let error = daemon.error("/", "send", json!({ "content": "!status 500 bad key sk-canary-1, sorry" }));
    assert_eq!(error["message"], "API request failed (500): bad key [key], sorry");
    assert!(!daemon.stderr().contains("sk-canary-1"));
}

#[test]
fn a_long_refusal_is_cut() {
    let stage = fixture_with_worker("");
    let error = stage.send_expecting_error("worker", &format!("!status 500 {}", "x".repeat(100_000)));
    let length = error["message"].as_str().unwrap().len();
    assert!((9_000..11_000).contains(&length), "{length}");
}

#[test]
fn an_answer_that_breaks_off_is_a_fault_and_its_text_stays_in_the_history() {
    let stage = fixture_with_worker("");
    assert_fails(&stage, "!cut half", INTERRUPTED);
    assert_fails(&stage, "!cut", UNBEGUN);
    let page = stage.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["content"], "half");
    assert_eq!(page["messages"][1]["meta"], json!({ "failed": true }));
    assert_eq!(page["messages"][5]["content"], "", "nothing was said");
}

#[test]
fn an_answer_that_is_none_is_a_fault() {
    let stage = fixture_with_worker("");
    assert_fails(&stage, "!html", NO_ANSWER);
    assert_fails(&stage, "!garbage", NO_ANSWER);
    assert_fails(&stage, "!status 204", NO_ANSWER);
    assert_fails(&stage, "!status 200 hello", NO_ANSWER);
}

#[test]
fn an_answer_that_cannot_be_read_puts_nothing_of_it_into_the_history() {
    let stage = fixture_with_worker("");
    let response = stage.daemon.call(&agent_path("worker"), "send", json!({ "content": "!garbage" }));
    assert!(!response.to_string().contains("chatcmpl"), "{response}");
    assert_eq!(stage.send("worker", "still there?")["content"], "echo: still there?");
    assert!(stage.messages("worker").iter().all(|(_, text)| !text.contains("json")));
    assert_all_valid(&stage.model);
}

#[test]
fn a_model_that_is_not_there_is_a_fault() {
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
fn a_model_that_goes_away_in_the_middle_is_a_fault() {
    let Fixture { daemon, model } = fixture_with_worker("");
    let open = crate::support::pending_calls::PendingCalls::single(
        &daemon,
        &agent_path("worker"),
        "send",
        json!({ "content": "!stall x" }),
    );
    model.wait_stalled(1);
    drop(model);
    let response = open.next_response();
    assert_eq!(response["error"]["code"], -32603, "{response}");
    let error = daemon.error(&agent_path("worker"), "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603, "{error}");
}

#[test]
fn a_model_that_was_restarted_is_reached_again() {
    let model = ScriptedModel::start();
    let port = model.port();
    let daemon = daemon_builder(&model).start();
    let mut model = Some(model);
    for round in 0..5 {
        let said = daemon.call_result("/", "send", json!({ "content": round.to_string() }));
        assert_eq!(said["content"], format!("echo: {round}"));
        drop(model.take());
        model = Some(ScriptedModel::open(ModelOptions { port, ..ModelOptions::default() }).unwrap());
    }
}

#[test]
fn a_model_that_falls_silent_is_given_up() {
    let stage = fixture_with_worker("limits.model_idle_ms = 1000");
    stage.create("other");
    let silent = stage.start_send("other", "!silent", "r");
    let error = stage.send_expecting_error("worker", "!stall half");
    let text = "API request timed out: the model was silent for 1 s";
    assert_eq!(error, json!({ "code": -32603, "message": text }));
    assert_eq!(silent.next_response()["error"]["message"], text);
    stage.model.wait_aborted(2);
    let said = stage.messages("worker");
    assert_eq!(said[1], ("assistant".to_owned(), "half".to_owned()));
    stage.send("worker", "hi");
    assert_all_valid(&stage.model);
}

#[test]
fn without_a_model_a_send_says_how_to_choose_one() {
    let daemon = TestDaemon::builder(BIN).start();
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603);
    let text = error["message"].as_str().unwrap();
    assert!(text.starts_with("No model is configured. Start the daemon with --model openai/NAME"), "{text}");
}

#[test]
fn a_fault_of_one_agents_model_is_nobody_elses() {
    let stage = fixture_with_worker("[providers.openai]\ntries_max = 1\n");
    stage.create("other");
    let held = stage.start_send("other", "!hold gate fine", "r");
    stage.model.wait_stalled(1);
    for content in ["!status 500", "!cut", "!garbage", "!html"] {
        stage.daemon.call(&agent_path("worker"), "send", json!({ "content": content }));
    }
    stage.model.release("gate");
    assert_eq!(held.next_result()["content"], "fine released gate");
}

#[test]
fn fifty_sends_share_a_connection_to_the_model() {
    let stage = fixture_with_worker("");
    for number in 0..50 {
        stage.send("worker", &number.to_string());
    }
    assert!(stage.model.connections() <= 2, "{} connections", stage.model.connections());
}

#[test]
fn a_wrong_key_is_told_without_showing_it() {
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
fn the_key_is_in_no_answer_no_output_and_no_log() {
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

/// Ends the daemon, so that its logs are whole, and looks through everything it wrote.
fn assert_nowhere(daemon: &TestDaemon, secret: &str) {
    daemon.signal("SIGTERM");
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(!daemon.stdout().contains(secret) && !daemon.stderr().contains(secret));
    let files = files_below(daemon.home());
    assert!(files.len() >= 3, "context, verbose and raw: {files:?}");
    for (path, text) in files {
        assert!(!text.contains(secret), "{}", path.display());
    }
}
