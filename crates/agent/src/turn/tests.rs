//! Turns as scripts of events with expected actions. This file covers responses and ends; the submodules cover
//! scheduling, added instructions, budgets, resumption and random scripts.

mod budgets;
mod resume;
mod scripts;
mod steers;
mod tool_scheduling;

use super::*;
use crate::{FaultKind, MessageSource, Role};

/// A turn with a record of all its actions.
struct TurnHarness {
    turn: Turn,
    appended: Vec<Message>,
    model_calls: usize,
    /// Indices of calls, in the order in which they were started.
    started: Vec<usize>,
    ends: Vec<TurnEnd>,
}

impl TurnHarness {
    fn new(rounds_max: u64, calls_running_max: usize) -> Self {
        let limits = TurnLimits { rounds_max, calls_running_max };
        let (turn, actions) = Turn::start(limits);
        let mut harness =
            Self { turn, appended: vec![user("hi")], model_calls: 0, started: Vec::new(), ends: Vec::new() };
        harness.apply(actions);
        harness
    }

    fn run(rounds_max: u64, events: impl IntoIterator<Item = TurnEvent>) -> Self {
        let mut harness = Self::new(rounds_max, 8);
        events.into_iter().for_each(|event| drop(harness.handle(event)));
        harness
    }

    /// Feeds an event to the turn; returns the indices of the calls that it started.
    fn handle(&mut self, event: TurnEvent) -> Vec<usize> {
        let before = self.started.len();
        let actions = self.turn.handle(event);
        self.apply(actions);
        self.started[before..].to_vec()
    }

    fn apply(&mut self, actions: Vec<TurnAction>) {
        for action in actions {
            assert!(self.ends.is_empty(), "action after the end: {action:?}");
            match action {
                TurnAction::Append(message) => self.appended.push(message),
                TurnAction::CallModel => self.model_calls += 1,
                TurnAction::RunTool(index, _) => self.started.push(index),
                TurnAction::End(end) => self.ends.push(end),
            }
        }
    }

    /// Role and text of each appended message.
    fn history(&self) -> Vec<(Role, &str)> {
        self.appended.iter().map(|message| (message.role, message.text.as_str())).collect()
    }

    /// The tool results, in the order in which they were appended.
    fn results(&self) -> Vec<&str> {
        let results = self.appended.iter().filter(|message| message.role == Role::Tool);
        results.map(|message| message.text.as_str()).collect()
    }

    fn end(&self) -> &TurnEnd {
        assert_eq!(self.ends.len(), 1, "the turn ends once");
        &self.ends[0]
    }
}

fn user(text: &str) -> Message {
    Message::user(text, MessageSource::default())
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(text.to_owned())
}

fn call(id: &str, schedule: Schedule) -> TurnEvent {
    let call = ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() };
    TurnEvent::ToolCall(call, schedule)
}

fn parallel(id: &str) -> TurnEvent {
    call(id, Schedule::Parallel)
}

fn ordered(id: &str) -> TurnEvent {
    call(id, Schedule::Ordered)
}

fn unusable(id: &str, why: &str) -> TurnEvent {
    call(id, Schedule::Unusable(why.to_owned()))
}

fn done(index: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(index, ToolOutcome::Done(text.to_owned()))
}

fn failed(index: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(index, ToolOutcome::Failed(text.to_owned()))
}

fn denied(index: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(index, ToolOutcome::Denied(text.to_owned()))
}

fn steer(text: &str) -> TurnEvent {
    TurnEvent::Steer(user(text))
}

fn fault() -> Fault {
    Fault::new(FaultKind::Model, "gone")
}

const MODEL_DONE: TurnEvent = TurnEvent::ModelDone;

#[test]
fn text_becomes_the_response() {
    let usage = Usage { input: 3, output: 2, cached: 1, ..Usage::default() };
    let harness = TurnHarness::run(10, [text("Hel"), text("lo"), TurnEvent::Usage(usage), MODEL_DONE]);
    assert_eq!(harness.history(), [(Role::User, "hi"), (Role::Assistant, "Hello")]);
    assert_eq!(harness.model_calls, 1);
    let end = TurnEnd {
        outcome: TurnOutcome::Completed,
        content: "Hello".into(),
        usage: Some(usage),
        rounds: 1,
        halted: None,
    };
    assert_eq!(harness.ends, [end]);
}

