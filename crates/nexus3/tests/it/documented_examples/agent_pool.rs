//! The middle document: many agents at `/agent/{id}`, behind a token. Its examples of presets, disabled tools and
//! parents are in `hierarchies`.

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
const CREATE_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"agent_id":"worker-1","url":"/agent/worker-1"}}"#;

const SEND: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Content-Type: application/json" \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":2}'"#;
const SEND_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Hello! How can I help you?","request_id":"a1b2c3d4"}}"#;

const LIST: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"list_agents","id":3}'"#;
const LIST_ANSWER: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"agents":[{"agent_id":"worker-1","is_temp":false,"created_at":"2024-01-15T10:30:00","message_count":2,"should_shutdown":false}]}}"#;

const DESTROY: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"destroy_agent","params":{"agent_id":"worker-1"},"id":4}'"#;
const DESTROY_ANSWER: &str = r#"{"jsonrpc":"2.0","id":4,"result":{"success":true,"agent_id":"worker-1"}}"#;

const SHUTDOWN_SERVER: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"shutdown_server","id":5}'"#;
const SHUTDOWN_SERVER_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":5,"result":{"success":true,"message":"Server shutting down"}}"#;

const CREATE_CHAT: &str = r#"# Create agent
curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"chat"},"id":1}'"#;

const ALICE: &str = r#"# First message
curl -X POST http://localhost:8765/agent/chat \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"My name is Alice"},"id":2}'"#;
const ALICE_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Nice to meet you, Alice!","request_id":"..."}}"#;

const NAME: &str = r#"# Second message (agent remembers context)
curl -X POST http://localhost:8765/agent/chat \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"What is my name?"},"id":3}'"#;
const NAME_ANSWER: &str =
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
const CANCEL_ANSWER: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":true,"request_id":"req-1"}}"#;

const TOKENS: &str = r#"curl -X POST http://localhost:8765/agent/worker-1 \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"get_tokens","id":5}'"#;
const TOKENS_ANSWER: &str = r#"{"jsonrpc":"2.0","id":5,"result":{"system":150,"tools":0,"messages":42,"total":192,"budget":8000,"available":6000}}"#;

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
const UNKNOWN_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: unknown"}}"#;

fn fixture_with_worker() -> Fixture {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hello! How can I help you?");
    model.set_response("My name is Alice", "Nice to meet you, Alice!");
    model.set_response("What is my name?", "Your name is Alice.");
    let stage = Fixture { daemon: daemon_builder(&model).start(), model };
    assert_answers(&stage, CREATE, CREATE_ANSWER);
    stage
}

fn assert_answers(stage: &Fixture, command: &str, documented: &str) {
    let (status, answer) = run_documented(stage, command);
    assert_eq!(status, 200, "{answer}");
    assert_matches_document(&answer, documented);
}

/// What the document writes as `{"error": "…"}` is a JSON-RPC object now.
fn assert_refused(stage: &Fixture, command: &str, status: u16, code: i32, message: &str) {
    let answer = run_documented(stage, command);
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    assert_eq!(answer, (status, error));
}

#[test]
fn an_agent_is_created_used_listed_counted_and_destroyed() {
    let stage = fixture_with_worker();
    assert_answers(&stage, SEND, SEND_ANSWER);
    assert_answers(&stage, LIST, LIST_ANSWER);
    assert_answers(&stage, TOKENS, TOKENS_ANSWER);
    assert_answers(&stage, DESTROY, DESTROY_ANSWER);
    let (_, list) = run_documented(&stage, LIST);
    assert_eq!(list["result"], json!({ "agents": [], "total": 0 }));
}

#[test]
fn an_agent_remembers_a_conversation() {
    let stage = fixture_with_worker();
    let result = |command| -> Value { run_documented(&stage, command).1["result"].take() };
    assert_created(&result(CREATE_CHAT), "chat");
    assert_answers(&stage, ALICE, ALICE_ANSWER);
    assert_answers(&stage, NAME, NAME_ANSWER);
    assert_documented_conversation(&stage);
    assert_eq!(
        stage.send("worker-1", "!history")["content"],
        "!history",
        "another agent knows nothing of it"
    );
    assert_eq!(stage.send("chat", "!history")["content"], "My name is Alice | What is my name? | !history");
    assert_eq!(result(DESTROY_CHAT), json!({ "success": true, "agent_id": "chat" }));
    assert_all_valid(&stage.model);
}

#[test]
fn a_request_is_cancelled_from_another_terminal() {
    let stage = fixture_with_worker();
    let held = stage.start_send("worker-1", "!hold essay", "held");
    stage.model.wait_stalled(1);
    let essay = spawn_documented(&stage, ESSAY);
    wait_until("the essay to arrive", || {
        let (_, answer) = run_documented(&stage, CANCEL);
        let arrived = answer["result"]["cancelled"] == true;
        if arrived {
            assert_matches_document(&answer, CANCEL_ANSWER);
        }
        arrived
    });
    let (status, answer) = parse_curl_output(&essay.finish().stdout);
    assert_eq!(status, 200);
    assert_matches_document(
        &answer,
        r#"{"jsonrpc":"2.0","id":1,"result":{"cancelled":true,"request_id":"req-1"}}"#,
    );
    stage.model.release("essay");
    assert_eq!(held.next_result()["content"], " released essay");
}

#[test]
fn a_caller_without_the_token_and_an_agent_that_is_not_there_are_refused() {
    let stage = fixture_with_worker();
    assert_refused(&stage, NO_TOKEN, 401, -32600, "Authorization header required");
    assert_refused(&stage, WRONG_TOKEN, 403, -32600, "Invalid API key");
    assert_refused(&stage, NO_AGENT, 404, -32602, "Agent not found: nonexistent");
    assert_answers(&stage, UNKNOWN, UNKNOWN_ANSWER);
}

#[test]
fn the_server_is_shut_down() {
    let stage = fixture_with_worker();
    assert_answers(&stage, SHUTDOWN_SERVER, SHUTDOWN_SERVER_ANSWER);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
    assert!(std::net::TcpListener::bind(("127.0.0.1", stage.daemon.port())).is_ok(), "the port is free");
}
