//! Agents with models of several APIs: one agent on several providers, a long conversation in a small window, recording
//! and replay, and fallbacks.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder};

use crate::support::{BIN, ExpectError as _, agent_path};

/// Prepares a daemon whose providers all lead to the scripted model.
pub(super) fn builder_with_all_providers(
    model: &ScriptedModel,
    home: &Path,
    name: &str,
) -> TestDaemonBuilder {
    let key = model.key().unwrap_or("none");
    TestDaemon::builder(BIN)
        .home(home)
        .arg("--model")
        .arg(name)
        .env("OPENAI_BASE_URL", model.base_url())
        .env("OPENAI_API_KEY", key)
        .env("ANTHROPIC_BASE_URL", model.anthropic_base_url())
        .env("ANTHROPIC_API_KEY", key)
}

fn send_text(daemon: &TestDaemon, agent: &str, content: &str) -> String {
    let response = daemon.call_result(&agent_path(agent), "send", json!({ "content": content }));
    response["content"].as_str().expect("a response has content").to_owned()
}

#[test]
fn one_agent_uses_three_apis_and_remembers() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let names = ["openai/scripted", "anthropic/scripted", "openai-responses/scripted"];
    for (turn, name) in names.into_iter().enumerate() {
        let daemon = builder_with_all_providers(&model, home.path(), name).start();
        if turn == 0 {
            daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
        }
        assert_eq!(
            send_text(&daemon, "a", &format!("number {turn}")),
            format!("echo: number {turn}"),
            "{name}"
        );
        let last = model.requests().pop().expect("the model got a request");
        let text = last.body.to_string();
        assert!((0..=turn).all(|turn| text.contains(&format!("number {turn}"))), "{name}: {text}");
        daemon.stop();
    }
    let paths: Vec<String> = model.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/chat/completions", "/v1/messages", "/v1/responses"]);
}

#[test]
fn agent_can_have_its_own_model() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "openai/scripted").start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "model": "anthropic/scripted" }));
    assert_eq!(send_text(&daemon, "a", "hello"), "echo: hello");
    let request = model.requests().pop().expect("the model got a request");
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
}

/// Sends more than fits into the window of an agent, which never fails. Returns how each compaction was done, and the
/// first message afterwards.
fn overflow_window(turns: usize, phrase: &str) -> (Vec<String>, String) {
    const WINDOW_TOKENS: usize = 4096;
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "small")
        .config(&format!("[models.small]\nmodel = \"openai/scripted\"\nwindow_tokens = {WINDOW_TOKENS}\n"))
        .start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
    let filler = phrase.repeat(12);
    for turn in 0..turns {
        let response = send_text(&daemon, "a", &format!("turn {turn}: {filler}"));
        assert!(response.contains(&format!("turn {turn}:")), "{response}");
    }
    let tokens = daemon.call_result(&agent_path("a"), "get_tokens", json!({}));
    assert!(tokens["total"].as_u64() <= tokens["available"].as_u64(), "{tokens}");
    let first =
        daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"][0]["content"].take();
    let mut events = daemon.events("/agent/a/events?kind=context_compacted&kind=agent_destroyed", Some(0));
    daemon.call_result("/", "destroy_agent", json!({ "agent_id": "a" }));
    let mut how = Vec::new();
    loop {
        let event = events.next_event(crate::support::WAIT_MAX);
        if event.kind != "context_compacted" {
            break;
        }
        how.push(event.json()["how"].as_str().unwrap_or_default().to_owned());
    }
    (how, first.as_str().unwrap_or_default().to_owned())
}

#[test]
fn two_hundred_turns_in_a_small_window_are_summarized() {
    let (how, first) = overflow_window(200, "words that fill the window ");
    assert!(how.len() > 5 && how.iter().all(|how| how == "summary"), "{how:?}");
    assert!(first.starts_with("[Summary of the earlier conversation"), "{first}");
    assert!(first.contains("Summed up: "), "{first}");
}

