//! Budgets: a turn that exhausts a resource halts with `halted: "budget"`. The agent continues when more is granted.

use serde_json::{Value, json};

use crate::support::model_requests::assert_all_valid;
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path};

fn fixture_with(budget: &Value) -> Fixture {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "budget": budget }));
    fixture
}

fn notice(resource: &str) -> String {
    format!("[Stopping: the budget of {resource} is used up]")
}

fn assert_halted(fixture: &Fixture, result: &Value, content: &str) {
    assert_eq!((&result["halted"], &result["content"]), (&json!("budget"), &json!(content)), "{result}");
    assert_eq!(result["halted_at_iteration_limit"], false, "{result}");
    assert_eq!(fixture.agent("worker")["halted"], "budget");
}

fn assert_continues(fixture: &Fixture) {
    let result = fixture.send("worker", "hi");
    assert_eq!((&result["content"], result.get("halted")), (&json!("echo: hi"), None), "{result}");
    assert_eq!(fixture.agent("worker")["halted"], json!(null));
    assert_all_valid(&fixture.model);
}

#[test]
fn an_exhausted_turn_budget_halts_before_the_model_call() {
    let fixture = fixture_with(&json!({ "turns": 2 }));
    for _ in 0..2 {
        assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
    }
    let result = fixture.send("worker", "one too many");
    assert_halted(&fixture, &result, &notice("turns"));
    assert_eq!(fixture.model.requests().len(), 2);
    assert_eq!(fixture.resource_usage("worker", "turns"), [json!(2), json!(2), json!(0), json!(0)]);
    fixture.set_permissions("worker", json!({ "budget": { "turns": 3 } }));
    assert_continues(&fixture);
    let result = fixture.send("worker", "again");
    assert_halted(&fixture, &result, &notice("turns"));
}

#[test]
fn an_exhausted_tool_call_budget_halts_between_two_calls() {
    let fixture = fixture_with(&json!({ "tool_calls": 1 }));
    let calls = "!tool echo {\"text\":\"one\"}\n!tool echo {\"text\":\"two\"}\n!tool nothing {}";
    let result = fixture.send("worker", calls);
    assert_halted(&fixture, &result, &notice("tool_calls"));
    let messages = fixture.messages("worker");
    let results: Vec<_> =
        messages.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    let exhausted = "Did not execute: the budget of tool_calls is used up";
    assert_eq!(results, ["one", exhausted, "Unknown tool: nothing"]);
    assert_eq!(fixture.model.requests().len(), 1);
    fixture.set_permissions("worker", json!({ "budget": { "tool_calls": 2 } }));
    assert_eq!(fixture.send_text("worker", "!tool echo {\"text\":\"three\"}"), "tool said: three");
    assert_continues(&fixture);
    assert_eq!(fixture.resource_usage("worker", "tool_calls"), [json!(2), json!(2), json!(0), json!(0)]);
}

#[test]
fn an_exhausted_token_budget_halts_before_the_next_round() {
    let fixture = fixture_with(&json!({ "tokens": 1 }));
    let result = fixture.send("worker", "!tool echo {\"text\":\"one\"}");
    assert_halted(&fixture, &result, &notice("tokens"));
    assert_eq!(fixture.model.requests().len(), 1, "the cost of a round is known only after it");
    let used = result["usage"]["input_tokens"].as_u64().unwrap()
        + result["usage"]["output_tokens"].as_u64().unwrap();
    assert_eq!(fixture.resource_usage("worker", "tokens"), [json!(1), json!(used), json!(0), json!(0)]);
    let result = fixture.send("worker", "hi");
    assert_halted(&fixture, &result, &notice("tokens"));
    assert_eq!(fixture.model.requests().len(), 1);
    fixture.set_permissions("worker", json!({ "unlimited": ["tokens"] }));
    assert_continues(&fixture);
}

#[test]
fn an_exhausted_time_budget_aborts_the_model_call() {
    let fixture = fixture_with(&json!({ "wall_ms": 500 }));
    let result = fixture.send("worker", "!silent");
    assert_halted(&fixture, &result, &notice("wall_ms"));
    fixture.model.wait_aborted(1);
    let result = fixture.send("worker", "hi");
    assert_halted(&fixture, &result, &notice("wall_ms"));
    fixture.set_permissions("worker", json!({ "budget": { "wall_ms": 3_600_000 } }));
    assert_continues(&fixture);
}

#[test]
fn an_exhausted_time_budget_ends_the_awaited_childs_turn() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "wall_ms": 600 } }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "worker" }));
    let result = fixture.send("worker", r#"!tool agent_send {"agent_id":"child","content":"!silent"}"#);
    assert_eq!(result["halted"], "budget", "{result}");
    fixture.model.wait_aborted(1);
    assert_eq!(fixture.send("child", "hi")["halted"], "budget", "a child draws on its parent's time");
    fixture.set_permissions("worker", json!({ "budget": { "wall_ms": 3_600_000 } }));
    assert_eq!(fixture.send("child", "hi")["content"], "echo: hi");
}

