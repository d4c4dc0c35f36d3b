//! Agents that talk to models of several kinds: the same agent on two providers, a long conversation in a small window, and
//! exchanges that are recorded and served again.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder};

use crate::support::{BIN, ExpectError as _, agent_path};

/// A daemon that reaches the scripted model as every provider.
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
    let answer = daemon.call_result(&agent_path(agent), "send", json!({ "content": content }));
    answer["content"].as_str().expect("an answer has a content").to_owned()
}

#[test]
fn one_agent_talks_to_three_apis_and_remembers() {
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
    let daemon = builder_with_all_providers(&model, home.path(), "openai/scripted").start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "model": "anthropic/scripted" }));
    assert_eq!(send_text(&daemon, "a", "hello"), "echo: hello");
    let request = model.requests().pop().expect("the model was asked");
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
}

/// Tells an agent with a small window more than fits into it, which never fails: how its context was compacted, and
/// its first message then.
fn overflow_window(turns: usize, words: &str) -> (Vec<String>, String) {
    const WINDOW_TOKENS: usize = 4096;
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "small")
        .config(&format!("[models.small]\nmodel = \"openai/scripted\"\nwindow_tokens = {WINDOW_TOKENS}\n"))
        .start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
    let filler = words.repeat(12);
    for turn in 0..turns {
        let answer = send_text(&daemon, "a", &format!("turn {turn}: {filler}"));
        assert!(answer.contains(&format!("turn {turn}:")), "{answer}");
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
fn two_hundred_turns_in_a_small_window_are_summed_up_and_never_fail() {
    let (how, first) = overflow_window(200, "words that fill the window ");
    assert!(how.len() > 5 && how.iter().all(|how| how == "summary"), "{how:?}");
    assert!(first.starts_with("[Summary of the earlier conversation"), "{first}");
    assert!(first.contains("Summed up: "), "{first}");
}

#[test]
fn where_nothing_can_be_summed_up_the_oldest_is_dropped_and_nothing_fails() {
    let (how, first) = overflow_window(100, "words that fill !nosummary windows ");
    assert!(how.len() > 2 && how.iter().all(|how| how == "dropped"), "{how:?}");
    assert!(
        first.starts_with('[') && first.contains("messages"),
        "the model is told what is missing: {first}"
    );
}

#[test]
fn what_was_recorded_is_served_again_without_a_model() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let tape = home.path().join("tape.jsonl");
    let talk = |daemon: &TestDaemon| -> Vec<Value> {
        daemon.call_result("/", "create_agent", json!({ "agent_id": "a", "system_prompt": "Be brief." }));
        // The model that the provider would choose.
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
        let answers = [("a", long.as_str()), ("b", "uno"), ("a", "two"), ("a", "three")].map(send);
        let folded = daemon.call_result(&agent_path("a"), "compact", json!({}));
        assert_eq!(folded["compacted"], true, "{folded}");
        [&answers[..], &[folded, send(("a", "four"))]].concat()
    };
    // The time of day is part of a question.
    let quiet = "[context]\ntail = false\n";
    let recording =
        builder_with_all_providers(&model, &home.path().join("first"), "openai/scripted").config(quiet);
    let daemon = recording.arg("--record").arg(&tape).start();
    let recorded = talk(&daemon);
    daemon.stop();
    let asked = model.requests().len();
    let replaying = TestDaemon::builder(BIN).home(home.path().join("second")).config(quiet);
    let daemon = replaying.arg("--replay").arg(&tape).start();
    assert_eq!(talk(&daemon), recorded);
    assert_eq!(model.requests().len(), asked, "nobody was asked");
    let fault = daemon.error(&agent_path("a"), "send", json!({ "content": "five" }));
    let text = fault["message"].as_str().unwrap_or_default();
    assert!(text.contains("recording"), "{fault}");
}

/// A dear model that cannot be reached, and a cheap one behind it.
const DOWN: &str = r#"
[providers.down]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
tries_max = 1

[models.dear]
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
fn an_answer_of_another_model_costs_what_that_one_costs() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "dear").config(DOWN).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    assert_eq!(send_text(&daemon, "a", "hello"), "echo: hello");
    let tokens = daemon.call_result(&agent_path("a"), "get_tokens", json!({}));
    let count = |name: &str| tokens["used"][name].as_f64().expect("it was reported");
    let expected = (count("input_tokens") + 2.0 * count("output_tokens")) / 1e6;
    assert!(expected > 0.0, "{tokens}");
    for cost in [&tokens["used"]["cost_usd"], &tokens["tree_cost_usd"]] {
        assert!((cost.as_f64().expect("it has a price") - expected).abs() < 1e-9, "{tokens}");
    }
}

#[test]
fn a_context_that_is_too_long_only_for_another_model_is_not_cut() {
    let (home, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start());
    let daemon = builder_with_all_providers(&model, home.path(), "dear").config(DOWN).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    for turn in 0..6 {
        send_text(&daemon, "a", &format!("turn {turn}"));
    }
    let fault =
        daemon.error(&agent_path("a"), "send", json!({ "content": "!status 400 prompt is too long" }));
    let text = fault["message"].as_str().unwrap_or_default();
    assert!(text.contains("Failed to connect"), "what the first model failed of is told: {fault}");
    let messages = daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(messages[0]["content"], "turn 0", "{messages}");
    assert_eq!(send_text(&daemon, "a", "and now"), "echo: and now");
}
