//! Turns as scripts: a list of events, and what must have come out.

use super::*;
use crate::{FaultKind, Role, Source};

/// Runs a script; gives the roles and texts kept, how often the model was asked, and the ends.
fn run(rounds_max: u64, events: Vec<TurnEvent>) -> (Vec<(Role, String)>, usize, Vec<TurnEnd>) {
    let (mut turn, mut actions) = Turn::start(Message::user("hi", Source::default()), rounds_max);
    let (mut kept, mut asked, mut ends) = (Vec::new(), 0, Vec::new());
    let mut events = events.into_iter();
    loop {
        for action in actions {
            match action {
                TurnAction::Keep(message) => kept.push((message.role, message.text)),
                TurnAction::AskModel => asked += 1,
                TurnAction::RunTools(_) => {}
                TurnAction::End(end) => ends.push(end),
            }
        }
        match events.next() {
            Some(event) => actions = turn.on(event),
            None => return (kept, asked, ends),
        }
    }
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(text.to_owned())
}

fn call(name: &str) -> TurnEvent {
    TurnEvent::ToolCall(ToolCall {
        id: format!("{name}-1"),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    })
}

fn result(text: &str) -> TurnEvent {
    TurnEvent::ToolsDone(vec![Message::tool("x-1", text)])
}

fn fault() -> Fault {
    Fault::new(FaultKind::Model, "gone")
}

#[test]
fn text_becomes_the_answer() {
    let usage = Usage { input: 3, output: 2, cached: 1 };
    let (kept, asked, ends) =
        run(10, vec![text("Hel"), text("lo"), TurnEvent::Usage(usage), TurnEvent::ModelDone]);
    assert_eq!(kept, [(Role::User, "hi".into()), (Role::Assistant, "Hello".into())]);
    assert_eq!(asked, 1);
    let end = TurnEnd {
        outcome: TurnOutcome::Completed,
        content: "Hello".into(),
        usage: Some(usage),
        rounds: 1,
        halted: false,
    };
    assert_eq!(ends, [end]);
}

#[test]
fn a_tool_round_goes_back_to_the_model_and_all_text_is_the_content() {
    let events = vec![
        text("Let me see. "),
        call("x"),
        TurnEvent::ModelDone,
        result("42"),
        text("It is 42."),
        TurnEvent::ModelDone,
    ];
    let (kept, asked, ends) = run(10, events);
    let roles: Vec<_> = kept.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(asked, 2);
    assert_eq!(ends[0].content, "Let me see. It is 42.");
    assert_eq!(ends[0].rounds, 2);
}

#[test]
fn the_limit_of_rounds_halts_the_turn_with_a_notice() {
    let events =
        vec![call("x"), TurnEvent::ModelDone, result("1"), call("x"), TurnEvent::ModelDone, result("2")];
    let (kept, asked, ends) = run(2, events);
    assert_eq!(asked, 2);
    assert!(ends[0].halted);
    assert_eq!(ends[0].content, NOTICE_LIMIT);
    assert_eq!(
        kept.last(),
        Some(&(Role::Assistant, NOTICE_LIMIT.to_owned())),
        "the context ends on an answer"
    );
}

#[test]
fn an_empty_answer_is_asked_for_once_more() {
    let (_, asked, ends) = run(10, vec![TurnEvent::ModelDone, text("now"), TurnEvent::ModelDone]);
    assert_eq!(asked, 2);
    assert_eq!(ends[0].content, format!("{NOTICE_EMPTY}now"));
    let (_, asked, ends) = run(10, vec![TurnEvent::ModelDone, TurnEvent::ModelDone]);
    assert_eq!(asked, 2);
    assert_eq!(ends[0].content, format!("{NOTICE_EMPTY}{NOTICE_EMPTY_AGAIN}"));
    assert_eq!(ends[0].outcome, TurnOutcome::Completed);
}

#[test]
fn cancel_gives_the_text_so_far_and_leaves_an_answer_in_the_context() {
    for (events, partial) in [
        (vec![TurnEvent::Cancel], ""),
        (vec![text("Hel"), TurnEvent::Cancel], "Hel"),
        (vec![text("a"), call("x"), TurnEvent::Cancel], "a"),
    ] {
        let (kept, _, ends) = run(10, events);
        assert_eq!(ends[0].outcome, TurnOutcome::Cancelled);
        assert_eq!(ends[0].content, partial);
        assert_eq!(kept.last(), Some(&(Role::Assistant, partial.to_owned())));
    }
}

#[test]
fn a_failed_model_leaves_an_answer_in_the_context() {
    let (kept, _, ends) = run(10, vec![text("Hel"), TurnEvent::ModelFailed(fault())]);
    assert_eq!(ends[0].outcome, TurnOutcome::Failed(fault()));
    assert_eq!(kept.last(), Some(&(Role::Assistant, "Hel".to_owned())));
}

#[test]
fn a_turn_ends_exactly_once_whatever_comes_after() {
    let after = [
        text("x"),
        call("x"),
        TurnEvent::ModelDone,
        TurnEvent::ModelFailed(fault()),
        result("1"),
        TurnEvent::Cancel,
    ];
    for first in [TurnEvent::Cancel, TurnEvent::ModelFailed(fault())] {
        let events = std::iter::once(first).chain(after.clone()).collect();
        assert_eq!(run(10, events).2.len(), 1);
    }
}

#[test]
fn a_cancel_while_tools_run_answers_every_call() {
    let (kept, _, ends) = run(10, vec![call("x"), call("y"), TurnEvent::ModelDone, TurnEvent::Cancel]);
    let roles: Vec<_> = kept.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
    assert_eq!(ends.len(), 1);
}
