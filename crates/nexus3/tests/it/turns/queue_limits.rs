//! Full queues: an answer that says when to come back, never a wait, and room again afterwards.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path};

fn assert_busy(response: &Value, message: &str) {
    let error = &response["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!(-32001), &json!(message)), "{response}");
    assert!(error["data"]["retry_after_ms"].as_u64() > Some(0), "{response}");
}

#[test]
fn a_full_agent_refuses_and_takes_again_when_there_is_room() {
    let stage = Fixture::with_config("limits.agent_queue_max = 2");
    stage.create("full");
    stage.create("other");
    let mut running = stage.start_send("full", "!hold gate", "running");
    stage.model.wait_stalled(1);
    for number in 0..5 {
        let params = json!({ "content": "waits", "request_id": number });
        running.start(&stage.daemon, &agent_path("full"), "send", params);
    }
    for _ in 0..3 {
        assert_busy(&running.next_response(), "busy: 3 turns are open at this agent");
    }
    assert_eq!(stage.send("other", "hi")["content"], "echo: hi");
    assert_eq!(stage.cancel("full", "nobody")["cancelled"], false, "control calls need no place");
    assert_eq!(stage.context("full")["message_count"], 1);
    stage.model.release("gate");
    let mut answers: Vec<_> = (0..3).map(|_| running.next_result()["content"].take()).collect();
    answers.sort_by_key(Value::to_string);
    assert_eq!(answers, [" released gate", "echo: waits", "echo: waits"]);
    assert_eq!(stage.send("full", "hi")["content"], "echo: hi");
}

#[test]
fn a_full_daemon_refuses_turns_of_all_agents() {
    let stage = Fixture::with_config("[limits]\nturns_running_max = 2\nturns_queued_max = 1");
    let mut calls = PendingCalls::new();
    for number in 0..6 {
        let name = format!("agent-{number}");
        stage.create(&name);
        calls.start(&stage.daemon, &agent_path(&name), "send", json!({ "content": "!hold gate" }));
    }
    for _ in 0..3 {
        assert_busy(&calls.next_response(), "busy: 3 turns are open");
    }
    stage.model.wait_stalled(2);
    assert_eq!(stage.model.requests().len(), 2, "no more than may run at once");
    stage.create("late");
    assert_busy(
        &stage.daemon.call(&agent_path("late"), "send", json!({ "content": "hi" })),
        "busy: 3 turns are open",
    );
    assert_eq!(stage.context("late")["message_count"], 0, "a refused send leaves nothing");
    stage.model.release("gate");
    for _ in 0..3 {
        assert_eq!(calls.next_result()["content"], " released gate");
    }
    assert_eq!(stage.send("late", "hi")["content"], "echo: hi");
}

#[test]
fn a_place_is_given_back_however_a_turn_ends() {
    let stage =
        Fixture::with_config("[limits]\nturns_running_max = 1\nturns_queued_max = 1\nagent_queue_max = 1");
    stage.create("worker");
    for round in 0..3 {
        let names = ["stalled", "waiting"].map(|name| format!("{name} {round}"));
        let stalled = stage.start_send("worker", "!stall", &names[0]);
        stage.model.wait_stalled(1);
        let waiting = stage.enqueue_send("worker", "waits", &names[1]);
        assert_eq!(stage.cancel("worker", &*names[1])["cancelled"], true, "{round}");
        stage.cancel("worker", &*names[0]);
        assert_eq!(stalled.next_result()["cancelled"], true, "{round}");
        assert_eq!(waiting.next_result()["cancelled"], true, "{round}");
        stage.send_expecting_error("worker", "!status 500");
        stage.send("worker", "!tool hammer {}");
        stage.daemon.post(
            &agent_path("worker"),
            &[],
            br#"{"jsonrpc":"2.0","method":"send","params":{"content":"hi"}}"#,
        );
    }
    let held = stage.start_send("worker", "!hold gate", "held");
    stage.model.wait_stalled(1);
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    assert_eq!(held.next_result()["cancelled"], true);
    stage.create("worker");
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
}
