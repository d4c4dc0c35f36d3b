//! One turn at a time at one agent, first come first served; different agents side by side.

use crate::support::Fixture;
use crate::support::model_requests::assert_all_valid;

#[test]
fn waiting_sends_run_in_the_order_they_came() {
    let stage = Fixture::start();
    stage.create("worker");
    let first = stage.start_send("worker", "!hold gate", "first");
    stage.model.wait_stalled(1);
    let names: Vec<_> = (0..25).map(|number| format!("m{number}")).collect();
    let waiting: Vec<_> = names.iter().map(|name| stage.enqueue_send("worker", name, name)).collect();
    assert_eq!(stage.model.requests().len(), 1, "one at a time");
    stage.model.release("gate");
    assert_eq!(first.next_result()["content"], " released gate");
    for (calls, name) in waiting.iter().zip(&names) {
        let result = calls.next_result();
        assert_eq!(
            (result["content"].clone(), result["request_id"].clone()),
            (format!("echo: {name}").into(), name.as_str().into())
        );
    }
    let said = stage.send("worker", "!history")["content"].clone();
    assert_eq!(said, format!("!hold gate | {} | !history", names.join(" | ")));
    assert_all_valid(&stage.model);
}

#[test]
fn agents_work_side_by_side() {
    let stage = Fixture::start();
    let names: Vec<_> = (0..30).map(|number| format!("agent-{number}")).collect();
    let open: Vec<_> = names
        .iter()
        .map(|name| {
            stage.create(name);
            stage.start_send(name, &format!("!hold gate {name}"), "r")
        })
        .collect();
    stage.model.wait_stalled(30);
    stage.model.release("gate");
    for (calls, name) in open.iter().zip(&names) {
        assert_eq!(calls.next_result()["content"], format!("{name} released gate"));
    }
}

#[test]
fn a_held_agent_does_not_hold_another() {
    let stage = Fixture::start();
    stage.create("held");
    stage.create("free");
    let held = stage.start_send("held", "!hold gate", "r");
    stage.model.wait_stalled(1);
    for number in 0..10 {
        let text = format!("message {number}");
        assert_eq!(stage.send("free", &text)["content"], format!("echo: {text}"));
    }
    stage.model.release("gate");
    assert_eq!(held.next_result()["content"], " released gate");
}

#[test]
fn a_turn_that_waits_for_a_free_place_runs_when_one_is_free() {
    let stage = Fixture::with_config("limits.turns_running_max = 1");
    stage.create("first");
    stage.create("second");
    let first = stage.start_send("first", "!hold gate", "r");
    stage.model.wait_stalled(1);
    let second = stage.enqueue_send("second", "hello", "r");
    assert_eq!(stage.model.requests().len(), 1);
    assert_eq!(stage.context("second")["message_count"], 0);
    stage.model.release("gate");
    assert_eq!(first.next_result()["content"], " released gate");
    assert_eq!(second.next_result()["content"], "echo: hello");
}
