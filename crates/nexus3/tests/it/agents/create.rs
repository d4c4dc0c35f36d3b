//! `create_agent`: names, prompts, and what a refusal leaves behind.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::TestDaemon;

use crate::support::model_requests::without_volatile_suffix;
use crate::support::{BIN, ExpectError as _, Fixture, agent_ids, agent_path, assert_created, is_hex};

fn bare() -> TestDaemon {
    TestDaemon::builder(BIN).start()
}

fn create(daemon: &TestDaemon, id: &str) -> Value {
    daemon.call_result("/", "create_agent", json!({ "agent_id": id }))
}

#[test]
fn an_agent_without_a_name_gets_eight_hex_digits() {
    let daemon = bare();
    let mut names = BTreeSet::new();
    for params in [json!({}), json!({ "agent_id": null }), json!({ "system_prompt": null })] {
        let created = daemon.call_result("/", "create_agent", params);
        assert!(is_hex(&created["agent_id"], 8), "{created}");
        let name = created["agent_id"].as_str().unwrap().to_owned();
        assert_created(&created, &name);
        assert_eq!(daemon.call_result(&agent_path(&name), "get_context", json!({}))["message_count"], 0);
        names.insert(name);
    }
    assert_eq!(names.len(), 3);
}

#[test]
fn a_name_within_the_rule_is_kept_as_it_is() {
    let daemon = bare();
    let longest = "a".repeat(63);
    let names = ["a", "0", "Worker-1", "worker-1", "A_b.c-d", "a.", "a-", ".1", ".tmp.x", &longest];
    for name in names {
        assert_created(&create(&daemon, name), name);
        assert_eq!(daemon.call_result(&agent_path(name), "get_context", json!({}))["message_count"], 0);
    }
    assert_eq!(agent_ids(&daemon), names);
}

#[test]
fn a_name_outside_the_rule_is_refused_with_its_reason_and_leaves_nothing() {
    let daemon = bare();
    let too_long = "a".repeat(64);
    let dotted = format!(".{}", "a".repeat(63));
    let bad = [
        ".", "-a", "_a", ".-a", ". a", "a/b", "/a", "a\\b", "a b", " a", "a ", "nl\n", "\n", "a\0", "a\r",
        "ä", "a%2e", "~", "a:b", "a?b", "a#b", &too_long, &dotted,
    ];
    for name in bad {
        let error = daemon.error("/", "create_agent", json!({ "agent_id": name }));
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["code"], -32602, "{name:?}: {error}");
        assert!(message.starts_with("agent_id invalid: Invalid agent ID "), "{name:?}: {message}");
        let rule = "must be 1-63 chars, alphanumeric/dot/underscore/hyphen, start with alphanumeric or dot";
        assert!(message.ends_with(rule), "{name:?}: {message}");
        assert!(!message.contains('\n'), "{name:?}: {message}");
    }
    for name in ["..", "...", "a..b", "..a", "a..", "../../etc"] {
        let error = daemon.error("/", "create_agent", json!({ "agent_id": name }));
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with("contains forbidden pattern '..'"), "{name:?}: {message}");
    }
    let error = daemon.error("/", "create_agent", json!({ "agent_id": "" }));
    assert_eq!(error, json!({ "code": -32602, "message": "agent_id invalid: Agent ID cannot be empty" }));
    assert_eq!(agent_ids(&daemon), [""; 0]);
    let logs = std::fs::read_dir(daemon.home().join("logs")).unwrap();
    assert_eq!(logs.count(), 0, "a refused agent has no log");
}

#[test]
fn a_very_long_name_does_not_come_back_whole() {
    let daemon = bare();
    let error = daemon.error("/", "create_agent", json!({ "agent_id": "x".repeat(500_000) }));
    assert!(error["message"].as_str().unwrap().len() < 300, "{error}");
}

#[test]
fn a_name_that_is_taken_is_refused_until_its_agent_is_gone() {
    let stage = Fixture::start();
    stage.create("twin");
    stage.send("twin", "hello");
    let error = stage.daemon.error("/", "create_agent", json!({ "agent_id": "twin" }));
    assert_eq!(error, json!({ "code": -32602, "message": "Agent already exists: twin" }));
    assert_eq!(stage.context("twin")["message_count"], 2, "the first one is as it was");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "twin" }));
    stage.create("twin");
    assert_eq!(stage.context("twin")["message_count"], 0, "the second one starts anew");
}

#[test]
fn of_many_creates_of_one_name_exactly_one_wins() {
    let daemon = bare();
    let mut calls = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        calls.start(&daemon, "/", "create_agent", json!({ "agent_id": "one" }));
    }
    let won = (0..20).filter(|_| calls.next_response().get("result").is_some()).count();
    assert_eq!(won, 1);
    assert_eq!(agent_ids(&daemon), ["one"]);
}

