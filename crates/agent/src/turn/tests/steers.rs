//! Instructions added to a running turn: delivered before the next model call, and never lost.

use super::*;

#[test]
fn steers_are_delivered_between_rounds_after_the_results() {
    let events =
        [steer("one"), parallel("a"), MODEL_DONE, steer("two"), done(0, "42"), text("ok"), MODEL_DONE];
    let harness = TurnHarness::run(10, events);
    let expected = [
        (Role::User, "hi"),
        (Role::Assistant, ""),
        (Role::Tool, "42"),
        (Role::User, "one"),
        (Role::User, "two"),
        (Role::Assistant, "ok"),
    ];
    assert_eq!(harness.history(), expected);
    assert_eq!((harness.model_calls, harness.end().rounds), (2, 2));
}

#[test]
fn steer_during_the_last_response_gets_another_round() {
    let events = [text("first"), steer("and?"), MODEL_DONE, text("second"), MODEL_DONE];
    let harness = TurnHarness::run(10, events);
    let expected =
        [(Role::User, "hi"), (Role::Assistant, "first"), (Role::User, "and?"), (Role::Assistant, "second")];
    assert_eq!(harness.history(), expected);
    assert_eq!((harness.model_calls, harness.end().content.as_str()), (2, "firstsecond"));
}

#[test]
fn steer_is_delivered_when_an_empty_response_is_retried() {
    let harness = TurnHarness::run(10, [steer("please"), MODEL_DONE, text("ok"), MODEL_DONE]);
    assert_eq!(harness.history(), [(Role::User, "hi"), (Role::User, "please"), (Role::Assistant, "ok")]);
}

#[test]
fn steers_are_delivered_however_the_turn_ends() {
    let exhausted = || TurnEvent::BudgetExhausted(Resource::Tokens);
    let ends = [
        (10, vec![steer("word"), TurnEvent::Cancel]),
        (10, vec![parallel("a"), MODEL_DONE, steer("word"), TurnEvent::Cancel]),
        (10, vec![text("x"), steer("word"), TurnEvent::ModelFailed(fault())]),
        (1, vec![text("x"), steer("word"), MODEL_DONE]),
        (1, vec![parallel("a"), steer("word"), MODEL_DONE, done(0, "")]),
        (1, vec![steer("word"), MODEL_DONE]),
        (10, vec![MODEL_DONE, steer("word"), MODEL_DONE]),
        (10, vec![text("x"), steer("word"), exhausted()]),
        (10, vec![parallel("a"), MODEL_DONE, steer("word"), exhausted(), done(0, "")]),
    ];
    for (rounds_max, events) in ends {
        let harness = TurnHarness::run(rounds_max, events.clone());
        harness.end();
        let user_messages: Vec<_> =
            harness.history().into_iter().filter(|(role, _)| *role == Role::User).collect();
        assert_eq!(user_messages, [(Role::User, "hi"), (Role::User, "word")], "{events:?}");
        assert_eq!(harness.appended.last().map(|last| last.role), Some(Role::Assistant), "{events:?}");
    }
}

#[test]
fn undelivered_steers_are_limited() {
    let mut harness = TurnHarness::run(10, (0..STEERS_MAX).map(|_| steer("w")));
    assert!(!harness.turn.accepts_steers());
    harness.handle(parallel("a"));
    harness.handle(MODEL_DONE);
    harness.handle(done(0, ""));
    assert!(harness.turn.accepts_steers(), "they are delivered");
    assert_eq!(harness.history().iter().filter(|(_, text)| *text == "w").count(), STEERS_MAX);
}
