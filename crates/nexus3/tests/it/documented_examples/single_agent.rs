//! The oldest document: one agent at `/`, nobody asks for a token.

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
const HELLO_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":"Hello! How can I help you?","request_id":"req_abc123"}}"#;

const ALICE: &str = r#"# First message
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"My name is Alice"},"id":1}'"#;
const ALICE_ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"Nice to meet you, Alice!"}}"#;

const NAME: &str = r#"# Second message (agent remembers context)
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"What is my name?"},"id":2}'"#;
const NAME_ANSWER: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"content":"Your name is Alice."}}"#;

const SHUTDOWN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"shutdown","id":2}'"#;
const SHUTDOWN_ANSWER: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"success":true}}"#;

const TOKENS: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"get_tokens","id":3}'"#;
const TOKENS_ANSWER: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"system":150,"tools":0,"messages":42,"total":192,"budget":8000,"available":6000}}"#;

const UNKNOWN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"unknown","id":4}'"#;
const UNKNOWN_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found: unknown"}}"#;

const NO_CONTENT: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{},"id":5}'"#;
const NO_CONTENT_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"Missing required parameter: content"}}"#;

const ESSAY: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Write a long essay about the history of computing","request_id":"my-req-1"},"id":1}'"#;

const CANCEL: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"cancel","params":{"request_id":"my-req-1"},"id":2}'"#;
const CANCEL_ANSWER: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":true,"request_id":"my-req-1"}}"#;
const NOT_FOUND_ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":2,"result":{"cancelled":false,"request_id":"my-req-1"}}"#;

const HELLO_AGAIN: &str = r#"curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":1}'"#;

const HI: &str = r#"# Then send requests via curl, httpie, or any HTTP client
curl -X POST http://localhost:8765 \
  -d '{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1}'"#;

/// The daemon of the document's time: everybody on this machine may call.
fn start_fixture() -> Fixture {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hello! How can I help you?");
    model.set_response("My name is Alice", "Nice to meet you, Alice!");
    model.set_response("What is my name?", "Your name is Alice.");
    let daemon = daemon_builder(&model).arg("--no-auth").start();
    assert_eq!(daemon.token(), None);
    Fixture { daemon, model }
}

fn assert_answers(stage: &Fixture, command: &str, documented: &str) {
    let (status, answer) = run_documented(stage, command);
    assert_eq!(status, 200, "{answer}");
    assert_matches_document(&answer, documented);
}

#[test]
fn a_message_is_answered_and_the_send_gets_a_name() {
    let stage = start_fixture();
    assert_answers(&stage, HELLO, HELLO_ANSWER);
    assert_answers(&stage, HELLO_AGAIN, HELLO_ANSWER);
    let (status, answer) = run_documented(&stage, HI);
    assert_eq!((status, &answer["result"]["content"]), (200, &json!("echo: Hi")));
    assert_eq!(agent_ids(&stage.daemon), ["main"]);
}

#[test]
fn the_agent_remembers_a_conversation() {
    let stage = start_fixture();
    assert_answers(&stage, ALICE, ALICE_ANSWER);
    assert_answers(&stage, NAME, NAME_ANSWER);
    assert_documented_conversation(&stage);
    assert_eq!(stage.send("main", "!history")["content"], "My name is Alice | What is my name? | !history");
    assert_all_valid(&stage.model);
}

#[test]
fn the_context_is_counted_in_tokens() {
    let stage = start_fixture();
    assert_answers(&stage, HELLO, HELLO_ANSWER);
    assert_answers(&stage, TOKENS, TOKENS_ANSWER);
}

#[test]
fn a_method_that_is_not_there_and_a_missing_parameter_are_told() {
    let stage = start_fixture();
    assert_answers(&stage, UNKNOWN, UNKNOWN_ANSWER);
    assert_answers(&stage, NO_CONTENT, NO_CONTENT_ANSWER);
}

#[test]
fn a_request_is_cancelled_from_another_terminal() {
    let stage = start_fixture();
    // Keeps the essay waiting, so that there is something to cancel whenever the other terminal gets to it.
    let busy = stage.daemon.call_result("/", "get_context", json!({}));
    assert_eq!(busy["message_count"], 0);
    let held = stage.start_send("main", "!hold essay", "held");
    stage.model.wait_stalled(1);
    let essay = spawn_documented(&stage, ESSAY);
    wait_until("the essay to arrive", || {
        let (_, answer) = run_documented(&stage, CANCEL);
        let arrived = answer["result"]["cancelled"] == true;
        assert_matches_document(&answer, if arrived { CANCEL_ANSWER } else { NOT_FOUND_ANSWER });
        arrived
    });
    let (status, answer) = parse_curl_output(&essay.finish().stdout);
    assert_eq!((status, &answer["id"]), (200, &json!(1)));
    let expected = json!({ "cancelled": true, "content": "", "request_id": "my-req-1", "halted_at_iteration_limit": false });
    assert_eq!(answer["result"], expected);
    assert_answers(&stage, CANCEL, NOT_FOUND_ANSWER);
    stage.model.release("essay");
    assert_eq!(held.next_result()["content"], " released essay");
}

#[test]
fn shutdown_is_answered_and_ends_the_daemon() {
    let stage = start_fixture();
    assert_answers(&stage, HELLO, HELLO_ANSWER);
    assert_answers(&stage, SHUTDOWN, SHUTDOWN_ANSWER);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}
