//! Who is there after a restart, and what they still know and may do.

use serde_json::{Value, json};
use testkit::{StoppedDaemon, TestDaemon};

use crate::durability::wait_turns_ended;
use crate::support::callers::{call_as, post_as, result_as};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, agent_ids, agent_path};

/// Everything that can be asked about an agent.
fn agent_state(stage: &Fixture, id: &str) -> Vec<Value> {
    let methods =
        ["get_agent", "get_permissions", "get_context", "get_tokens", "get_messages", "list_children"];
    let mut all: Vec<Value> = methods
        .into_iter()
        .map(|method| stage.daemon.call_result(&agent_path(id), method, json!({})))
        .collect();
    all.push(stage.daemon.call_result("/", "export_agent", json!({ "agent_id": id })));
    all
}

/// All agents, which have to be in this state.
fn list_agents(stage: &Fixture, state: &str) -> Value {
    let mut list = stage.daemon.call_result("/", "list_agents", json!({}))["agents"].take();
    for agent in list.as_array_mut().expect("a list of agents") {
        assert_eq!(agent["state"].take(), state, "{agent}");
    }
    list
}

fn append_file_script(place: &str) -> String {
    format!("!tool fs_append_file {}", json!({ "path": place, "content": "line" }))
}

/// A tree of three with everything that can be given, and something done with it; the tokens of all.
fn create_family(stage: &Fixture, folder: &TestDirectory) -> [String; 3] {
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
    let tokens = [lead, middle, low].map(|params| stage.create_with(params));
    stage.send("lead", "hello");
    stage.send("low", &append_file_script("out/file"));
    stage.send("low", &append_file_script("/etc/denied"));
    stage.set_permissions("middle", json!({ "disable_tools": ["echo"] }));
    tokens
}

fn assert_family_survives(end: fn(TestDaemon) -> StoppedDaemon) {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    let tokens = create_family(&stage, &folder);
    let names = ["lead", "middle", "low"];
    let before = names.map(|id| agent_state(&stage, id));
    let list = list_agents(&stage, "live");
    let stage = stage.restart_with(end, |builder| builder);
    assert_eq!(list_agents(&stage, "asleep"), list, "nobody has to be woken for a list");
    // Whether somebody is in memory is not part of the portrait.
    names.iter().for_each(|id| drop(stage.agent(id)));
    for (id, before) in names.iter().zip(&before) {
        for (before, after) in before.iter().zip(agent_state(&stage, id)) {
            assert_eq!(*before, after, "{id}");
        }
    }
    for (id, token) in names.iter().zip(&tokens) {
        let agent = result_as(&stage.daemon, token, &agent_path(id), "get_agent", json!({}));
        assert_eq!(agent["agent"]["agent_id"], *id);
    }
    assert_permissions_hold(&stage, &folder, &tokens);
}

/// What they may do is what they might do before, in deed and not only in word.
fn assert_permissions_hold(stage: &Fixture, folder: &TestDirectory, tokens: &[String; 3]) {
    let above = call_as(&stage.daemon, &tokens[2], &agent_path("lead"), "get_agent", json!({}));
    assert_eq!(above["error"]["data"]["kind"], "permission_denied", "{above}");
    stage.send("low", &append_file_script("out/file"));
    assert_eq!(folder.read("work/out/file").map(|text| text.lines().count()), Some(2));
    stage.send("low", &append_file_script(&folder.path_of("work/elsewhere")));
    assert_eq!(folder.read("work/elsewhere"), None, "outside its write paths");
    assert_eq!(stage.resource_usage("low", "turns")[1], json!(4), "what was used before counts");
    stage.send("low", "five");
    let spent = stage.send("low", "six");
    assert_eq!(stage.agent("low")["halted"], "budget", "{spent}");
    stage.send("lead", "still you?");
    assert_eq!(stage.model.requests().pop().expect("a question").body["model"], "other");
}

#[test]
fn everything_of_an_agent_survives_a_kill() {
    assert_family_survives(TestDaemon::kill);
}

#[test]
fn everything_of_an_agent_survives_an_orderly_stop() {
    assert_family_survives(TestDaemon::stop);
}

#[test]
fn temporary_agents_end_with_the_daemon_and_whoever_is_below_them_keeps_their_ceiling() {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    stage.create_with(json!({
        "agent_id": "lasting", "preset": "trusted", "may_create": ["trusted", "sandboxed"], "cwd": folder.path_str(),
        "budget": { "children": 5 },
    }));
    let passing = json!({
        "agent_id": ".passing", "preset": "trusted", "parent_agent_id": "lasting", "disable_tools": ["echo"],
    });
    let passing = stage.create_with(passing);
    stage.create_with(json!({ "temporary": true }));
    let below = stage.create_with(json!({ "agent_id": "below", "parent_agent_id": ".passing" }));
    let _open = stage.start_send(".1", "!stall", "r");
    stage.model.wait_stalled(1);
    let permissions = stage.permissions("below")["may"].clone();
    assert_eq!(stage.resource_usage("lasting", "children")[1], json!(2));
    let stage = stage.kill_and_start();
    assert_eq!(agent_ids(&stage.daemon), ["lasting", "below"]);
    let refused = post_as(&stage.daemon, &passing, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let own = result_as(&stage.daemon, &below, &agent_path("below"), "get_permissions", json!({}));
    assert_eq!(own["may"], permissions, "an ancestor that is gone stays a ceiling");
    assert_eq!(stage.resource_usage("lasting", "children")[1], json!(1), "it takes no place any more");
    wait_turns_ended(&stage.daemon, &["r"]);
    assert_eq!(stage.model.call_counts("!stall", 0).requests, 1);
    let stage = stage.kill_and_start();
    assert_eq!(stage.permissions("below")["may"], permissions, "and for ever");
}

#[test]
fn an_agent_that_was_destroyed_stays_so() {
    let stage = Fixture::start();
    let token = stage.create_with(json!({ "agent_id": "worker" }));
    stage.send("worker", "hello");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    let stage = stage.kill_and_start();
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
    let refused = post_as(&stage.daemon, &token, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
    stage.create("worker");
    assert_eq!(stage.messages("worker"), [], "another agent of the same name");
}
