//! Presets of the configuration: narrower than the preset they extend, with tools in every spelling, for every agent.

use serde_json::json;

use crate::support::callers::permission_denied;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{ExpectError as _, Fixture};

const NO_WRITE: &str = "tool said: Permission denied: Tool 'fs.write_file' is disabled by permission policy";

/// A daemon with these presets, and an agent `worker` with the preset `own` in this directory.
fn fixture_with(presets: &str, folder: &TestDirectory) -> Fixture {
    let fixture = Fixture::with_config(presets);
    fixture.create_with(json!({ "agent_id": "worker", "preset": "own", "cwd": folder.path_str() }));
    fixture
}

#[test]
fn preset_disables_a_tool_by_any_spelling() {
    for spelling in ["fs.write_file", "fs_write_file", "write_file"] {
        let folder = TestDirectory::new();
        let presets = format!("[presets.own]\nextends = \"trusted\"\ndisable_tools = [\"{spelling}\"]\n");
        let fixture = fixture_with(&presets, &folder);
        let denied = format!("{NO_WRITE}; remove it from disable_tools of the agent or its preset");
        assert_eq!(fixture.send_text("worker", &write_file_script("a.txt", "a")), denied, "{spelling}");
        assert_eq!(folder.read("a.txt"), None, "{spelling}");
    }
}

#[test]
fn preset_allows_a_tool_by_any_spelling() {
    for spelling in ["fs.read_file", "fs_read_file", "read_file"] {
        let folder = TestDirectory::with_files(&[("a.txt", "a")]);
        let presets = format!("[presets.own]\nextends = \"trusted\"\ntools = [\"{spelling}\"]\n");
        let fixture = fixture_with(&presets, &folder);
        assert_eq!(fixture.send_text("worker", &read_file_script("a.txt")), "tool said: a", "{spelling}");
        let denied = format!("{NO_WRITE}; add it to tools of the agent or its preset");
        assert_eq!(fixture.send_text("worker", &write_file_script("b.txt", "b")), denied);
    }
}

#[test]
fn preset_narrows_paths_and_budgets_and_is_the_reason() {
    let (folder, outside) = (
        TestDirectory::with_files(&[("a.txt", "a"), ("shut/b.txt", "b")]),
        TestDirectory::with_files(&[("c.txt", "c")]),
    );
    let presets = format!(
        "[presets.own]\nextends = \"trusted\"\nread_paths = [\"{0}\"]\nblocked_paths = [\"{0}/shut\"]\n\
         max_tool_calls = 4\nmay_create = []\n",
        folder.path_str()
    );
    let fixture = fixture_with(&presets, &folder);
    assert_eq!(fixture.send_text("worker", &read_file_script("a.txt")), "tool said: a");
    assert!(
        fixture
            .send_text("worker", &read_file_script(&outside.path_of("c.txt")))
            .contains("Path outside allowed directories")
    );
    assert!(fixture.send_text("worker", &read_file_script("shut/b.txt")).ends_with("the path is blocked"));
    assert!(
        fixture.send_text("worker", &write_file_script("shut/b.txt", "x")).ends_with("the path is blocked")
    );
    let text = fixture.send_text("worker", r#"!tool agent_create {"preset":"worker"}"#);
    assert_eq!(text, "tool said: Permission denied: Requested preset 'worker' exceeds parent ceiling");
    let permissions = fixture.permissions("worker");
    assert_eq!(
        (&permissions["preset"], &permissions["permission_level"]),
        (&json!("own"), &json!("TRUSTED"))
    );
    let limits = permissions["limits"].as_array().unwrap();
    let calls = limits.iter().find(|limit| limit["limit"] == "tool_calls").unwrap();
    assert_eq!((&calls["allows"], &calls["reason"]), (&json!("4"), &json!("preset 'own'")));
    for budget in [json!({ "tool_calls": 9 }), json!({})] {
        fixture.set_permissions("worker", json!({ "budget": budget }));
        assert_eq!(
            fixture.resource_usage("worker", "tool_calls")[0],
            4,
            "a request cannot raise the preset's limit"
        );
    }
    fixture.set_permissions("worker", json!({ "unlimited": ["tool_calls"] }));
    assert_eq!(fixture.resource_usage("worker", "tool_calls")[0], 4);
}

#[test]
fn preset_ranks_as_the_preset_it_extends() {
    let presets = "[presets.own]\nextends = \"sandboxed\"\n[presets.free]\nextends = \"trusted\"\n";
    let fixture = Fixture::with_config(presets);
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "child", "preset": "own", "parent_agent_id": "lead" }));
    let params = json!({ "agent_id": "other", "preset": "free", "parent_agent_id": "lead" });
    let error = fixture.daemon.error("/", "create_agent", params);
    assert_eq!(error, permission_denied("Requested preset 'free' exceeds parent ceiling"));
    let error = fixture.daemon.error("/", "create_agent", json!({ "preset": "unknown" }));
    let text = "preset must be one of free, own, sandboxed, trusted, worker, got: 'unknown'";
    assert_eq!(error, json!({ "code": -32602, "message": text }));
}

#[test]
fn preset_that_extends_yolo_is_unavailable_over_rpc() {
    let fixture = Fixture::with_config("[presets.wild]\nextends = \"yolo\"\n");
    fixture.create("worker");
    for name in ["wild", "yolo"] {
        let text = format!("must be one of sandboxed, trusted, worker, got: '{name}'");
        let error = fixture.daemon.error("/agent/worker", "set_permissions", json!({ "preset": name }));
        assert_eq!(error["message"], format!("preset {text}"));
        for (field, params) in [
            ("preset", json!({ "preset": name })),
            ("may_create", json!({ "may_create": [name] })),
            ("may_grant.may_create", json!({ "may_grant": { "may_create": [name] } })),
            ("may_grant.preset", json!({ "may_grant": { "preset": name } })),
        ] {
            let error = fixture.daemon.error("/", "create_agent", params);
            assert_eq!(error, json!({ "code": -32602, "message": format!("{field} {text}") }));
        }
    }
}

#[test]
fn default_preset_applies_when_none_is_requested() {
    let fixture = Fixture::with_config("default_preset = \"worker\"\n");
    fixture.create("plain");
    assert_eq!(fixture.agent("plain")["agent"]["preset"], "worker");
    fixture.daemon.call_result("/", "get_context", json!({}));
    assert_eq!(fixture.agent("main")["agent"]["preset"], "worker");
}
