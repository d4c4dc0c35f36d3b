//! `shutdown` of an agent: it sets a flag. When every agent has the flag, the daemon exits.

use serde_json::json;

use crate::support::callers::result_as;
use crate::support::{Fixture, agent_ids, agent_path};

fn shutdown_agent(fixture: &Fixture, id: &str) {
    assert_eq!(
        fixture.daemon.call_result(&agent_path(id), "shutdown", json!({})),
        json!({ "success": true })
    );
}

#[test]
fn agent_after_shutdown_responds_while_others_are_active() {
    let fixture = Fixture::start();
    fixture.create("done");
    fixture.create("working");
    shutdown_agent(&fixture, "done");
    shutdown_agent(&fixture, "done");
    assert_eq!(fixture.send("done", "still there?")["content"], "echo: still there?");
    assert_eq!(agent_ids(&fixture.daemon), ["done", "working"]);
}

#[test]
fn daemon_exits_when_every_agent_is_shut_down() {
    let fixture = Fixture::start();
    for name in ["one", "two", "three"] {
        fixture.create(name);
    }
    for name in ["two", "one", "three"] {
        shutdown_agent(&fixture, name);
    }
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
    let token = fixture.daemon.home().join(format!("rpc-{}.token", fixture.daemon.port()));
    assert!(!token.exists());
}

#[test]
fn daemon_exits_when_the_last_active_agent_is_destroyed() {
    let fixture = Fixture::start();
    fixture.create("done");
    fixture.create("working");
    shutdown_agent(&fixture, "done");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "working" }));
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}

#[test]
fn daemon_without_agents_keeps_running() {
    let fixture = Fixture::start();
    fixture.create("one");
    fixture.create("two");
    shutdown_agent(&fixture, "one");
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "one" }));
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "two" }));
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
    fixture.create("three");
    assert_eq!(fixture.send("three", "hi")["content"], "echo: hi");
}

#[test]
fn running_turn_completes_before_the_daemon_exits() {
    let fixture = Fixture::start();
    fixture.create("last");
    let pending = fixture.start_send("last", "!hold gate the end", "r");
    fixture.model.wait_stalled(1);
    shutdown_agent(&fixture, "last");
    fixture.daemon.wait_stderr("stopping: a client's request");
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], "the end released gate");
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}

#[test]
fn agents_own_shutdown_call_does_not_stop_the_daemon() {
    let fixture = Fixture::start();
    let token = fixture.create_with(json!({ "agent_id": "only" }));
    let result = result_as(&fixture.daemon, &token, &agent_path("only"), "shutdown", json!({}));
    assert_eq!(result, json!({ "success": true }));
    assert_eq!(fixture.send("only", "still there?")["content"], "echo: still there?");
    let listed = fixture.daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"][0]["should_shutdown"], true);
    shutdown_agent(&fixture, "only");
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0), "a call by the admin counts");
}
