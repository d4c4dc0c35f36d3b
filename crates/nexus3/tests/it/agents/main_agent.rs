//! The agent `main`: it serves agent methods at `/`, and is there from the first call that needs it.

use serde_json::{Value, json};

use crate::support::{ExpectError as _, Fixture, agent_ids};

#[test]
fn a_faulty_call_does_not_bring_main_to_life() {
    let stage = Fixture::start();
    let faulty = [
        ("send", json!({})),
        ("send", json!({ "content": 5 })),
        ("send", json!({ "content": "hi", "request_id": "" })),
        ("send", json!({ "content": "hi", "extra": 1 })),
        ("cancel", json!({})),
        ("get_messages", json!({ "limit": 0 })),
        ("get_tokens", json!({ "x": 1 })),
        ("get_context", json!({ "x": 1 })),
        ("shutdown", json!({ "x": 1 })),
        ("no_such_method", json!({})),
    ];
    for (method, params) in faulty {
        stage.daemon.error("/", method, params);
    }
    for body in ["", "[]", "{", r#"{"jsonrpc":"2.0","id":1,"method":"send","params":["hi"]}"#] {
        assert_eq!(stage.daemon.post("/", &[], body.as_bytes()).status, 400, "{body}");
    }
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
    let answer = stage.daemon.post("/agent/main", &[], br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#);
    assert_eq!(answer.status, 404, "{}", answer.text());
}

#[test]
fn each_method_of_an_agent_brings_main_to_life() {
    for (method, params) in [
        ("send", json!({ "content": "hi" })),
        ("cancel", json!({ "request_id": "r" })),
        ("get_tokens", json!({})),
        ("get_context", Value::Null),
        ("get_messages", json!({})),
    ] {
        let stage = Fixture::start();
        stage.daemon.call_result("/", method, params);
        assert_eq!(agent_ids(&stage.daemon), ["main"], "{method}");
    }
}

#[test]
fn main_is_one_agent_under_three_paths() {
    let stage = Fixture::start();
    for path in ["/", "/rpc", "/agent/main"] {
        stage.daemon.call_result(path, "send", json!({ "content": path }));
    }
    let said = stage.daemon.call_result("/", "send", json!({ "content": "!history" }));
    assert_eq!(said["content"], "/ | /rpc | /agent/main | !history");
    assert_eq!(agent_ids(&stage.daemon), ["main"]);
}

#[test]
fn many_first_calls_make_one_main() {
    let stage = Fixture::start();
    let mut calls = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        calls.start(&stage.daemon, "/", "send", json!({ "content": "hi" }));
    }
    for _ in 0..20 {
        assert_eq!(calls.next_result()["content"], "echo: hi");
    }
    assert_eq!(agent_ids(&stage.daemon), ["main"]);
    assert_eq!(stage.context("main")["message_count"], 40);
}

#[test]
fn main_can_be_created_and_destroyed_like_others() {
    let stage = Fixture::start();
    stage.daemon.call_result("/", "create_agent", json!({ "agent_id": "main", "system_prompt": "" }));
    stage.daemon.call_result("/", "send", json!({ "content": "hi" }));
    assert_eq!(stage.context("main")["system_prompt"], false, "it was not made anew");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "main" }));
    assert_eq!(stage.daemon.call_result("/", "get_context", json!({}))["message_count"], 0);
    assert_eq!(stage.context("main")["system_prompt"], true);
}
