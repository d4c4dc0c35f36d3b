//! Turns of one agent run one at a time in arrival order; turns of different agents run concurrently.

use crate::support::Fixture;
use crate::support::model_requests::assert_all_valid;

#[test]
fn queued_sends_run_in_arrival_order() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let first = fixture.start_send("worker", "!hold gate", "first");
    fixture.model.wait_stalled(1);
    let names: Vec<_> = (0..25).map(|number| format!("m{number}")).collect();
    let waiting: Vec<_> = names.iter().map(|name| fixture.enqueue_send("worker", name, name)).collect();
    assert_eq!(fixture.model.requests().len(), 1, "one at a time");
    fixture.model.release("gate");
    assert_eq!(first.next_result()["content"], " released gate");
    for (calls, name) in waiting.iter().zip(&names) {
        let result = calls.next_result();
        assert_eq!(
            (result["content"].clone(), result["request_id"].clone()),
            (format!("echo: {name}").into(), name.as_str().into())
        );
    }
    let history = fixture.send("worker", "!history")["content"].clone();
    assert_eq!(history, format!("!hold gate | {} | !history", names.join(" | ")));
    assert_all_valid(&fixture.model);
}

#[test]
fn agents_run_concurrently() {
    let fixture = Fixture::start();
    let names: Vec<_> = (0..30).map(|number| format!("agent-{number}")).collect();
    let pending: Vec<_> = names
        .iter()
        .map(|name| {
            fixture.create(name);
            fixture.start_send(name, &format!("!hold gate {name}"), "r")
        })
        .collect();
    fixture.model.wait_stalled(30);
    fixture.model.release("gate");
    for (calls, name) in pending.iter().zip(&names) {
        assert_eq!(calls.next_result()["content"], format!("{name} released gate"));
    }
}

#[test]
fn stalled_agent_does_not_block_another() {
    let fixture = Fixture::start();
    fixture.create("held");
    fixture.create("free");
    let held = fixture.start_send("held", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    for number in 0..10 {
        let text = format!("message {number}");
        assert_eq!(fixture.send("free", &text)["content"], format!("echo: {text}"));
    }
    fixture.model.release("gate");
    assert_eq!(held.next_result()["content"], " released gate");
}

#[test]
fn turn_waiting_for_admission_runs_when_a_permit_is_free() {
    let fixture = Fixture::with_config("limits.turns_running_max = 1");
    fixture.create("first");
    fixture.create("second");
    let first = fixture.start_send("first", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    let second = fixture.enqueue_send("second", "hello", "r");
    assert_eq!(fixture.model.requests().len(), 1);
    assert_eq!(fixture.context("second")["message_count"], 0);
    fixture.model.release("gate");
    assert_eq!(first.next_result()["content"], " released gate");
    assert_eq!(second.next_result()["content"], "echo: hello");
}
