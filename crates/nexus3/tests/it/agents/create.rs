//! `create_agent`: agent ids, prompts, models, limits, and that a rejected call leaves nothing behind.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::TestDaemon;

use crate::support::model_requests::without_volatile_suffix;
use crate::support::{BIN, ExpectError as _, Fixture, agent_ids, agent_path, assert_created, is_hex};

fn daemon_without_model() -> TestDaemon {
    TestDaemon::builder(BIN).start()
}

fn create(daemon: &TestDaemon, id: &str) -> Value {
    daemon.call_result("/", "create_agent", json!({ "agent_id": id }))
}

#[test]
fn generated_agent_id_has_eight_hex_digits() {
    let daemon = daemon_without_model();
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
fn valid_agent_id_is_used_unchanged() {
    let daemon = daemon_without_model();
    let longest = "a".repeat(63);
    let names = ["a", "0", "Worker-1", "worker-1", "A_b.c-d", "a.", "a-", ".1", ".tmp.x", &longest];
    for name in names {
        assert_created(&create(&daemon, name), name);
        assert_eq!(daemon.call_result(&agent_path(name), "get_context", json!({}))["message_count"], 0);
    }
    assert_eq!(agent_ids(&daemon), names);
}

#[test]
fn invalid_agent_id_is_rejected_and_leaves_nothing() {
    let daemon = daemon_without_model();
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
    assert_eq!(logs.count(), 0, "a rejected agent has no log");
}

#[test]
fn error_message_truncates_a_very_long_agent_id() {
    let daemon = daemon_without_model();
    let error = daemon.error("/", "create_agent", json!({ "agent_id": "x".repeat(500_000) }));
    assert!(error["message"].as_str().unwrap().len() < 300, "{error}");
}

#[test]
fn agent_id_is_rejected_until_its_agent_is_destroyed() {
    let fixture = Fixture::start();
    fixture.create("twin");
    fixture.send("twin", "hello");
    let error = fixture.daemon.error("/", "create_agent", json!({ "agent_id": "twin" }));
    assert_eq!(error, json!({ "code": -32602, "message": "Agent already exists: twin" }));
    assert_eq!(fixture.context("twin")["message_count"], 2, "the first agent is unchanged");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "twin" }));
    fixture.create("twin");
    assert_eq!(fixture.context("twin")["message_count"], 0, "the second agent starts empty");
}

#[test]
fn concurrent_creates_of_one_id_succeed_exactly_once() {
    let daemon = daemon_without_model();
    let mut calls = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        calls.start(&daemon, "/", "create_agent", json!({ "agent_id": "one" }));
    }
    let created = (0..20).filter(|_| calls.next_response().get("result").is_some()).count();
    assert_eq!(created, 1);
    assert_eq!(agent_ids(&daemon), ["one"]);
}

#[test]
fn invalid_parameters_are_named() {
    let daemon = daemon_without_model();
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
        (json!({ "parent_agent_id": "missing" }), "Parent agent not found: missing"),
        (json!({ "cwd": "/no/such/folder" }), "cwd does not exist: /no/such/folder"),
        (json!({ "agent_id": "a", "colour": "red" }), "Extra inputs are not permitted: colour"),
    ] {
        let error = daemon.error("/", "create_agent", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    assert_eq!(agent_ids(&daemon), [""; 0]);
}

#[test]
fn full_pool_reports_busy_with_a_retry_delay() {
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
    assert_eq!(main["code"], -32001, "main counts towards the limit: {main}");
    daemon.call_result("/", "destroy_agent", json!({ "agent_id": "one" }));
    create(&daemon, "three");
    assert_eq!(agent_ids(&daemon), ["two", "three"]);
}

#[test]
fn agent_uses_the_model_of_its_create_call() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "other", "model": "openai/another" }));
    fixture.create("default");
    for (name, model) in [("other", "another"), ("default", "scripted")] {
        fixture.send(name, "hello");
        assert_eq!(fixture.model.requests().pop().unwrap().body["model"], model);
        assert_eq!(fixture.agent(name)["agent"]["model"], format!("openai/{model}"));
    }
    for model in ["unknown/nothing", "another", "openai/", "openai/a b", ""] {
        let error = fixture.daemon.error("/", "create_agent", json!({ "agent_id": "extra", "model": model }));
        let text = error["message"].as_str().unwrap();
        assert!(text.starts_with(&format!("Unknown model '{model}': ")), "{error}");
    }
    assert_eq!(agent_ids(&fixture.daemon), ["other", "default"]);
}

#[test]
fn system_prompt_is_the_given_the_default_or_none() {
    let fixture = Fixture::start();
    let prompts = [json!("You are a fish."), json!(null), json!("")];
    for (prompt, name) in prompts.into_iter().zip(["given", "default", "none"]) {
        fixture.daemon.call_result("/", "create_agent", json!({ "agent_id": name, "system_prompt": prompt }));
        fixture.send(name, "hello");
    }
    let first = |index: usize| fixture.model.requests()[index].body["messages"][0].clone();
    assert_eq!(first(0), json!({ "role": "system", "content": "You are a fish." }));
    assert_eq!(first(1)["role"], "system");
    assert_eq!(first(2)["role"], "user");
    assert_eq!(first(2)["content"].as_str().map(without_volatile_suffix), Some("hello"));
    let has_prompt = |name| fixture.context(name)["system_prompt"].clone();
    assert_eq!([has_prompt("given"), has_prompt("default"), has_prompt("none")], [true, true, false]);
    let tokens = fixture.daemon.call_result(&agent_path("none"), "get_tokens", json!({}));
    assert_eq!(tokens["system"], 0, "{tokens}");
}
