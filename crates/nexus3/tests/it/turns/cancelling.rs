//! `cancel`: ends a turn at once, returns the partial text, and leaves a history that the next turn can use.

use serde_json::{Value, json};

use crate::support::model_requests::{assert_all_valid, last_conversation};
use crate::support::{ExpectError as _, Fixture, WAIT_MAX, agent_path};

fn fixture_with_worker(config: &str) -> Fixture {
    let fixture = Fixture::with_config(config);
    fixture.create("worker");
    fixture
}

fn cancelled(request_id: impl Into<Value>) -> Value {
    json!({ "cancelled": true, "request_id": request_id.into() })
}

fn not_found(request_id: impl Into<Value>) -> Value {
    json!({ "cancelled": false, "request_id": request_id.into(), "reason": "not_found_or_completed" })
}

#[test]
fn cancelled_turn_ends_at_once_with_its_partial_text() {
    let fixture = fixture_with_worker("log.raw = true");
    let pending = fixture.start_send("worker", "!stall The history of computing", "essay");
    fixture.model.wait_stalled(1);
    fixture.wait_streamed("worker", "The history of computing");
    assert_eq!(fixture.cancel("worker", "essay"), cancelled("essay"));
    let expected = json!({
        "cancelled": true,
        "content": "The history of computing",
        "request_id": "essay",
        "halted_at_iteration_limit": false,
    });
    let mut ended = pending.next_result();
    let usage = ended.as_object_mut().and_then(|members| members.remove("usage")).expect("counted");
    assert!(usage["estimated_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{usage}");
    assert_eq!(ended, expected);
    fixture.model.wait_aborted(1);
    assert_eq!(fixture.cancel("worker", "essay"), not_found("essay"));
    let page = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    assert_eq!(page["messages"][1]["content"], "The history of computing");
    assert_eq!(page["messages"][1]["meta"], json!({ "cancelled": true }));
}

#[test]
fn turn_after_a_cancelled_one_sends_a_valid_history() {
    let fixture = fixture_with_worker("log.raw = true");
    let partial = fixture.start_send("worker", "!stall half", "spoke");
    fixture.wait_streamed("worker", "half");
    fixture.cancel("worker", "spoke");
    assert_eq!(partial.next_result()["content"], "half");
    let silent = fixture.start_send("worker", "!silent", "silent");
    fixture.model.wait_requests(2);
    fixture.cancel("worker", "silent");
    assert_eq!(silent.next_result()["content"], "");
    assert_eq!(fixture.send("worker", "go on")["content"], "echo: go on");
    let sent = last_conversation(&fixture.model);
    let expected = [
        ("user", "!stall half"),
        ("assistant", "half"),
        ("user", "!silent"),
        ("assistant", "[cancelled]"),
        ("user", "go on"),
    ];
    assert_eq!(sent, expected.map(|(role, content)| (role.to_owned(), content.to_owned())));
    assert_all_valid(&fixture.model);
}

#[test]
fn cancel_aborts_a_model_call_without_response() {
    let fixture = fixture_with_worker("");
    let pending = fixture.start_send("worker", "!silent", "r");
    fixture.model.wait_stalled(1);
    assert_eq!(fixture.cancel("worker", "r"), cancelled("r"));
    assert_eq!(pending.next_result()["cancelled"], true);
    fixture.model.wait_aborted(1);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn queued_send_is_cancelled_while_another_runs() {
    let fixture = fixture_with_worker("");
    let running = fixture.start_send("worker", "!hold gate", "running");
    fixture.model.wait_stalled(1);
    let first = fixture.enqueue_send("worker", "first", "first");
    let second = fixture.enqueue_send("worker", "second", "second");
    assert_eq!(fixture.cancel("worker", "first"), cancelled("first"));
    let expected = json!({
        "cancelled": true, "content": "", "request_id": "first", "halted_at_iteration_limit": false
    });
    assert_eq!(first.next_result(), expected);
    assert_eq!(fixture.cancel("worker", "first"), not_found("first"));
    assert!(running.has_no_response() && second.has_no_response());
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(second.next_result()["content"], "echo: second");
    let history = fixture.send("worker", "!history")["content"].clone();
    assert_eq!(history, "!hold gate | second | !history", "a send cancelled in the queue leaves no message");
}

#[test]
fn send_waiting_for_admission_is_cancelled() {
    let fixture = fixture_with_worker("limits.turns_running_max = 1");
    fixture.create("other");
    let running = fixture.start_send("worker", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    let waiting = fixture.enqueue_send("other", "hello", "w");
    assert_eq!(fixture.cancel("other", "w"), cancelled("w"));
    assert_eq!(waiting.next_result()["cancelled"], true);
    assert_eq!(fixture.context("other")["message_count"], 0);
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(fixture.send("other", "hi")["content"], "echo: hi");
}

#[test]
fn number_and_string_are_different_request_ids() {
    let fixture = fixture_with_worker("");
    let mut pending = fixture.start_send("worker", "!stall", "5");
    fixture.model.wait_stalled(1);
    assert_eq!(fixture.cancel("worker", 5), not_found(5));
    pending.start(
        &fixture.daemon,
        &agent_path("worker"),
        "send",
        json!({ "content": "!stall", "request_id": 5 }),
    );
    crate::support::wait_until("the second send to arrive", || {
        fixture.cancel("worker", 5)["cancelled"] == true
    });
    assert_eq!(pending.next_result()["request_id"], 5);
    assert_eq!(fixture.cancel("worker", "5"), cancelled("5"));
    assert_eq!(pending.next_result()["request_id"], "5");
}

#[test]
fn request_id_without_a_pending_turn_is_reported() {
    let fixture = fixture_with_worker("");
    fixture.create("other");
    let other = fixture.start_send("other", "!stall", "r");
    fixture.model.wait_stalled(1);
    fixture.daemon.call_result(
        &agent_path("worker"),
        "send",
        json!({ "content": "hi", "request_id": "done" }),
    );
    for request_id in [json!("r"), json!("done"), json!(0), json!(-1), json!(i64::MAX), json!("R")] {
        assert_eq!(fixture.cancel("worker", request_id.clone()), not_found(request_id));
    }
    fixture.cancel("other", "r");
    assert_eq!(other.next_result()["cancelled"], true);
}

#[test]
fn cancel_without_a_valid_request_id_is_refused() {
    let fixture = fixture_with_worker("");
    for (params, message) in [
        (json!({}), "Missing required parameter: request_id"),
        (json!({ "request_id": null }), "Missing required parameter: request_id"),
        (json!({ "request_id": "" }), "request_id cannot be empty"),
        (json!({ "request_id": 1.5 }), "request_id must be string or integer, got: float"),
        (json!({ "request_id": ["r"] }), "request_id must be string or integer, got: list"),
        (json!({ "request_id": "r", "force": true }), "Extra inputs are not permitted: force"),
    ] {
        let error = fixture.daemon.error(&agent_path("worker"), "cancel", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
}

#[test]
fn concurrent_cancels_end_a_turn_once() {
    let fixture = fixture_with_worker("");
    let pending = fixture.start_send("worker", "!stall", "r");
    fixture.model.wait_stalled(1);
    let mut cancels = crate::support::pending_calls::PendingCalls::new();
    for _ in 0..20 {
        cancels.start(&fixture.daemon, &agent_path("worker"), "cancel", json!({ "request_id": "r" }));
    }
    let responses: Vec<_> = (0..20).map(|_| cancels.next_result()).collect();
    assert!(responses.contains(&cancelled("r")), "{responses:?}");
    // A cancel that arrives before the turn's end is committed succeeds; a later one finds no pending turn.
    for response in responses {
        assert!([cancelled("r"), not_found("r")].contains(&response), "{response}");
    }
    assert_eq!(pending.next_result()["cancelled"], true);
    assert_eq!(fixture.context("worker")["message_count"], 2);
    let next = fixture.send("worker", "hi");
    assert_eq!(next["content"], "echo: hi");
    assert_all_valid(&fixture.model);
    let mut ends = fixture.daemon.events("/agent/worker/events?kind=turn_ended", Some(0));
    for request_id in [&json!("r"), &next["request_id"]] {
        assert_eq!(
            ends.next_event(WAIT_MAX).json()["request_id"],
            *request_id,
            "the journal has one turn_ended per turn"
        );
    }
}

#[test]
fn cancel_that_races_with_the_response_reports_the_outcome() {
    let fixture = fixture_with_worker("");
    for number in 0..40 {
        let request_id = format!("r{number}");
        let pending = fixture.start_send("worker", "hi", &request_id);
        let was_cancelled = fixture.cancel("worker", request_id.as_str())["cancelled"] == true;
        let result = pending.next_result();
        assert_eq!(result["cancelled"] == true, was_cancelled, "{request_id}: {result}");
        if !was_cancelled {
            assert_eq!(result["content"], "echo: hi");
        }
    }
    assert_eq!(fixture.send("worker", "end")["content"], "echo: end");
    assert_all_valid(&fixture.model);
}