#[test]
fn tool_round_calls_model_again_and_content_has_all_text() {
    let usage = TurnEvent::Usage(Usage { input: 3, output: 2, cached: 1, ..Usage::default() });
    let harness = TurnHarness::run(
        10,
        [
            text("Let me see. "),
            parallel("a"),
            usage.clone(),
            MODEL_DONE,
            done(0, "42"),
            text("It is 42."),
            usage,
            MODEL_DONE,
        ],
    );
    let expected = [
        (Role::User, "hi"),
        (Role::Assistant, "Let me see. "),
        (Role::Tool, "42"),
        (Role::Assistant, "It is 42."),
    ];
    assert_eq!(harness.history(), expected);
    assert_eq!((harness.model_calls, harness.started.as_slice()), (2, [0].as_slice()));
    assert_eq!((harness.end().content.as_str(), harness.end().rounds), ("Let me see. It is 42.", 2));
    assert_eq!(
        harness.end().usage,
        Some(Usage { input: 6, output: 4, cached: 2, ..Usage::default() }),
        "usage adds up"
    );
}

#[test]
fn reasoning_is_stored_only_with_the_calls_that_follow() {
    let reasoning = || TurnEvent::ReasoningBlock("[1]".to_owned());
    let harness = TurnHarness::run(
        10,
        [reasoning(), parallel("a"), MODEL_DONE, done(0, ""), reasoning(), text("so"), MODEL_DONE],
    );
    let blocks: Vec<_> = harness.appended.iter().map(|message| message.reasoning_block.as_deref()).collect();
    assert_eq!(blocks, [None, Some("[1]"), None, None]);
}

#[test]
fn round_limit_halts_the_turn_with_a_notice() {
    let events = [parallel("a"), MODEL_DONE, done(0, "1"), parallel("b"), MODEL_DONE, done(0, "2")];
    let harness = TurnHarness::run(2, events);
    assert_eq!(harness.model_calls, 2);
    assert_eq!(harness.end().halted, Some(Halt::IterationLimit));
    assert_eq!((harness.end().content.as_str(), harness.end().rounds), (NOTICE_LIMIT, 2));
    assert_eq!(
        harness.history().last(),
        Some(&(Role::Assistant, NOTICE_LIMIT)),
        "the context ends with an assistant message"
    );
    assert_eq!(harness.results(), ["1", "2"], "the last results are appended too");
}

#[test]
fn empty_response_is_retried_once() {
    let harness = TurnHarness::run(10, [MODEL_DONE, text("now"), MODEL_DONE]);
    assert_eq!(harness.model_calls, 2);
    assert_eq!(harness.end().content, format!("{NOTICE_EMPTY}now"));
    let harness = TurnHarness::run(10, [MODEL_DONE, MODEL_DONE]);
    assert_eq!(harness.model_calls, 2);
    assert_eq!(harness.end().content, format!("{NOTICE_EMPTY}{NOTICE_EMPTY_AGAIN}"));
    assert_eq!((&harness.end().outcome, harness.end().halted), (&TurnOutcome::Completed, None));
    let harness = TurnHarness::run(1, [MODEL_DONE]);
    assert_eq!(harness.model_calls, 1, "not beyond the round limit");
}

#[test]
fn truncated_response_gets_a_notice_and_is_stored_as_is() {
    let harness = TurnHarness::run(10, [text("So f"), TurnEvent::Truncated, MODEL_DONE]);
    assert_eq!(harness.appended, [user("hi"), Message::assistant("So f", Vec::new())]);
    assert_eq!(harness.end().content, format!("So f{NOTICE_TRUNCATED}"));
    assert_eq!((&harness.end().outcome, harness.end().halted), (&TurnOutcome::Completed, None));
    let harness = TurnHarness::run(10, [TurnEvent::Truncated, MODEL_DONE, text("now"), MODEL_DONE]);
    assert_eq!(harness.end().content, format!("{NOTICE_TRUNCATED}{NOTICE_EMPTY}now"));
    let calls = [text("Look. "), parallel("a"), TurnEvent::Truncated, MODEL_DONE, done(0, "")];
    let harness = TurnHarness::run(10, calls.into_iter().chain([text("Done."), MODEL_DONE]));
    assert_eq!(harness.end().content, "Look. Done.", "complete calls run and the turn continues");
}

