//! Scheduling of the tool calls of a response, and their results.

use super::*;

/// A turn after a model response with these calls.
fn after_response(
    running_max: usize,
    calls: impl IntoIterator<Item = TurnEvent>,
) -> (TurnHarness, Vec<usize>) {
    let mut harness = TurnHarness::new(10, running_max);
    calls.into_iter().for_each(|call| drop(harness.handle(call)));
    assert!(harness.started.is_empty(), "no call starts before the response is complete");
    let started = harness.handle(MODEL_DONE);
    (harness, started)
}

#[test]
fn parallel_calls_start_together_and_results_are_in_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (mut harness, started) = after_response(8, ["a", "b", "c"].map(parallel));
        assert_eq!(started, [0, 1, 2]);
        for index in order {
            assert_eq!(harness.results(), Vec::<&str>::new(), "results are appended together");
            harness.handle(done(index, ["0", "1", "2"][index]));
        }
        assert_eq!(harness.results(), ["0", "1", "2"]);
        let ids: Vec<_> =
            harness.appended.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert_eq!(harness.model_calls, 2);
    }
}

#[test]
fn ordered_call_runs_exclusively() {
    let calls = [parallel("a"), parallel("b"), ordered("c"), parallel("d"), ordered("e"), parallel("f")];
    let (mut harness, started) = after_response(8, calls);
    assert_eq!(started, [0, 1]);
    assert!(harness.handle(done(1, "")).is_empty());
    assert_eq!(harness.handle(done(0, "")), [2]);
    assert_eq!(harness.handle(done(2, "")), [3]);
    assert_eq!(harness.handle(done(3, "")), [4]);
    assert_eq!(harness.handle(done(4, "")), [5]);
    assert_eq!(harness.model_calls, 1);
    harness.handle(done(5, ""));
    assert_eq!(harness.model_calls, 2);
}

#[test]
fn failed_ordered_call_halts_only_ordered_calls() {
    let halted = "Did not execute: halted due to error in previous tool";
    for outcome in [failed(0, "no"), denied(0, "no")] {
        let calls = [ordered("a"), parallel("b"), ordered("c"), parallel("d"), ordered("e")];
        let (mut harness, started) = after_response(8, calls);
        assert_eq!(started, [0]);
        assert_eq!(harness.handle(outcome), [1]);
        assert_eq!(harness.handle(done(1, "b")), [3], "c is halted");
        harness.handle(done(3, "d"));
        assert_eq!(harness.results(), ["no", "b", halted, "d", halted]);
        assert_eq!((harness.model_calls, harness.started.as_slice()), (2, [0, 1, 3].as_slice()));
    }
}

#[test]
fn failed_parallel_call_halts_no_other_call() {
    let (mut harness, _) =
        after_response(8, [parallel("a"), ordered("b"), unusable("c", "no such tool"), ordered("d")]);
    assert_eq!(harness.handle(failed(0, "no")), [1]);
    assert_eq!(harness.handle(done(1, "b")), [3]);
    harness.handle(done(3, "d"));
    assert_eq!(harness.results(), ["no", "b", "no such tool", "d"]);
}

#[test]
fn running_calls_stay_within_the_limit() {
    let (mut harness, started) = after_response(2, ["a", "b", "c", "d", "e"].map(parallel));
    assert_eq!(started, [0, 1]);
    assert_eq!(harness.handle(done(1, "")), [2]);
    assert_eq!(harness.handle(done(0, "")), [3]);
    assert!(harness.handle(done(0, "")).is_empty(), "done only once");
    assert_eq!(harness.handle(done(2, "")), [4]);
    assert!(harness.handle(done(3, "")).is_empty());
    harness.handle(done(4, ""));
    assert_eq!(harness.model_calls, 2);
    let (_, started) = after_response(0, ["a", "b"].map(parallel));
    assert_eq!(started, [0], "a limit of zero counts as one");
}

#[test]
fn call_indices_restart_with_each_response() {
    let (mut harness, _) = after_response(8, ["a", "b"].map(parallel));
    harness.handle(done(0, "1"));
    harness.handle(done(1, "2"));
    harness.handle(ordered("c"));
    assert_eq!(harness.handle(MODEL_DONE), [0]);
    harness.handle(done(0, "3"));
    assert_eq!(harness.results(), ["1", "2", "3"]);
}

