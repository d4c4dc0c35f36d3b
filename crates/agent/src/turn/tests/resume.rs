//! Turns that go on after a crash, and turns that do not.

use std::collections::BTreeMap;

use super::*;

fn tool_call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() }
}

/// A turn with these calls open.
fn with_calls(ids: &[&str]) -> TurnProgress {
    TurnProgress {
        responses: 1,
        content: "see: ".to_owned(),
        calls: ids.iter().map(|id| tool_call(id)).collect(),
        ..TurnProgress::default()
    }
}

fn resume(progress: TurnProgress, manners: Vec<Schedule>, rounds_max: u64) -> TurnHarness {
    let (turn, actions) = Turn::resume(progress, manners, TurnLimits { rounds_max, calls_running_max: 8 });
    let mut play =
        TurnHarness { turn, appended: Vec::new(), model_calls: 0, started: Vec::new(), ends: Vec::new() };
    play.apply(actions);
    play
}

fn repeated(manner: &Schedule, count: usize) -> Vec<Schedule> {
    vec![manner.clone(); count]
}

#[test]
fn a_turn_that_had_not_been_answered_asks_once_more() {
    let mut play = resume(TurnProgress::default(), Vec::new(), 10);
    assert_eq!((play.model_calls, play.appended.len()), (1, 0), "its message is in the context already");
    play.handle(text("yes"));
    play.handle(MODEL_DONE);
    assert_eq!((play.end().content.as_str(), play.end().rounds), ("yes", 1));
}

#[test]
fn what_was_said_before_is_part_of_the_content_and_of_the_rounds() {
    let progress = TurnProgress { responses: 2, content: "one two ".to_owned(), ..TurnProgress::default() };
    let mut play = resume(progress, Vec::new(), 10);
    play.handle(text("three"));
    play.handle(MODEL_DONE);
    assert_eq!((play.end().content.as_str(), play.end().rounds), ("one two three", 3));
}

#[test]
fn calls_that_had_not_begun_run() {
    let mut play = resume(with_calls(&["a", "b"]), repeated(&Schedule::Parallel, 2), 10);
    assert_eq!((play.started.as_slice(), play.model_calls), ([0, 1].as_slice(), 0));
    play.handle(done(1, "B"));
    play.handle(done(0, "A"));
    assert_eq!((play.results(), play.model_calls), (vec!["A", "B"], 1));
}

#[test]
fn what_was_done_is_not_done_again_and_what_may_run_again_does() {
    let begun = BTreeMap::from([(0, ToolClass::Once), (1, ToolClass::Pure), (2, ToolClass::Keyed)]);
    let done_before = BTreeMap::from([(0, ToolOutcome::Done("A".to_owned()))]);
    let progress = TurnProgress {
        started_calls: begun,
        finished_calls: done_before,
        ..with_calls(&["a", "b", "c", "d"])
    };
    let mut play = resume(progress, repeated(&Schedule::Parallel, 4), 10);
    assert_eq!(play.started, [1, 2, 3]);
    for (place, result) in [(1, "B"), (2, "C"), (3, "D")] {
        play.handle(done(place, result));
    }
    assert_eq!(play.results(), ["A", "B", "C", "D"]);
}

#[test]
fn a_call_that_may_have_run_and_must_not_run_twice_is_unknown() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Once)]), ..with_calls(&["a"]) };
    let play = resume(progress, repeated(&Schedule::Ordered, 1), 10);
    assert_eq!((play.started.len(), play.model_calls), (0, 1), "the model is asked at once");
    assert_eq!(play.results(), [RESULT_UNKNOWN]);
    assert_eq!(play.appended[0].ending, Some(Ending::Failed));
}

#[test]
fn after_an_ordered_call_with_an_unknown_outcome_no_ordered_one_runs() {
    let progress = TurnProgress {
        started_calls: BTreeMap::from([(0, ToolClass::Once)]),
        ..with_calls(&["a", "b", "c"])
    };
    let manners = vec![Schedule::Ordered, Schedule::Ordered, Schedule::Parallel];
    let mut play = resume(progress, manners, 10);
    assert_eq!(play.started, [2]);
    play.handle(done(2, "C"));
    assert_eq!(play.results()[1], "Did not execute: halted due to error in previous tool");
}

