//! What can be done to a conversation as a whole, by curl and at the command line, and that it lasts.

mod snapshots;

use serde_json::{Value, json};
use testkit::{CommandOutput, TestDaemon, run};

use super::{curl, send_params};
use crate::support::callers::{call_as, result_as};
use crate::support::folder::TestDirectory;
use crate::support::{
    BIN, ExpectError as _, Fixture, agent_ids, agent_path, is_capability_token, is_timestamp, member_names,
};

/// Calls a method by curl that has to succeed.
fn result(daemon: &TestDaemon, method: &str, params: &Value) -> Value {
    let mut response = curl(daemon, "/", method, params);
    assert!(response.get("error").is_none(), "{method}: {response}");
    response["result"].take()
}

/// Runs `nexus3 rpc …` that has to succeed.
fn rpc(daemon: &TestDaemon, args: &[&str]) -> Value {
    let finished = rpc_finished(daemon, args);
    assert_eq!(finished.code, 0, "{args:?}: {}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {}", finished.stdout))
}

fn rpc_finished(daemon: &TestDaemon, args: &[&str]) -> CommandOutput {
    let port = daemon.port().to_string();
    run(BIN, &[&["rpc"], args, &["-p", &port]].concat(), &[], daemon.home())
}

fn texts(stage: &Fixture, agent: &str) -> Vec<String> {
    stage.messages(agent).into_iter().map(|(_, text)| text).collect()
}

/// An agent that has said something three times.
fn create_talking_agent(stage: &Fixture) -> TestDirectory {
    let folder = TestDirectory::new();
    let params = json!({
        "agent_id": "talker", "preset": "trusted", "cwd": folder.path_str(), "system_prompt": "You talk.",
        "allowed_write_paths": [folder.path_str()], "disable_tools": ["uuid_generate"], "on_restart": "mark",
        "budget": { "turns": 50 },
    });
    stage.create_with(params);
    for text in ["one", "two", "three"] {
        stage.send("talker", text);
    }
    folder
}

#[test]
fn sessions_are_listed_with_what_a_crash_means_for_them() {
    let stage = Fixture::start();
    let _folder = create_talking_agent(&stage);
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "talker" }));
    let stage = stage.kill_and_start();
    let listing = result(&stage.daemon, "list_sessions", &json!({}));
    assert_eq!(listing["total"], 2);
    let talker = &listing["sessions"][0];
    assert!(is_timestamp(&talker["created_at"]) && is_timestamp(&talker["modified_at"]), "{talker}");
    let expected = json!({
        "agent_id": "talker", "state": "asleep", "created_at": talker["created_at"],
        "modified_at": talker["modified_at"], "message_count": 6, "parent_agent_id": null,
        "model": "openai/scripted", "preset": "trusted", "on_restart": "mark", "origin": null,
    });
    assert_eq!(*talker, expected);
    let child = &listing["sessions"][1];
    assert_eq!((&child["parent_agent_id"], &child["on_restart"]), (&json!("talker"), &json!("resume")));
    stage.send("talker", "awake");
    let listing = rpc(&stage.daemon, &["sessions", "--offset", "0", "--limit", "1"]);
    assert_eq!((&listing["total"], &listing["sessions"][0]["state"]), (&json!(2), &json!("live")));
    assert_eq!(listing["sessions"].as_array().map(Vec::len), Some(1));
    let page = result(&stage.daemon, "list_sessions", &json!({ "offset": 1, "limit": 5 }));
    assert_eq!((&page["sessions"][0]["agent_id"], &page["sessions"][1]), (&json!("child"), &Value::Null));
}

#[test]
fn a_fork_knows_the_first_messages_and_has_all_that_the_other_was_given() {
    let stage = Fixture::start();
    let folder = create_talking_agent(&stage);
    let fork = result(
        &stage.daemon,
        "fork_agent",
        &json!({ "agent_id": "talker", "new_agent_id": "fork", "messages": 4 }),
    );
    assert_eq!(member_names(&fork), ["agent_id", "message_count", "token", "url"]);
    assert_eq!((&fork["message_count"], &fork["url"]), (&json!(4), &json!("/agent/fork")));
    assert!(is_capability_token(&fork["token"]));
    let whole = rpc(&stage.daemon, &["fork", "talker"]);
    assert_eq!(whole["message_count"], 6);
    stage.send("fork", "another way");
    let stage = stage.kill_and_start();
    assert_eq!(
        texts(&stage, "fork"),
        ["one", "echo: one", "two", "echo: two", "another way", "echo: another way"]
    );
    assert_eq!(texts(&stage, "talker").len(), 6, "the first goes its own way");
    assert_eq!(stage.permissions("talker")["may"], stage.permissions("fork")["may"]);
    assert_eq!(
        stage.resource_usage("fork", "turns"),
        [json!(50), json!(1), json!(0), json!(49)],
        "with a budget of its own"
    );
    assert_eq!(stage.agent("fork")["agent"]["cwd"], folder.path_str());
    let asked =
        stage.model.requests().into_iter().rfind(|asked| asked.body.to_string().contains("another way"));
    assert_eq!(asked.expect("it was asked").body["messages"][0]["content"], "You talk.");
    let origin = &result(&stage.daemon, "list_sessions", &json!({ "offset": 1 }))["sessions"][0]["origin"];
    assert_eq!(*origin, "fork of talker at 4");
    let token = fork["token"].as_str().expect("a token");
    assert_eq!(
        result_as(&stage.daemon, token, "/agent/fork", "get_agent", json!({}))["agent"]["agent_id"],
        "fork"
    );
    let taken =
        stage.daemon.error("/", "fork_agent", json!({ "agent_id": "talker", "new_agent_id": "fork" }));
    assert_eq!((&taken["code"], &taken["message"]), (&json!(-32602), &json!("Agent already exists: fork")));
    let many = stage.daemon.error("/", "fork_agent", json!({ "agent_id": "talker", "messages": 7 }));
    assert_eq!(many["code"], -32602, "{many}");
}

