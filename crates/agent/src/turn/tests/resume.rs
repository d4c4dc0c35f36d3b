//! Turns that are resumed after a crash, and turns that are interrupted instead.

use std::collections::BTreeMap;

use super::*;

fn tool_call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() }
}

/// The progress of a turn with these unfinished calls.
fn with_calls(ids: &[&str]) -> TurnProgress {
    TurnProgress {
        responses: 1,
        content: "see: ".to_owned(),
        calls: ids.iter().map(|id| tool_call(id)).collect(),
        ..TurnProgress::default()
    }
}

fn resume(progress: TurnProgress, schedules: Vec<Schedule>, rounds_max: u64) -> TurnHarness {
    let (turn, actions) = Turn::resume(progress, schedules, TurnLimits { rounds_max, calls_running_max: 8 });
    let mut harness =
        TurnHarness { turn, appended: Vec::new(), model_calls: 0, started: Vec::new(), ends: Vec::new() };
    harness.apply(actions);
    harness
}

fn repeated(schedule: &Schedule, count: usize) -> Vec<Schedule> {
    vec![schedule.clone(); count]
}

#[test]
fn turn_without_a_response_calls_the_model_again() {
    let mut harness = resume(TurnProgress::default(), Vec::new(), 10);
    assert_eq!(
        (harness.model_calls, harness.appended.len()),
        (1, 0),
        "its message is already in the context"
    );
    harness.handle(text("yes"));
    harness.handle(MODEL_DONE);
    assert_eq!((harness.end().content.as_str(), harness.end().rounds), ("yes", 1));
}

#[test]
fn earlier_responses_count_in_content_and_rounds() {
    let progress = TurnProgress { responses: 2, content: "one two ".to_owned(), ..TurnProgress::default() };
    let mut harness = resume(progress, Vec::new(), 10);
    harness.handle(text("three"));
    harness.handle(MODEL_DONE);
    assert_eq!((harness.end().content.as_str(), harness.end().rounds), ("one two three", 3));
}

#[test]
fn calls_that_had_not_started_run() {
    let mut harness = resume(with_calls(&["a", "b"]), repeated(&Schedule::Parallel, 2), 10);
    assert_eq!((harness.started.as_slice(), harness.model_calls), ([0, 1].as_slice(), 0));
    harness.handle(done(1, "B"));
    harness.handle(done(0, "A"));
    assert_eq!((harness.results(), harness.model_calls), (vec!["A", "B"], 1));
}

#[test]
fn finished_calls_are_not_repeated_and_repeatable_ones_are() {
    let started = BTreeMap::from([(0, ToolClass::Once), (1, ToolClass::Pure), (2, ToolClass::Keyed)]);
    let finished = BTreeMap::from([(0, ToolOutcome::Done("A".to_owned()))]);
    let progress = TurnProgress {
        started_calls: started,
        finished_calls: finished,
        ..with_calls(&["a", "b", "c", "d"])
    };
    let mut harness = resume(progress, repeated(&Schedule::Parallel, 4), 10);
    assert_eq!(harness.started, [1, 2, 3]);
    for (index, result) in [(1, "B"), (2, "C"), (3, "D")] {
        harness.handle(done(index, result));
    }
    assert_eq!(harness.results(), ["A", "B", "C", "D"]);
}

#[test]
fn started_once_call_gets_an_unknown_outcome() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Once)]), ..with_calls(&["a"]) };
    let harness = resume(progress, repeated(&Schedule::Ordered, 1), 10);
    assert_eq!((harness.started.len(), harness.model_calls), (0, 1), "the model is called at once");
    assert_eq!(harness.results(), [RESULT_UNKNOWN]);
    assert_eq!(harness.appended[0].ending, Some(Ending::Failed));
}

#[test]
fn ordered_calls_halt_after_an_unknown_outcome() {
    let progress = TurnProgress {
        started_calls: BTreeMap::from([(0, ToolClass::Once)]),
        ..with_calls(&["a", "b", "c"])
    };
    let schedules = vec![Schedule::Ordered, Schedule::Ordered, Schedule::Parallel];
    let mut harness = resume(progress, schedules, 10);
    assert_eq!(harness.started, [2]);
    harness.handle(done(2, "C"));
    assert_eq!(harness.results()[1], "Did not execute: halted due to error in previous tool");
}