#[test]
fn a_call_whose_tool_is_gone_is_told_so() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Pure)]), ..with_calls(&["a", "b"]) };
    let gone = Schedule::Unusable("Unknown tool: x".to_owned());
    let mut play = resume(progress, vec![gone, Schedule::Parallel], 10);
    assert_eq!(play.started, [1]);
    play.handle(done(1, "B"));
    assert_eq!(play.results(), ["Unknown tool: x", "B"]);
}

#[test]
fn calls_beyond_the_most_that_an_answer_may_make_do_not_run_after_a_crash_either() {
    let ids: Vec<_> = (0..257).map(|place| format!("c{place}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let limits = TurnLimits { rounds_max: 10, calls_running_max: 1000 };
    let (_, actions) = Turn::resume(with_calls(&ids), repeated(&Schedule::Parallel, 257), limits);
    let started = actions.iter().filter(|action| matches!(action, TurnAction::RunTool(..))).count();
    assert_eq!(started, 256);
}

#[test]
fn words_that_were_added_are_delivered_before_the_model_is_asked() {
    let steers = [user("one"), user("two")].into();
    let play = resume(TurnProgress { steers, ..TurnProgress::default() }, Vec::new(), 10);
    assert_eq!(play.history(), [(Role::User, "one"), (Role::User, "two")]);
    let steers = [user("one")].into();
    let begun = BTreeMap::from([(0, ToolClass::Once)]);
    let play = resume(
        TurnProgress { steers, started_calls: begun, ..with_calls(&["a"]) },
        repeated(&Schedule::Parallel, 1),
        10,
    );
    assert_eq!(play.history(), [(Role::Tool, RESULT_UNKNOWN), (Role::User, "one")], "after the results");
}

#[test]
fn a_turn_that_had_used_all_its_rounds_ends_when_it_goes_on() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Once)]), ..with_calls(&["a"]) };
    let play = resume(progress, repeated(&Schedule::Parallel, 1), 1);
    assert_eq!((play.model_calls, play.end().halted), (0, Some(Halt::IterationLimit)));
    assert_eq!(play.history().last(), Some(&(Role::Assistant, NOTICE_LIMIT)));
}

fn interrupt() -> TurnEvent {
    TurnEvent::Interrupt("the daemon stopped".to_owned())
}

#[test]
fn an_interruption_gives_every_call_a_result_and_ends_on_an_answer() {
    let begun = BTreeMap::from([(0, ToolClass::Once), (1, ToolClass::Pure), (2, ToolClass::Once)]);
    let done_before = BTreeMap::from([(2, ToolOutcome::Done("C".to_owned()))]);
    let progress = TurnProgress {
        started_calls: begun,
        finished_calls: done_before,
        ..with_calls(&["a", "b", "c", "d"])
    };
    let mut play = resume(progress, repeated(&Schedule::Parallel, 4), 10);
    play.handle(interrupt());
    let stopped = "Did not execute: the daemon stopped";
    assert_eq!(play.results(), [RESULT_UNKNOWN, stopped, "C", stopped]);
    assert_eq!(play.appended.last(), Some(&Message::aborted("", Ending::Interrupted)));
    assert_eq!(play.end().outcome, TurnOutcome::Interrupted("the daemon stopped".to_owned()));
    assert_eq!(play.end().content, "see: ", "what was said is kept");
}

#[test]
fn an_interruption_before_the_first_answer_leaves_one() {
    let mut play = resume(TurnProgress::default(), Vec::new(), 10);
    play.handle(interrupt());
    assert_eq!(play.appended, [Message::aborted("", Ending::Interrupted)]);
}

#[test]
fn an_interruption_delivers_words_that_were_added() {
    let mut play = TurnHarness::new(10, 8);
    play.handle(steer("word"));
    play.handle(text("hel"));
    play.handle(interrupt());
    assert_eq!(play.history(), [(Role::User, "hi"), (Role::User, "word"), (Role::Assistant, "hel")]);
    assert_eq!(play.appended[2].ending, Some(Ending::Interrupted));
}

#[test]
fn after_its_end_nothing_is_interrupted() {
    let mut play = TurnHarness::run(10, [text("bye"), MODEL_DONE]);
    assert_eq!(play.turn.handle(interrupt()), []);
    assert_eq!(play.end().outcome, TurnOutcome::Completed);
    let mut play = resume(TurnProgress::default(), Vec::new(), 10);
    play.handle(interrupt());
    for event in [text("x"), MODEL_DONE, TurnEvent::Cancel, interrupt(), steer("hello?")] {
        assert_eq!(play.turn.handle(event), []);
    }
    play.end();
}
