//! The ledger: requests and complete responses per round.

use serde_json::json;
use testkit::{CallCounts, ModelOptions, ScriptedModel};

use crate::support::{chat_request, chat_request_with, send_chat, start_chat, streamed_text};

fn call_counts(requests: usize, responses: usize) -> CallCounts {
    CallCounts { requests, responses }
}

#[test]
fn calls_are_counted_by_user_message_and_round() {
    let model = ScriptedModel::start();
    let user = json!({ "role": "user", "content": "!tool a {}" });
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [] });
    let result = json!({ "role": "tool", "content": "done" });
    for messages in [json!([user]), json!([user, call, result]), json!([user, call, result])] {
        send_chat(&model, &chat_request_with(messages));
    }
    send_chat(&model, &chat_request("Hello"));
    assert_eq!(model.call_counts("!tool a {}", 0), call_counts(1, 1));
    assert_eq!(model.call_counts("!tool a {}", 1), call_counts(2, 2));
    assert_eq!(model.ledger().counts("Hello", 0), call_counts(1, 1));
    assert_eq!(model.call_counts("never", 0), call_counts(0, 0));
    assert_eq!(model.ledger().iter().count(), 3);
}

#[test]
fn only_complete_responses_are_counted() {
    let model = ScriptedModel::start();
    let held = start_chat(&model, "!hold gate so far");
    model.wait_called("!hold gate so far", 0, 1);
    model.wait_stalled(1);
    assert_eq!(model.call_counts("!hold gate so far", 0), call_counts(1, 0));
    drop(held);
    model.wait_aborted(1);
    model.release("gate");
    assert_eq!(streamed_text(&model, &chat_request("!hold gate so far")), "so far released gate");
    assert_eq!(model.call_counts("!hold gate so far", 0), call_counts(2, 1));
    let mut cut = start_chat(&model, "!cut half");
    cut.read_to_end();
    assert_eq!(model.call_counts("!cut half", 0), call_counts(1, 0));
    assert_eq!(model.aborted(), 1, "a cut is no abort");
}

#[test]
fn rejected_or_unrecorded_requests_are_not_counted() {
    let model = ScriptedModel::with_key("sk-1");
    assert_eq!(send_chat(&model, &chat_request("Hello")).status, 401);
    assert_eq!(model.call_counts("Hello", 0), call_counts(0, 0));
    let options = ModelOptions { record_ledger: false, ..ModelOptions::default() };
    let model = ScriptedModel::open(options).expect("a free port");
    assert_eq!(send_chat(&model, &chat_request("Hello")).status, 200);
    assert_eq!(model.ledger().iter().count(), 0);
}
