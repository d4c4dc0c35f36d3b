//! Full queues: the daemon rejects at once with a retry delay, and accepts again when the queue has room.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path};

fn assert_busy(response: &Value, message: &str) {
    let error = &response["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!(-32001), &json!(message)), "{response}");
    assert!(error["data"]["retry_after_ms"].as_u64() > Some(0), "{response}");
}

#[test]
fn full_agent_queue_rejects_and_accepts_again_later() {
    let fixture = Fixture::with_config("limits.agent_queue_max = 2");
    fixture.create("full");
    fixture.create("other");
    let mut running = fixture.start_send("full", "!hold gate", "running");
    fixture.model.wait_stalled(1);
    for number in 0..5 {
        let params = json!({ "content": "waits", "request_id": number });
        running.start(&fixture.daemon, &agent_path("full"), "send", params);
    }
    for _ in 0..3 {
        assert_busy(&running.next_response(), "busy: 3 turns are open at this agent");
    }
    assert_eq!(fixture.send("other", "hi")["content"], "echo: hi");
    assert_eq!(fixture.cancel("full", "absent")["cancelled"], false, "control calls need no permit");
    assert_eq!(fixture.context("full")["message_count"], 1);
    fixture.model.release("gate");
    let mut contents: Vec<_> = (0..3).map(|_| running.next_result()["content"].take()).collect();
    contents.sort_by_key(Value::to_string);
    assert_eq!(contents, [" released gate", "echo: waits", "echo: waits"]);
    assert_eq!(fixture.send("full", "hi")["content"], "echo: hi");
}

#[test]
fn full_daemon_rejects_turns_of_all_agents() {
    let fixture = Fixture::with_config("[limits]\nturns_running_max = 2\nturns_queued_max = 1");
    let mut calls = PendingCalls::new();
    for number in 0..6 {
        let name = format!("agent-{number}");
        fixture.create(&name);
        calls.start(&fixture.daemon, &agent_path(&name), "send", json!({ "content": "!hold gate" }));
    }
    for _ in 0..3 {
        assert_busy(&calls.next_response(), "busy: 3 turns are open");
    }
    fixture.model.wait_stalled(2);
    assert_eq!(fixture.model.requests().len(), 2, "turns_running_max limits the model calls");
    fixture.create("late");
    assert_busy(
        &fixture.daemon.call(&agent_path("late"), "send", json!({ "content": "hi" })),
        "busy: 3 turns are open",
    );
    assert_eq!(fixture.context("late")["message_count"], 0, "a rejected send leaves no message");
    fixture.model.release("gate");
    for _ in 0..3 {
        assert_eq!(calls.next_result()["content"], " released gate");
    }
    assert_eq!(fixture.send("late", "hi")["content"], "echo: hi");
}

#[test]
fn permit_is_released_however_a_turn_ends() {
    let fixture =
        Fixture::with_config("[limits]\nturns_running_max = 1\nturns_queued_max = 1\nagent_queue_max = 1");
    fixture.create("worker");
    for round in 0..3 {
        let request_ids = ["stalled", "waiting"].map(|name| format!("{name} {round}"));
        let stalled = fixture.start_send("worker", "!stall", &request_ids[0]);
        fixture.model.wait_stalled(1);
        let waiting = fixture.enqueue_send("worker", "waits", &request_ids[1]);
        assert_eq!(fixture.cancel("worker", &*request_ids[1])["cancelled"], true, "{round}");
        fixture.cancel("worker", &*request_ids[0]);
        assert_eq!(stalled.next_result()["cancelled"], true, "{round}");
        assert_eq!(waiting.next_result()["cancelled"], true, "{round}");
        fixture.send_expecting_error("worker", "!status 500");
        fixture.send("worker", "!tool hammer {}");
        fixture.daemon.post(
            &agent_path("worker"),
            &[],
            br#"{"jsonrpc":"2.0","method":"send","params":{"content":"hi"}}"#,
        );
    }
    let held = fixture.start_send("worker", "!hold gate", "held");
    fixture.model.wait_stalled(1);
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    assert_eq!(held.next_result()["cancelled"], true);
    fixture.create("worker");
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
}
