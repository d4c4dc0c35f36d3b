//! The oldest document: one agent at `/`, without a token.

use serde_json::json;
use testkit::ScriptedModel;

use super::{
    assert_documented_conversation, assert_matches_document, parse_curl_output, run_documented,
    spawn_documented,
};
use crate::support::model_requests::assert_all_valid;
use crate::support::{Fixture, agent_ids, daemon_builder, wait_until};

const HELLO: &str = r#"curl -X POST http://localhost:8765 \
  -H "Content-Type: application/json" \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":1}'"#;
const HELLO_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":"Hello! How can I help you?","request_id":"req_abc123"}}"#;

const ALICE: &str = r#"# First message
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"My name is Alice"},"id":1}'"#;
const ALICE_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"Nice to meet you, Alice!"}}"#;

const NAME: &str = r#"# Second message (agent remembers context)
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"What is my name?"},"id":2}'"#;
const NAME_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Your name is Alice."}}"#;

const SHUTDOWN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"shutdown","id":2}'"#;
const SHUTDOWN_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"success":true}}"#;

const TOKENS: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"get_tokens","id":3}'"#;
const TOKENS_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"system":150,"tools":0,"messages":42,"total":192,"budget":8000,"available":6000}}"#;

const UNKNOWN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"unknown","id":4}'"#;
const UNKNOWN_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found: unknown"}}"#;

const NO_CONTENT: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{},"id":5}'"#;
const NO_CONTENT_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"Missing required parameter: content"}}"#;

const ESSAY: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Write a long essay about the history of computing","request_id":"my-req-1"},"id":1}'"#;

const CANCEL: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"cancel","params":{"request_id":"my-req-1"},"id":2}'"#;
const CANCEL_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":true,"request_id":"my-req-1"}}"#;
const NOT_FOUND_RESPONSE: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":false,"request_id":"my-req-1"}}"#;

const HELLO_AGAIN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":1}'"#;

const HI: &str = r#"# Then send requests via curl, httpie, or any HTTP client
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1}'"#;

/// A daemon as in the document: every program on this machine may call it.
fn start_fixture() -> Fixture {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hello! How can I help you?");
    model.set_response("My name is Alice", "Nice to meet you, Alice!");
    model.set_response("What is my name?", "Your name is Alice.");
    let daemon = daemon_builder(&model).arg("--no-auth").start();
    assert_eq!(daemon.token(), None);
    Fixture { daemon, model }
}

fn assert_responds(fixture: &Fixture, command: &str, documented: &str) {
    let (status, response) = run_documented(fixture, command);
    assert_eq!(status, 200, "{response}");
    assert_matches_document(&response, documented);
}

#[test]
fn send_returns_a_response_and_a_request_id() {
    let fixture = start_fixture();
    assert_responds(&fixture, HELLO, HELLO_RESPONSE);
    assert_responds(&fixture, HELLO_AGAIN, HELLO_RESPONSE);
    let (status, response) = run_documented(&fixture, HI);
    assert_eq!((status, &response["result"]["content"]), (200, &json!("echo: Hi")));
    assert_eq!(agent_ids(&fixture.daemon), ["main"]);
}

#[test]
fn agent_remembers_a_conversation() {
    let fixture = start_fixture();
    assert_responds(&fixture, ALICE, ALICE_RESPONSE);
    assert_responds(&fixture, NAME, NAME_RESPONSE);
    assert_documented_conversation(&fixture);
    assert_eq!(fixture.send("main", "!history")["content"], "My name is Alice | What is my name? | !history");
    assert_all_valid(&fixture.model);
}

#[test]
fn get_tokens_matches_the_document() {
    let fixture = start_fixture();
    assert_responds(&fixture, HELLO, HELLO_RESPONSE);
    assert_responds(&fixture, TOKENS, TOKENS_RESPONSE);
}

#[test]
fn unknown_method_and_missing_parameter_are_reported() {
    let fixture = start_fixture();
    assert_responds(&fixture, UNKNOWN, UNKNOWN_RESPONSE);
    assert_responds(&fixture, NO_CONTENT, NO_CONTENT_RESPONSE);
}

#[test]
fn request_is_cancelled_from_another_terminal() {
    let fixture = start_fixture();
    // A running turn keeps the essay in the queue, so that the other terminal can cancel it at any time.
    let context = fixture.daemon.call_result("/", "get_context", json!({}));
    assert_eq!(context["message_count"], 0);
    let held = fixture.start_send("main", "!hold essay", "held");
    fixture.model.wait_stalled(1);
    let essay = spawn_documented(&fixture, ESSAY);
    wait_until("the essay to arrive", || {
        let (_, response) = run_documented(&fixture, CANCEL);
        let arrived = response["result"]["cancelled"] == true;
        assert_matches_document(&response, if arrived { CANCEL_RESPONSE } else { NOT_FOUND_RESPONSE });
        arrived
    });
    let (status, response) = parse_curl_output(&essay.finish().stdout);
    assert_eq!((status, &response["id"]), (200, &json!(1)));
    let expected = json!({ "cancelled": true, "content": "", "request_id": "my-req-1", "halted_at_iteration_limit": false });
    assert_eq!(response["result"], expected);
    assert_responds(&fixture, CANCEL, NOT_FOUND_RESPONSE);
    fixture.model.release("essay");
    assert_eq!(held.next_result()["content"], " released essay");
}

#[test]
fn shutdown_responds_and_stops_the_daemon() {
    let fixture = start_fixture();
    assert_responds(&fixture, HELLO, HELLO_RESPONSE);
    assert_responds(&fixture, SHUTDOWN, SHUTDOWN_RESPONSE);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}
