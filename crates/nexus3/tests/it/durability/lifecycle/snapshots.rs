//! Export and import of agents, and import of session files of the original program.

use std::fs;

use serde_json::{Value, json};
use testkit::run;

use super::{create_talking_agent, result, rpc, rpc_finished, texts};
use crate::durability::curl;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::assert_all_valid;
use crate::support::program::Program;
use crate::support::{BIN, Fixture, agent_ids, daemon_builder, is_capability_token};

/// A session file as the original program writes it.
fn original_session_file(folder: &TestDirectory) -> Value {
    let call = json!({ "id": "call_1", "name": "read_file", "arguments": { "path": "notes.txt" } });
    json!({
        "schema_version": 1, "agent_id": "old", "created_at": "2024-01-15T10:30:00.123456",
        "modified_at": "2024-02-01T08:00:00", "system_prompt": "You are old.",
        "messages": [
            { "role": "user", "content": "What do the notes say?", "meta": { "source": "repl" } },
            { "role": "assistant", "content": "Let me look.", "tool_calls": [call] },
            { "role": "tool", "content": "buy milk", "tool_call_id": "call_1" },
            { "role": "assistant", "content": "Buy milk." },
        ],
        "system_prompt_path": "/home/alice/prompt.md", "working_directory": folder.path_str(),
        "permission_level": "yolo", "permission_preset": "yolo", "disabled_tools": ["shell_UNSAFE"],
        "session_allowances": { "write_files": ["/"] }, "model_alias": "haiku",
        "clipboard_agent_entries": [{ "key": "x", "content": "y" }], "token_usage": { "total": 1234 },
        "provenance": "user",
    })
}

/// Asserts that the agent matches the file, except for permissions that a file cannot grant: `yolo` becomes `trusted`.
fn assert_imported(fixture: &Fixture) {
    assert_eq!(texts(fixture, "old"), ["What do the notes say?", "Let me look.", "buy milk", "Buy milk."]);
    let agent = fixture.agent("old");
    assert_eq!(
        (&agent["agent"]["preset"], &agent["agent"]["created_at"]),
        (&json!("trusted"), &json!("2024-01-15T10:30:00.123456"))
    );
    assert_eq!(
        fixture.send_text("old", "!history"),
        "What do the notes say? | !history",
        "the agent continues the conversation"
    );
    let request = fixture.model.requests().pop().expect("the model was called").body;
    assert_eq!(request["messages"][0]["content"], "You are old.");
    assert_all_valid(&fixture.model);
}

#[test]
fn an_original_session_is_imported_without_a_daemon() {
    let (home, folder) = (TestDirectory::new(), TestDirectory::new());
    folder.write("old.json", &original_session_file(&folder).to_string());
    let imported = run(BIN, &["import", &folder.path_of("old.json")], &[], home.path());
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.contains("imported as old, 4 messages"), "{}", imported.stdout);
    for note in [
        "preset 'yolo' was replaced by 'trusted'",
        "session_allowances were not imported",
        "clipboard entries were not imported",
        "unknown model 'haiku'",
    ] {
        assert!(imported.stdout.contains(note), "{note}: {}", imported.stdout);
    }
    let again = run(BIN, &["import", &folder.path_of("old.json")], &[], home.path());
    assert_eq!(again.code, 1);
    for text in ["Agent already exists: old", "nothing was imported"] {
        assert!(again.stderr.contains(text), "{}", again.stderr);
    }
    let model = testkit::ScriptedModel::start();
    let fixture = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
    assert_imported(&fixture);
}

#[test]
fn an_original_session_is_imported_by_a_running_daemon() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    folder.write("old.json", &original_session_file(&folder).to_string());
    let (port, home) = (fixture.daemon.port().to_string(), fixture.daemon.home().to_owned());
    let without_port = run(BIN, &["import", &folder.path_of("old.json")], &[], &home);
    assert_eq!(without_port.code, 5, "{}", without_port.stderr);
    assert!(without_port.stderr.contains("nexus3 import -p PORT"), "{}", without_port.stderr);
    let imported = run(BIN, &["import", &folder.path_of("old.json"), "-p", &port, "--json"], &[], &home);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let report: Value = serde_json::from_str(&imported.stdout).expect("JSON");
    assert_eq!(
        (&report[0]["agent"]["agent_id"], &report[0]["agent"]["message_count"]),
        (&json!("old"), &json!(4))
    );
    assert!(is_capability_token(&report[0]["agent"]["token"]), "{report}");
    let fixture = fixture.kill_and_start();
    assert_imported(&fixture);
}

#[test]
fn an_import_of_several_files_is_atomic() {
    let (home, folder) = (TestDirectory::new(), TestDirectory::new());
    let mut second = original_session_file(&folder);
    second["agent_id"] = json!("second");
    let mut bad = original_session_file(&folder);
    bad["agent_id"] = json!("bad");
    bad["working_directory"] = json!("/nowhere/at/all");
    for (name, document) in [("a", &original_session_file(&folder)), ("b", &second), ("c", &bad)] {
        folder.write(name, &document.to_string());
    }
    let files = ["a", "b", "c"].map(|name| folder.path_of(name));
    let refused = run(BIN, &["import", &files[0], &files[1], &files[2]], &[], home.path());
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(
        refused.stderr.contains("/nowhere/at/all") && refused.stderr.contains(&files[2]),
        "{}",
        refused.stderr
    );
    let both = run(BIN, &["import", &files[0], &files[1]], &[], home.path());
    assert_eq!(both.code, 0, "the failed import left nothing behind: {}", both.stderr);
    let model = testkit::ScriptedModel::start();
    let daemon = daemon_builder(&model).home(home.path()).start();
    assert_eq!(agent_ids(&daemon), ["old", "second"]);
}

