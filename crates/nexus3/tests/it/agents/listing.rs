//! `list_agents` and `rpc.discover`: what the daemon tells of its agents and of itself.

use serde_json::{Value, json};
use testkit::TestDaemon;

use crate::support::{BIN, Errors as _, Stage, is_time, listed, members, path};

const OPENRPC: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lib/nexus3-protocol/openrpc.json"));

const FIELDS: [&str; 13] = [
    "agent_id",
    "child_count",
    "created_at",
    "cwd",
    "halted_at_iteration_limit",
    "is_temp",
    "last_action_at",
    "message_count",
    "model",
    "parent_agent_id",
    "permission_level",
    "should_shutdown",
    "write_paths",
];

fn entry(daemon: &TestDaemon, id: &str) -> Value {
    let list = daemon.result("/", "list_agents", json!({}));
    let agents = list["agents"].as_array().unwrap();
    agents.iter().find(|agent| agent["agent_id"] == id).unwrap().clone()
}

#[test]
fn an_entry_has_thirteen_fields() {
    let stage = Stage::open();
    stage.create("fresh");
    let fresh = entry(&stage.daemon, "fresh");
    assert_eq!(members(&fresh), FIELDS);
    assert!(is_time(&fresh["created_at"]), "{fresh}");
    assert!(fresh["cwd"].as_str().is_some_and(|cwd| cwd.starts_with('/')), "{fresh}");
    let expected = json!({
        "agent_id": "fresh",
        "is_temp": false,
        "created_at": fresh["created_at"],
        "message_count": 0,
        "should_shutdown": false,
        "parent_agent_id": null,
        "child_count": 0,
        "halted_at_iteration_limit": false,
        "model": "openai/scripted",
        "last_action_at": null,
        "permission_level": "SANDBOXED",
        "cwd": fresh["cwd"],
        "write_paths": null,
    });
    assert_eq!(fresh, expected);
}

#[test]
fn an_entry_follows_what_its_agent_does() {
    let stage = Stage::with("limits.tool_iterations_max = 1");
    stage.create("worker");
    let before = entry(&stage.daemon, "worker");
    stage.send("worker", "!tool hammer {}");
    let after = entry(&stage.daemon, "worker");
    assert_eq!((&after["message_count"], &after["halted_at_iteration_limit"]), (&json!(4), &json!(true)));
    assert_eq!(after["created_at"], before["created_at"]);
    assert!(is_time(&after["last_action_at"]), "{after}");
    assert!(after["last_action_at"].as_str() >= after["created_at"].as_str(), "{after}");
    stage.create("other");
    stage.daemon.result(&path("worker"), "shutdown", json!({}));
    assert_eq!(entry(&stage.daemon, "worker")["should_shutdown"], true);
    assert_eq!(entry(&stage.daemon, "other")["should_shutdown"], false);
}

#[test]
fn a_running_turn_shows_in_its_agents_entry() {
    let stage = Stage::open();
    stage.create("worker");
    let open = stage.start_send("worker", "!stall", "r");
    stage.model.wait_stalled(1);
    let during = entry(&stage.daemon, "worker");
    assert_eq!(during["message_count"], 1);
    assert!(is_time(&during["last_action_at"]), "{during}");
    stage.cancel("worker", "r");
    assert_eq!(open.result()["cancelled"], true);
    assert_eq!(entry(&stage.daemon, "worker")["message_count"], 2);
}

#[test]
fn agents_are_listed_in_the_order_they_were_created() {
    let daemon = TestDaemon::builder(BIN).start();
    let names = ["zebra", "ant", ".mole", "Bee", "9"];
    for name in names {
        daemon.result("/", "create_agent", json!({ "agent_id": name }));
    }
    assert_eq!(listed(&daemon), names);
    daemon.result("/", "destroy_agent", json!({ "agent_id": "ant" }));
    daemon.result("/", "create_agent", json!({ "agent_id": "ant" }));
    assert_eq!(listed(&daemon), ["zebra", ".mole", "Bee", "9", "ant"]);
}

#[test]
fn a_leading_dot_marks_a_temporary_agent() {
    let daemon = TestDaemon::builder(BIN).start();
    for (name, is_temp) in [(".1", true), ("a.1", false)] {
        daemon.result("/", "create_agent", json!({ "agent_id": name }));
        assert_eq!(entry(&daemon, name)["is_temp"], is_temp, "{name}");
    }
}

#[test]
fn without_a_model_the_entry_says_so() {
    let daemon = TestDaemon::builder(BIN).start();
    daemon.result("/", "create_agent", json!({ "agent_id": "mute" }));
    assert_eq!(entry(&daemon, "mute")["model"], Value::Null);
}

#[test]
fn a_list_takes_no_parameters() {
    let daemon = TestDaemon::builder(BIN).start();
    for path in ["/", "/rpc"] {
        assert_eq!(daemon.result(path, "list_agents", json!({})), json!({ "agents": [] }));
        assert_eq!(daemon.result(path, "list_agents", Value::Null), json!({ "agents": [] }));
        let error = daemon.error(path, "list_agents", json!({ "limit": 5 }));
        assert_eq!(error, json!({ "code": -32602, "message": "Extra inputs are not permitted: limit" }));
    }
}

#[test]
fn the_daemon_describes_itself_with_the_checked_in_document() {
    let daemon = TestDaemon::builder(BIN).start();
    let checked_in: Value = serde_json::from_str(OPENRPC).unwrap();
    assert_eq!(daemon.result("/", "rpc.discover", json!({})), checked_in);
    assert_eq!(daemon.result("/rpc", "rpc.discover", Value::Null), checked_in);
    let error = daemon.error("/", "rpc.discover", json!({ "x": 1 }));
    assert_eq!(error["code"], -32602);
    assert_eq!(listed(&daemon), [""; 0], "to describe is not to use");
}

#[test]
fn the_daemons_own_methods_are_not_an_agents() {
    let stage = Stage::open();
    stage.create("worker");
    for method in ["create_agent", "destroy_agent", "list_agents", "shutdown_server", "rpc.discover"] {
        let error = stage.daemon.error(&path("worker"), method, json!({}));
        assert_eq!(error, json!({ "code": -32601, "message": format!("Method not found: {method}") }));
    }
}