#[test]
fn oldest_messages_are_dropped_when_summaries_fail() {
    let (how, first) = overflow_window(100, "words that fill !nosummary windows ");
    assert!(how.len() > 2 && how.iter().all(|how| how == "dropped"), "{how:?}");
    assert!(
        first.starts_with('[') && first.contains("messages"),
        "the first message says what is missing: {first}"
    );
}

#[test]
fn recording_is_replayed_without_a_model() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let recording = home.path().join("exchanges.jsonl");
    let converse = |daemon: &TestDaemon| -> Vec<Value> {
        daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
        // A provider without a model name: the provider selects the model.
        daemon.call_result("/", "create_agent", json!({ "agent_id": "b", "model": "openai" }));
        let send = |(agent, text): (&str, &str)| {
            let request_id = text.split(' ').next();
            daemon.call_result(
                &agent_path(agent),
                "send",
                json!({ "content": text, "request_id": request_id }),
            )
        };
        let long = format!("one {}", "and more ".repeat(60));
        let responses = [("a", long.as_str()), ("b", "uno"), ("a", "two"), ("a", "three")].map(send);
        let compacted = daemon.call_result(&agent_path("a"), "compact", json!({}));
        assert_eq!(compacted["compacted"], true, "{compacted}");
        [&responses[..], &[compacted, send(("a", "four"))]].concat()
    };
    // The volatile suffix contains the time, which would make the requests differ.
    let without_suffix = "[context]\ntail = false\n";
    let recorder = builder_with_all_providers(&model, &home.path().join("first"), "openai/scripted")
        .config(without_suffix);
    let daemon = recorder.arg("--record").arg(&recording).start();
    let recorded = converse(&daemon);
    daemon.stop();
    let request_count = model.requests().len();
    let replayer = TestDaemon::builder(BIN).home(home.path().join("second")).config(without_suffix);
    let daemon = replayer.arg("--replay").arg(&recording).start();
    assert_eq!(converse(&daemon), recorded);
    assert_eq!(model.requests().len(), request_count, "the replay makes no model call");
    let fault = daemon.error(&agent_path("a"), "send", json!({ "content": "five" }));
    let text = fault["message"].as_str().unwrap_or_default();
    assert!(text.contains("recording"), "{fault}");
}

/// An expensive model that cannot be reached, with a cheap fallback.
const FALLBACK_CONFIG: &str = r#"
[providers.down]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
tries_max = 1

[models.expensive]
model = "down/large"
price_input = 900000000
price_output = 900000000
fallback = ["cheap"]

[models.cheap]
model = "openai/scripted"
price_input = 1000000
price_output = 2000000
"#;

#[test]
fn response_of_a_fallback_costs_the_fallbacks_price() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "expensive").config(FALLBACK_CONFIG).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    assert_eq!(send_text(&daemon, "a", "hello"), "echo: hello");
    let tokens = daemon.call_result(&agent_path("a"), "get_tokens", json!({}));
    let count = |name: &str| tokens["used"][name].as_f64().expect("the usage is reported");
    let expected = (count("input_tokens") + 2.0 * count("output_tokens")) / 1e6;
    assert!(expected > 0.0, "{tokens}");
    for cost in [&tokens["used"]["cost_usd"], &tokens["tree_cost_usd"]] {
        assert!((cost.as_f64().expect("the model has a price") - expected).abs() < 1e-9, "{tokens}");
    }
}

#[test]
fn context_too_long_only_for_a_fallback_is_not_compacted() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "expensive").config(FALLBACK_CONFIG).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    for turn in 0..6 {
        send_text(&daemon, "a", &format!("turn {turn}"));
    }
    let fault =
        daemon.error(&agent_path("a"), "send", json!({ "content": "!status 400 prompt is too long" }));
    let text = fault["message"].as_str().unwrap_or_default();
    assert!(text.contains("Failed to connect"), "the error is the first model's: {fault}");
    let messages = daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(messages[0]["content"], "turn 0", "{messages}");
    assert_eq!(send_text(&daemon, "a", "and now"), "echo: and now");
}