#[test]
fn a_child_without_a_budget_draws_on_its_parents() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "turns": 3 } }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "worker" }));
    fixture
        .create_with(json!({ "agent_id": "holder", "parent_agent_id": "worker", "budget": { "turns": 1 } }));
    assert_eq!(fixture.resource_usage("worker", "turns"), [json!(3), json!(0), json!(1), json!(2)]);
    for agent in ["child", "worker"] {
        assert_eq!(fixture.send(agent, "hi")["content"], "echo: hi");
    }
    for agent in ["child", "worker"] {
        assert_eq!(fixture.send(agent, "hi")["halted"], "budget", "{agent}");
    }
    assert_eq!(fixture.send("holder", "hi")["content"], "echo: hi", "a reserved budget is available");
    assert_eq!(fixture.send("holder", "hi")["halted"], "budget");
    assert_eq!(fixture.resource_usage("child", "turns"), [json!(null), json!(1), json!(0), json!(0)]);
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "holder" }));
    assert_eq!(
        fixture.resource_usage("worker", "turns"),
        [json!(3), json!(3), json!(0), json!(0)],
        "used budget is not returned"
    );
}

#[test]
fn the_unused_budget_of_a_destroyed_child_is_returned() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "turns": 3 } }));
    for _ in 0..3 {
        let params = json!({ "agent_id": "holder", "parent_agent_id": "worker", "budget": { "turns": 3 } });
        fixture.create_with(params);
        assert_eq!(fixture.send("worker", "hi")["halted"], "budget");
        fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "holder" }));
    }
    assert_eq!(fixture.resource_usage("worker", "turns"), [json!(3), json!(0), json!(0), json!(3)]);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn concurrent_children_use_exactly_their_parents_budget() {
    let fixture = Fixture::start();
    fixture.create_with(
        json!({ "agent_id": "lead", "preset": "trusted", "budget": { "turns": 5, "tool_calls": 3 } }),
    );
    let mut calls = PendingCalls::new();
    for number in 0..20 {
        let name = format!("child-{number}");
        fixture.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
        let params = json!({ "content": "!tool echo {\"text\":\"ran\"}" });
        calls.start(&fixture.daemon, &agent_path(&name), "send", params);
    }
    let results: Vec<_> = (0..20).map(|_| calls.next_result()).collect();
    let count = |content: &str| results.iter().filter(|result| result["content"] == content).count();
    assert_eq!(count("tool said: ran"), 3);
    assert_eq!((count(&notice("tool_calls")), count(&notice("turns"))), (2, 15));
    assert_eq!(fixture.resource_usage("lead", "turns"), [json!(5), json!(5), json!(0), json!(0)]);
}

#[test]
fn reducing_a_parents_budget_caps_its_childrens_budgets() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "budget": { "turns": 9 } }));
    fixture.create_with(json!({ "agent_id": "holder", "parent_agent_id": "lead", "budget": { "turns": 9 } }));
    assert_eq!(fixture.send("holder", "hi")["content"], "echo: hi");
    fixture.set_permissions("lead", json!({ "budget": { "turns": 1 } }));
    assert_eq!(fixture.resource_usage("holder", "turns")[3], 0);
    assert_eq!(fixture.send("holder", "hi")["halted"], "budget");
}

#[test]
fn a_budget_of_zero_allows_nothing() {
    let fixture =
        fixture_with(&json!({ "turns": 0, "tool_calls": 0, "tokens": 0, "wall_ms": 0, "children": 0 }));
    let result = fixture.send("worker", "hi");
    assert_halted(&fixture, &result, &notice("turns"));
    let steered = fixture.daemon.call_result(&agent_path("worker"), "steer", json!({ "content": "hi" }));
    assert_eq!(steered, json!({ "steered": false, "reason": "no_running_turn_or_full" }));
    assert_eq!(fixture.model.requests().len(), 0);
}

#[test]
fn the_iteration_limit_halts_with_its_own_reason() {
    let fixture = Fixture::with_config("limits.tool_iterations_max = 3");
    fixture.create("worker");
    let result = fixture.send("worker", "!insist echo {\"text\":\"again\"}");
    assert_eq!(
        (&result["halted"], &result["halted_at_iteration_limit"]),
        (&json!("iteration_limit"), &json!(true))
    );
    assert_eq!(fixture.model.requests().len(), 3);
    assert_eq!(fixture.agent("worker")["halted"], "iteration_limit");
    assert_continues(&fixture);
}