#[test]
fn only_consecutive_empty_responses_stop_the_turn() {
    let between_calls = [MODEL_DONE, parallel("a"), MODEL_DONE, done(0, "1"), MODEL_DONE];
    assert_eq!(TurnHarness::run(10, between_calls).ends, []);
    let between_texts = [MODEL_DONE, text("hm"), steer("go on"), MODEL_DONE, MODEL_DONE];
    assert_eq!(TurnHarness::run(10, between_texts).ends, []);
}

#[test]
fn cancel_returns_partial_text_and_appends_it() {
    for (events, partial) in [
        (vec![TurnEvent::Cancel], ""),
        (vec![text("Hel"), TurnEvent::Cancel], "Hel"),
        (vec![text("a"), parallel("a"), TurnEvent::Cancel], "a"),
    ] {
        let harness = TurnHarness::run(10, events);
        assert_eq!(
            (&harness.end().outcome, harness.end().content.as_str()),
            (&TurnOutcome::Cancelled, partial)
        );
        assert_eq!(harness.appended.last(), Some(&Message::aborted(partial, Ending::Cancelled)));
        assert_eq!(harness.appended.len(), 2, "calls of a partial response are dropped");
    }
}

#[test]
fn model_failure_appends_the_partial_response() {
    let harness = TurnHarness::run(10, [text("Hel"), parallel("a"), TurnEvent::ModelFailed(fault())]);
    assert_eq!(harness.end().outcome, TurnOutcome::Failed(fault()));
    assert_eq!(harness.appended.last(), Some(&Message::aborted("Hel", Ending::Failed)));
    assert!(harness.started.is_empty());
}

#[test]
fn turn_ends_exactly_once() {
    let ends = [
        vec![TurnEvent::Cancel],
        vec![TurnEvent::ModelFailed(fault())],
        vec![text("bye"), MODEL_DONE],
        vec![TurnEvent::BudgetExhausted(Resource::Turns)],
        vec![parallel("a"), parallel("b"), MODEL_DONE, done(1, "2"), TurnEvent::Cancel],
        vec![parallel("a"), MODEL_DONE, TurnEvent::BudgetExhausted(Resource::Tokens), done(0, "1")],
    ];
    let after = [
        text("x"),
        parallel("x"),
        TurnEvent::Usage(Usage::default()),
        MODEL_DONE,
        TurnEvent::ModelFailed(fault()),
        done(0, "1"),
        steer("hello?"),
        TurnEvent::BudgetExhausted(Resource::Turns),
        TurnEvent::Cancel,
    ];
    for events in ends {
        let mut harness = TurnHarness::run(10, events);
        assert!(!harness.turn.accepts_steers());
        for event in after.clone() {
            assert_eq!(harness.turn.handle(event), []);
        }
        harness.end();
    }
}

#[test]
fn events_out_of_phase_are_ignored() {
    let mut harness =
        TurnHarness::run(10, [done(0, "not running"), parallel("a"), parallel("b"), MODEL_DONE]);
    let before = harness.appended.clone();
    for event in [text("x"), parallel("c"), MODEL_DONE, TurnEvent::ModelFailed(fault()), done(7, "unknown")] {
        assert_eq!(harness.turn.handle(event), []);
    }
    assert_eq!(harness.handle(done(0, "1")), Vec::<usize>::new());
    assert_eq!(harness.turn.handle(done(0, "again")), []);
    assert_eq!(harness.appended, before);
    harness.handle(done(1, "2"));
    assert_eq!(harness.results(), ["1", "2"]);
    assert_eq!(harness.model_calls, 2);
}
