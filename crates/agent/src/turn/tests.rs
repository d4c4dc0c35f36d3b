//! Turns as scripts: events in, and what must have come out. This file has the answers and the ends; which calls run
//! when, words that are added, budgets, and random scripts are in the files below.

mod budgets;
mod resume;
mod scripts;
mod steers;
mod tool_scheduling;

use super::*;
use crate::{FaultKind, MessageSource, Role};

/// A turn, and all that came out of it.
struct TurnHarness {
    turn: Turn,
    appended: Vec<Message>,
    model_calls: usize,
    /// Places of calls, in the order they were started.
    started: Vec<usize>,
    ends: Vec<TurnEnd>,
}

impl TurnHarness {
    fn new(rounds_max: u64, calls_running_max: usize) -> Self {
        let limits = TurnLimits { rounds_max, calls_running_max };
        let (turn, actions) = Turn::start(user("hi"), limits);
        let mut play =
            Self { turn, appended: Vec::new(), model_calls: 0, started: Vec::new(), ends: Vec::new() };
        play.apply(actions);
        play
    }

    fn run(rounds_max: u64, events: impl IntoIterator<Item = TurnEvent>) -> Self {
        let mut play = Self::new(rounds_max, 8);
        events.into_iter().for_each(|event| drop(play.handle(event)));
        play
    }

    /// Tells the turn; gives the places of the calls that it started.
    fn handle(&mut self, event: TurnEvent) -> Vec<usize> {
        let before = self.started.len();
        let actions = self.turn.handle(event);
        self.apply(actions);
        self.started[before..].to_vec()
    }

    fn apply(&mut self, actions: Vec<TurnAction>) {
        for action in actions {
            assert!(self.ends.is_empty(), "nothing follows the end, but {action:?} did");
            match action {
                TurnAction::Append(message) => self.appended.push(message),
                TurnAction::CallModel => self.model_calls += 1,
                TurnAction::RunTool(place, _) => self.started.push(place),
                TurnAction::End(end) => self.ends.push(end),
            }
        }
    }

    /// Who said what.
    fn history(&self) -> Vec<(Role, &str)> {
        self.appended.iter().map(|message| (message.role, message.text.as_str())).collect()
    }

    /// What calls came to, in the order they are kept in.
    fn results(&self) -> Vec<&str> {
        let results = self.appended.iter().filter(|message| message.role == Role::Tool);
        results.map(|message| message.text.as_str()).collect()
    }

    fn end(&self) -> &TurnEnd {
        assert_eq!(self.ends.len(), 1, "a turn ends once");
        &self.ends[0]
    }
}

fn user(text: &str) -> Message {
    Message::user(text, MessageSource::default())
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(text.to_owned())
}

fn call(id: &str, manner: Schedule) -> TurnEvent {
    let call = ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() };
    TurnEvent::ToolCall(call, manner)
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

fn done(place: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(place, ToolOutcome::Done(text.to_owned()))
}

fn failed(place: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(place, ToolOutcome::Failed(text.to_owned()))
}

fn denied(place: usize, text: &str) -> TurnEvent {
    TurnEvent::ToolDone(place, ToolOutcome::Denied(text.to_owned()))
}

fn steer(text: &str) -> TurnEvent {
    TurnEvent::Steer(user(text))
}

fn fault() -> Fault {
    Fault::new(FaultKind::Model, "gone")
}

const MODEL_DONE: TurnEvent = TurnEvent::ModelDone;

#[test]
fn text_becomes_the_answer() {
    let usage = Usage { input: 3, output: 2, cached: 1, ..Usage::default() };
    let play = TurnHarness::run(10, [text("Hel"), text("lo"), TurnEvent::Usage(usage), MODEL_DONE]);
    assert_eq!(play.history(), [(Role::User, "hi"), (Role::Assistant, "Hello")]);
    assert_eq!(play.model_calls, 1);
    let end = TurnEnd {
        outcome: TurnOutcome::Completed,
        content: "Hello".into(),
        usage: Some(usage),
        rounds: 1,
        halted: None,
    };
    assert_eq!(play.ends, [end]);
}

