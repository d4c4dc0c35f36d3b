//! Budgets: a turn that runs out of something halts with `halted: "budget"`, and goes on when more is granted.

use serde_json::{Value, json};

use crate::support::model_requests::assert_all_valid;
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path};

fn fixture_with(budget: &Value) -> Fixture {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "budget": budget }));
    stage
}

fn notice(resource: &str) -> String {
    format!("[Stopping: the budget of {resource} is used up]")
}

fn assert_halted(stage: &Fixture, result: &Value, content: &str) {
    assert_eq!((&result["halted"], &result["content"]), (&json!("budget"), &json!(content)), "{result}");
    assert_eq!(result["halted_at_iteration_limit"], false, "{result}");
    assert_eq!(stage.agent("worker")["halted"], "budget");
}

fn assert_continues(stage: &Fixture) {
    let result = stage.send("worker", "hi");
    assert_eq!((&result["content"], result.get("halted")), (&json!("echo: hi"), None), "{result}");
    assert_eq!(stage.agent("worker")["halted"], json!(null));
    assert_all_valid(&stage.model);
}

#[test]
fn turns_run_out_before_the_model_is_asked() {
    let stage = fixture_with(&json!({ "turns": 2 }));
    for _ in 0..2 {
        assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
    }
    let result = stage.send("worker", "one too many");
    assert_halted(&stage, &result, &notice("turns"));
    assert_eq!(stage.model.requests().len(), 2);
    assert_eq!(stage.resource_usage("worker", "turns"), [json!(2), json!(2), json!(0), json!(0)]);
    stage.set_permissions("worker", json!({ "budget": { "turns": 3 } }));
    assert_continues(&stage);
    let result = stage.send("worker", "again");
    assert_halted(&stage, &result, &notice("turns"));
}

#[test]
fn tool_calls_run_out_between_two_calls() {
    let stage = fixture_with(&json!({ "tool_calls": 1 }));
    let calls = "!tool echo {\"text\":\"one\"}\n!tool echo {\"text\":\"two\"}\n!tool nothing {}";
    let result = stage.send("worker", calls);
    assert_halted(&stage, &result, &notice("tool_calls"));
    let said = stage.messages("worker");
    let results: Vec<_> =
        said.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    let spent = "Did not execute: the budget of tool_calls is used up";
    assert_eq!(results, ["one", spent, "Unknown tool: nothing"]);
    assert_eq!(stage.model.requests().len(), 1);
    stage.set_permissions("worker", json!({ "budget": { "tool_calls": 2 } }));
    assert_eq!(stage.send_text("worker", "!tool echo {\"text\":\"three\"}"), "tool said: three");
    assert_continues(&stage);
    assert_eq!(stage.resource_usage("worker", "tool_calls"), [json!(2), json!(2), json!(0), json!(0)]);
}

#[test]
fn tokens_run_out_between_two_rounds_and_before_the_next_turn() {
    let stage = fixture_with(&json!({ "tokens": 1 }));
    let result = stage.send("worker", "!tool echo {\"text\":\"one\"}");
    assert_halted(&stage, &result, &notice("tokens"));
    assert_eq!(stage.model.requests().len(), 1, "what the first round cost was known only after it");
    let used = result["usage"]["input_tokens"].as_u64().unwrap()
        + result["usage"]["output_tokens"].as_u64().unwrap();
    assert_eq!(stage.resource_usage("worker", "tokens"), [json!(1), json!(used), json!(0), json!(0)]);
    let result = stage.send("worker", "hi");
    assert_halted(&stage, &result, &notice("tokens"));
    assert_eq!(stage.model.requests().len(), 1);
    stage.set_permissions("worker", json!({ "unlimited": ["tokens"] }));
    assert_continues(&stage);
}

#[test]
fn time_runs_out_in_the_middle_of_an_answer() {
    let stage = fixture_with(&json!({ "wall_ms": 500 }));
    let result = stage.send("worker", "!silent");
    assert_halted(&stage, &result, &notice("wall_ms"));
    stage.model.wait_aborted(1);
    let result = stage.send("worker", "hi");
    assert_halted(&stage, &result, &notice("wall_ms"));
    stage.set_permissions("worker", json!({ "budget": { "wall_ms": 3_600_000 } }));
    assert_continues(&stage);
}

#[test]
fn time_runs_out_while_a_child_is_waited_for_and_the_childs_turn_ends_with_it() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "wall_ms": 600 } }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "worker" }));
    let result = stage.send("worker", r#"!tool agent_send {"agent_id":"child","content":"!silent"}"#);
    assert_eq!(result["halted"], "budget", "{result}");
    stage.model.wait_aborted(1);
    assert_eq!(stage.send("child", "hi")["halted"], "budget", "a child draws on its parent's time");
    stage.set_permissions("worker", json!({ "budget": { "wall_ms": 3_600_000 } }));
    assert_eq!(stage.send("child", "hi")["content"], "echo: hi");
}

