//! Lifecycle methods with curl and the command line: list sessions, fork, roll back and rename. The changes survive a
//! kill.

mod snapshots;

use serde_json::{Value, json};
use testkit::{CommandOutput, TestDaemon, run};

use super::{curl, send_params};
use crate::support::callers::{call_as, result_as};
use crate::support::folder::TestDirectory;
use crate::support::{
    BIN, ExpectError as _, Fixture, agent_ids, agent_path, is_capability_token, is_timestamp, member_names,
};

/// Calls a method with curl and returns its result. Panics on an error.
fn result(daemon: &TestDaemon, method: &str, params: &Value) -> Value {
    let mut response = curl(daemon, "/", method, params);
    assert!(response.get("error").is_none(), "{method}: {response}");
    response["result"].take()
}

/// Runs `nexus3 rpc …` and returns its output. Panics if it fails.
fn rpc(daemon: &TestDaemon, args: &[&str]) -> Value {
    let finished = rpc_finished(daemon, args);
    assert_eq!(finished.code, 0, "{args:?}: {}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {}", finished.stdout))
}

fn rpc_finished(daemon: &TestDaemon, args: &[&str]) -> CommandOutput {
    let port = daemon.port().to_string();
    run(BIN, &[&["rpc"], args, &["-p", &port]].concat(), &[], daemon.home())
}

fn texts(fixture: &Fixture, agent: &str) -> Vec<String> {
    fixture.messages(agent).into_iter().map(|(_, text)| text).collect()
}

/// Creates an agent with many settings and sends it three messages. Returns its working directory.
fn create_talking_agent(fixture: &Fixture) -> TestDirectory {
    let folder = TestDirectory::new();
    let params = json!({
        "agent_id": "talker", "preset": "trusted", "cwd": folder.path_str(), "system_prompt": "You talk.",
        "allowed_write_paths": [folder.path_str()], "disable_tools": ["uuid_generate"], "on_restart": "mark",
        "budget": { "turns": 50 },
    });
    fixture.create_with(params);
    for text in ["one", "two", "three"] {
        fixture.send("talker", text);
    }
    folder
}

#[test]
fn sessions_are_listed_with_state_and_restart_policy() {
    let fixture = Fixture::start();
    let _folder = create_talking_agent(&fixture);
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "talker" }));
    let fixture = fixture.kill_and_start();
    let listing = result(&fixture.daemon, "list_sessions", &json!({}));
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
    fixture.send("talker", "awake");
    let listing = rpc(&fixture.daemon, &["sessions", "--offset", "0", "--limit", "1"]);
    assert_eq!((&listing["total"], &listing["sessions"][0]["state"]), (&json!(2), &json!("live")));
    assert_eq!(listing["sessions"].as_array().map(Vec::len), Some(1));
    let page = result(&fixture.daemon, "list_sessions", &json!({ "offset": 1, "limit": 5 }));
    assert_eq!((&page["sessions"][0]["agent_id"], &page["sessions"][1]), (&json!("child"), &Value::Null));
}

#[test]
fn a_fork_has_the_first_messages_and_all_settings() {
    let fixture = Fixture::start();
    let folder = create_talking_agent(&fixture);
    let fork = result(
        &fixture.daemon,
        "fork_agent",
        &json!({ "agent_id": "talker", "new_agent_id": "fork", "messages": 4 }),
    );
    assert_eq!(member_names(&fork), ["agent_id", "message_count", "token", "url"]);
    assert_eq!((&fork["message_count"], &fork["url"]), (&json!(4), &json!("/agent/fork")));
    assert!(is_capability_token(&fork["token"]));
    let whole = rpc(&fixture.daemon, &["fork", "talker"]);
    assert_eq!(whole["message_count"], 6);
    fixture.send("fork", "a different topic");
    let fixture = fixture.kill_and_start();
    assert_eq!(
        texts(&fixture, "fork"),
        ["one", "echo: one", "two", "echo: two", "a different topic", "echo: a different topic"]
    );
    assert_eq!(texts(&fixture, "talker").len(), 6, "the original is unchanged");
    assert_eq!(fixture.permissions("talker")["may"], fixture.permissions("fork")["may"]);
    assert_eq!(
        fixture.resource_usage("fork", "turns"),
        [json!(50), json!(1), json!(0), json!(49)],
        "the fork has its own budget"
    );
    assert_eq!(fixture.agent("fork")["agent"]["cwd"], folder.path_str());
    let request = fixture
        .model
        .requests()
        .into_iter()
        .rfind(|request| request.body.to_string().contains("a different topic"));
    assert_eq!(request.expect("the model was called").body["messages"][0]["content"], "You talk.");
    let origin = &result(&fixture.daemon, "list_sessions", &json!({ "offset": 1 }))["sessions"][0]["origin"];
    assert_eq!(*origin, "fork of talker at 4");
    let token = fork["token"].as_str().expect("the token is a string");
    assert_eq!(
        result_as(&fixture.daemon, token, "/agent/fork", "get_agent", json!({}))["agent"]["agent_id"],
        "fork"
    );
    let taken =
        fixture.daemon.error("/", "fork_agent", json!({ "agent_id": "talker", "new_agent_id": "fork" }));
    assert_eq!((&taken["code"], &taken["message"]), (&json!(-32602), &json!("Agent already exists: fork")));
    let many = fixture.daemon.error("/", "fork_agent", json!({ "agent_id": "talker", "messages": 7 }));
    assert_eq!(many["code"], -32602, "{many}");
}