#[test]
fn a_tool_round_goes_back_to_the_model_and_all_text_is_the_content() {
    let usage = TurnEvent::Usage(Usage { input: 3, output: 2, cached: 1, ..Usage::default() });
    let play = TurnHarness::run(
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
    assert_eq!(play.history(), expected);
    assert_eq!((play.model_calls, play.started.as_slice()), (2, [0].as_slice()));
    assert_eq!((play.end().content.as_str(), play.end().rounds), ("Let me see. It is 42.", 2));
    assert_eq!(
        play.end().usage,
        Some(Usage { input: 6, output: 4, cached: 2, ..Usage::default() }),
        "usage adds up"
    );
}

#[test]
fn thoughts_are_kept_with_the_calls_that_follow_them_and_only_there() {
    let thoughts = || TurnEvent::ReasoningBlock("[1]".to_owned());
    let play = TurnHarness::run(
        10,
        [thoughts(), parallel("a"), MODEL_DONE, done(0, ""), thoughts(), text("so"), MODEL_DONE],
    );
    let kept: Vec<_> = play.appended.iter().map(|message| message.reasoning_block.as_deref()).collect();
    assert_eq!(kept, [None, Some("[1]"), None, None]);
}

#[test]
fn the_limit_of_rounds_halts_the_turn_with_a_notice() {
    let events = [parallel("a"), MODEL_DONE, done(0, "1"), parallel("b"), MODEL_DONE, done(0, "2")];
    let play = TurnHarness::run(2, events);
    assert_eq!(play.model_calls, 2);
    assert_eq!(play.end().halted, Some(Halt::IterationLimit));
    assert_eq!((play.end().content.as_str(), play.end().rounds), (NOTICE_LIMIT, 2));
    assert_eq!(play.history().last(), Some(&(Role::Assistant, NOTICE_LIMIT)), "it ends on an answer");
    assert_eq!(play.results(), ["1", "2"], "the last results are kept too");
}

#[test]
fn an_empty_answer_is_asked_for_once_more() {
    let play = TurnHarness::run(10, [MODEL_DONE, text("now"), MODEL_DONE]);
    assert_eq!(play.model_calls, 2);
    assert_eq!(play.end().content, format!("{NOTICE_EMPTY}now"));
    let play = TurnHarness::run(10, [MODEL_DONE, MODEL_DONE]);
    assert_eq!(play.model_calls, 2);
    assert_eq!(play.end().content, format!("{NOTICE_EMPTY}{NOTICE_EMPTY_AGAIN}"));
    assert_eq!((&play.end().outcome, play.end().halted), (&TurnOutcome::Completed, None));
    let play = TurnHarness::run(1, [MODEL_DONE]);
    assert_eq!(play.model_calls, 1, "but not beyond the limit");
}

#[test]
fn an_answer_that_is_cut_short_says_so_and_is_kept_as_it_is() {
    let play = TurnHarness::run(10, [text("So f"), TurnEvent::Truncated, MODEL_DONE]);
    assert_eq!(play.appended, [user("hi"), Message::assistant("So f", Vec::new())]);
    assert_eq!(play.end().content, format!("So f{NOTICE_TRUNCATED}"));
    assert_eq!((&play.end().outcome, play.end().halted), (&TurnOutcome::Completed, None));
    let play = TurnHarness::run(10, [TurnEvent::Truncated, MODEL_DONE, text("now"), MODEL_DONE]);
    assert_eq!(play.end().content, format!("{NOTICE_TRUNCATED}{NOTICE_EMPTY}now"));
    let calls = [text("Look. "), parallel("a"), TurnEvent::Truncated, MODEL_DONE, done(0, "")];
    let play = TurnHarness::run(10, calls.into_iter().chain([text("Done."), MODEL_DONE]));
    assert_eq!(play.end().content, "Look. Done.", "its calls were whole, and it went on");
}

#[test]
fn empty_answers_count_only_in_a_row() {
    let between_calls = [MODEL_DONE, parallel("a"), MODEL_DONE, done(0, "1"), MODEL_DONE];
    assert_eq!(TurnHarness::run(10, between_calls).ends, []);
    let between_texts = [MODEL_DONE, text("hm"), steer("go on"), MODEL_DONE, MODEL_DONE];
    assert_eq!(TurnHarness::run(10, between_texts).ends, []);
}

#[test]
fn cancel_gives_the_text_so_far_and_leaves_an_answer_in_the_context() {
    for (events, partial) in [
        (vec![TurnEvent::Cancel], ""),
        (vec![text("Hel"), TurnEvent::Cancel], "Hel"),
        (vec![text("a"), parallel("a"), TurnEvent::Cancel], "a"),
    ] {
        let play = TurnHarness::run(10, events);
        assert_eq!((&play.end().outcome, play.end().content.as_str()), (&TurnOutcome::Cancelled, partial));
        assert_eq!(play.appended.last(), Some(&Message::aborted(partial, Ending::Cancelled)));
        assert_eq!(play.appended.len(), 2, "half an answer makes no calls");
    }
}

#[test]
fn a_failed_model_leaves_an_answer_in_the_context() {
    let play = TurnHarness::run(10, [text("Hel"), parallel("a"), TurnEvent::ModelFailed(fault())]);
    assert_eq!(play.end().outcome, TurnOutcome::Failed(fault()));
    assert_eq!(play.appended.last(), Some(&Message::aborted("Hel", Ending::Failed)));
    assert_eq!(play.started, []);
}

#[test]
fn a_turn_ends_exactly_once_whatever_comes_after() {
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
        let mut play = TurnHarness::run(10, events);
        assert!(!play.turn.accepts_steers());
        for event in after.clone() {
            assert_eq!(play.turn.handle(event), []);
        }
        play.end();
    }
}

#[test]
fn what_cannot_be_is_ignored() {
    let mut play = TurnHarness::run(10, [done(0, "nobody ran"), parallel("a"), parallel("b"), MODEL_DONE]);
    let before = play.appended.clone();
    for event in [text("x"), parallel("c"), MODEL_DONE, TurnEvent::ModelFailed(fault()), done(7, "who?")] {
        assert_eq!(play.turn.handle(event), []);
    }
    assert_eq!(play.handle(done(0, "1")), Vec::<usize>::new());
    assert_eq!(play.turn.handle(done(0, "again")), []);
    assert_eq!(play.appended, before);
    play.handle(done(1, "2"));
    assert_eq!(play.results(), ["1", "2"]);
    assert_eq!(play.model_calls, 2);
}
