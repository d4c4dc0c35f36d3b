//! `shutdown` of an agent: a flag, and when every agent has it the daemon ends.

use serde_json::json;

use crate::support::callers::result_as;
use crate::support::{Fixture, agent_ids, agent_path};

fn shutdown_agent(stage: &Fixture, id: &str) {
    assert_eq!(stage.daemon.call_result(&agent_path(id), "shutdown", json!({})), json!({ "success": true }));
}

#[test]
fn a_finished_agent_goes_on_answering_while_another_is_not_finished() {
    let stage = Fixture::start();
    stage.create("done");
    stage.create("working");
    shutdown_agent(&stage, "done");
    shutdown_agent(&stage, "done");
    assert_eq!(stage.send("done", "still there?")["content"], "echo: still there?");
    assert_eq!(agent_ids(&stage.daemon), ["done", "working"]);
}

#[test]
fn the_daemon_ends_when_every_agent_is_finished() {
    let stage = Fixture::start();
    for name in ["one", "two", "three"] {
        stage.create(name);
    }
    for name in ["two", "one", "three"] {
        shutdown_agent(&stage, name);
    }
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
    let token = stage.daemon.home().join(format!("rpc-{}.token", stage.daemon.port()));
    assert!(!token.exists());
}

#[test]
fn the_daemon_ends_when_the_last_agent_that_is_not_finished_is_destroyed() {
    let stage = Fixture::start();
    stage.create("done");
    stage.create("working");
    shutdown_agent(&stage, "done");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "working" }));
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}

#[test]
fn a_daemon_without_agents_stays() {
    let stage = Fixture::start();
    stage.create("one");
    stage.create("two");
    shutdown_agent(&stage, "one");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "one" }));
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "two" }));
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
    stage.create("three");
    assert_eq!(stage.send("three", "hi")["content"], "echo: hi");
}

#[test]
fn a_turn_of_the_last_agent_to_finish_is_answered() {
    let stage = Fixture::start();
    stage.create("last");
    let open = stage.start_send("last", "!hold gate the end", "r");
    stage.model.wait_stalled(1);
    shutdown_agent(&stage, "last");
    stage.daemon.wait_stderr("stopping: a client's request");
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], "the end released gate");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}

#[test]
fn an_agent_that_calls_itself_finished_does_not_stop_the_daemon() {
    let stage = Fixture::start();
    let token = stage.create_with(json!({ "agent_id": "only" }));
    let result = result_as(&stage.daemon, &token, &agent_path("only"), "shutdown", json!({}));
    assert_eq!(result, json!({ "success": true }));
    assert_eq!(stage.send("only", "still there?")["content"], "echo: still there?");
    let listed = stage.daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"][0]["should_shutdown"], true);
    shutdown_agent(&stage, "only");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0), "an admin's word counts");
}
