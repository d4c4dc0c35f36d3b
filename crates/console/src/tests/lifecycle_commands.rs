//! The lifecycle commands, and session documents.

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

async fn assert_calls(line: &[&str], method: &'static str, params: Value, result: Value) {
    let daemon = ScriptedDaemon::start(&[(method, Reply::Result(result.clone()))]);
    let outcome = rpc(&daemon, line).await;
    assert_eq!((outcome.code, outcome.json(), outcome.errors.as_str()), (0, result, ""));
    let request = &daemon.received()[0];
    assert_eq!((request.path.as_str(), request.method.as_str(), &request.params), ("/", method, &params));
}

async fn import(text: &str, line: &[&str]) -> (CommandOutcome, ScriptedDaemon) {
    let daemon = ScriptedDaemon::start(&[("import_agent", Reply::Result(imported()))]);
    let outcome = CommandRun { input: text, ..CommandRun::new(&daemon, line) }.finish().await;
    (outcome, daemon)
}

#[tokio::test]
async fn each_lifecycle_command_is_one_call() {
    let session = json!({
        "agent_id": "a", "state": "asleep", "created_at": "2026-01-15T10:30:00.000000",
        "modified_at": "2026-01-15T10:31:00.000000", "message_count": 2, "parent_agent_id": null,
        "model": null, "preset": "sandboxed", "on_restart": "mark", "origin": null,
    });
    let sessions = json!({ "sessions": [session], "total": 1 });
    assert_calls(&["sessions"], "list_sessions", Value::Null, sessions.clone()).await;
    let page = json!({ "offset": 3, "limit": 7 });
    assert_calls(&["sessions", "--offset", "3", "--limit", "7"], "list_sessions", page, sessions).await;
    let created = json!({ "agent_id": "b", "url": "/agent/b", "token": "nxc_b", "message_count": 2 });
    assert_calls(&["fork", "a"], "fork_agent", json!({ "agent_id": "a" }), created.clone()).await;
    let params = json!({ "agent_id": "a", "new_agent_id": "b", "messages": 2 });
    assert_calls(&["fork", "a", "b", "--messages", "2"], "fork_agent", params, created).await;
    let params = json!({ "agent_id": "a", "messages": 4 });
    let rolled_back = json!({ "agent_id": "a", "message_count": 4, "removed": 2 });
    assert_calls(&["rollback", "a", "4"], "rollback_agent", params, rolled_back).await;
    let undone = json!({ "agent_id": "a", "turn": 7, "restored": ["/srv/a.txt"] });
    assert_calls(&["undo", "a"], "undo_turn", json!({ "agent_id": "a" }), undone.clone()).await;
    let params = json!({ "agent_id": "a", "turn": 7 });
    assert_calls(&["undo", "a", "7"], "undo_turn", params, undone).await;
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
async fn export_output_can_be_imported() {
    let daemon = ScriptedDaemon::start(&[("export_agent", Reply::Result(json!({ "session": snapshot() })))]);
    let outcome = rpc(&daemon, &["export", "a"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, snapshot()));
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a" }));

    let (outcome, daemon) = import(&outcome.output, &["import", "-", "--as", "b"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, imported()), "{}", outcome.errors);
    assert_eq!(daemon.received()[0].params, json!({ "session": snapshot(), "agent_id": "b" }));
}

#[tokio::test]
async fn document_is_read_from_its_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.json");
    fs::write(&file, snapshot().to_string()).unwrap();
    let (outcome, daemon) = import("", &["import", file.to_str().unwrap()]).await;
    assert_eq!((outcome.code, outcome.json()), (0, imported()));
    assert_eq!(daemon.received()[0].params, json!({ "session": snapshot() }));
}

#[tokio::test]
async fn invalid_document_is_rejected_before_any_call() {
    let mut no_date = snapshot();
    no_date.as_object_mut().unwrap().remove("created_at");
    let mut odd_role = snapshot();
    odd_role["messages"][1]["role"] = json!(7);
    let cases = [
        ("{".to_owned(), "standard input is not a session document: "),
        ("{}".to_owned(), "standard input is not a session document: it is empty"),
        ("[]".to_owned(), "standard input is not a session document: it must be a JSON object, got: list"),
        (r#"{"a":1,"a":2}"#.to_owned(), "standard input is not a session document: duplicate key \"a\""),
        (
            no_date.to_string(),
            "standard input is not a session document: Missing required parameter: created_at",
        ),
        (odd_role.to_string(), "standard input is not a session document: messages[1].role must be "),
    ];
    for (text, expected) in cases {
        let (outcome, daemon) = import(&text, &["import", "-"]).await;
        assert_eq!((outcome.code, outcome.output.as_str(), daemon.received().len()), (1, "", 0), "{text}");
        assert!(outcome.errors.starts_with(expected), "{}", outcome.errors);
    }
    let (outcome, _) = import("", &["import", "/nowhere/a.json"]).await;
    assert!(outcome.errors.starts_with("cannot read /nowhere/a.json: "), "{}", outcome.errors);
}

#[tokio::test]
async fn daemon_error_on_import_names_the_input() {
    for (status, hint) in
        [(200, ""), (413, "; stop the daemon and use nexus3 import, or raise limits.body_bytes_max")]
    {
        let daemon = ScriptedDaemon::start(&[("import_agent", Reply::HttpRefusal(status, "No"))]);
        let text = snapshot().to_string();
        let outcome =
            CommandRun { input: &text, ..CommandRun::new(&daemon, &["import", "-"]) }.finish().await;
        assert_eq!(outcome.code, 1);
        assert_eq!(outcome.errors, format!("standard input: No (-32600){hint}\n"));
    }
}
