//! `shutdown` of an agent: a flag, and when every agent has it the daemon ends.

use serde_json::json;

use crate::support::callers::result_as;
use crate::support::{Stage, listed, path};

fn finish(stage: &Stage, id: &str) {
    assert_eq!(stage.daemon.call_result(&path(id), "shutdown", json!({})), json!({ "success": true }));
}

#[test]
fn a_finished_agent_goes_on_answering_while_another_is_not_finished() {
    let stage = Stage::open();
    stage.create("done");
    stage.create("working");
    finish(&stage, "done");
    finish(&stage, "done");
    assert_eq!(stage.send("done", "still there?")["content"], "echo: still there?");
    assert_eq!(listed(&stage.daemon), ["done", "working"]);
}

#[test]
fn the_daemon_ends_when_every_agent_is_finished() {
    let stage = Stage::open();
    for name in ["one", "two", "three"] {
        stage.create(name);
    }
    for name in ["two", "one", "three"] {
        finish(&stage, name);
    }
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
    let token = stage.daemon.home().join(format!("rpc-{}.token", stage.daemon.port()));
    assert!(!token.exists());
}

#[test]
fn the_daemon_ends_when_the_last_agent_that_is_not_finished_is_destroyed() {
    let stage = Stage::open();
    stage.create("done");
    stage.create("working");
    finish(&stage, "done");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "working" }));
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}

#[test]
fn a_daemon_without_agents_stays() {
    let stage = Stage::open();
    stage.create("one");
    stage.create("two");
    finish(&stage, "one");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "one" }));
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "two" }));
    assert_eq!(listed(&stage.daemon), [""; 0]);
    stage.create("three");
    assert_eq!(stage.send("three", "hi")["content"], "echo: hi");
}

#[test]
fn a_turn_of_the_last_agent_to_finish_is_answered() {
    let stage = Stage::open();
    stage.create("last");
    let open = stage.start_send("last", "!hold gate the end", "r");
    stage.model.wait_stalled(1);
    finish(&stage, "last");
    stage.daemon.wait_stderr("stopping because of a client's request");
    stage.model.release("gate");
    assert_eq!(open.result()["content"], "the end released gate");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}

#[test]
fn an_agent_that_calls_itself_finished_does_not_stop_the_daemon() {
    let stage = Stage::open();
    let token = stage.create_with(json!({ "agent_id": "only" }));
    let result = result_as(&stage.daemon, &token, &path("only"), "shutdown", json!({}));
    assert_eq!(result, json!({ "success": true }));
    assert_eq!(stage.send("only", "still there?")["content"], "echo: still there?");
    let listed = stage.daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"][0]["should_shutdown"], true);
    finish(&stage, "only");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0), "an admin's word counts");
}
