//! The agent `main`: it serves agent methods at `/`, and the first call that needs it creates it.

use serde_json::{Value, json};

use crate::support::{ExpectError as _, Fixture, agent_ids};

#[test]
fn invalid_calls_do_not_create_main() {
    let fixture = Fixture::start();
    let invalid = [
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
    for (method, params) in invalid {
        fixture.daemon.error("/", method, params);
    }
    for body in ["", "[]", "{", r#"{"jsonrpc":"2.0","id":1,"method":"send","params":["hi"]}"#] {
        assert_eq!(fixture.daemon.post("/", &[], body.as_bytes()).status, 400, "{body}");
    }
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
    let response =
        fixture.daemon.post("/agent/main", &[], br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#);
    assert_eq!(response.status, 404, "{}", response.text());
}

#[test]
fn each_agent_method_creates_main() {
    for (method, params) in [
        ("send", json!({ "content": "hi" })),
        ("cancel", json!({ "request_id": "r" })),
        ("get_tokens", json!({})),
        ("get_context", Value::Null),
        ("get_messages", json!({})),
    ] {
        let fixture = Fixture::start();
        fixture.daemon.call_result("/", method, params);
        assert_eq!(agent_ids(&fixture.daemon), ["main"], "{method}");
    }
}

#[test]
fn main_is_one_agent_under_three_paths() {
    let fixture = Fixture::start();
    for path in ["/", "/rpc", "/agent/main"] {
        fixture.daemon.call_result(path, "send", json!({ "content": path }));
    }
    let sent = fixture.daemon.call_result("/", "send", json!({ "content": "!history" }));
    assert_eq!(sent["content"], "/ | /rpc | /agent/main | !history");
    assert_eq!(agent_ids(&fixture.daemon), ["main"]);
}

#[test]
fn concurrent_first_calls_create_one_main() {
    let fixture = Fixture::start();
    let mut calls = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        calls.start(&fixture.daemon, "/", "send", json!({ "content": "hi" }));
    }
    for _ in 0..20 {
        assert_eq!(calls.next_result()["content"], "echo: hi");
    }
    assert_eq!(agent_ids(&fixture.daemon), ["main"]);
    assert_eq!(fixture.context("main")["message_count"], 40);
}

#[test]
fn main_can_be_created_and_destroyed_like_any_agent() {
    let fixture = Fixture::start();
    fixture.daemon.call_result("/", "create_agent", json!({ "agent_id": "main", "system_prompt": "" }));
    fixture.daemon.call_result("/", "send", json!({ "content": "hi" }));
    assert_eq!(fixture.context("main")["system_prompt"], false, "the first send did not recreate it");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "main" }));
    assert_eq!(fixture.daemon.call_result("/", "get_context", json!({}))["message_count"], 0);
    assert_eq!(fixture.context("main")["system_prompt"], true);
}
