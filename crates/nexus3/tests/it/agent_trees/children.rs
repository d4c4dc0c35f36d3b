//! Budget of children: counted at every ancestor, exact under concurrent creates, and returned on destroy.

use serde_json::{Value, json};

use crate::support::callers::permission_denied;
use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids};

const LIMIT: usize = 7;

fn create_lead_with_budget(fixture: &Fixture, children: usize) {
    let params = json!({
        "agent_id": "lead", "preset": "trusted", "may_create": ["trusted", "sandboxed"],
        "budget": { "children": children },
    });
    fixture.create_with(params);
}

fn budget_exhausted(name: &str) -> Value {
    permission_denied(&format!(
        "Cannot create agent '{name}': the budget of children of an ancestor is used up"
    ))
}

#[test]
fn concurrent_creates_stop_exactly_at_the_limit() {
    let fixture = Fixture::start();
    create_lead_with_budget(&fixture, LIMIT);
    let mut calls = PendingCalls::new();
    for number in 0..100 {
        let params = json!({ "agent_id": format!("child-{number}"), "parent_agent_id": "lead" });
        calls.start(&fixture.daemon, "/", "create_agent", params);
    }
    let mut created = Vec::new();
    for _ in 0..100 {
        let arrived = calls.next_arrival();
        let response = arrived.response.json();
        let name = format!("child-{}", arrived.index);
        match response.get("error") {
            Some(error) => assert_eq!(*error, budget_exhausted(&name)),
            None => created.push(name),
        }
    }
    assert_eq!(created.len(), LIMIT);
    assert_eq!(agent_ids(&fixture.daemon).len(), LIMIT + 1);
    assert_eq!(fixture.resource_usage("lead", "children"), [json!(LIMIT), json!(LIMIT), json!(0), json!(0)]);
    let logs = fixture.daemon.home().join("logs");
    let has_log = |number: &usize| logs.join(format!("child-{number}")).exists();
    assert_eq!((0..100).filter(has_log).count(), 0, "no agent has had a turn yet");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": created[0] }));
    fixture.create_with(json!({ "agent_id": "next", "parent_agent_id": "lead" }));
    let params = json!({ "agent_id": "more", "parent_agent_id": "lead" });
    assert_eq!(fixture.daemon.error("/", "create_agent", params), budget_exhausted("more"));
}

#[test]
fn grandchildren_count_at_every_ancestor() {
    let fixture = Fixture::start();
    create_lead_with_budget(&fixture, 2);
    fixture.create_with(json!({
        "agent_id": "middle", "parent_agent_id": "lead", "preset": "trusted", "budget": { "children": 50 },
    }));
    fixture.create_with(json!({ "agent_id": "leaf", "parent_agent_id": "middle" }));
    let params = json!({ "agent_id": "more", "parent_agent_id": "middle" });
    assert_eq!(fixture.daemon.error("/", "create_agent", params.clone()), budget_exhausted("more"));
    assert_eq!(fixture.resource_usage("middle", "children"), [json!(50), json!(1), json!(0), json!(0)]);
    let content = fixture.send_text("middle", r#"!tool agent_create {"agent_id":"more"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: Cannot create agent 'more': the budget of children of an ancestor is used up"
    );
    fixture.set_permissions("lead", json!({ "budget": { "children": 3 } }));
    fixture.daemon.call_result("/", "create_agent", params);
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "middle", "leaf", "more"]);
}

#[test]
fn a_limit_below_the_count_adds_and_removes_no_agent() {
    let fixture = Fixture::start();
    create_lead_with_budget(&fixture, 3);
    for name in ["a", "b"] {
        fixture.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    fixture.set_permissions("lead", json!({ "budget": { "children": 1 } }));
    let params = json!({ "agent_id": "c", "parent_agent_id": "lead" });
    assert_eq!(fixture.daemon.error("/", "create_agent", params.clone()), budget_exhausted("c"));
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "a", "b"]);
    fixture.set_permissions("lead", json!({ "unlimited": ["children"] }));
    fixture.daemon.call_result("/", "create_agent", params);
}
