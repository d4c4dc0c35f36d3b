//! Presets of the configuration: narrower than the one they extend, in every spelling, and for everybody who has them.

use serde_json::json;

use crate::support::callers::permission_denied;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{ExpectError as _, Fixture};

const NO_WRITE: &str = "tool said: Permission denied: Tool 'fs.write_file' is disabled by permission policy";

/// A daemon with these presets, and an agent `worker` of the preset `own` in this folder.
fn fixture_with(presets: &str, folder: &TestDirectory) -> Fixture {
    let stage = Fixture::with_config(presets);
    stage.create_with(json!({ "agent_id": "worker", "preset": "own", "cwd": folder.path_str() }));
    stage
}

#[test]
fn a_tool_that_a_preset_disables_is_disabled_in_each_of_its_spellings() {
    for spelling in ["fs.write_file", "fs_write_file", "write_file"] {
        let folder = TestDirectory::new();
        let presets = format!("[presets.own]\nextends = \"trusted\"\ndisable_tools = [\"{spelling}\"]\n");
        let stage = fixture_with(&presets, &folder);
        assert_eq!(stage.send_text("worker", &write_file_script("a.txt", "a")), NO_WRITE, "{spelling}");
        assert_eq!(folder.read("a.txt"), None, "{spelling}");
    }
}

#[test]
fn a_tool_that_a_preset_names_alone_can_be_named_in_each_of_its_spellings() {
    for spelling in ["fs.read_file", "fs_read_file", "read_file"] {
        let folder = TestDirectory::with_files(&[("a.txt", "a")]);
        let presets = format!("[presets.own]\nextends = \"trusted\"\ntools = [\"{spelling}\"]\n");
        let stage = fixture_with(&presets, &folder);
        assert_eq!(stage.send_text("worker", &read_file_script("a.txt")), "tool said: a", "{spelling}");
        assert_eq!(stage.send_text("worker", &write_file_script("b.txt", "b")), NO_WRITE);
    }
}

#[test]
fn a_preset_narrows_folders_and_budgets_and_says_so() {
    let (folder, closed) = (
        TestDirectory::with_files(&[("a.txt", "a"), ("shut/b.txt", "b")]),
        TestDirectory::with_files(&[("c.txt", "c")]),
    );
    let presets = format!(
        "[presets.own]\nextends = \"trusted\"\nread_paths = [\"{0}\"]\nblocked_paths = [\"{0}/shut\"]\n\
         max_tool_calls = 4\nmay_create = []\n",
        folder.path_str()
    );
    let stage = fixture_with(&presets, &folder);
    assert_eq!(stage.send_text("worker", &read_file_script("a.txt")), "tool said: a");
    assert!(
        stage
            .send_text("worker", &read_file_script(&closed.path_of("c.txt")))
            .contains("Path outside allowed directories")
    );
    assert!(stage.send_text("worker", &read_file_script("shut/b.txt")).ends_with("the path is blocked"));
    assert!(
        stage.send_text("worker", &write_file_script("shut/b.txt", "x")).ends_with("the path is blocked")
    );
    let said = stage.send_text("worker", r#"!tool agent_create {"preset":"worker"}"#);
    assert_eq!(said, "tool said: Permission denied: Requested preset 'worker' exceeds parent ceiling");
    let permissions = stage.permissions("worker");
    assert_eq!(
        (&permissions["preset"], &permissions["permission_level"]),
        (&json!("own"), &json!("TRUSTED"))
    );
    let limits = permissions["limits"].as_array().unwrap();
    let calls = limits.iter().find(|limit| limit["limit"] == "tool_calls").unwrap();
    assert_eq!((&calls["allows"], &calls["reason"]), (&json!("4"), &json!("preset 'own'")));
    for budget in [json!({ "tool_calls": 9 }), json!({})] {
        stage.set_permissions("worker", json!({ "budget": budget }));
        assert_eq!(
            stage.resource_usage("worker", "tool_calls")[0],
            4,
            "an ask does not lift what a preset limits"
        );
    }
    stage.set_permissions("worker", json!({ "unlimited": ["tool_calls"] }));
    assert_eq!(stage.resource_usage("worker", "tool_calls")[0], 4);
}

#[test]
fn a_preset_counts_as_the_one_it_extends_for_parents() {
    let presets = "[presets.own]\nextends = \"sandboxed\"\n[presets.free]\nextends = \"trusted\"\n";
    let stage = Fixture::with_config(presets);
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    stage.create_with(json!({ "agent_id": "child", "preset": "own", "parent_agent_id": "lead" }));
    let params = json!({ "agent_id": "other", "preset": "free", "parent_agent_id": "lead" });
    let error = stage.daemon.error("/", "create_agent", params);
    assert_eq!(error, permission_denied("Requested preset 'free' exceeds parent ceiling"));
    let error = stage.daemon.error("/", "create_agent", json!({ "preset": "nobody" }));
    let text = "preset must be one of free, own, sandboxed, trusted, worker, got: 'nobody'";
    assert_eq!(error, json!({ "code": -32602, "message": text }));
}

#[test]
fn a_preset_of_the_forbidden_kind_cannot_be_had_over_the_wire() {
    let stage = Fixture::with_config("[presets.wild]\nextends = \"yolo\"\n");
    stage.create("worker");
    for name in ["wild", "yolo"] {
        let text = format!("must be one of sandboxed, trusted, worker, got: '{name}'");
        let error = stage.daemon.error("/agent/worker", "set_permissions", json!({ "preset": name }));
        assert_eq!(error["message"], format!("preset {text}"));
        for (place, params) in [
            ("preset", json!({ "preset": name })),
            ("may_create", json!({ "may_create": [name] })),
            ("may_grant.may_create", json!({ "may_grant": { "may_create": [name] } })),
            ("may_grant.preset", json!({ "may_grant": { "preset": name } })),
        ] {
            let error = stage.daemon.error("/", "create_agent", params);
            assert_eq!(error, json!({ "code": -32602, "message": format!("{place} {text}") }));
        }
    }
}

#[test]
fn agents_that_ask_for_nothing_get_the_default_preset() {
    let stage = Fixture::with_config("default_preset = \"worker\"\n");
    stage.create("plain");
    assert_eq!(stage.agent("plain")["agent"]["preset"], "worker");
    stage.daemon.call_result("/", "get_context", json!({}));
    assert_eq!(stage.agent("main")["agent"]["preset"], "worker");
}
