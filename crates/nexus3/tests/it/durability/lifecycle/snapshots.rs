//! Agents that leave as documents and come back, and those that come from the original's session files.

use std::fs;

use serde_json::{Value, json};
use testkit::run;

use super::{create_talking_agent, result, rpc, rpc_finished, texts};
use crate::durability::curl;
use crate::support::folder::TestDirectory;
use crate::support::model_requests::assert_all_valid;
use crate::support::program::Program;
use crate::support::{BIN, Fixture, agent_ids, daemon_builder, is_capability_token};

/// A session file as the original writes it.
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

/// The agent is what the file says, but for the rights that nobody gives by a file.
fn assert_imported(stage: &Fixture) {
    assert_eq!(texts(stage, "old"), ["What do the notes say?", "Let me look.", "buy milk", "Buy milk."]);
    let agent = stage.agent("old");
    assert_eq!(
        (&agent["agent"]["preset"], &agent["agent"]["created_at"]),
        (&json!("trusted"), &json!("2024-01-15T10:30:00.123456"))
    );
    assert_eq!(
        stage.send_text("old", "!history"),
        "What do the notes say? | !history",
        "it goes on from there"
    );
    let asked = stage.model.requests().pop().expect("it was asked").body;
    assert_eq!(asked["messages"][0]["content"], "You are old.");
    assert_all_valid(&stage.model);
}

#[test]
fn an_originals_session_is_imported_without_a_daemon() {
    let (home, folder) = (TestDirectory::new(), TestDirectory::new());
    folder.write("old.json", &original_session_file(&folder).to_string());
    let imported = run(BIN, &["import", &folder.path_of("old.json")], &[], home.path());
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.contains("imported as old, 4 messages"), "{}", imported.stdout);
    for note in
        ["'yolo' became 'trusted'", "session_allowances", "the clipboard", "the model 'haiku' is not known"]
    {
        assert!(imported.stdout.contains(note), "{note}: {}", imported.stdout);
    }
    let again = run(BIN, &["import", &folder.path_of("old.json")], &[], home.path());
    assert_eq!(again.code, 1);
    for text in ["Agent already exists: old", "nothing was imported"] {
        assert!(again.stderr.contains(text), "{}", again.stderr);
    }
    let model = testkit::ScriptedModel::start();
    let stage = Fixture { daemon: daemon_builder(&model).home(home.path()).start(), model };
    assert_imported(&stage);
}

#[test]
fn an_originals_session_is_imported_by_the_daemon_that_runs() {
    let stage = Fixture::start();
    let folder = TestDirectory::new();
    folder.write("old.json", &original_session_file(&folder).to_string());
    let (port, home) = (stage.daemon.port().to_string(), stage.daemon.home().to_owned());
    let elsewhere = run(BIN, &["import", &folder.path_of("old.json")], &[], &home);
    assert_eq!(elsewhere.code, 5, "{}", elsewhere.stderr);
    assert!(elsewhere.stderr.contains("nexus3 import -p PORT"), "{}", elsewhere.stderr);
    let imported = run(BIN, &["import", &folder.path_of("old.json"), "-p", &port, "--json"], &[], &home);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let told: Value = serde_json::from_str(&imported.stdout).expect("JSON");
    assert_eq!(
        (&told[0]["agent"]["agent_id"], &told[0]["agent"]["message_count"]),
        (&json!("old"), &json!(4))
    );
    assert!(is_capability_token(&told[0]["agent"]["token"]), "{told}");
    let stage = stage.kill_and_start();
    assert_imported(&stage);
}

#[test]
fn all_files_are_imported_or_none() {
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
    assert_eq!(both.code, 0, "nothing of the first try is in the way: {}", both.stderr);
    let model = testkit::ScriptedModel::start();
    let daemon = daemon_builder(&model).home(home.path()).start();
    assert_eq!(agent_ids(&daemon), ["old", "second"]);
}

#[test]
fn a_document_that_makes_no_sense_changes_nothing() {
    let stage = Fixture::start();
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
        let refused = curl(&stage.daemon, "/", "import_agent", &json!({ "session": document }));
        assert_eq!(refused["error"]["code"], -32602, "{text}: {refused}");
        assert!(
            refused["error"]["message"].as_str().is_some_and(|said| said.contains(text)),
            "{text}: {refused}"
        );
    }
    let mut lacking = original_session_file(&folder);
    lacking.as_object_mut().expect("an object").remove("system_prompt");
    let refused = curl(&stage.daemon, "/", "import_agent", &json!({ "session": lacking }));
    assert!(
        refused["error"]["message"].as_str().is_some_and(|said| said.contains("system_prompt")),
        "{refused}"
    );
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
    let stage = stage.kill_and_start();
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
}

#[test]
fn what_is_exported_comes_back_as_it_was() {
    let stage = Fixture::start();
    let folder = create_talking_agent(&stage);
    stage.send(
        "talker",
        "!tool echo {\"text\":\"hi\"}\n!tool fs_append_file {\"path\":\"f\",\"content\":\"line\"}",
    );
    stage.send_expecting_error("talker", "!status 500 boom");
    let session = result(&stage.daemon, "export_agent", &json!({ "agent_id": "talker" }))["session"].clone();
    assert_eq!((&session["schema_version"], &session["permission_level"]), (&json!(1), &json!("trusted")));
    assert_eq!(
        (&session["provenance"], &session["working_directory"]),
        (&json!("user"), &json!(folder.path_str()))
    );
    assert!(!session.to_string().contains("nxc_"), "no token leaves");
    let import = json!({ "session": session, "agent_id": "back" });
    let imported = result(&stage.daemon, "import_agent", &import);
    assert_eq!(imported.get("notes"), None, "nothing is lost: {imported}");
    let stage = stage.kill_and_start();
    let again = result(&stage.daemon, "export_agent", &json!({ "agent_id": "back" }))["session"].clone();
    for name in [
        "messages",
        "system_prompt",
        "working_directory",
        "created_at",
        "disabled_tools",
        "permission_preset",
    ] {
        assert_eq!(again[name], session[name], "{name}");
    }
    for name in ["allowed_write_paths", "budget", "on_restart", "may_create", "may_grant"] {
        assert_eq!(again["nexus3"][name], session["nexus3"][name], "{name}");
    }
    assert_eq!(stage.permissions("back")["may"], stage.permissions("talker")["may"]);
}

#[test]
fn documents_go_through_the_command_line() {
    let stage = Fixture::start();
    let _folder = create_talking_agent(&stage);
    let exported = rpc_finished(&stage.daemon, &["export", "talker"]);
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    let place = TestDirectory::new();
    place.write("talker.json", &exported.stdout);
    let imported = rpc(&stage.daemon, &["import", &place.path_of("talker.json"), "--as", "copy"]);
    assert_eq!((&imported["agent_id"], &imported["message_count"]), (&json!("copy"), &json!(6)));
    let port = stage.daemon.port().to_string();
    let args = ["rpc", "import", "-", "--as", "piped", "-p", &port];
    let piped = Program::start(&args, &[], stage.daemon.home(), exported.stdout.as_bytes()).finish();
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    assert_eq!(texts(&stage, "piped"), texts(&stage, "talker"));
    let elsewhere = TestDirectory::new();
    let offline =
        run(BIN, &["import", &place.path_of("talker.json"), "--as", "moved"], &[], elsewhere.path());
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    assert!(fs::metadata(elsewhere.path().join("nexus3.db")).is_ok());
    let moved =
        Fixture { daemon: daemon_builder(&stage.model).home(elsewhere.path()).start(), model: stage.model };
    assert_eq!(texts(&moved, "moved").len(), 6);
}
