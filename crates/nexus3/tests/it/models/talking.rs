//! Agents that talk to models of several kinds: the same agent on two providers, a long conversation in a small window, and
//! exchanges that are recorded and served again.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder};

use crate::support::{BIN, Errors as _, path};

/// A daemon that reaches the scripted model as every provider.
fn with_all(model: &ScriptedModel, home: &Path, name: &str) -> TestDaemonBuilder {
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

fn said(daemon: &TestDaemon, agent: &str, content: &str) -> String {
    let answer = daemon.result(&path(agent), "send", json!({ "content": content }));
    answer["content"].as_str().expect("an answer has a content").to_owned()
}

#[test]
fn one_agent_talks_to_three_apis_and_remembers() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let names = ["openai/scripted", "anthropic/scripted", "openai-responses/scripted"];
    for (turn, name) in names.into_iter().enumerate() {
        let daemon = with_all(&model, home.path(), name).start();
        if turn == 0 {
            daemon.result("/", "create_agent", json!({ "agent_id": "a" }));
        }
        assert_eq!(said(&daemon, "a", &format!("number {turn}")), format!("echo: number {turn}"), "{name}");
        let last = model.requests().pop().expect("the model was asked");
        let text = last.body.to_string();
        assert!((0..=turn).all(|turn| text.contains(&format!("number {turn}"))), "{name}: {text}");
        daemon.stop();
    }
    let paths: Vec<String> = model.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/chat/completions", "/v1/messages", "/v1/responses"]);
}

#[test]
fn an_agent_names_its_own_model() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = with_all(&model, home.path(), "openai/scripted").start();
    daemon.result("/", "create_agent", json!({ "agent_id": "a", "model": "anthropic/scripted" }));
    assert_eq!(said(&daemon, "a", "hello"), "echo: hello");
    let request = model.requests().pop().expect("the model was asked");
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
}

#[test]
fn two_hundred_turns_in_a_small_window_never_fail() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = with_all(&model, home.path(), "small")
        .config("[models.small]\nmodel = \"openai/scripted\"\nwindow_tokens = 4096\n")
        .start();
    daemon.result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
    let filler = "words that fill the window ".repeat(12);
    for turn in 0..200 {
        let answer = said(&daemon, "a", &format!("turn {turn}: {filler}"));
        assert!(answer.contains(&format!("turn {turn}:")), "{answer}");
    }
    let tokens = daemon.result(&path("a"), "get_tokens", json!({}));
    assert!(tokens["total"].as_u64() <= tokens["available"].as_u64(), "{tokens}");
    let mut events = daemon.events("/agent/a/events?kind=context_compacted", Some(0));
    assert_eq!(events.next_event(crate::support::PATIENCE).kind, "context_compacted");
}

#[test]
fn what_was_recorded_is_served_again_without_a_model() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let tape = home.path().join("tape.jsonl");
    let talk = |daemon: &TestDaemon| -> Vec<Value> {
        daemon.result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
        let send =
            |text: &str| daemon.result(&path("a"), "send", json!({ "content": text, "request_id": text }));
        ["one", "two"].map(send).to_vec()
    };
    // The time of day is part of a question.
    let quiet = "[context]\ntail = false\n";
    let recording = with_all(&model, &home.path().join("first"), "openai/scripted").config(quiet);
    let daemon = recording.arg("--record").arg(&tape).start();
    let recorded = talk(&daemon);
    daemon.stop();
    let asked = model.requests().len();
    let replaying = TestDaemon::builder(BIN).home(home.path().join("second")).config(quiet);
    let daemon = replaying.arg("--replay").arg(&tape).start();
    assert_eq!(talk(&daemon), recorded);
    assert_eq!(model.requests().len(), asked, "nobody was asked");
    let fault = daemon.error(&path("a"), "send", json!({ "content": "three" }));
    let text = fault["message"].as_str().unwrap_or_default();
    assert!(text.contains("recording"), "{fault}");
}
