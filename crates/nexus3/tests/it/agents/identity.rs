//! `X-Nexus-Agent`: next to the admin token, this header restricts the caller to that agent's permissions.

use serde_json::{Value, json};
use testkit::rpc_request;

use crate::support::{Fixture, agent_ids, agent_path};

fn start_with_two_agents() -> Fixture {
    let fixture = Fixture::start();
    fixture.create("a");
    fixture.create("b");
    fixture
}

fn call_as(fixture: &Fixture, caller: &str, path: &str, method: &str, params: Value) -> Value {
    let body = rpc_request(1, method, params);
    let response = fixture.daemon.post(path, &[("X-Nexus-Agent", caller)], body.as_bytes());
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn assert_denied(response: &Value, message: &str) {
    let error = json!({ "code": -32602, "message": message, "data": { "kind": "permission_denied" } });
    assert_eq!(response["error"], error, "{response}");
}

fn own_calls() -> [(&'static str, Value); 5] {
    [
        ("send", json!({ "content": "hi" })),
        ("cancel", json!({ "request_id": "r" })),
        ("get_tokens", json!({})),
        ("get_context", json!({})),
        ("get_messages", json!({})),
    ]
}

#[test]
fn agent_may_call_its_own_methods() {
    let fixture = start_with_two_agents();
    for (method, params) in own_calls() {
        let response = call_as(&fixture, "a", &agent_path("a"), method, params);
        assert!(response.get("result").is_some(), "{method}: {response}");
    }
    let response = call_as(&fixture, "a", &agent_path("a"), "shutdown", json!({}));
    assert_eq!(response["result"], json!({ "success": true }));
}

#[test]
fn agent_may_not_call_another_agent() {
    let fixture = start_with_two_agents();
    for (method, params) in own_calls().into_iter().chain([("shutdown", json!({}))]) {
        let response = call_as(&fixture, "a", &agent_path("b"), method, params);
        assert_denied(&response, &format!("Agent 'a' is not authorized to call {method} on 'b'"));
    }
    assert_eq!(fixture.context("b")["message_count"], 0);
    assert_eq!(fixture.model.requests().len(), 0);
    let line = "WARN nexus3::audit: Agent 'a' is not authorized to call shutdown on 'b' event=denied \
                principal=agent:a action=shutdown rule=identity";
    fixture.daemon.wait_stderr(line);
}

#[test]
fn agent_may_neither_use_nor_create_main() {
    let fixture = start_with_two_agents();
    for (method, params) in own_calls() {
        let response = call_as(&fixture, "a", "/", method, params);
        assert_denied(&response, &format!("Agent 'a' is not authorized to call {method} on 'main'"));
    }
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b"]);
    let response = call_as(&fixture, "main", "/", "get_context", json!({}));
    assert_denied(&response, "X-Nexus-Agent names no agent that exists");
    fixture.create("main");
    let response = call_as(&fixture, "main", "/", "send", json!({ "content": "hi" }));
    assert_eq!(response["result"]["content"], "echo: hi");
}

#[test]
fn sandboxed_agent_may_not_create_agents_or_stop_the_daemon() {
    let fixture = start_with_two_agents();
    let create = call_as(&fixture, "a", "/", "create_agent", json!({ "agent_id": "c" }));
    assert_denied(&create, "Tool 'agent_create' is disabled by permission policy; it needs may_create");
    let stop = call_as(&fixture, "a", "/", "shutdown_server", json!({}));
    assert_denied(&stop, "Agent 'a' is not authorized to call shutdown_server");
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b"]);
}

#[test]
fn agent_may_destroy_only_itself() {
    let fixture = start_with_two_agents();
    let destroy =
        |caller, target| call_as(&fixture, caller, "/", "destroy_agent", json!({ "agent_id": target }));
    assert_denied(&destroy("a", "b"), "Agent 'a' is not authorized to destroy 'b'");
    assert_denied(&destroy("a", "missing"), "Agent 'a' is not authorized to destroy 'missing'");
    assert_denied(&destroy("a", "A"), "Agent 'a' is not authorized to destroy 'A'");
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b"]);
    assert_eq!(destroy("a", "a")["result"], json!({ "success": true, "agent_id": "a" }));
    assert_denied(&destroy("a", "a"), "X-Nexus-Agent names no agent that exists");
    assert_eq!(agent_ids(&fixture.daemon), ["b"]);
}

#[test]
fn trusted_agent_may_create_and_call_only_its_children() {
    let fixture = start_with_two_agents();
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let create = |params: Value| call_as(&fixture, "lead", "/", "create_agent", params);
    assert_eq!(create(json!({ "agent_id": "child" }))["result"]["agent_id"], "child");
    assert_denied(
        &create(json!({ "preset": "trusted" })),
        "Requested preset 'trusted' exceeds parent ceiling",
    );
    let mismatch = "Cannot create agent: requester does not match the parent agent";
    assert_denied(&create(json!({ "parent_agent_id": "a" })), mismatch);
    let sent = call_as(&fixture, "lead", &agent_path("child"), "send", json!({ "content": "hi" }));
    assert_eq!(sent["result"]["content"], "echo: hi");
    let response = call_as(&fixture, "child", &agent_path("lead"), "send", json!({ "content": "hi" }));
    assert_denied(&response, "Agent 'child' is not authorized to call send on 'lead'");
    let destroy =
        |caller, target| call_as(&fixture, caller, "/", "destroy_agent", json!({ "agent_id": target }));
    assert_denied(&destroy("child", "lead"), "Agent 'child' is not authorized to destroy 'lead'");
    assert_eq!(destroy("lead", "child")["result"]["success"], true);
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b", "lead"]);
}

#[test]
fn agent_lists_only_itself() {
    let fixture = start_with_two_agents();
    let response = call_as(&fixture, "b", "/", "list_agents", json!({}));
    let agents = response["result"]["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1, "{response}");
    assert_eq!(agents[0]["agent_id"], "b");
}

#[test]
fn unknown_agent_header_has_no_permissions() {
    let fixture = start_with_two_agents();
    for caller in ["c", "A", "..", "a/b", "", " ", "a,b", "a b", "\u{e4}", "*", "admin"] {
        let daemon_calls = [
            ("list_agents", json!({})),
            ("create_agent", json!({})),
            ("destroy_agent", json!({ "agent_id": "a" })),
            ("shutdown_server", json!({})),
            ("rpc.discover", json!({})),
        ];
        for (method, params) in daemon_calls {
            let response = call_as(&fixture, caller, "/", method, params);
            assert_denied(&response, "X-Nexus-Agent names no agent that exists");
        }
        for (method, params) in own_calls() {
            let response = call_as(&fixture, caller, &agent_path("a"), method, params);
            assert_denied(&response, "X-Nexus-Agent names no agent that exists");
        }
    }
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b"]);
}

#[test]
fn agent_header_needs_the_token_and_a_single_value() {
    let fixture = start_with_two_agents();
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#;
    let headers = [("X-Nexus-Agent", "a"), ("Authorization", "Bearer wrong")];
    assert_eq!(fixture.daemon.post(&agent_path("a"), &headers, body).status, 403);
    let twice = [("X-Nexus-Agent", "a"), ("x-nexus-agent", "b")];
    let response = fixture.daemon.post(&agent_path("a"), &twice, body);
    assert_eq!((response.status, &response.json()["error"]["code"]), (400, &json!(-32600)));
}

#[test]
fn denied_notification_has_no_effect() {
    let fixture = start_with_two_agents();
    let body = br#"{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"b"}}"#;
    assert_eq!(fixture.daemon.post("/", &[("X-Nexus-Agent", "a")], body).status, 204);
    assert_eq!(agent_ids(&fixture.daemon), ["a", "b"]);
}
