//! `destroy_agent`: the agent is gone immediately, and its pending sends return as cancelled.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids, agent_path};

fn destroy(fixture: &Fixture, id: &str) -> Value {
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": id }))
}

#[test]
fn second_destroy_reports_no_success() {
    let fixture = Fixture::start();
    fixture.create("gone");
    fixture.send("gone", "hello");
    assert_eq!(destroy(&fixture, "gone"), json!({ "success": true, "agent_id": "gone" }));
    assert_eq!(destroy(&fixture, "gone"), json!({ "success": false, "agent_id": "gone" }));
    assert_eq!(destroy(&fixture, "never-was"), json!({ "success": false, "agent_id": "never-was" }));
    let response =
        fixture.daemon.post(&agent_path("gone"), &[], br#"{"jsonrpc":"2.0","id":1,"method":"get_context"}"#);
    assert_eq!(
        (response.status, &response.json()["error"]["message"]),
        (404, &json!("Agent not found: gone"))
    );
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
}

#[test]
fn invalid_agent_id_is_reported() {
    let fixture = Fixture::start();
    for (params, message) in [
        (json!({}), "Missing required parameter: agent_id"),
        (json!({ "agent_id": null }), "Missing required parameter: agent_id"),
        (json!({ "agent_id": 5 }), "agent_id must be string, got: int"),
        (json!({ "agent_id": "" }), "agent_id invalid: Agent ID cannot be empty"),
        (json!({ "agent_id": "a", "force": true }), "Extra inputs are not permitted: force"),
    ] {
        let error = fixture.daemon.error("/", "destroy_agent", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    let error = fixture.daemon.error("/", "destroy_agent", json!({ "agent_id": "../main" }));
    assert!(error["message"].as_str().unwrap().ends_with("contains forbidden pattern '..'"), "{error}");
}

#[test]
fn sends_of_a_destroyed_agent_return_cancelled() {
    let fixture = Fixture::with_config("log.raw = true");
    fixture.create("busy");
    let running = fixture.start_send("busy", "!stall half an answer", "running");
    fixture.model.wait_stalled(1);
    fixture.wait_streamed("busy", "half an answer");
    let waiting: Vec<_> =
        ["w1", "w2", "w3"].iter().map(|name| fixture.enqueue_send("busy", "never", name)).collect();
    assert_eq!(destroy(&fixture, "busy"), json!({ "success": true, "agent_id": "busy" }));
    let cancelled = |content: &str, name: &str| {
        json!({
            "cancelled": true, "content": content, "request_id": name, "halted_at_iteration_limit": false
        })
    };
    let mut ended = running.next_result();
    let usage = ended.as_object_mut().and_then(|members| members.remove("usage")).expect("counted");
    assert!(usage["estimated_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{usage}");
    assert_eq!(ended, cancelled("half an answer", "running"));
    for (calls, name) in waiting.iter().zip(["w1", "w2", "w3"]) {
        assert_eq!(calls.next_result(), cancelled("", name));
    }
    fixture.model.wait_aborted(1);
    assert_eq!(fixture.model.requests().len(), 1, "queued sends made no model call");
}

#[test]
fn agent_id_is_free_while_the_old_turn_is_cancelled() {
    let fixture = Fixture::start();
    fixture.create("phoenix");
    let old = fixture.start_send("phoenix", "!stall", "old");
    fixture.model.wait_stalled(1);
    destroy(&fixture, "phoenix");
    fixture.create("phoenix");
    assert_eq!(fixture.send("phoenix", "!history")["content"], "!history");
    assert_eq!(old.next_result()["cancelled"], true);
}

#[test]
fn concurrent_destroys_succeed_exactly_once() {
    let fixture = Fixture::start();
    fixture.create("one");
    let running = fixture.start_send("one", "!stall", "r");
    fixture.model.wait_stalled(1);
    let mut calls = PendingCalls::new();
    for _ in 0..20 {
        calls.start(&fixture.daemon, "/", "destroy_agent", json!({ "agent_id": "one" }));
    }
    let succeeded = (0..20).filter(|_| calls.next_result()["success"] == true).count();
    assert_eq!(succeeded, 1);
    assert_eq!(running.next_result()["cancelled"], true);
}

#[test]
fn destroy_does_not_affect_other_agents() {
    let fixture = Fixture::start();
    for name in ["stays", "goes"] {
        fixture.create(name);
    }
    let stays = fixture.start_send("stays", "!hold on stays", "r");
    let goes = fixture.start_send("goes", "!stall", "r");
    fixture.model.wait_stalled(2);
    destroy(&fixture, "goes");
    assert_eq!(goes.next_result()["cancelled"], true);
    fixture.model.wait_aborted(1);
    fixture.model.release("on");
    assert_eq!(stays.next_result()["content"], "stays released on");
    assert_eq!(fixture.model.aborted(), 1);
}
