//! The second document: many agents at `/agent/{id}`, with a token. Its examples of presets, disabled tools and parents
//! are in `hierarchies`.

use serde_json::{Value, json};
use testkit::ScriptedModel;

use super::{
    assert_documented_conversation, assert_matches_document, parse_curl_output, run_documented,
    spawn_documented,
};
use crate::support::model_requests::assert_all_valid;
use crate::support::{Fixture, assert_created, daemon_builder, wait_until};

const CREATE: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Content-Type: application/json" \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"worker-1"},"id":1}'"#;
const CREATE_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"agent_id":"worker-1","url":"/agent/worker-1"}}"#;

const SEND: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Content-Type: application/json" \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":2}'"#;
const SEND_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Hello! How can I help you?","request_id":"a1b2c3d4"}}"#;

const LIST: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"list_agents","id":3}'"#;
const LIST_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"agents":[{"agent_id":"worker-1","is_temp":false,"created_at":"2024-01-15T10:30:00","message_count":2,"should_shutdown":false}]}}"#;

const DESTROY: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"worker-1"},"id":4}'"#;
const DESTROY_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":4,"result":{"success":true,"agent_id":"worker-1"}}"#;

const SHUTDOWN_SERVER: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"shutdown_server","id":5}'"#;
const SHUTDOWN_SERVER_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":5,"result":{"success":true,"message":"Server shutting down"}}"#;

const CREATE_CHAT: &str = r#"# Create agent
curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"chat"},"id":1}'"#;

const ALICE: &str = r#"# First message
curl -X POST http://localhost:8765/agent/chat \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"My name is Alice"},"id":2}'"#;
const ALICE_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Nice to meet you, Alice!","request_id":"..."}}"#;

const NAME: &str = r#"# Second message (agent remembers context)
curl -X POST http://localhost:8765/agent/chat \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"What is my name?"},"id":3}'"#;
const NAME_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":3,"result":{"content":"Your name is Alice.","request_id":"..."}}"#;

const DESTROY_CHAT: &str = r#"# Clean up
curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"chat"},"id":4}'"#;

const ESSAY: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Write a long essay","request_id":"req-1"},"id":1}'"#;

const CANCEL: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"cancel","params":{"request_id":"req-1"},"id":2}'"#;
const CANCEL_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":true,"request_id":"req-1"}}"#;

const TOKENS: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"get_tokens","id":5}'"#;
const TOKENS_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":5,"result":{"system":150,"tools":0,"messages":42,"total":192,"budget":8000,"available":6000}}"#;

const NO_TOKEN: &str = r#"curl -X POST http://localhost:8765/ \
  -d '{"jsonrpc":"2.0","method":"list_agents","id":1}'"#;
const WRONG_TOKEN: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer wrong_key" \
  -d '{"jsonrpc":"2.0","method":"list_agents","id":1}'"#;
const NO_AGENT: &str = r#"curl -X POST http://localhost:8765/agent/nonexistent \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1}'"#;

const UNKNOWN: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"unknown","id":1}'"#;
const UNKNOWN_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: unknown"}}"#;

fn fixture_with_worker() -> Fixture {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hello! How can I help you?");
    model.set_response("My name is Alice", "Nice to meet you, Alice!");
    model.set_response("What is my name?", "Your name is Alice.");
    let fixture = Fixture { daemon: daemon_builder(&model).start(), model };
    assert_responds(&fixture, CREATE, CREATE_RESPONSE);
    fixture
}

fn assert_responds(fixture: &Fixture, command: &str, documented: &str) {
    let (status, response) = run_documented(fixture, command);
    assert_eq!(status, 200, "{response}");
    assert_matches_document(&response, documented);
}

/// Checks a refusal. The document shows it as `{"error": "…"}`; nexus3 sends a JSON-RPC object.
fn assert_refused(fixture: &Fixture, command: &str, status: u16, code: i32, message: &str) {
    let response = run_documented(fixture, command);
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    assert_eq!(response, (status, error));
}

#[test]
fn agent_lifecycle_matches_the_document() {
    let fixture = fixture_with_worker();
    assert_responds(&fixture, SEND, SEND_RESPONSE);
    assert_responds(&fixture, LIST, LIST_RESPONSE);
    assert_responds(&fixture, TOKENS, TOKENS_RESPONSE);
    assert_responds(&fixture, DESTROY, DESTROY_RESPONSE);
    let (_, list) = run_documented(&fixture, LIST);
    assert_eq!(list["result"], json!({ "agents": [], "total": 0 }));
}

#[test]
fn agent_remembers_a_conversation() {
    let fixture = fixture_with_worker();
    let result = |command| -> Value { run_documented(&fixture, command).1["result"].take() };
    assert_created(&result(CREATE_CHAT), "chat");
    assert_responds(&fixture, ALICE, ALICE_RESPONSE);
    assert_responds(&fixture, NAME, NAME_RESPONSE);
    assert_documented_conversation(&fixture);
    assert_eq!(
        fixture.send("worker-1", "!history")["content"],
        "!history",
        "another agent does not have the conversation"
    );
    assert_eq!(fixture.send("chat", "!history")["content"], "My name is Alice | What is my name? | !history");
    assert_eq!(result(DESTROY_CHAT), json!({ "success": true, "agent_id": "chat" }));
    assert_all_valid(&fixture.model);
}

#[test]
fn request_is_cancelled_from_another_terminal() {
    let fixture = fixture_with_worker();
    let held = fixture.start_send("worker-1", "!hold essay", "held");
    fixture.model.wait_stalled(1);
    let essay = spawn_documented(&fixture, ESSAY);
    wait_until("the essay to arrive", || {
        let (_, response) = run_documented(&fixture, CANCEL);
        let arrived = response["result"]["cancelled"] == true;
        if arrived {
            assert_matches_document(&response, CANCEL_RESPONSE);
        }
        arrived
    });
    let (status, response) = parse_curl_output(&essay.finish().stdout);
    assert_eq!(status, 200);
    assert_matches_document(
        &response,
        r#"{"jsonrpc":"2.0","id":1,"result":{"cancelled":true,"request_id":"req-1"}}"#,
    );
    fixture.model.release("essay");
    assert_eq!(held.next_result()["content"], " released essay");
}

#[test]
fn missing_token_and_missing_agent_are_rejected() {
    let fixture = fixture_with_worker();
    assert_refused(&fixture, NO_TOKEN, 401, -32600, "Authorization header required");
    assert_refused(&fixture, WRONG_TOKEN, 403, -32600, "Invalid API key");
    assert_refused(&fixture, NO_AGENT, 404, -32602, "Agent not found: nonexistent");
    assert_responds(&fixture, UNKNOWN, UNKNOWN_RESPONSE);
}

#[test]
fn shutdown_server_stops_the_daemon() {
    let fixture = fixture_with_worker();
    assert_responds(&fixture, SHUTDOWN_SERVER, SHUTDOWN_SERVER_RESPONSE);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
    assert!(std::net::TcpListener::bind(("127.0.0.1", fixture.daemon.port())).is_ok(), "the port is free");
}
