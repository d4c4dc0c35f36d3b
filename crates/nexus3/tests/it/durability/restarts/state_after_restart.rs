//! State after a restart: the agents that exist, their conversations, permissions, budgets and tokens.

use serde_json::{Value, json};
use testkit::{StoppedDaemon, TestDaemon};

use crate::durability::wait_turns_ended;
use crate::support::callers::{call_as, post_as, result_as};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, agent_ids, agent_path};

/// Results of all methods that read an agent.
fn agent_state(fixture: &Fixture, id: &str) -> Vec<Value> {
    let methods =
        ["get_agent", "get_permissions", "get_context", "get_tokens", "get_messages", "list_children"];
    let mut all: Vec<Value> = methods
        .into_iter()
        .map(|method| fixture.daemon.call_result(&agent_path(id), method, json!({})))
        .collect();
    all.push(fixture.daemon.call_result("/", "export_agent", json!({ "agent_id": id })));
    all
}

/// Lists all agents without their state, which has to be this one.
fn list_agents(fixture: &Fixture, state: &str) -> Value {
    let mut list = fixture.daemon.call_result("/", "list_agents", json!({}))["agents"].take();
    for agent in list.as_array_mut().expect("a list of agents") {
        assert_eq!(agent["state"].take(), state, "{agent}");
    }
    list
}

fn append_file_script(path: &str) -> String {
    format!("!tool fs_append_file {}", json!({ "path": path, "content": "line" }))
}

/// Creates a tree of three agents with all settings and uses them. Returns their tokens.
fn create_tree(fixture: &Fixture, folder: &TestDirectory) -> [String; 3] {
    folder.create_directory("work/out");
    let lead = json!({
        "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "system_prompt": "You lead.",
        "model": "openai/other", "on_restart": "mark", "may_create": ["trusted", "sandboxed"], "disable_tools": ["uuid_generate"],
        "may_grant": { "preset": "trusted", "allowed_write_paths": [folder.path_of("work")] },
        "budget": { "turns": 50, "tool_calls": 60, "tokens": 100_000, "wall_ms": 500_000, "children": 7 },
    });
    let middle = json!({
        "agent_id": "middle", "parent_agent_id": "lead", "cwd": folder.path_of("work"), "preset": "trusted",
        "allowed_write_paths": [folder.path_of("work")], "budget": { "turns": 20, "children": 3 },
    });
    let low = json!({
        "agent_id": "low", "parent_agent_id": "middle", "cwd": folder.path_of("work"), "system_prompt": "",
        "allowed_write_paths": [folder.path_of("work/out")], "budget": { "turns": 5 },
    });
    let tokens = [lead, middle, low].map(|params| fixture.create_with(params));
    fixture.send("lead", "hello");
    fixture.send("low", &append_file_script("out/file"));
    fixture.send("low", &append_file_script("/etc/denied"));
    fixture.set_permissions("middle", json!({ "disable_tools": ["echo"] }));
    tokens
}

fn assert_tree_survives(end: fn(TestDaemon) -> StoppedDaemon) {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    let tokens = create_tree(&fixture, &folder);
    let names = ["lead", "middle", "low"];
    let before = names.map(|id| agent_state(&fixture, id));
    let list = list_agents(&fixture, "live");
    let fixture = fixture.restart_with(end, |builder| builder);
    assert_eq!(list_agents(&fixture, "asleep"), list, "a list wakes no agent");
    // Wakes all agents: whether an agent is in memory is not part of the compared state.
    names.iter().for_each(|id| drop(fixture.agent(id)));
    for (id, before) in names.iter().zip(&before) {
        for (before, after) in before.iter().zip(agent_state(&fixture, id)) {
            assert_eq!(*before, after, "{id}");
        }
    }
    for (id, token) in names.iter().zip(&tokens) {
        let agent = result_as(&fixture.daemon, token, &agent_path(id), "get_agent", json!({}));
        assert_eq!(agent["agent"]["agent_id"], *id);
    }
    assert_permissions_hold(&fixture, &folder, &tokens);
}

/// Asserts that the permissions and budgets are enforced, not only reported.
fn assert_permissions_hold(fixture: &Fixture, folder: &TestDirectory, tokens: &[String; 3]) {
    let above = call_as(&fixture.daemon, &tokens[2], &agent_path("lead"), "get_agent", json!({}));
    assert_eq!(above["error"]["data"]["kind"], "permission_denied", "{above}");
    fixture.send("low", &append_file_script("out/file"));
    assert_eq!(folder.read("work/out/file").map(|text| text.lines().count()), Some(2));
    fixture.send("low", &append_file_script(&folder.path_of("work/elsewhere")));
    assert_eq!(folder.read("work/elsewhere"), None, "outside its write paths");
    assert_eq!(fixture.resource_usage("low", "turns")[1], json!(4), "usage before the restart counts");
    fixture.send("low", "five");
    let spent = fixture.send("low", "six");
    assert_eq!(fixture.agent("low")["halted"], "budget", "{spent}");
    fixture.send("lead", "which model?");
    assert_eq!(fixture.model.requests().pop().expect("the model was called").body["model"], "other");
}

#[test]
fn the_state_of_agents_survives_a_kill() {
    assert_tree_survives(TestDaemon::kill);
}

#[test]
fn the_state_of_agents_survives_a_graceful_stop() {
    assert_tree_survives(TestDaemon::stop);
}

#[test]
fn temporary_agents_end_at_exit_but_remain_ceilings() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    fixture.create_with(json!({
        "agent_id": "permanent", "preset": "trusted", "may_create": ["trusted", "sandboxed"], "cwd": folder.path_str(),
        "budget": { "children": 5 },
    }));
    let temporary = json!({
        "agent_id": ".temporary", "preset": "trusted", "parent_agent_id": "permanent", "disable_tools": ["echo"],
    });
    let temporary = fixture.create_with(temporary);
    fixture.create_with(json!({ "temporary": true }));
    let below = fixture.create_with(json!({ "agent_id": "below", "parent_agent_id": ".temporary" }));
    let _pending = fixture.start_send(".1", "!stall", "r");
    fixture.model.wait_stalled(1);
    let permissions = fixture.permissions("below")["may"].clone();
    assert_eq!(fixture.resource_usage("permanent", "children")[1], json!(2));
    let fixture = fixture.kill_and_start();
    assert_eq!(agent_ids(&fixture.daemon), ["permanent", "below"]);
    let refused = post_as(&fixture.daemon, &temporary, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let own = result_as(&fixture.daemon, &below, &agent_path("below"), "get_permissions", json!({}));
    assert_eq!(own["may"], permissions, "a destroyed ancestor remains a ceiling");
    assert_eq!(
        fixture.resource_usage("permanent", "children")[1],
        json!(1),
        "a destroyed child does not count"
    );
    wait_turns_ended(&fixture.daemon, &["r"]);
    assert_eq!(fixture.model.call_counts("!stall", 0).requests, 1);
    let fixture = fixture.kill_and_start();
    assert_eq!(fixture.permissions("below")["may"], permissions, "also after another restart");
}

#[test]
fn a_destroyed_agent_stays_destroyed() {
    let fixture = Fixture::start();
    let token = fixture.create_with(json!({ "agent_id": "worker" }));
    fixture.send("worker", "hello");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    let fixture = fixture.kill_and_start();
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
    let refused = post_as(&fixture.daemon, &token, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
    fixture.create("worker");
    assert_eq!(fixture.messages("worker"), [], "a new agent with the same name");
}