#[test]
fn a_child_without_a_share_draws_on_its_parents_budget() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "turns": 3 } }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "worker" }));
    stage.create_with(json!({ "agent_id": "heir", "parent_agent_id": "worker", "budget": { "turns": 1 } }));
    assert_eq!(stage.resource_usage("worker", "turns"), [json!(3), json!(0), json!(1), json!(2)]);
    for agent in ["child", "worker"] {
        assert_eq!(stage.send(agent, "hi")["content"], "echo: hi");
    }
    for agent in ["child", "worker"] {
        assert_eq!(stage.send(agent, "hi")["halted"], "budget", "{agent}");
    }
    assert_eq!(stage.send("heir", "hi")["content"], "echo: hi", "what was set aside is there");
    assert_eq!(stage.send("heir", "hi")["halted"], "budget");
    assert_eq!(stage.resource_usage("child", "turns"), [json!(null), json!(1), json!(0), json!(0)]);
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "heir" }));
    assert_eq!(
        stage.resource_usage("worker", "turns"),
        [json!(3), json!(3), json!(0), json!(0)],
        "used is used"
    );
}

#[test]
fn an_unused_share_goes_back_when_its_holder_goes() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "preset": "trusted", "budget": { "turns": 3 } }));
    for _ in 0..3 {
        let share = json!({ "agent_id": "heir", "parent_agent_id": "worker", "budget": { "turns": 3 } });
        stage.create_with(share);
        assert_eq!(stage.send("worker", "hi")["halted"], "budget");
        stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "heir" }));
    }
    assert_eq!(stage.resource_usage("worker", "turns"), [json!(3), json!(0), json!(0), json!(3)]);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
}

#[test]
fn a_crowd_of_children_uses_exactly_what_their_parent_has() {
    let stage = Fixture::start();
    stage.create_with(
        json!({ "agent_id": "lead", "preset": "trusted", "budget": { "turns": 5, "tool_calls": 3 } }),
    );
    let mut calls = PendingCalls::new();
    for number in 0..20 {
        let name = format!("child-{number}");
        stage.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
        let params = json!({ "content": "!tool echo {\"text\":\"ran\"}" });
        calls.start(&stage.daemon, &agent_path(&name), "send", params);
    }
    let answers: Vec<_> = (0..20).map(|_| calls.next_result()).collect();
    let count = |content: &str| answers.iter().filter(|answer| answer["content"] == content).count();
    assert_eq!(count("tool said: ran"), 3);
    assert_eq!((count(&notice("tool_calls")), count(&notice("turns"))), (2, 15));
    assert_eq!(stage.resource_usage("lead", "turns"), [json!(5), json!(5), json!(0), json!(0)]);
}

#[test]
fn a_parent_whose_budget_shrinks_caps_what_it_has_given() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "budget": { "turns": 9 } }));
    stage.create_with(json!({ "agent_id": "heir", "parent_agent_id": "lead", "budget": { "turns": 9 } }));
    assert_eq!(stage.send("heir", "hi")["content"], "echo: hi");
    stage.set_permissions("lead", json!({ "budget": { "turns": 1 } }));
    assert_eq!(stage.resource_usage("heir", "turns")[3], 0);
    assert_eq!(stage.send("heir", "hi")["halted"], "budget");
}

#[test]
fn nothing_at_all_is_a_budget_too() {
    let stage =
        fixture_with(&json!({ "turns": 0, "tool_calls": 0, "tokens": 0, "wall_ms": 0, "children": 0 }));
    let result = stage.send("worker", "hi");
    assert_halted(&stage, &result, &notice("turns"));
    let steered = stage.daemon.call_result(&agent_path("worker"), "steer", json!({ "content": "hi" }));
    assert_eq!(steered, json!({ "steered": false, "reason": "no_running_turn_or_full" }));
    assert_eq!(stage.model.requests().len(), 0);
}

#[test]
fn the_limit_of_rounds_says_so_too() {
    let stage = Fixture::with_config("limits.tool_iterations_max = 3");
    stage.create("worker");
    let result = stage.send("worker", "!insist echo {\"text\":\"again\"}");
    assert_eq!(
        (&result["halted"], &result["halted_at_iteration_limit"]),
        (&json!("iteration_limit"), &json!(true))
    );
    assert_eq!(stage.model.requests().len(), 3);
    assert_eq!(stage.agent("worker")["halted"], "iteration_limit");
    assert_continues(&stage);
}