#[test]
fn an_invalid_session_file_is_rejected_without_effect() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    let change = |name: &str, value: Value| {
        let mut document = original_session_file(&folder);
        document[name] = value;
        document
    };
    for (document, text) in [
        (change("schema_version", json!(2)), "schema_version must be 1"),
        (change("agent_id", json!("no such name!")), "session.agent_id"),
        (change("created_at", json!("yesterday")), "session.created_at must be a time"),
        (change("permission_level", json!("god")), "permission_level must be one of"),
        (change("working_directory", json!("/nowhere")), "/nowhere"),
        (change("messages", json!([{ "role": "wizard", "content": "x" }])), "session.messages[0]"),
        (
            change("messages", json!([{ "role": "tool", "content": "x", "tool_call_id": "c" }])),
            "session.messages[0]",
        ),
        (change("messages", json!("none")), "messages"),
    ] {
        let refused = curl(&fixture.daemon, "/", "import_agent", &json!({ "session": document }));
        assert_eq!(refused["error"]["code"], -32602, "{text}: {refused}");
        assert!(
            refused["error"]["message"].as_str().is_some_and(|message| message.contains(text)),
            "{text}: {refused}"
        );
    }
    let mut incomplete = original_session_file(&folder);
    incomplete.as_object_mut().expect("an object").remove("system_prompt");
    let refused = curl(&fixture.daemon, "/", "import_agent", &json!({ "session": incomplete }));
    assert!(
        refused["error"]["message"].as_str().is_some_and(|message| message.contains("system_prompt")),
        "{refused}"
    );
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
    let fixture = fixture.kill_and_start();
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
}

#[test]
fn an_exported_agent_is_imported_unchanged() {
    let fixture = Fixture::start();
    let folder = create_talking_agent(&fixture);
    fixture.send(
        "talker",
        "!tool echo {\"text\":\"hi\"}\n!tool fs_append_file {\"path\":\"f\",\"content\":\"line\"}",
    );
    fixture.send_expecting_error("talker", "!status 500 boom");
    let session =
        result(&fixture.daemon, "export_agent", &json!({ "agent_id": "talker" }))["session"].clone();
    assert_eq!((&session["schema_version"], &session["permission_level"]), (&json!(1), &json!("trusted")));
    assert_eq!(
        (&session["provenance"], &session["working_directory"]),
        (&json!("user"), &json!(folder.path_str()))
    );
    assert!(!session.to_string().contains("nxc_"), "an export has no token");
    let import = json!({ "session": session, "agent_id": "copy" });
    let imported = result(&fixture.daemon, "import_agent", &import);
    assert_eq!(imported.get("notes"), None, "an import without losses has no notes: {imported}");
    let fixture = fixture.kill_and_start();
    let reexported =
        result(&fixture.daemon, "export_agent", &json!({ "agent_id": "copy" }))["session"].clone();
    for name in [
        "messages",
        "system_prompt",
        "working_directory",
        "created_at",
        "disabled_tools",
        "permission_preset",
    ] {
        assert_eq!(reexported[name], session[name], "{name}");
    }
    for name in ["allowed_write_paths", "budget", "on_restart", "may_create", "may_grant"] {
        assert_eq!(reexported["nexus3"][name], session["nexus3"][name], "{name}");
    }
    assert_eq!(fixture.permissions("copy")["may"], fixture.permissions("talker")["may"]);
}

#[test]
fn the_command_line_exports_and_imports_agents() {
    let fixture = Fixture::start();
    let _folder = create_talking_agent(&fixture);
    let exported = rpc_finished(&fixture.daemon, &["export", "talker"]);
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    let directory = TestDirectory::new();
    directory.write("talker.json", &exported.stdout);
    let imported = rpc(&fixture.daemon, &["import", &directory.path_of("talker.json"), "--as", "copy"]);
    assert_eq!((&imported["agent_id"], &imported["message_count"]), (&json!("copy"), &json!(6)));
    let port = fixture.daemon.port().to_string();
    let args = ["rpc", "import", "-", "--as", "piped", "-p", &port];
    let piped = Program::start(&args, &[], fixture.daemon.home(), exported.stdout.as_bytes()).finish();
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    assert_eq!(texts(&fixture, "piped"), texts(&fixture, "talker"));
    let elsewhere = TestDirectory::new();
    let offline =
        run(BIN, &["import", &directory.path_of("talker.json"), "--as", "moved"], &[], elsewhere.path());
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    assert!(fs::metadata(elsewhere.path().join("nexus3.db")).is_ok());
    let moved = Fixture {
        daemon: daemon_builder(&fixture.model).home(elsewhere.path()).start(),
        model: fixture.model,
    };
    assert_eq!(texts(&moved, "moved").len(), 6);
}
