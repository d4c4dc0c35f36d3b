//! Words that somebody adds while a turn runs: delivered before the model is asked again, and never lost.

use super::*;

#[test]
fn a_word_is_delivered_between_rounds_after_the_results() {
    let events =
        [steer("one"), parallel("a"), MODEL_DONE, steer("two"), done(0, "42"), text("ok"), MODEL_DONE];
    let play = TurnHarness::run(10, events);
    let expected = [
        (Role::User, "hi"),
        (Role::Assistant, ""),
        (Role::Tool, "42"),
        (Role::User, "one"),
        (Role::User, "two"),
        (Role::Assistant, "ok"),
    ];
    assert_eq!(play.history(), expected);
    assert_eq!((play.model_calls, play.end().rounds), (2, 2));
}

#[test]
fn a_word_during_the_last_answer_gets_one_more_round() {
    let events = [text("first"), steer("and?"), MODEL_DONE, text("second"), MODEL_DONE];
    let play = TurnHarness::run(10, events);
    let expected =
        [(Role::User, "hi"), (Role::Assistant, "first"), (Role::User, "and?"), (Role::Assistant, "second")];
    assert_eq!(play.history(), expected);
    assert_eq!((play.model_calls, play.end().content.as_str()), (2, "firstsecond"));
}

#[test]
fn a_word_is_delivered_when_an_empty_answer_is_asked_for_again() {
    let play = TurnHarness::run(10, [steer("please"), MODEL_DONE, text("ok"), MODEL_DONE]);
    assert_eq!(play.history(), [(Role::User, "hi"), (Role::User, "please"), (Role::Assistant, "ok")]);
}

#[test]
fn a_word_is_never_lost_however_the_turn_ends() {
    let spent = || TurnEvent::BudgetExhausted(Resource::Tokens);
    let ends = [
        (10, vec![steer("word"), TurnEvent::Cancel]),
        (10, vec![parallel("a"), MODEL_DONE, steer("word"), TurnEvent::Cancel]),
        (10, vec![text("x"), steer("word"), TurnEvent::ModelFailed(fault())]),
        (1, vec![text("x"), steer("word"), MODEL_DONE]),
        (1, vec![parallel("a"), steer("word"), MODEL_DONE, done(0, "")]),
        (1, vec![steer("word"), MODEL_DONE]),
        (10, vec![MODEL_DONE, steer("word"), MODEL_DONE]),
        (10, vec![text("x"), steer("word"), spent()]),
        (10, vec![parallel("a"), MODEL_DONE, steer("word"), spent(), done(0, "")]),
    ];
    for (rounds_max, events) in ends {
        let play = TurnHarness::run(rounds_max, events.clone());
        play.end();
        let words: Vec<_> = play.history().into_iter().filter(|(role, _)| *role == Role::User).collect();
        assert_eq!(words, [(Role::User, "hi"), (Role::User, "word")], "{events:?}");
        assert_eq!(play.appended.last().map(|last| last.role), Some(Role::Assistant), "{events:?}");
    }
}

#[test]
fn a_turn_takes_so_many_words_between_two_rounds_and_then_no_more() {
    let mut play = TurnHarness::run(10, (0..STEERS_MAX).map(|_| steer("w")));
    assert!(!play.turn.accepts_steers());
    play.handle(parallel("a"));
    play.handle(MODEL_DONE);
    play.handle(done(0, ""));
    assert!(play.turn.accepts_steers(), "they are delivered");
    assert_eq!(play.history().iter().filter(|(_, text)| *text == "w").count(), STEERS_MAX);
}
