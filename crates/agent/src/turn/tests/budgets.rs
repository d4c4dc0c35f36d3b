//! A budget that is used up during a turn: nothing new starts, and no result is lost.

use super::*;

const EXHAUSTED: TurnEvent = TurnEvent::BudgetExhausted(Resource::Tokens);
const NOTICE: &str = "[Stopping: the budget of tokens is used up]";

#[test]
fn exhausted_budget_in_a_model_call_ends_with_partial_text() {
    let harness = TurnHarness::run(10, [text("So far"), parallel("a"), EXHAUSTED]);
    let response = format!("So far{NOTICE}");
    assert_eq!(harness.appended, [user("hi"), Message::assistant(response.as_str(), Vec::new())]);
    assert_eq!(harness.end().content, response);
    assert_eq!(harness.end().halted, Some(Halt::Budget(Resource::Tokens)));
    assert_eq!(harness.end().outcome, TurnOutcome::Completed);
    assert!(harness.started.is_empty(), "calls of a partial response do not run");
}

#[test]
fn exhausted_budget_lets_running_calls_finish_only() {
    let mut harness = TurnHarness::new(10, 2);
    for event in [text("Look: "), parallel("a"), parallel("b"), parallel("c"), ordered("d"), MODEL_DONE] {
        harness.handle(event);
    }
    assert_eq!(harness.started, [0, 1]);
    assert!(harness.handle(EXHAUSTED).is_empty());
    assert!(harness.handle(done(1, "two")).is_empty());
    assert_eq!(harness.ends, []);
    assert!(harness.handle(failed(0, "one")).is_empty());
    let refused = budget_exhausted_result(Resource::Tokens);
    assert_eq!(refused, "Did not execute: the budget of tokens is used up");
    assert_eq!(harness.results(), ["one", "two", &refused, &refused]);
    assert_eq!(harness.history().last(), Some(&(Role::Assistant, NOTICE)));
    assert_eq!(harness.end().content, format!("Look: {NOTICE}"));
    assert_eq!(harness.end().halted, Some(Halt::Budget(Resource::Tokens)));
    assert_eq!(harness.model_calls, 1, "no further model call");
}

#[test]
fn halts_have_their_wire_names() {
    assert_eq!(Halt::IterationLimit.name(), "iteration_limit");
    assert_eq!(Halt::Budget(Resource::Turns).name(), "budget");
}
