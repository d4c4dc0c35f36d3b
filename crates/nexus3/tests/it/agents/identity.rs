//! `X-Nexus-Agent`: whoever sends it beside the token can do what that agent may do, and no more.

use serde_json::{Value, json};

use crate::support::{Fixture, agent_ids, agent_path};

fn fixture() -> Fixture {
    let stage = Fixture::start();
    stage.create("a");
    stage.create("b");
    stage
}

fn call_as(stage: &Fixture, who: &str, path: &str, method: &str, params: Value) -> Value {
    let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    request["params"] = params;
    let answer = stage.daemon.post(path, &[("X-Nexus-Agent", who)], request.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
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
fn an_agent_may_call_its_own_methods() {
    let stage = fixture();
    for (method, params) in own_calls() {
        let response = call_as(&stage, "a", &agent_path("a"), method, params);
        assert!(response.get("result").is_some(), "{method}: {response}");
    }
    let response = call_as(&stage, "a", &agent_path("a"), "shutdown", json!({}));
    assert_eq!(response["result"], json!({ "success": true }));
}

#[test]
fn an_agent_may_not_call_another() {
    let stage = fixture();
    for (method, params) in own_calls().into_iter().chain([("shutdown", json!({}))]) {
        let response = call_as(&stage, "a", &agent_path("b"), method, params);
        assert_denied(&response, &format!("Agent 'a' is not authorized to call {method} on 'b'"));
    }
    assert_eq!(stage.context("b")["message_count"], 0);
    assert_eq!(stage.model.requests().len(), 0);
    let line = "WARN nexus3::audit: Agent 'a' is not authorized to call shutdown on 'b' event=denied principal=a \
                action=shutdown rule=identity";
    stage.daemon.wait_stderr(line);
}

#[test]
fn an_agent_may_not_use_main_nor_bring_it_to_life() {
    let stage = fixture();
    for (method, params) in own_calls() {
        let response = call_as(&stage, "a", "/", method, params);
        assert_denied(&response, &format!("Agent 'a' is not authorized to call {method} on 'main'"));
    }
    assert_eq!(agent_ids(&stage.daemon), ["a", "b"]);
    let response = call_as(&stage, "main", "/", "get_context", json!({}));
    assert_denied(&response, "X-Nexus-Agent names no agent that exists");
    stage.create("main");
    let response = call_as(&stage, "main", "/", "send", json!({ "content": "hi" }));
    assert_eq!(response["result"]["content"], "echo: hi");
}

#[test]
fn a_sandboxed_agent_may_neither_create_nor_stop_the_daemon() {
    let stage = fixture();
    let create = call_as(&stage, "a", "/", "create_agent", json!({ "agent_id": "c" }));
    assert_denied(&create, "Tool 'agent_create' is disabled by permission policy");
    let stop = call_as(&stage, "a", "/", "shutdown_server", json!({}));
    assert_denied(&stop, "Agent 'a' is not authorized to call shutdown_server");
    assert_eq!(agent_ids(&stage.daemon), ["a", "b"]);
}

#[test]
fn an_agent_may_destroy_itself_and_nobody_else() {
    let stage = fixture();
    let destroy = |who, whom| call_as(&stage, who, "/", "destroy_agent", json!({ "agent_id": whom }));
    assert_denied(&destroy("a", "b"), "Agent 'a' is not authorized to destroy 'b'");
    assert_denied(&destroy("a", "nobody"), "Agent 'a' is not authorized to destroy 'nobody'");
    assert_denied(&destroy("a", "A"), "Agent 'a' is not authorized to destroy 'A'");
    assert_eq!(agent_ids(&stage.daemon), ["a", "b"]);
    assert_eq!(destroy("a", "a")["result"], json!({ "success": true, "agent_id": "a" }));
    assert_denied(&destroy("a", "a"), "X-Nexus-Agent names no agent that exists");
    assert_eq!(agent_ids(&stage.daemon), ["b"]);
}

#[test]
fn a_trusted_agent_creates_and_reaches_its_children_and_no_others() {
    let stage = fixture();
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let create = |params: Value| call_as(&stage, "lead", "/", "create_agent", params);
    assert_eq!(create(json!({ "agent_id": "child" }))["result"]["agent_id"], "child");
    assert_denied(
        &create(json!({ "preset": "trusted" })),
        "Requested preset 'trusted' exceeds parent ceiling",
    );
    let mismatch = "Cannot create agent: requester does not match the parent agent";
    assert_denied(&create(json!({ "parent_agent_id": "a" })), mismatch);
    let said = call_as(&stage, "lead", &agent_path("child"), "send", json!({ "content": "hi" }));
    assert_eq!(said["result"]["content"], "echo: hi");
    let response = call_as(&stage, "child", &agent_path("lead"), "send", json!({ "content": "hi" }));
    assert_denied(&response, "Agent 'child' is not authorized to call send on 'lead'");
    let destroy = |who, whom| call_as(&stage, who, "/", "destroy_agent", json!({ "agent_id": whom }));
    assert_denied(&destroy("child", "lead"), "Agent 'child' is not authorized to destroy 'lead'");
    assert_eq!(destroy("lead", "child")["result"]["success"], true);
    assert_eq!(agent_ids(&stage.daemon), ["a", "b", "lead"]);
}

#[test]
fn an_agent_is_shown_itself_alone() {
    let stage = fixture();
    let response = call_as(&stage, "b", "/", "list_agents", json!({}));
    let agents = response["result"]["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1, "{response}");
    assert_eq!(agents[0]["agent_id"], "b");
}

#[test]
fn a_name_that_is_nobodys_has_no_rights_at_all() {
    let stage = fixture();
    for who in ["c", "A", "..", "a/b", "", " ", "a,b", "a b", "\u{e4}", "*", "admin"] {
        let daemons = [
            ("list_agents", json!({})),
            ("create_agent", json!({})),
            ("destroy_agent", json!({ "agent_id": "a" })),
            ("shutdown_server", json!({})),
            ("rpc.discover", json!({})),
        ];
        for (method, params) in daemons {
            let response = call_as(&stage, who, "/", method, params);
            assert_denied(&response, "X-Nexus-Agent names no agent that exists");
        }
        for (method, params) in own_calls() {
            let response = call_as(&stage, who, &agent_path("a"), method, params);
            assert_denied(&response, "X-Nexus-Agent names no agent that exists");
        }
    }
    assert_eq!(agent_ids(&stage.daemon), ["a", "b"]);
}

#[test]
fn a_narrowed_caller_still_needs_the_token_and_one_name() {
    let stage = fixture();
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#;
    let headers = [("X-Nexus-Agent", "a"), ("Authorization", "Bearer wrong")];
    assert_eq!(stage.daemon.post(&agent_path("a"), &headers, body).status, 403);
    let twice = [("X-Nexus-Agent", "a"), ("x-nexus-agent", "b")];
    let answer = stage.daemon.post(&agent_path("a"), &twice, body);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32600)));
}

#[test]
fn a_denied_notification_does_nothing() {
    let stage = fixture();
    let body = br#"{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"b"}}"#;
    assert_eq!(stage.daemon.post("/", &[("X-Nexus-Agent", "a")], body).status, 204);
    assert_eq!(agent_ids(&stage.daemon), ["a", "b"]);
}
