//! Which calls of an answer run when, and what is kept of them.

use super::*;

/// A turn whose model has made these calls.
fn after_response(
    running_max: usize,
    calls: impl IntoIterator<Item = TurnEvent>,
) -> (TurnHarness, Vec<usize>) {
    let mut play = TurnHarness::new(10, running_max);
    calls.into_iter().for_each(|call| drop(play.handle(call)));
    assert_eq!(play.started, [], "nothing runs before the answer is complete");
    let started = play.handle(MODEL_DONE);
    (play, started)
}

#[test]
fn neighbours_start_together_and_results_keep_the_order_of_the_calls() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (mut play, started) = after_response(8, ["a", "b", "c"].map(parallel));
        assert_eq!(started, [0, 1, 2]);
        for place in order {
            assert_eq!(play.results(), Vec::<&str>::new(), "results come together");
            play.handle(done(place, ["0", "1", "2"][place]));
        }
        assert_eq!(play.results(), ["0", "1", "2"]);
        let ids: Vec<_> =
            play.appended.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert_eq!(play.model_calls, 2);
    }
}

#[test]
fn an_ordered_call_waits_for_all_before_it_and_holds_back_all_after_it() {
    let calls = [parallel("a"), parallel("b"), ordered("c"), parallel("d"), ordered("e"), parallel("f")];
    let (mut play, started) = after_response(8, calls);
    assert_eq!(started, [0, 1]);
    assert_eq!(play.handle(done(1, "")), []);
    assert_eq!(play.handle(done(0, "")), [2]);
    assert_eq!(play.handle(done(2, "")), [3]);
    assert_eq!(play.handle(done(3, "")), [4]);
    assert_eq!(play.handle(done(4, "")), [5]);
    assert_eq!(play.model_calls, 1);
    play.handle(done(5, ""));
    assert_eq!(play.model_calls, 2);
}

#[test]
fn after_an_ordered_call_that_failed_no_ordered_one_runs_but_parallel_ones_do() {
    let halted = "Did not execute: halted due to error in previous tool";
    for outcome in [failed(0, "no"), denied(0, "no")] {
        let calls = [ordered("a"), parallel("b"), ordered("c"), parallel("d"), ordered("e")];
        let (mut play, started) = after_response(8, calls);
        assert_eq!(started, [0]);
        assert_eq!(play.handle(outcome), [1]);
        assert_eq!(play.handle(done(1, "b")), [3], "c is over before it began");
        play.handle(done(3, "d"));
        assert_eq!(play.results(), ["no", "b", halted, "d", halted]);
        assert_eq!((play.model_calls, play.started.as_slice()), (2, [0, 1, 3].as_slice()));
    }
}

#[test]
fn a_parallel_call_that_failed_halts_nobody() {
    let (mut play, _) =
        after_response(8, [parallel("a"), ordered("b"), unusable("c", "no such tool"), ordered("d")]);
    assert_eq!(play.handle(failed(0, "no")), [1]);
    assert_eq!(play.handle(done(1, "b")), [3]);
    play.handle(done(3, "d"));
    assert_eq!(play.results(), ["no", "b", "no such tool", "d"]);
}

#[test]
fn no_more_calls_run_at_once_than_the_limit() {
    let (mut play, started) = after_response(2, ["a", "b", "c", "d", "e"].map(parallel));
    assert_eq!(started, [0, 1]);
    assert_eq!(play.handle(done(1, "")), [2]);
    assert_eq!(play.handle(done(0, "")), [3]);
    assert_eq!(play.handle(done(0, "")), [], "done only once");
    assert_eq!(play.handle(done(2, "")), [4]);
    assert_eq!(play.handle(done(3, "")), []);
    play.handle(done(4, ""));
    assert_eq!(play.model_calls, 2);
    let (_, started) = after_response(0, ["a", "b"].map(parallel));
    assert_eq!(started, [0], "a limit of nothing would stand still for ever");
}

#[test]
fn the_next_answer_starts_its_calls_from_the_first_place() {
    let (mut play, _) = after_response(8, ["a", "b"].map(parallel));
    play.handle(done(0, "1"));
    play.handle(done(1, "2"));
    play.handle(ordered("c"));
    assert_eq!(play.handle(MODEL_DONE), [0]);
    play.handle(done(0, "3"));
    assert_eq!(play.results(), ["1", "2", "3"]);
}