#[test]
fn call_of_an_unknown_tool_gets_an_error_result() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Pure)]), ..with_calls(&["a", "b"]) };
    let unknown_tool = Schedule::Unusable("Unknown tool: x".to_owned());
    let mut harness = resume(progress, vec![unknown_tool, Schedule::Parallel], 10);
    assert_eq!(harness.started, [1]);
    harness.handle(done(1, "B"));
    assert_eq!(harness.results(), ["Unknown tool: x", "B"]);
}

#[test]
fn calls_beyond_the_limit_do_not_run_after_a_crash() {
    let ids: Vec<_> = (0..257).map(|index| format!("c{index}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let limits = TurnLimits { rounds_max: 10, calls_running_max: 1000 };
    let (_, actions) = Turn::resume(with_calls(&ids), repeated(&Schedule::Parallel, 257), limits);
    let started = actions.iter().filter(|action| matches!(action, TurnAction::RunTool(..))).count();
    assert_eq!(started, 256);
}

#[test]
fn added_instructions_are_delivered_before_the_model_call() {
    let steers = [user("one"), user("two")].into();
    let harness = resume(TurnProgress { steers, ..TurnProgress::default() }, Vec::new(), 10);
    assert_eq!(harness.history(), [(Role::User, "one"), (Role::User, "two")]);
    let steers = [user("one")].into();
    let started = BTreeMap::from([(0, ToolClass::Once)]);
    let harness = resume(
        TurnProgress { steers, started_calls: started, ..with_calls(&["a"]) },
        repeated(&Schedule::Parallel, 1),
        10,
    );
    assert_eq!(harness.history(), [(Role::Tool, RESULT_UNKNOWN), (Role::User, "one")], "after the results");
}

#[test]
fn resumed_turn_without_rounds_left_ends() {
    let progress =
        TurnProgress { started_calls: BTreeMap::from([(0, ToolClass::Once)]), ..with_calls(&["a"]) };
    let harness = resume(progress, repeated(&Schedule::Parallel, 1), 1);
    assert_eq!((harness.model_calls, harness.end().halted), (0, Some(Halt::IterationLimit)));
    assert_eq!(harness.history().last(), Some(&(Role::Assistant, NOTICE_LIMIT)));
}

fn interrupt() -> TurnEvent {
    TurnEvent::Interrupt("the daemon stopped".to_owned())
}

#[test]
fn interruption_completes_every_call_and_ends_the_context() {
    let started = BTreeMap::from([(0, ToolClass::Once), (1, ToolClass::Pure), (2, ToolClass::Once)]);
    let finished = BTreeMap::from([(2, ToolOutcome::Done("C".to_owned()))]);
    let progress = TurnProgress {
        started_calls: started,
        finished_calls: finished,
        ..with_calls(&["a", "b", "c", "d"])
    };
    let mut harness = resume(progress, repeated(&Schedule::Parallel, 4), 10);
    harness.handle(interrupt());
    let stopped = "Did not execute: the daemon stopped";
    assert_eq!(harness.results(), [RESULT_UNKNOWN, stopped, "C", stopped]);
    assert_eq!(harness.appended.last(), Some(&Message::aborted("", Ending::Interrupted)));
    assert_eq!(harness.end().outcome, TurnOutcome::Interrupted("the daemon stopped".to_owned()));
    assert_eq!(harness.end().content, "see: ", "earlier text stays in the content");
}

#[test]
fn interruption_before_any_response_appends_an_empty_one() {
    let mut harness = resume(TurnProgress::default(), Vec::new(), 10);
    harness.handle(interrupt());
    assert_eq!(harness.appended, [Message::aborted("", Ending::Interrupted)]);
}

#[test]
fn interruption_delivers_added_instructions() {
    let mut harness = TurnHarness::new(10, 8);
    harness.handle(steer("word"));
    harness.handle(text("hel"));
    harness.handle(interrupt());
    assert_eq!(harness.history(), [(Role::User, "hi"), (Role::User, "word"), (Role::Assistant, "hel")]);
    assert_eq!(harness.appended[2].ending, Some(Ending::Interrupted));
}

#[test]
fn ended_turn_cannot_be_interrupted() {
    let mut harness = TurnHarness::run(10, [text("bye"), MODEL_DONE]);
    assert_eq!(harness.turn.handle(interrupt()), []);
    assert_eq!(harness.end().outcome, TurnOutcome::Completed);
    let mut harness = resume(TurnProgress::default(), Vec::new(), 10);
    harness.handle(interrupt());
    for event in [text("x"), MODEL_DONE, TurnEvent::Cancel, interrupt(), steer("hello?")] {
        assert_eq!(harness.turn.handle(event), []);
    }
    harness.end();
}
