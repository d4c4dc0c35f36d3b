//! Several rounds in one turn: tools that are not there, the limit of rounds, and models that say nothing.

use serde_json::json;

use crate::support::Fixture;
use crate::support::model_requests::{assert_all_valid, last_conversation};

const STOPPED: &str =
    "[Provider returned an empty response][Stopping: provider returned multiple empty responses in a row]";

fn fixture_with_worker(config: &str) -> Fixture {
    let stage = Fixture::with_config(config);
    stage.create("worker");
    stage
}

#[test]
fn a_call_of_an_unknown_tool_is_told_to_the_model_and_the_turn_goes_on() {
    let stage = fixture_with_worker("");
    let result = stage.send("worker", "!tool hammer {\"nail\": 1}");
    assert_eq!(result["content"], "tool said: Unknown tool: hammer");
    assert_eq!(result["halted_at_iteration_limit"], false);
    let several = stage.send("worker", "!tool saw {}\n!tool hammer {}\n!tool saw {}");
    assert_eq!(several["content"], "tool said: Unknown tool: saw, Unknown tool: hammer, Unknown tool: saw");
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
    assert_eq!(stage.context("worker")["last_iteration_count"], 1);
    assert_all_valid(&stage.model);
}

#[test]
fn usage_of_all_rounds_is_summed() {
    let stage = fixture_with_worker("");
    let result = stage.send("worker", "!tool hammer {}");
    let tokens = stage.daemon.call_result("/agent/worker", "get_tokens", json!({}));
    assert_eq!(tokens["used"]["requests"], 2);
    for name in ["input_tokens", "output_tokens", "cached_tokens"] {
        assert_eq!(result["usage"][name], tokens["used"][name], "{name}");
    }
}

#[test]
fn broken_arguments_of_a_call_break_nothing() {
    let stage = fixture_with_worker("");
    for call in
        ["!tool hammer {\"nail\": ", "!tool hammer nail", "!tool ../../etc/passwd {}", "!tool \u{1F528} []"]
    {
        let result = stage.send("worker", call);
        assert!(result["content"].as_str().unwrap().starts_with("tool said: Unknown tool: "), "{result}");
    }
    assert_all_valid(&stage.model);
}

#[test]
fn a_turn_halts_at_the_limit_of_rounds_and_the_next_goes_on() {
    let stage = fixture_with_worker("limits.tool_iterations_max = 1");
    let result = stage.send("worker", "!tool hammer {}");
    assert_eq!(result["content"], "[Max tool iterations reached]");
    assert_eq!(result["halted_at_iteration_limit"], true);
    assert_eq!(stage.model.requests().len(), 1);
    let context = stage.context("worker");
    assert_eq!(context["halted_at_iteration_limit"], true);
    assert_eq!((&context["last_iteration_count"], &context["max_tool_iterations"]), (&json!(1), &json!(1)));
    let next = stage.send("worker", "hi");
    assert_eq!((&next["content"], &next["halted_at_iteration_limit"]), (&json!("echo: hi"), &json!(false)));
    assert_eq!(stage.context("worker")["halted_at_iteration_limit"], false);
    assert_all_valid(&stage.model);
}

#[test]
fn a_model_that_says_nothing_is_asked_twice_and_then_left() {
    let stage = fixture_with_worker("");
    let result = stage.send("worker", "!empty");
    assert_eq!(result["content"], STOPPED);
    assert_eq!(stage.model.requests().len(), 2);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
    let sent = last_conversation(&stage.model);
    assert_eq!(sent[1].1, "[Stopping: provider returned multiple empty responses in a row]");
    assert_all_valid(&stage.model);
}

#[test]
fn an_empty_answer_in_the_last_round_ends_the_turn() {
    let stage = fixture_with_worker("limits.tool_iterations_max = 1");
    let result = stage.send("worker", "!empty");
    assert_eq!(result["content"], "[Stopping: provider returned multiple empty responses in a row]");
    assert_eq!(result["halted_at_iteration_limit"], false);
    assert_eq!(stage.model.requests().len(), 1);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
    assert_all_valid(&stage.model);
}

#[test]
fn an_answer_in_many_pieces_is_one_answer() {
    let stage = fixture_with_worker("");
    let text = "many pieces, \u{1F980} and one answer";
    assert_eq!(stage.send("worker", &format!("!chunks 30 {text}"))["content"], text);
    assert_eq!(stage.send("worker", "!slow 1 word by word")["content"], "word by word");
}
