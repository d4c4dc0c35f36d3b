//! Lifecycle methods: sleep, fork, rollback, rename, export and import. The matrix tests their authorization.

use std::time::Duration;

use serde_json::json;

use super::*;

async fn create_agent_with_history(fixture: &Fixture, name: &str) {
    fixture
        .request_create(&format!(r#"{{"agent_id":"{name}","system_prompt":"Be kind.","on_restart":"mark"}}"#))
        .await;
    for text in ["one", "read notes.txt"] {
        fixture.call_ok(name, "send", &format!(r#"{{"content":"{text}"}}"#)).await;
    }
}

/// Returns the messages of an agent.
async fn messages(fixture: &Fixture, name: &str) -> Value {
    fixture.call_ok(name, "get_messages", "{}").await["messages"].take()
}

#[tokio::test(start_paused = true)]
async fn listing_shows_sleeping_agents_without_waking_them() {
    let idle_before_sleep = Duration::from_secs(60);
    let fixture = Fixture::with_limits(Limits { idle_before_sleep, ..Limits::default() }).await;
    create_agent_with_history(&fixture, "a").await;
    fixture.create_agents(&["b"]).await;
    let awake = fixture.call_ok("/", "list_agents", "{}").await["agents"].take();
    tokio::time::sleep(idle_before_sleep * 2).await;
    for _ in 0..2 {
        let mut agents = fixture.call_ok("/", "list_agents", "{}").await["agents"].take();
        for agent in agents.as_array_mut().unwrap() {
            assert_eq!(agent["state"], "asleep", "{agent}");
            agent["state"] = "live".into();
        }
        assert_eq!(agents, awake, "only the state differs");
        let sessions = fixture.call_ok("/", "list_sessions", "{}").await;
        assert_eq!(sessions["sessions"][0]["state"], "asleep");
        assert_eq!((&sessions["total"], &sessions["sessions"][0]["message_count"]), (&json!(2), &json!(6)));
        assert_eq!(sessions["sessions"][0]["on_restart"], "mark");
    }
    assert_eq!(
        fixture.call_ok("a", "get_agent", "{}").await["agent"]["state"],
        "live",
        "a call wakes the agent"
    );
    let states: Vec<_> = fixture.call_ok("/", "list_sessions", "{}").await["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["state"].clone())
        .collect();
    assert_eq!(states, ["live", "asleep"], "no other agent was woken");
}

#[tokio::test(start_paused = true)]
async fn target_and_capability_lookup_wake_no_agent() {
    let idle_before_sleep = Duration::from_secs(60);
    let fixture = Fixture::with_limits(Limits { idle_before_sleep, ..Limits::default() }).await;
    let token = fixture.create_agent("a", "sandboxed", None).await;
    tokio::time::sleep(idle_before_sleep * 2).await;
    assert!(fixture.dispatcher.agent_target("a", &Caller::admin()).is_ok());
    let caller = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let (_, list) = fixture.call_as(&caller, "/", &request("list_sessions", "{}")).await;
    assert!(list.contains(r#""state":"asleep""#), "{list}");
    let (_, sent) = fixture.call_as(&caller, "a", &request("send", r#"{"content":"hi"}"#)).await;
    assert!(sent.contains("you said hi"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn list_sessions_defaults_to_pages_of_200() {
    let fixture = Fixture::new().await;
    for number in 0..203 {
        fixture.create_agent(&format!("a{number}"), "sandboxed", None).await;
    }
    let count = |list: &Value| list["sessions"].as_array().unwrap().len();
    let first = fixture.call_ok("/", "list_sessions", "{}").await;
    assert_eq!((count(&first), &first["total"]), (200, &json!(203)));
    let second = fixture.call_ok("/", "list_sessions", r#"{"offset":200}"#).await;
    assert_eq!((count(&second), &second["sessions"][0]["agent_id"]), (3, &json!("a200")));
}

#[tokio::test(start_paused = true)]
async fn fork_copies_the_first_messages_and_diverges() {
    let fixture = Fixture::new().await;
    create_agent_with_history(&fixture, "a").await;
    let before = messages(&fixture, "a").await;
    let forked =
        fixture.call_ok("/", "fork_agent", r#"{"agent_id":"a","new_agent_id":"b","messages":2}"#).await;
    assert_eq!(forked["message_count"], 2);
    assert_eq!(messages(&fixture, "b").await.as_array().unwrap(), &before.as_array().unwrap()[..2]);
    let caller = fixture.dispatcher.capability_caller(forked["token"].as_str().unwrap().as_bytes()).unwrap();
    fixture.call_as(&caller, "b", &request("send", r#"{"content":"two"}"#)).await;
    assert_eq!(messages(&fixture, "a").await, before, "the source does not change");
    let session = fixture.call_ok("/", "export_agent", r#"{"agent_id":"b"}"#).await["session"].take();
    assert_eq!(
        (&session["system_prompt"], &session["nexus3"]["origin"]),
        (&json!("Be kind."), &json!("fork of a at 2"))
    );
    let full = fixture.call_ok("/", "fork_agent", r#"{"agent_id":"a"}"#).await;
    assert_eq!((&full["agent_id"], &full["message_count"]), (&json!("00000001"), &json!(6)));
    for (params, text) in [
        (r#"{"agent_id":"a","new_agent_id":"b"}"#, "Agent already exists: b"),
        (r#"{"agent_id":"a","messages":4}"#, "messages 4 would cut a tool call from its result"),
        (r#"{"agent_id":"a","messages":7}"#, "messages must be at most 6, the number there are, got: 7"),
    ] {
        assert_eq!(
            fixture.call_daemon(&request("fork_agent", params)).await,
            error(-32602, text),
            "{params}"
        );
    }
    assert_eq!(fixture.agent_names().await, ["a", "b", "00000001"]);
}

#[tokio::test(start_paused = true)]
async fn rollback_removes_the_newest_messages_durably() {
    let store = store::memory();
    let fixture = Fixture::with_store(Arc::clone(&store), Limits::default()).await;
    create_agent_with_history(&fixture, "a").await;
    let before = messages(&fixture, "a").await;
    for (params, text) in [
        (r#"{"agent_id":"a","messages":4}"#, "messages 4 would cut a tool call from its result"),
        (r#"{"agent_id":"a","messages":7}"#, "messages must be at most 6, the number there are, got: 7"),
    ] {
        assert_eq!(
            fixture.call_daemon(&request("rollback_agent", params)).await,
            error(-32602, text),
            "{params}"
        );
    }
    assert_eq!(messages(&fixture, "a").await, before);
    let rolled_back = fixture.call_ok("/", "rollback_agent", r#"{"agent_id":"a","messages":2}"#).await;
    assert_eq!(rolled_back, json!({ "agent_id": "a", "message_count": 2, "removed": 4 }));
    fixture.pool.stop(Duration::ZERO).await;
    let fixture = Fixture::with_store(store, Limits::default()).await;
    assert_eq!(messages(&fixture, "a").await.as_array().unwrap(), &before.as_array().unwrap()[..2]);
}

#[tokio::test(start_paused = true)]
async fn rollback_and_undo_are_refused_while_a_turn_is_open() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send =
        fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    for (method, params) in
        [("rollback_agent", r#"{"agent_id":"a","messages":0}"#), ("undo_turn", r#"{"agent_id":"a"}"#)]
    {
        let (_, refused) = fixture.call_daemon(&request(method, params)).await;
        assert!(refused.contains(r#""code":-32001"#), "{method}: {refused}");
    }
    fixture.released.add_permits(1);
    pending_send.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rename_preserves_the_agent_and_frees_the_old_id() {
    let fixture = Fixture::new().await;
    let token = fixture.create_agent("a", "sandboxed", None).await;
    fixture.call_ok("a", "send", r#"{"content":"one"}"#).await;
    let before = messages(&fixture, "a").await;
    fixture.create_agents(&["taken"]).await;
    for (new, text) in [
        ("taken", "Agent already exists: taken"),
        ("a", "Agent already exists: a"),
        (".b", "a persistent agent cannot get a temporary ID: .b"),
        ("", "new_agent_id invalid: Agent ID cannot be empty"),
    ] {
        let params = format!(r#"{{"agent_id":"a","new_agent_id":"{new}"}}"#);
        assert_eq!(
            fixture.call_daemon(&request("rename_agent", &params)).await,
            error(-32602, text),
            "{new}"
        );
    }
    let renamed = fixture.call_ok("/", "rename_agent", r#"{"agent_id":"a","new_agent_id":"b"}"#).await;
    assert_eq!(renamed, json!({ "agent_id": "b", "url": "/agent/b" }));
    assert_eq!(messages(&fixture, "b").await, before);
    assert_eq!(
        fixture.dispatcher.agent_target("a", &Caller::admin()).err(),
        Some(TargetError::AgentNotFound)
    );
    let caller = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let (_, sent) = fixture.call_as(&caller, "b", &request("send", r#"{"content":"two"}"#)).await;
    assert!(sent.contains("you said two"), "its token stays valid: {sent}");
    fixture.create_agents(&["a"]).await;
    assert_eq!(fixture.agent_names().await, ["b", "taken", "a"]);
}

#[tokio::test(start_paused = true)]
async fn export_and_import_round_trip() {
    let fixture = Fixture::new().await;
    let permissions = concat!(
        r#""preset":"trusted","disable_tools":["fs.read_file"],"allowed_write_paths":["out"],"may_create":["worker"],"#,
        r#""may_grant":{"disable_tools":["fs.write_file"]},"budget":{"turns":9},"cwd":"sub","model":"echo/one","#,
        r#""on_restart":"mark","system_prompt":"""#
    );
    fixture.request_create(&format!(r#"{{"agent_id":"a",{permissions}}}"#)).await;
    for text in ["one", "read notes.txt", "fail"] {
        fixture.call_agent("a", &request("send", &format!(r#"{{"content":"{text}"}}"#))).await;
    }
    let document = fixture.call_ok("/", "export_agent", r#"{"agent_id":"a"}"#).await["session"].take();
    assert!(!document.to_string().contains("nxc_"));
    let params = json!({ "session": document, "agent_id": "b" }).to_string();
    let imported = fixture.call_ok("/", "import_agent", &params).await;
    assert_eq!((imported.get("notes"), &imported["message_count"]), (None, &json!(8)));
    assert_eq!(messages(&fixture, "b").await, messages(&fixture, "a").await);
    let permissions = |name: &'static str| {
        let fixture = &fixture;
        async move {
            let mut all = fixture.call_ok(name, "get_permissions", "{}").await;
            // Budgets start unused, and ids differ.
            all.as_object_mut().unwrap().retain(|key, _| key != "budget");
            all.to_string().replace(&format!("\"{name}\""), "\"x\"")
        }
    };
    assert_eq!(permissions("a").await, permissions("b").await);
    let mut again = fixture.call_ok("/", "export_agent", r#"{"agent_id":"b"}"#).await["session"].take();
    assert_eq!(again["nexus3"]["origin"], "session 'a' of 2024-01-15T10:30:00.000000");
    again["agent_id"] = "a".into();
    again["nexus3"]["origin"] = Value::Null;
    again["token_usage"] = document["token_usage"].clone();
    assert_eq!(again, document);
}

#[tokio::test(start_paused = true)]
async fn session_of_the_original_program_can_be_imported() {
    let fixture = Fixture::new().await;
    let session = json!({
        "schema_version": 1, "agent_id": "old-friend", "created_at": "2026-01-08T09:00:00.123456",
        "modified_at": "2026-01-09T10:00:00", "working_directory": "/home/user/agents/sub",
        "messages": [
            { "role": "user", "content": "look" },
            { "role": "assistant", "content": "", "tool_calls": [
                { "id": "t1", "name": "read_file", "arguments": { "path": "x" } }] },
            { "role": "tool", "content": "text of x", "tool_call_id": "t1" },
            { "role": "assistant", "content": "seen" },
        ],
        "system_prompt": "You are NEXUS3.", "system_prompt_path": "/home/user/prompt.md",
        "permission_level": "trusted", "permission_preset": "trusted", "disabled_tools": ["write_file"],
        "session_allowances": {}, "model_alias": "haiku", "clipboard_agent_entries": [],
        "token_usage": { "total": 99 }, "provenance": "user",
    });
    let imported = fixture.call_ok("/", "import_agent", &json!({ "session": session }).to_string()).await;
    assert_eq!((&imported["agent_id"], &imported["message_count"]), (&json!("old-friend"), &json!(4)));
    assert_eq!(
        imported["notes"],
        json!(["unknown model 'haiku': the agent uses the daemon's default model"])
    );
    let agent = fixture.call_ok("old-friend", "get_agent", "{}").await;
    assert_eq!(agent["agent"]["created_at"], "2026-01-08T09:00:00.123456");
    assert_eq!(
        (&agent["agent"]["preset"], &agent["agent"]["cwd"]),
        (&json!("trusted"), &json!("/home/user/agents/sub"))
    );
    assert!(!agent["tools"].to_string().contains("write_file"));
    let sent = fixture.call_ok("old-friend", "send", r#"{"content":"go on"}"#).await;
    assert_eq!(sent["content"], "you said go on");
}

#[tokio::test(start_paused = true)]
async fn refused_import_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let params = |change: Value| {
        let mut session = json!({
            "agent_id": "b", "created_at": "2024-01-15T10:30:00", "modified_at": "2024-01-15T10:30:00",
            "messages": [], "system_prompt": "", "working_directory": "/", "permission_level": "sandboxed",
        });
        session.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({ "session": session }).to_string()
    };
    for (change, text) in [
        (json!({ "agent_id": "a" }), "Agent already exists: a"),
        (json!({ "working_directory": "/gone" }), "session.working_directory does not exist: /gone"),
        (
            json!({ "working_directory": "/home/user/agents/notes.txt" }),
            "session.working_directory is not a directory: /home/user/agents/notes.txt",
        ),
        (
            json!({ "messages": [{ "role": "tool", "content": "", "tool_call_id": "c" }] }),
            "session.messages[0].tool_call_id matches no open call: 'c'",
        ),
        (
            json!({ "permission_level": "root" }),
            "session.permission_level must be one of yolo, trusted, sandboxed, got: 'root'",
        ),
    ] {
        assert_eq!(fixture.call_daemon(&request("import_agent", &params(change))).await, error(-32602, text));
    }
    assert_eq!(fixture.agent_names().await, ["a"]);
    let (_, imported) = fixture.call_daemon(&request("import_agent", &params(json!({})))).await;
    assert!(imported.contains(r#""agent_id":"b""#), "{imported}");
}
