//! The commands about what is kept of agents, and the documents that go in and out.

use super::*;

fn snapshot() -> Value {
    json!({
        "schema_version": 1, "agent_id": "a", "created_at": "2026-01-15T10:30:00.000000",
        "modified_at": "2026-01-15T10:31:00.000000",
        "messages": [{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }],
        "system_prompt": "be brief", "system_prompt_path": null, "working_directory": "/srv",
        "permission_level": "sandboxed", "permission_preset": "sandboxed", "disabled_tools": [],
        "session_allowances": {}, "model_alias": null, "clipboard_agent_entries": [], "token_usage": {},
        "provenance": "user",
    })
}

fn imported() -> Value {
    json!({ "agent_id": "a", "url": "/agent/a", "token": "nxc_a", "message_count": 2 })
}

async fn assert_calls(line: &[&str], method: &'static str, params: Value, answer: Value) {
    let daemon = ScriptedDaemon::start(&[(method, Reply::Result(answer.clone()))]).await;
    let finished = rpc(&daemon, line).await;
    assert_eq!((finished.code, finished.json(), finished.errors.as_str()), (0, answer, ""));
    let asked = &daemon.received()[0];
    assert_eq!((asked.path.as_str(), asked.method.as_str(), &asked.params), ("/", method, &params));
}

async fn import(text: &str, line: &[&str]) -> (CommandOutcome, ScriptedDaemon) {
    let daemon = ScriptedDaemon::start(&[("import_agent", Reply::Result(imported()))]).await;
    let finished = CommandRun { input: text, ..CommandRun::new(&daemon, line) }.finish().await;
    (finished, daemon)
}

#[tokio::test]
async fn each_command_is_one_call_at_the_daemon() {
    let session = json!({
        "agent_id": "a", "state": "asleep", "created_at": "2026-01-15T10:30:00.000000",
        "modified_at": "2026-01-15T10:31:00.000000", "message_count": 2, "parent_agent_id": null,
        "model": null, "preset": "sandboxed", "on_restart": "mark", "origin": null,
    });
    let sessions = json!({ "sessions": [session], "total": 1 });
    assert_calls(&["sessions"], "list_sessions", Value::Null, sessions.clone()).await;
    let page = json!({ "offset": 3, "limit": 7 });
    assert_calls(&["sessions", "--offset", "3", "--limit", "7"], "list_sessions", page, sessions).await;
    let made = json!({ "agent_id": "b", "url": "/agent/b", "token": "nxc_b", "message_count": 2 });
    assert_calls(&["fork", "a"], "fork_agent", json!({ "agent_id": "a" }), made.clone()).await;
    let params = json!({ "agent_id": "a", "new_agent_id": "b", "messages": 2 });
    assert_calls(&["fork", "a", "b", "--messages", "2"], "fork_agent", params, made).await;
    let params = json!({ "agent_id": "a", "messages": 4 });
    let back = json!({ "agent_id": "a", "message_count": 4, "removed": 2 });
    assert_calls(&["rollback", "a", "4"], "rollback_agent", params, back).await;
    let params = json!({ "agent_id": "a", "new_agent_id": "b" });
    assert_calls(
        &["rename", "a", "b"],
        "rename_agent",
        params,
        json!({ "agent_id": "b", "url": "/agent/b" }),
    )
    .await;
}

#[tokio::test]
async fn what_is_exported_can_be_imported() {
    let daemon =
        ScriptedDaemon::start(&[("export_agent", Reply::Result(json!({ "session": snapshot() })))]).await;
    let finished = rpc(&daemon, &["export", "a"]).await;
    assert_eq!((finished.code, finished.json()), (0, snapshot()));
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a" }));

    let (finished, daemon) = import(&finished.output, &["import", "-", "--as", "b"]).await;
    assert_eq!((finished.code, finished.json()), (0, imported()), "{}", finished.errors);
    assert_eq!(daemon.received()[0].params, json!({ "session": snapshot(), "agent_id": "b" }));
}

#[tokio::test]
async fn a_document_is_read_from_its_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.json");
    fs::write(&file, snapshot().to_string()).unwrap();
    let (finished, daemon) = import("", &["import", file.to_str().unwrap()]).await;
    assert_eq!((finished.code, finished.json()), (0, imported()));
    assert_eq!(daemon.received()[0].params, json!({ "session": snapshot() }));
}

#[tokio::test]
async fn what_is_no_document_is_told_by_file_and_member_before_anybody_is_asked() {
    let mut no_date = snapshot();
    no_date.as_object_mut().unwrap().remove("created_at");
    let mut odd_role = snapshot();
    odd_role["messages"][1]["role"] = json!(7);
    let cases = [
        ("{".to_owned(), "standard input is no session document: "),
        ("{}".to_owned(), "standard input is no session document: it is empty"),
        ("[]".to_owned(), "standard input is no session document: it must be a JSON object, got: list"),
        (r#"{"a":1,"a":2}"#.to_owned(), "standard input is no session document: the key \"a\" stands twice"),
        (
            no_date.to_string(),
            "standard input is no session document: Missing required parameter: created_at",
        ),
        (odd_role.to_string(), "standard input is no session document: messages[1].role must be "),
    ];
    for (text, expected) in cases {
        let (finished, daemon) = import(&text, &["import", "-"]).await;
        assert_eq!((finished.code, finished.output.as_str(), daemon.received().len()), (1, "", 0), "{text}");
        assert!(finished.errors.starts_with(expected), "{}", finished.errors);
    }
    let (finished, _) = import("", &["import", "/nowhere/a.json"]).await;
    assert!(finished.errors.starts_with("/nowhere/a.json cannot be read: "), "{}", finished.errors);
}

#[tokio::test]
async fn a_document_that_the_daemon_refuses_is_told_with_its_name() {
    for (status, hint) in
        [(200, ""), (413, "; stop the daemon and use nexus3 import, or raise limits.body_bytes_max")]
    {
        let daemon = ScriptedDaemon::start(&[("import_agent", Reply::HttpRefusal(status, "No"))]).await;
        let text = snapshot().to_string();
        let finished =
            CommandRun { input: &text, ..CommandRun::new(&daemon, &["import", "-"]) }.finish().await;
        assert_eq!(finished.code, 1);
        assert_eq!(finished.errors, format!("standard input: No (-32600){hint}\n"));
    }
}