#[test]
fn parameters_that_do_not_fit_are_named() {
    let daemon = bare();
    for (params, message) in [
        (json!({ "agent_id": 5 }), "agent_id must be string, got: int"),
        (json!({ "agent_id": ["a"] }), "agent_id must be string, got: list"),
        (json!({ "system_prompt": 5 }), "system_prompt must be string, got: int"),
        (json!({ "preset": ["trusted"] }), "preset must be string, got: list"),
        (json!({ "disable_tools": "echo" }), "disable_tools must be list, got: str"),
        (json!({ "budget": { "turns": -1 } }), "budget.turns must be a non-negative integer"),
        (json!({ "budget": { "lives": 9 } }), "Extra inputs are not permitted: budget.lives"),
        (json!({ "agent_id": "a", "temporary": true }), "temporary cannot be combined with agent_id"),
        (json!({ "initial_message": " \n" }), "initial_message cannot be empty"),
        (json!({ "preset": "yolo" }), "preset must be one of sandboxed, trusted, worker, got: 'yolo'"),
        (json!({ "preset": "Trusted" }), "preset must be one of sandboxed, trusted, worker, got: 'Trusted'"),
        (json!({ "parent_agent_id": "nobody" }), "Parent agent not found: nobody"),
        (json!({ "cwd": "/no/such/folder" }), "cwd does not exist: /no/such/folder"),
        (json!({ "agent_id": "a", "colour": "red" }), "Extra inputs are not permitted: colour"),
    ] {
        let error = daemon.error("/", "create_agent", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    assert_eq!(agent_ids(&daemon), [""; 0]);
}

#[test]
fn a_full_pool_says_busy_and_when_to_come_back() {
    let daemon = TestDaemon::builder(BIN).config("limits.agents_max = 2").start();
    create(&daemon, "one");
    create(&daemon, "two");
    for params in [json!({ "agent_id": "three" }), json!({})] {
        let error = daemon.error("/", "create_agent", params);
        assert_eq!(error["code"], -32001, "{error}");
        assert!(error["data"]["retry_after_ms"].is_u64(), "{error}");
    }
    let taken = daemon.error("/", "create_agent", json!({ "agent_id": "two" }));
    assert_eq!(taken["message"], "Agent already exists: two");
    let main = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(main["code"], -32001, "main needs a place too: {main}");
    daemon.call_result("/", "destroy_agent", json!({ "agent_id": "one" }));
    create(&daemon, "three");
    assert_eq!(agent_ids(&daemon), ["two", "three"]);
}

#[test]
fn an_agent_is_answered_by_the_model_it_was_given() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "other", "model": "openai/another" }));
    stage.create("usual");
    for (name, model) in [("other", "another"), ("usual", "scripted")] {
        stage.send(name, "hello");
        assert_eq!(stage.model.requests().pop().unwrap().body["model"], model);
        assert_eq!(stage.agent(name)["agent"]["model"], format!("openai/{model}"));
    }
    for model in ["nobody/nothing", "another", "openai/", "openai/a b", ""] {
        let error = stage.daemon.error("/", "create_agent", json!({ "agent_id": "extra", "model": model }));
        let text = error["message"].as_str().unwrap();
        assert!(text.starts_with(&format!("Unknown model '{model}': ")), "{error}");
    }
    assert_eq!(agent_ids(&stage.daemon), ["other", "usual"]);
}

#[test]
fn the_model_sees_the_prompt_that_was_given_the_default_or_none() {
    let stage = Fixture::start();
    let prompts = [json!("You are a fish."), json!(null), json!("")];
    for (prompt, name) in prompts.into_iter().zip(["given", "default", "none"]) {
        stage.daemon.call_result("/", "create_agent", json!({ "agent_id": name, "system_prompt": prompt }));
        stage.send(name, "hello");
    }
    let first = |index: usize| stage.model.requests()[index].body["messages"][0].clone();
    assert_eq!(first(0), json!({ "role": "system", "content": "You are a fish." }));
    assert_eq!(first(1)["role"], "system");
    assert_eq!(first(2)["role"], "user");
    assert_eq!(first(2)["content"].as_str().map(without_volatile_suffix), Some("hello"));
    let has_prompt = |name| stage.context(name)["system_prompt"].clone();
    assert_eq!([has_prompt("given"), has_prompt("default"), has_prompt("none")], [true, true, false]);
    let tokens = stage.daemon.call_result(&agent_path("none"), "get_tokens", json!({}));
    assert_eq!(tokens["system"], 0, "{tokens}");
}
