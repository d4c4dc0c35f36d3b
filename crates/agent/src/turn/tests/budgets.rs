//! A budget that is used up in the middle of a turn: nothing new begins, nothing that ran is lost.

use super::*;

const SPENT: TurnEvent = TurnEvent::BudgetExhausted(Resource::Tokens);
const NOTICE: &str = "[Stopping: the budget of tokens is used up]";

#[test]
fn while_the_model_is_asked_its_words_so_far_become_the_answer() {
    let play = TurnHarness::run(10, [text("So far"), parallel("a"), SPENT]);
    let answer = format!("So far{NOTICE}");
    assert_eq!(play.appended, [user("hi"), Message::assistant(answer.as_str(), Vec::new())]);
    assert_eq!(play.end().content, answer);
    assert_eq!(play.end().halted, Some(Halt::Budget(Resource::Tokens)));
    assert_eq!(play.end().outcome, TurnOutcome::Completed);
    assert_eq!(play.started, [], "half an answer makes no calls");
}

#[test]
fn while_calls_run_they_may_end_and_the_rest_is_refused() {
    let mut play = TurnHarness::new(10, 2);
    for event in [text("Look: "), parallel("a"), parallel("b"), parallel("c"), ordered("d"), MODEL_DONE] {
        play.handle(event);
    }
    assert_eq!(play.started, [0, 1]);
    assert_eq!(play.handle(SPENT), []);
    assert_eq!(play.handle(done(1, "two")), []);
    assert_eq!(play.ends, []);
    assert_eq!(play.handle(failed(0, "one")), []);
    let refused = budget_exhausted_result(Resource::Tokens);
    assert_eq!(refused, "Did not execute: the budget of tokens is used up");
    assert_eq!(play.results(), ["one", "two", &refused, &refused]);
    assert_eq!(play.history().last(), Some(&(Role::Assistant, NOTICE)));
    assert_eq!(play.end().content, format!("Look: {NOTICE}"));
    assert_eq!(play.end().halted, Some(Halt::Budget(Resource::Tokens)));
    assert_eq!(play.model_calls, 1, "the model is not asked again");
}

#[test]
fn a_halt_has_a_word_for_clients() {
    assert_eq!(Halt::IterationLimit.name(), "iteration_limit");
    assert_eq!(Halt::Budget(Resource::Turns).name(), "budget");
}
