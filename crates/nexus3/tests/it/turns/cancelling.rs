//! `cancel`: now, with what was said so far, and with a history that the next turn can go on from.

use serde_json::{Value, json};

use crate::support::model_requests::{assert_all_valid, last_conversation};
use crate::support::{ExpectError as _, Fixture, WAIT_MAX, agent_path};

fn fixture_with_worker(config: &str) -> Fixture {
    let stage = Fixture::with_config(config);
    stage.create("worker");
    stage
}

fn done(request_id: impl Into<Value>) -> Value {
    json!({ "cancelled": true, "request_id": request_id.into() })
}

fn not_found(request_id: impl Into<Value>) -> Value {
    json!({ "cancelled": false, "request_id": request_id.into(), "reason": "not_found_or_completed" })
}

#[test]
fn a_stalled_turn_ends_now_with_its_partial_text() {
    let stage = fixture_with_worker("log.raw = true");
    let open = stage.start_send("worker", "!stall The history of computing", "essay");
    stage.model.wait_stalled(1);
    stage.wait_streamed("worker", "The history of computing");
    assert_eq!(stage.cancel("worker", "essay"), done("essay"));
    let expected = json!({
        "cancelled": true,
        "content": "The history of computing",
        "request_id": "essay",
        "halted_at_iteration_limit": false,
    });
    assert_eq!(open.next_result(), expected);
    stage.model.wait_aborted(1);
    assert_eq!(stage.cancel("worker", "essay"), not_found("essay"));
    let page = stage.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["content"], "The history of computing");
    assert_eq!(page["messages"][1]["meta"], json!({ "cancelled": true }));
}

#[test]
fn the_turn_after_a_cancelled_one_is_sent_a_valid_history() {
    let stage = fixture_with_worker("log.raw = true");
    let spoke = stage.start_send("worker", "!stall half", "spoke");
    stage.wait_streamed("worker", "half");
    stage.cancel("worker", "spoke");
    assert_eq!(spoke.next_result()["content"], "half");
    let silent = stage.start_send("worker", "!silent", "silent");
    stage.model.wait_requests(2);
    stage.cancel("worker", "silent");
    assert_eq!(silent.next_result()["content"], "");
    assert_eq!(stage.send("worker", "go on")["content"], "echo: go on");
    let sent = last_conversation(&stage.model);
    let expected = [
        ("user", "!stall half"),
        ("assistant", "half"),
        ("user", "!silent"),
        ("assistant", "[cancelled]"),
        ("user", "go on"),
    ];
    assert_eq!(sent, expected.map(|(role, content)| (role.to_owned(), content.to_owned())));
    assert_all_valid(&stage.model);
}