#[test]
fn an_unusable_call_is_answered_without_running() {
    let (mut play, started) = after_response(8, [unusable("a", "no such tool 'x'"), parallel("b")]);
    assert_eq!(started, [1]);
    assert_eq!(play.turn.handle(done(0, "it ran?")), []);
    play.handle(done(1, "fine"));
    assert_eq!(play.results(), ["no such tool 'x'", "fine"]);
    let endings: Vec<_> = play.appended.iter().map(|message| message.ending).collect();
    assert_eq!(endings, [None, None, Some(Ending::Failed), None]);
}

#[test]
fn three_answers_in_a_row_without_a_usable_call_end_the_turn() {
    let bad = |id: &str| [unusable(id, "no"), unusable(&format!("{id}2"), "no"), MODEL_DONE];
    let play = TurnHarness::run(10, [bad("a"), bad("b")].into_iter().flatten());
    assert_eq!((play.model_calls, play.ends.len()), (3, 0));
    let play = TurnHarness::run(10, [bad("a"), bad("b"), bad("c")].into_iter().flatten());
    assert_eq!((play.model_calls, play.started.len(), play.results().len()), (3, 0, 6));
    assert_eq!((&play.end().outcome, play.end().halted), (&TurnOutcome::Completed, None));
    assert_eq!(play.end().content, NOTICE_UNUSABLE);
    assert_eq!(play.history().last(), Some(&(Role::Assistant, NOTICE_UNUSABLE)));
}

#[test]
fn one_usable_call_or_a_text_breaks_the_row() {
    let bad = |id: &str| vec![unusable(id, "no"), MODEL_DONE];
    let good = vec![unusable("g", "no"), parallel("h"), MODEL_DONE, failed(1, "but it ran")];
    let said = vec![text("hm"), steer("go on"), MODEL_DONE];
    for between in [good, said] {
        let events = [bad("a"), bad("b"), between, bad("c"), bad("d")].into_iter().flatten();
        assert_eq!(TurnHarness::run(20, events).ends, []);
    }
}

#[test]
fn a_cancel_while_tools_run_answers_every_call_and_keeps_what_is_done() {
    let interrupted = "Cancelled by user: tool execution was interrupted";
    let calls = [parallel("a"), parallel("b"), unusable("c", "no"), ordered("d")];
    let (mut play, _) = after_response(8, calls);
    play.handle(done(1, "real"));
    play.handle(TurnEvent::Cancel);
    assert_eq!(play.results(), [interrupted, "real", "no", interrupted]);
    let roles: Vec<_> = play.appended.iter().map(|message| message.role).collect();
    let (tool, assistant) = (Role::Tool, Role::Assistant);
    assert_eq!(roles, [Role::User, assistant, tool, tool, tool, tool, assistant]);
    assert_eq!(play.appended[3].ending, None);
    assert_eq!(play.end().outcome, TurnOutcome::Cancelled);
}

#[test]
fn calls_without_an_id_or_with_anothers_are_told_apart() {
    let (mut play, started) = after_response(8, ["a", "a", "", "", "a_2"].map(parallel));
    assert_eq!(started, [0, 1, 2, 3, 4]);
    started.iter().for_each(|place| drop(play.handle(done(*place, "x"))));
    let called: Vec<_> = play.appended[1].tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(called, ["a", "a_2", "call_3", "call_4", "a_2_5"]);
    let answered: Vec<_> =
        play.appended.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    assert_eq!(answered, called, "one result for each");
}

#[test]
fn an_answer_with_too_many_calls_is_cut_and_the_model_is_told() {
    let calls: Vec<_> = (0..300).map(|number| parallel(&format!("c{number}"))).collect();
    let (mut play, started) = after_response(1000, calls);
    assert_eq!(started.len(), 256);
    started.iter().for_each(|place| drop(play.handle(done(*place, "x"))));
    assert_eq!((play.appended[1].tool_calls.len(), play.results().len()), (257, 257));
    assert_eq!(play.results()[256], "Did not execute: only the first 256 calls of an answer are run");
    assert_eq!(play.model_calls, 2);
}
