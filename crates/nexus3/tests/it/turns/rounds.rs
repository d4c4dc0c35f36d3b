//! Turns with several rounds: unknown tools, the limit on rounds, and empty responses.

use serde_json::json;

use crate::support::Fixture;
use crate::support::model_requests::{assert_all_valid, last_conversation};

const STOPPED: &str =
    "[Provider returned an empty response][Stopping: provider returned multiple empty responses in a row]";

fn fixture_with_worker(config: &str) -> Fixture {
    let fixture = Fixture::with_config(config);
    fixture.create("worker");
    fixture
}

#[test]
fn unknown_tool_is_reported_to_the_model_and_turn_continues() {
    let fixture = fixture_with_worker("");
    let result = fixture.send("worker", "!tool hammer {\"nail\": 1}");
    assert_eq!(result["content"], "tool said: Unknown tool: hammer");
    assert_eq!(result["halted_at_iteration_limit"], false);
    let several = fixture.send("worker", "!tool saw {}\n!tool hammer {}\n!tool saw {}");
    assert_eq!(several["content"], "tool said: Unknown tool: saw, Unknown tool: hammer, Unknown tool: saw");
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
    assert_eq!(fixture.context("worker")["last_iteration_count"], 1);
    assert_all_valid(&fixture.model);
}

#[test]
fn usage_is_the_sum_of_all_rounds() {
    let fixture = fixture_with_worker("");
    let result = fixture.send("worker", "!tool hammer {}");
    let tokens = fixture.daemon.call_result("/agent/worker", "get_tokens", json!({}));
    assert_eq!(tokens["used"]["requests"], 2);
    for name in ["input_tokens", "output_tokens", "cached_tokens"] {
        assert_eq!(result["usage"][name], tokens["used"][name], "{name}");
    }
}

#[test]
fn malformed_calls_of_unknown_tools_do_not_fail_the_turn() {
    let fixture = fixture_with_worker("");
    for call in
        ["!tool hammer {\"nail\": ", "!tool hammer nail", "!tool ../../etc/passwd {}", "!tool \u{1F528} []"]
    {
        let result = fixture.send("worker", call);
        assert!(result["content"].as_str().unwrap().starts_with("tool said: Unknown tool: "), "{result}");
    }
    assert_all_valid(&fixture.model);
}

#[test]
fn turn_halts_at_the_round_limit_and_the_next_one_runs() {
    let fixture = fixture_with_worker("limits.tool_iterations_max = 1");
    let result = fixture.send("worker", "!tool hammer {}");
    assert_eq!(result["content"], "[Max tool iterations reached]");
    assert_eq!(result["halted_at_iteration_limit"], true);
    assert_eq!(fixture.model.requests().len(), 1);
    let context = fixture.context("worker");
    assert_eq!(context["halted_at_iteration_limit"], true);
    assert_eq!((&context["last_iteration_count"], &context["max_tool_iterations"]), (&json!(1), &json!(1)));
    let next = fixture.send("worker", "hi");
    assert_eq!((&next["content"], &next["halted_at_iteration_limit"]), (&json!("echo: hi"), &json!(false)));
    assert_eq!(fixture.context("worker")["halted_at_iteration_limit"], false);
    assert_all_valid(&fixture.model);
}

#[test]
fn two_empty_responses_end_the_turn() {
    let fixture = fixture_with_worker("");
    let result = fixture.send("worker", "!empty");
    assert_eq!(result["content"], STOPPED);
    assert_eq!(fixture.model.requests().len(), 2);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
    let sent = last_conversation(&fixture.model);
    assert_eq!(sent[1].1, "[Stopping: provider returned multiple empty responses in a row]");
    assert_all_valid(&fixture.model);
}

#[test]
fn empty_response_in_the_last_round_ends_the_turn() {
    let fixture = fixture_with_worker("limits.tool_iterations_max = 1");
    let result = fixture.send("worker", "!empty");
    assert_eq!(result["content"], "[Stopping: provider returned multiple empty responses in a row]");
    assert_eq!(result["halted_at_iteration_limit"], false);
    assert_eq!(fixture.model.requests().len(), 1);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
    assert_all_valid(&fixture.model);
}

#[test]
fn streamed_chunks_form_one_response() {
    let fixture = fixture_with_worker("");
    let text = "many pieces, \u{1F980} and one answer";
    assert_eq!(fixture.send("worker", &format!("!chunks 30 {text}"))["content"], text);
    assert_eq!(fixture.send("worker", "!slow 1 word by word")["content"], "word by word");
}