#[test]
fn a_model_that_never_answers_is_left_at_once() {
    let stage = fixture_with_worker("");
    let open = stage.start_send("worker", "!silent", "r");
    stage.model.wait_stalled(1);
    assert_eq!(stage.cancel("worker", "r"), done("r"));
    assert_eq!(open.next_result()["cancelled"], true);
    stage.model.wait_aborted(1);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn a_waiting_send_is_answered_while_another_runs() {
    let stage = fixture_with_worker("");
    let running = stage.start_send("worker", "!hold gate", "running");
    stage.model.wait_stalled(1);
    let first = stage.enqueue_send("worker", "first", "first");
    let second = stage.enqueue_send("worker", "second", "second");
    assert_eq!(stage.cancel("worker", "first"), done("first"));
    let expected = json!({
        "cancelled": true, "content": "", "request_id": "first", "halted_at_iteration_limit": false
    });
    assert_eq!(first.next_result(), expected);
    assert_eq!(stage.cancel("worker", "first"), not_found("first"));
    assert!(running.has_no_response() && second.has_no_response());
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(second.next_result()["content"], "echo: second");
    let said = stage.send("worker", "!history")["content"].clone();
    assert_eq!(said, "!hold gate | second | !history", "what was cancelled unheard left no message");
}

#[test]
fn a_send_that_waits_for_a_free_place_is_cancelled_too() {
    let stage = fixture_with_worker("limits.turns_running_max = 1");
    stage.create("other");
    let running = stage.start_send("worker", "!hold gate", "r");
    stage.model.wait_stalled(1);
    let waiting = stage.enqueue_send("other", "hello", "w");
    assert_eq!(stage.cancel("other", "w"), done("w"));
    assert_eq!(waiting.next_result()["cancelled"], true);
    assert_eq!(stage.context("other")["message_count"], 0);
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(stage.send("other", "hi")["content"], "echo: hi");
}

#[test]
fn a_number_and_its_digits_are_two_names() {
    let stage = fixture_with_worker("");
    let mut open = stage.start_send("worker", "!stall", "5");
    stage.model.wait_stalled(1);
    assert_eq!(stage.cancel("worker", 5), not_found(5));
    open.start(&stage.daemon, &agent_path("worker"), "send", json!({ "content": "!stall", "request_id": 5 }));
    crate::support::wait_until("the second send to arrive", || {
        stage.cancel("worker", 5)["cancelled"] == true
    });
    assert_eq!(open.next_result()["request_id"], 5);
    assert_eq!(stage.cancel("worker", "5"), done("5"));
    assert_eq!(open.next_result()["request_id"], "5");
}

#[test]
fn a_name_that_is_not_open_is_told() {
    let stage = fixture_with_worker("");
    stage.create("other");
    let other = stage.start_send("other", "!stall", "r");
    stage.model.wait_stalled(1);
    stage.daemon.call_result(&agent_path("worker"), "send", json!({ "content": "hi", "request_id": "done" }));
    for name in [json!("r"), json!("done"), json!(0), json!(-1), json!(i64::MAX), json!("R")] {
        assert_eq!(stage.cancel("worker", name.clone()), not_found(name));
    }
    stage.cancel("other", "r");
    assert_eq!(other.next_result()["cancelled"], true);
}

#[test]
fn a_cancel_without_a_usable_name_is_refused() {
    let stage = fixture_with_worker("");
    for (params, message) in [
        (json!({}), "Missing required parameter: request_id"),
        (json!({ "request_id": null }), "Missing required parameter: request_id"),
        (json!({ "request_id": "" }), "request_id cannot be empty"),
        (json!({ "request_id": 1.5 }), "request_id must be string or integer, got: float"),
        (json!({ "request_id": ["r"] }), "request_id must be string or integer, got: list"),
        (json!({ "request_id": "r", "force": true }), "Extra inputs are not permitted: force"),
    ] {
        let error = stage.daemon.error(&agent_path("worker"), "cancel", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
}

#[test]
fn many_cancels_of_one_turn_leave_one_ending() {
    let stage = fixture_with_worker("");
    let open = stage.start_send("worker", "!stall", "r");
    stage.model.wait_stalled(1);
    let mut cancels = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        cancels.start(&stage.daemon, &agent_path("worker"), "cancel", json!({ "request_id": "r" }));
    }
    let answers: Vec<_> = (0..20).map(|_| cancels.next_result()).collect();
    assert!(answers.contains(&done("r")), "{answers:?}");
    // Whoever asks before the end is kept has ended the turn; whoever asks later is told that it is over.
    for answer in answers {
        assert!([done("r"), not_found("r")].contains(&answer), "{answer}");
    }
    assert_eq!(open.next_result()["cancelled"], true);
    assert_eq!(stage.context("worker")["message_count"], 2);
    let next = stage.send("worker", "hi");
    assert_eq!(next["content"], "echo: hi");
    assert_all_valid(&stage.model);
    let mut ends = stage.daemon.events("/agent/worker/events?kind=turn_ended", Some(0));
    for name in [&json!("r"), &next["request_id"]] {
        assert_eq!(
            ends.next_event(WAIT_MAX).json()["request_id"],
            *name,
            "the journal has one end of each turn"
        );
    }
}

#[test]
fn a_cancel_that_races_with_the_answer_tells_the_truth() {
    let stage = fixture_with_worker("");
    for number in 0..40 {
        let name = format!("r{number}");
        let open = stage.start_send("worker", "hi", &name);
        let hit = stage.cancel("worker", name.as_str())["cancelled"] == true;
        let result = open.next_result();
        assert_eq!(result["cancelled"] == true, hit, "{name}: {result}");
        if !hit {
            assert_eq!(result["content"], "echo: hi");
        }
    }
    assert_eq!(stage.send("worker", "end")["content"], "echo: end");
    assert_all_valid(&stage.model);
}