#[test]
fn a_rollback_takes_the_newest_messages_away_for_good() {
    let stage = Fixture::start();
    let _folder = create_talking_agent(&stage);
    let back = result(&stage.daemon, "rollback_agent", &json!({ "agent_id": "talker", "messages": 4 }));
    assert_eq!(back, json!({ "agent_id": "talker", "message_count": 4, "removed": 2 }));
    assert_eq!(rpc(&stage.daemon, &["rollback", "talker", "2"])["removed"], 2);
    assert_eq!(stage.send_text("talker", "!history"), "one | !history", "the model does not see them");
    let stage = stage.kill_and_start();
    assert_eq!(texts(&stage, "talker"), ["one", "echo: one", "!history", "one | !history"]);
    let call = r#"!tool echo {"text":"hi"}"#;
    stage.send("talker", call);
    let torn = stage.daemon.error("/", "rollback_agent", json!({ "agent_id": "talker", "messages": 6 }));
    assert_eq!(torn["message"], "messages 6 would cut a tool call from its result");
    let _open = stage.start_send("talker", "!stall", "r");
    stage.model.wait_stalled(1);
    let busy = stage.daemon.error("/", "rollback_agent", json!({ "agent_id": "talker", "messages": 0 }));
    assert_eq!(busy["code"], -32001, "{busy}");
}

#[test]
fn a_name_is_changed_and_nothing_else() {
    let stage = Fixture::start();
    let token = stage.create_with(json!({ "agent_id": "before", "preset": "trusted" }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "before" }));
    stage.daemon.call_result(&agent_path("before"), "send", send_params("hello", "r"));
    let renamed =
        result(&stage.daemon, "rename_agent", &json!({ "agent_id": "before", "new_agent_id": "after" }));
    assert_eq!(renamed, json!({ "agent_id": "after", "url": "/agent/after" }));
    assert_eq!(agent_ids(&stage.daemon), ["after", "child"]);
    assert_eq!(stage.agent("child")["agent"]["parent_agent_id"], "after");
    assert_eq!(stage.agent("child")["ancestors"], json!(["after"]));
    let stage = stage.kill_and_start();
    assert_eq!(agent_ids(&stage.daemon), ["after", "child"]);
    assert_eq!(stage.agent("child")["ancestors"], json!(["after"]));
    assert_eq!(stage.send_with_request_id("after", "hello", "r")["result"]["content"], "echo: hello");
    assert_eq!(stage.model.call_counts("hello", 0).requests, 1, "its sends are known");
    let own = result_as(&stage.daemon, &token, "/agent/after", "get_agent", json!({}));
    assert_eq!(own["agent"]["agent_id"], "after", "its token is its token");
    stage.create("before");
    assert_eq!(texts(&stage, "before"), [""; 0], "the old name is free");
    let taken =
        stage.daemon.error("/", "rename_agent", json!({ "agent_id": "before", "new_agent_id": "after" }));
    assert_eq!(taken["message"], "Agent already exists: after");
    assert_eq!(rpc(&stage.daemon, &["rename", "after", "archivist"])["agent_id"], "archivist");
}

#[test]
fn an_agent_may_do_this_to_those_below_it_and_not_to_itself() {
    let stage = Fixture::start();
    let lead = stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    stage.create("stranger");
    stage.send("child", "hello");
    let below = |method: &str, params: Value| result_as(&stage.daemon, &lead, "/", method, params);
    let listing = below("list_sessions", json!({}));
    assert_eq!(listing["total"], 2, "{listing}");
    assert_eq!(below("export_agent", json!({ "agent_id": "child" }))["session"]["agent_id"], "child");
    let fork = below("fork_agent", json!({ "agent_id": "child", "new_agent_id": "twin" }));
    assert_eq!(fork["message_count"], 2);
    assert_eq!(stage.agent("twin")["ancestors"], json!(["lead"]));
    assert_eq!(below("rollback_agent", json!({ "agent_id": "twin", "messages": 0 }))["removed"], 2);
    below("rename_agent", json!({ "agent_id": "twin", "new_agent_id": "other" }));
    let session = below("export_agent", json!({ "agent_id": "child" }))["session"].clone();
    for (method, params) in [
        ("export_agent", json!({ "agent_id": "lead" })),
        ("fork_agent", json!({ "agent_id": "lead" })),
        ("rollback_agent", json!({ "agent_id": "lead", "messages": 0 })),
        ("rename_agent", json!({ "agent_id": "lead", "new_agent_id": "me" })),
        ("export_agent", json!({ "agent_id": "stranger" })),
        ("fork_agent", json!({ "agent_id": "stranger" })),
        ("rollback_agent", json!({ "agent_id": "stranger", "messages": 0 })),
        ("rename_agent", json!({ "agent_id": "stranger", "new_agent_id": "mine" })),
        ("import_agent", json!({ "session": session, "agent_id": "mine" })),
    ] {
        let refused = call_as(&stage.daemon, &lead, "/", method, params);
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
        assert_eq!(refused["error"]["data"]["kind"], "permission_denied", "{method}: {refused}");
    }
    assert_eq!(agent_ids(&stage.daemon), ["lead", "child", "stranger", "other"]);
}
