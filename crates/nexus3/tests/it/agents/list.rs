//! `list_agents` and `rpc.discover`: the daemon's description of its agents and of itself.

use serde_json::{Value, json};
use testkit::TestDaemon;

use crate::support::{BIN, ExpectError as _, Fixture, agent_ids, agent_path, is_timestamp, member_names};

const OPENRPC: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lib/nexus3-protocol/openrpc.json"));

const FIELDS: [&str; 15] = [
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
    "preset",
    "should_shutdown",
    "state",
    "write_paths",
];

fn entry(daemon: &TestDaemon, id: &str) -> Value {
    let list = daemon.call_result("/", "list_agents", json!({}));
    let agents = list["agents"].as_array().unwrap();
    agents.iter().find(|agent| agent["agent_id"] == id).unwrap().clone()
}

#[test]
fn entry_has_the_originals_thirteen_fields_and_two_more() {
    let fixture = Fixture::start();
    fixture.create("fresh");
    let fresh = entry(&fixture.daemon, "fresh");
    assert_eq!(member_names(&fresh), FIELDS);
    assert!(is_timestamp(&fresh["created_at"]), "{fresh}");
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
        "write_paths": [],
        "preset": "sandboxed",
        "state": "live",
    });
    assert_eq!(fresh, expected);
}

#[test]
fn entry_reflects_the_agents_state() {
    let fixture = Fixture::with_config("limits.tool_iterations_max = 1");
    fixture.create("worker");
    let before = entry(&fixture.daemon, "worker");
    fixture.send("worker", "!tool hammer {}");
    let after = entry(&fixture.daemon, "worker");
    assert_eq!((&after["message_count"], &after["halted_at_iteration_limit"]), (&json!(4), &json!(true)));
    assert_eq!(after["created_at"], before["created_at"]);
    assert!(is_timestamp(&after["last_action_at"]), "{after}");
    assert!(after["last_action_at"].as_str() >= after["created_at"].as_str(), "{after}");
    fixture.create("other");
    fixture.daemon.call_result(&agent_path("worker"), "shutdown", json!({}));
    assert_eq!(entry(&fixture.daemon, "worker")["should_shutdown"], true);
    assert_eq!(entry(&fixture.daemon, "other")["should_shutdown"], false);
}

#[test]
fn entry_reflects_a_running_turn() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!stall", "r");
    fixture.model.wait_stalled(1);
    let during = entry(&fixture.daemon, "worker");
    assert_eq!(during["message_count"], 1);
    assert!(is_timestamp(&during["last_action_at"]), "{during}");
    fixture.cancel("worker", "r");
    assert_eq!(pending.next_result()["cancelled"], true);
    assert_eq!(entry(&fixture.daemon, "worker")["message_count"], 2);
}

#[test]
fn agents_are_listed_in_creation_order() {
    let daemon = TestDaemon::builder(BIN).start();
    let names = ["zebra", "ant", ".mole", "Bee", "9"];
    for name in names {
        daemon.call_result("/", "create_agent", json!({ "agent_id": name }));
    }
    assert_eq!(agent_ids(&daemon), names);
    daemon.call_result("/", "destroy_agent", json!({ "agent_id": "ant" }));
    daemon.call_result("/", "create_agent", json!({ "agent_id": "ant" }));
    assert_eq!(agent_ids(&daemon), ["zebra", ".mole", "Bee", "9", "ant"]);
}

#[test]
fn leading_dot_marks_a_temporary_agent() {
    let daemon = TestDaemon::builder(BIN).start();
    for (name, is_temp) in [(".1", true), ("a.1", false)] {
        daemon.call_result("/", "create_agent", json!({ "agent_id": name }));
        assert_eq!(entry(&daemon, name)["is_temp"], is_temp, "{name}");
    }
}

#[test]
fn entry_model_is_null_without_a_model() {
    let daemon = TestDaemon::builder(BIN).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "mute" }));
    assert_eq!(entry(&daemon, "mute")["model"], Value::Null);
}

#[test]
fn list_agents_takes_only_paging_parameters() {
    let daemon = TestDaemon::builder(BIN).start();
    let empty = json!({ "agents": [], "total": 0 });
    for path in ["/", "/rpc"] {
        assert_eq!(daemon.call_result(path, "list_agents", json!({})), empty);
        assert_eq!(daemon.call_result(path, "list_agents", Value::Null), empty);
        for (params, message) in [
            (json!({ "prefix": "a" }), "Extra inputs are not permitted: prefix"),
            (json!({ "limit": 0 }), "limit must be an integer between 1 and 2000"),
            (json!({ "limit": 2001 }), "limit must be an integer between 1 and 2000"),
            (json!({ "offset": -1 }), "offset must be a non-negative integer"),
        ] {
            let error = daemon.error(path, "list_agents", params);
            assert_eq!(error, json!({ "code": -32602, "message": message }));
        }
    }
}

#[test]
fn page_selects_agents_by_offset_and_limit() {
    let daemon = TestDaemon::builder(BIN).start();
    for number in 0..5 {
        daemon.call_result("/", "create_agent", json!({ "agent_id": format!("a{number}") }));
    }
    for (params, names) in [
        (json!({ "offset": 1, "limit": 2 }), &["a1", "a2"][..]),
        (json!({ "limit": 1 }), &["a0"]),
        (json!({ "offset": 3 }), &["a3", "a4"]),
        (json!({ "offset": 4, "limit": 2000 }), &["a4"]),
        (json!({ "offset": 5 }), &[]),
        (json!({ "offset": u64::MAX, "limit": 2000 }), &[]),
        (json!({ "offset": null, "limit": null }), &["a0", "a1", "a2", "a3", "a4"]),
    ] {
        let page = daemon.call_result("/", "list_agents", params.clone());
        let found: Vec<_> =
            page["agents"].as_array().unwrap().iter().map(|agent| &agent["agent_id"]).collect();
        assert_eq!(found, names, "{params}");
        assert_eq!(page["total"], 5, "{params}");
    }
}

#[test]
fn discover_returns_the_checked_in_openrpc_document() {
    let daemon = TestDaemon::builder(BIN).start();
    let checked_in: Value = serde_json::from_str(OPENRPC).unwrap();
    assert_eq!(daemon.call_result("/", "rpc.discover", json!({})), checked_in);
    assert_eq!(daemon.call_result("/rpc", "rpc.discover", Value::Null), checked_in);
    let error = daemon.error("/", "rpc.discover", json!({ "x": 1 }));
    assert_eq!(error["code"], -32602);
    assert_eq!(agent_ids(&daemon), [""; 0], "discovery does not create main");
}

#[test]
fn daemon_methods_are_not_found_on_agents() {
    let fixture = Fixture::start();
    fixture.create("worker");
    for method in ["create_agent", "destroy_agent", "list_agents", "shutdown_server", "rpc.discover"] {
        let error = fixture.daemon.error(&agent_path("worker"), method, json!({}));
        assert_eq!(error, json!({ "code": -32601, "message": format!("Method not found: {method}") }));
    }
}