#[test]
fn a_rollback_removes_the_newest_messages_for_good() {
    let fixture = Fixture::start();
    let _folder = create_talking_agent(&fixture);
    let rolled_back =
        result(&fixture.daemon, "rollback_agent", &json!({ "agent_id": "talker", "messages": 4 }));
    assert_eq!(rolled_back, json!({ "agent_id": "talker", "message_count": 4, "removed": 2 }));
    assert_eq!(rpc(&fixture.daemon, &["rollback", "talker", "2"])["removed"], 2);
    assert_eq!(
        fixture.send_text("talker", "!history"),
        "one | !history",
        "the model does not see removed messages"
    );
    let fixture = fixture.kill_and_start();
    assert_eq!(texts(&fixture, "talker"), ["one", "echo: one", "!history", "one | !history"]);
    let call = r#"!tool echo {"text":"hi"}"#;
    fixture.send("talker", call);
    let split = fixture.daemon.error("/", "rollback_agent", json!({ "agent_id": "talker", "messages": 6 }));
    assert_eq!(split["message"], "messages 6 would cut a tool call from its result");
    let pending = fixture.start_send("talker", "!stall", "r");
    fixture.model.wait_stalled(1);
    let busy = fixture.daemon.error("/", "rollback_agent", json!({ "agent_id": "talker", "messages": 0 }));
    assert_eq!(busy["code"], -32001, "{busy}");
    fixture.cancel("talker", "r");
    assert_eq!(pending.next_result()["cancelled"], true);
}

#[test]
fn a_rename_changes_only_the_name() {
    let fixture = Fixture::start();
    let token = fixture.create_with(json!({ "agent_id": "before", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "before" }));
    fixture.daemon.call_result(&agent_path("before"), "send", send_params("hello", "r"));
    let renamed =
        result(&fixture.daemon, "rename_agent", &json!({ "agent_id": "before", "new_agent_id": "after" }));
    assert_eq!(renamed, json!({ "agent_id": "after", "url": "/agent/after" }));
    assert_eq!(agent_ids(&fixture.daemon), ["after", "child"]);
    assert_eq!(fixture.agent("child")["agent"]["parent_agent_id"], "after");
    assert_eq!(fixture.agent("child")["ancestors"], json!(["after"]));
    let fixture = fixture.kill_and_start();
    assert_eq!(agent_ids(&fixture.daemon), ["after", "child"]);
    assert_eq!(fixture.agent("child")["ancestors"], json!(["after"]));
    assert_eq!(fixture.send_with_request_id("after", "hello", "r")["result"]["content"], "echo: hello");
    assert_eq!(fixture.model.call_counts("hello", 0).requests, 1, "its request ids are known");
    let own = result_as(&fixture.daemon, &token, "/agent/after", "get_agent", json!({}));
    assert_eq!(own["agent"]["agent_id"], "after", "its token stays valid");
    fixture.create("before");
    assert_eq!(texts(&fixture, "before"), [""; 0], "the old name is free: a new agent has no messages");
    let taken =
        fixture.daemon.error("/", "rename_agent", json!({ "agent_id": "before", "new_agent_id": "after" }));
    assert_eq!(taken["message"], "Agent already exists: after");
    assert_eq!(rpc(&fixture.daemon, &["rename", "after", "archivist"])["agent_id"], "archivist");
}

#[test]
fn an_agent_may_manage_descendants_but_not_itself() {
    let fixture = Fixture::start();
    let lead = fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    fixture.create("stranger");
    fixture.send("child", "hello");
    let as_lead = |method: &str, params: Value| result_as(&fixture.daemon, &lead, "/", method, params);
    let listing = as_lead("list_sessions", json!({}));
    assert_eq!(listing["total"], 2, "{listing}");
    assert_eq!(as_lead("export_agent", json!({ "agent_id": "child" }))["session"]["agent_id"], "child");
    let fork = as_lead("fork_agent", json!({ "agent_id": "child", "new_agent_id": "twin" }));
    assert_eq!(fork["message_count"], 2);
    assert_eq!(fixture.agent("twin")["ancestors"], json!(["lead"]));
    assert_eq!(as_lead("rollback_agent", json!({ "agent_id": "twin", "messages": 0 }))["removed"], 2);
    as_lead("rename_agent", json!({ "agent_id": "twin", "new_agent_id": "other" }));
    let session = as_lead("export_agent", json!({ "agent_id": "child" }))["session"].clone();
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
        let refused = call_as(&fixture.daemon, &lead, "/", method, params);
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
        assert_eq!(refused["error"]["data"]["kind"], "permission_denied", "{method}: {refused}");
    }
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "child", "stranger", "other"]);
}
