//! How many children there may be: counted at every ancestor, exact under a crowd, and given back.

use serde_json::{Value, json};

use crate::support::callers::permission_denied;
use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids};

const LIMIT: usize = 7;

fn lead_with_room_for(stage: &Fixture, children: usize) {
    let params = json!({
        "agent_id": "lead", "preset": "trusted", "may_create": ["trusted", "sandboxed"],
        "budget": { "children": children },
    });
    stage.create_with(params);
}

fn full(name: &str) -> Value {
    permission_denied(&format!(
        "Cannot create agent '{name}': the budget of children of an ancestor is used up"
    ))
}

#[test]
fn of_a_hundred_creates_at_once_exactly_the_limit_succeeds() {
    let stage = Fixture::start();
    lead_with_room_for(&stage, LIMIT);
    let mut calls = PendingCalls::new();
    for number in 0..100 {
        let params = json!({ "agent_id": format!("child-{number}"), "parent_agent_id": "lead" });
        calls.start(&stage.daemon, "/", "create_agent", params);
    }
    let mut won = Vec::new();
    for _ in 0..100 {
        let arrived = calls.next_arrival();
        let response = arrived.response.json();
        let name = format!("child-{}", arrived.index);
        match response.get("error") {
            Some(error) => assert_eq!(*error, full(&name)),
            None => won.push(name),
        }
    }
    assert_eq!(won.len(), LIMIT);
    assert_eq!(agent_ids(&stage.daemon).len(), LIMIT + 1);
    assert_eq!(stage.resource_usage("lead", "children"), [json!(LIMIT), json!(LIMIT), json!(0), json!(0)]);
    let logs = stage.daemon.home().join("logs");
    let has_log = |number: &usize| logs.join(format!("child-{number}")).exists();
    assert_eq!((0..100).filter(has_log).count(), 0, "nobody has said anything yet");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": won[0] }));
    stage.create_with(json!({ "agent_id": "next", "parent_agent_id": "lead" }));
    let params = json!({ "agent_id": "more", "parent_agent_id": "lead" });
    assert_eq!(stage.daemon.error("/", "create_agent", params), full("more"));
}

#[test]
fn grandchildren_count_at_every_ancestor() {
    let stage = Fixture::start();
    lead_with_room_for(&stage, 2);
    stage.create_with(json!({
        "agent_id": "middle", "parent_agent_id": "lead", "preset": "trusted", "budget": { "children": 50 },
    }));
    stage.create_with(json!({ "agent_id": "leaf", "parent_agent_id": "middle" }));
    let params = json!({ "agent_id": "more", "parent_agent_id": "middle" });
    assert_eq!(stage.daemon.error("/", "create_agent", params.clone()), full("more"));
    assert_eq!(stage.resource_usage("middle", "children"), [json!(50), json!(1), json!(0), json!(0)]);
    let said = stage.send_text("middle", r#"!tool agent_create {"agent_id":"more"}"#);
    assert_eq!(
        said,
        "tool said: Permission denied: Cannot create agent 'more': the budget of children of an ancestor is used up"
    );
    stage.set_permissions("lead", json!({ "budget": { "children": 3 } }));
    stage.daemon.call_result("/", "create_agent", params);
    assert_eq!(agent_ids(&stage.daemon), ["lead", "middle", "leaf", "more"]);
}

#[test]
fn a_limit_below_what_is_there_lets_nobody_in_and_throws_nobody_out() {
    let stage = Fixture::start();
    lead_with_room_for(&stage, 3);
    for name in ["a", "b"] {
        stage.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    stage.set_permissions("lead", json!({ "budget": { "children": 1 } }));
    let params = json!({ "agent_id": "c", "parent_agent_id": "lead" });
    assert_eq!(stage.daemon.error("/", "create_agent", params.clone()), full("c"));
    assert_eq!(agent_ids(&stage.daemon), ["lead", "a", "b"]);
    stage.set_permissions("lead", json!({ "unlimited": ["children"] }));
    stage.daemon.call_result("/", "create_agent", params);
}