#[test]
fn unusable_call_gets_a_result_without_running() {
    let (mut harness, started) = after_response(8, [unusable("a", "no such tool 'x'"), parallel("b")]);
    assert_eq!(started, [1]);
    assert_eq!(harness.turn.handle(done(0, "it ran?")), []);
    harness.handle(done(1, "fine"));
    assert_eq!(harness.results(), ["no such tool 'x'", "fine"]);
    let endings: Vec<_> = harness.appended.iter().map(|message| message.ending).collect();
    assert_eq!(endings, [None, None, Some(Ending::Failed), None]);
}

#[test]
fn three_responses_without_a_usable_call_end_the_turn() {
    let bad = |id: &str| [unusable(id, "no"), unusable(&format!("{id}2"), "no"), MODEL_DONE];
    let harness = TurnHarness::run(10, [bad("a"), bad("b")].into_iter().flatten());
    assert_eq!((harness.model_calls, harness.ends.len()), (3, 0));
    let harness = TurnHarness::run(10, [bad("a"), bad("b"), bad("c")].into_iter().flatten());
    assert_eq!((harness.model_calls, harness.started.len(), harness.results().len()), (3, 0, 6));
    assert_eq!((&harness.end().outcome, harness.end().halted), (&TurnOutcome::Completed, None));
    assert_eq!(harness.end().content, NOTICE_UNUSABLE);
    assert_eq!(harness.history().last(), Some(&(Role::Assistant, NOTICE_UNUSABLE)));
}

#[test]
fn usable_call_or_text_resets_the_unusable_count() {
    let bad = |id: &str| vec![unusable(id, "no"), MODEL_DONE];
    let good = vec![unusable("g", "no"), parallel("h"), MODEL_DONE, failed(1, "but it ran")];
    let with_text = vec![text("hm"), steer("go on"), MODEL_DONE];
    for between in [good, with_text] {
        let events = [bad("a"), bad("b"), between, bad("c"), bad("d")].into_iter().flatten();
        assert_eq!(TurnHarness::run(20, events).ends, []);
    }
}

#[test]
fn cancel_completes_every_call_and_retains_finished_results() {
    let interrupted = "Cancelled by user: tool execution was interrupted";
    let calls = [parallel("a"), parallel("b"), unusable("c", "no"), ordered("d")];
    let (mut harness, _) = after_response(8, calls);
    harness.handle(done(1, "real"));
    harness.handle(TurnEvent::Cancel);
    assert_eq!(harness.results(), [interrupted, "real", "no", interrupted]);
    let roles: Vec<_> = harness.appended.iter().map(|message| message.role).collect();
    let (tool, assistant) = (Role::Tool, Role::Assistant);
    assert_eq!(roles, [Role::User, assistant, tool, tool, tool, tool, assistant]);
    assert_eq!(harness.appended[3].ending, None);
    assert_eq!(harness.end().outcome, TurnOutcome::Cancelled);
}

#[test]
fn call_delivered_again_is_dropped_and_missing_ids_are_replaced() {
    let calls = ["a", "a", "", "", "call_2", "call_2", "a"].map(parallel);
    let (mut harness, started) = after_response(8, calls);
    assert_eq!(started, [0, 1, 2, 3]);
    started.iter().for_each(|index| drop(harness.handle(done(*index, "x"))));
    let called: Vec<_> = harness.appended[1].tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(called, ["a", "call_2", "call_3", "call_2_4"]);
    let result_ids: Vec<_> =
        harness.appended.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    assert_eq!(result_ids, called, "one result for each");
}

#[test]
fn calls_beyond_the_limit_get_an_error_result() {
    let calls: Vec<_> = (0..300).map(|number| parallel(&format!("c{number}"))).collect();
    let (mut harness, started) = after_response(1000, calls);
    assert_eq!(started.len(), 256);
    started.iter().for_each(|index| drop(harness.handle(done(*index, "x"))));
    assert_eq!((harness.appended[1].tool_calls.len(), harness.results().len()), (257, 257));
    assert_eq!(harness.results()[256], "Did not execute: only the first 256 calls of a response are run");
    assert_eq!(harness.model_calls, 2);
}
