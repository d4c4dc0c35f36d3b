//! `destroy_agent`: gone at once, and everybody who waited for the agent is told.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids, agent_path};

fn destroy(stage: &Fixture, id: &str) -> Value {
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": id }))
}

#[test]
fn an_agent_is_destroyed_once() {
    let stage = Fixture::start();
    stage.create("gone");
    stage.send("gone", "hello");
    assert_eq!(destroy(&stage, "gone"), json!({ "success": true, "agent_id": "gone" }));
    assert_eq!(destroy(&stage, "gone"), json!({ "success": false, "agent_id": "gone" }));
    assert_eq!(destroy(&stage, "never-was"), json!({ "success": false, "agent_id": "never-was" }));
    let answer =
        stage.daemon.post(&agent_path("gone"), &[], br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#);
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (404, &json!("Agent not found: gone")));
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
}

#[test]
fn a_name_that_cannot_be_one_is_told() {
    let stage = Fixture::start();
    for (params, message) in [
        (json!({}), "Missing required parameter: agent_id"),
        (json!({ "agent_id": null }), "Missing required parameter: agent_id"),
        (json!({ "agent_id": 5 }), "agent_id must be string, got: int"),
        (json!({ "agent_id": "" }), "agent_id invalid: Agent ID cannot be empty"),
        (json!({ "agent_id": "a", "force": true }), "Extra inputs are not permitted: force"),
    ] {
        let error = stage.daemon.error("/", "destroy_agent", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    let error = stage.daemon.error("/", "destroy_agent", json!({ "agent_id": "../main" }));
    assert!(error["message"].as_str().unwrap().ends_with("contains forbidden pattern '..'"), "{error}");
}

#[test]
fn running_and_waiting_sends_of_a_destroyed_agent_answer_that_they_were_cancelled() {
    let stage = Fixture::with_config("log.raw = true");
    stage.create("busy");
    let running = stage.start_send("busy", "!stall half an answer", "running");
    stage.model.wait_stalled(1);
    stage.wait_streamed("busy", "half an answer");
    let waiting: Vec<_> =
        ["w1", "w2", "w3"].iter().map(|name| stage.enqueue_send("busy", "never", name)).collect();
    assert_eq!(destroy(&stage, "busy"), json!({ "success": true, "agent_id": "busy" }));
    let cancelled = |content: &str, name: &str| {
        json!({
            "cancelled": true, "content": content, "request_id": name, "halted_at_iteration_limit": false
        })
    };
    assert_eq!(running.next_result(), cancelled("half an answer", "running"));
    for (calls, name) in waiting.iter().zip(["w1", "w2", "w3"]) {
        assert_eq!(calls.next_result(), cancelled("", name));
    }
    stage.model.wait_aborted(1);
    assert_eq!(stage.model.requests().len(), 1, "what waited was never asked");
}

#[test]
fn a_name_is_free_while_its_last_agent_is_still_being_ended() {
    let stage = Fixture::start();
    stage.create("phoenix");
    let old = stage.start_send("phoenix", "!stall", "old");
    stage.model.wait_stalled(1);
    destroy(&stage, "phoenix");
    stage.create("phoenix");
    assert_eq!(stage.send("phoenix", "!history")["content"], "!history");
    assert_eq!(old.next_result()["cancelled"], true);
}

#[test]
fn of_many_destroys_of_one_agent_exactly_one_succeeds() {
    let stage = Fixture::start();
    stage.create("one");
    let running = stage.start_send("one", "!stall", "r");
    stage.model.wait_stalled(1);
    let mut calls = PendingCalls::new();
    for _ in 0..20 {
        calls.start(&stage.daemon, "/", "destroy_agent", json!({ "agent_id": "one" }));
    }
    let succeeded = (0..20).filter(|_| calls.next_result()["success"] == true).count();
    assert_eq!(succeeded, 1);
    assert_eq!(running.next_result()["cancelled"], true);
}

#[test]
fn a_destroyed_agent_takes_nothing_of_others_with_it() {
    let stage = Fixture::start();
    for name in ["stays", "goes"] {
        stage.create(name);
    }
    let stays = stage.start_send("stays", "!hold on kept", "r");
    let goes = stage.start_send("goes", "!stall", "r");
    stage.model.wait_stalled(2);
    destroy(&stage, "goes");
    assert_eq!(goes.next_result()["cancelled"], true);
    stage.model.wait_aborted(1);
    stage.model.release("on");
    assert_eq!(stays.next_result()["content"], "kept released on");
    assert_eq!(stage.model.aborted(), 1);
}
