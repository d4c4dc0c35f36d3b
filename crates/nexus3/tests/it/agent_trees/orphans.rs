//! Children that stay when their parent goes: under the ceiling they had, whoever takes the parent's name.

use serde_json::{Value, json};

use crate::support::callers::{call_as, permission_denied, result_as};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{ExpectError as _, Fixture, agent_ids, agent_path};

/// A child whose parent was narrow, is gone, and has a namesake that may do far more.
fn orphan_with_a_new_lead(stage: &Fixture, folder: &TestDirectory) -> String {
    folder.create_directory("work");
    stage.create_with(json!({
        "agent_id": "lead", "cwd": folder.path_of("work"), "may_create": ["sandboxed"], "disable_tools": ["echo"],
        "allowed_write_paths": ["out"], "budget": { "tool_calls": 20 },
    }));
    stage.create_with(
        json!({ "agent_id": "child", "parent_agent_id": "lead", "allowed_write_paths": ["out"] }),
    );
    let gone = stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead", "orphan": true }));
    assert_eq!(gone, json!({ "success": true, "agent_id": "lead" }));
    assert_eq!(agent_ids(&stage.daemon), ["child"]);
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }))
}

#[test]
fn an_orphan_keeps_its_ceiling_when_its_parents_name_is_reused() {
    let stage = Fixture::start();
    let folder = TestDirectory::with_files(&[("secret.txt", "secret"), ("work/a.txt", "a")]);
    orphan_with_a_new_lead(&stage, &folder);
    assert_eq!(stage.send_text("child", &read_file_script("a.txt")), "tool said: a");
    assert!(stage.send_text("child", &write_file_script("out/b.txt", "b")).contains("\"success\":true"));
    let said = stage.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(said, "tool said: Permission denied: Tool 'echo' is disabled by permission policy");
    let said = stage.send_text("child", &read_file_script("../secret.txt"));
    assert!(said.starts_with("tool said: Permission denied: cannot read '"), "{said}");
    let permissions = stage.permissions("child");
    assert_eq!(permissions["ancestors"], json!(["lead"]), "the one that is gone");
    assert_eq!(permissions["may"]["read"], json!([folder.path_of("work")]));
    let error = stage.daemon.error(&agent_path("child"), "set_permissions", json!({ "preset": "trusted" }));
    assert_eq!(
        error,
        permission_denied("Requested preset 'trusted' exceeds parent ceiling"),
        "nor is it lifted later"
    );
    let wide = json!({ "allowed_write_paths": [folder.path_str()] });
    let error = stage.daemon.error(&agent_path("child"), "set_permissions", wide);
    assert_eq!(error["data"]["kind"], "permission_denied", "{error}");
    assert_eq!(stage.resource_usage("child", "tool_calls")[3], 18, "the budget above it still counts");
}

#[test]
fn a_namesake_of_the_parent_is_a_stranger() {
    let stage = Fixture::start();
    let folder = TestDirectory::with_files(&[("work/a.txt", "a")]);
    let token = orphan_with_a_new_lead(&stage, &folder);
    let lead = stage.agent("lead");
    assert_eq!((&lead["children"], &lead["agent"]["child_count"]), (&json!([]), &json!(0)));
    for (method, params) in [
        ("get_context", json!({})),
        ("get_permissions", json!({})),
        ("send", json!({ "content": "hi" })),
        ("steer", json!({ "content": "hi" })),
        ("set_permissions", json!({})),
    ] {
        let response = call_as(&stage.daemon, &token, &agent_path("child"), method, params);
        let text = format!("Agent 'lead' is not authorized to call {method} on 'child'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    let response = call_as(&stage.daemon, &token, "/", "destroy_agent", json!({ "agent_id": "child" }));
    assert_eq!(response["error"], permission_denied("Agent 'lead' is not authorized to destroy 'child'"));
    let list = result_as(&stage.daemon, &token, "/", "list_agents", json!({}));
    assert_eq!(list["total"], 1, "{list}");
    let said = stage.send_text("child", r#"!tool agent_send {"agent_id":"lead","content":"father?"}"#);
    assert_eq!(said, "tool said: Permission denied: cannot target agent 'lead'; allowed: parent agent");
    let said = stage.send_text("lead", r#"!tool agent_send {"agent_id":"child","content":"son?"}"#);
    assert_eq!(
        said,
        "tool said: Permission denied: cannot target agent 'child'; allowed: parent and child agents"
    );
    assert_eq!(stage.context("lead")["message_count"], 4, "only what it was told itself");
}

#[test]
fn orphans_of_a_grandparent_stay_a_tree() {
    let stage = Fixture::start();
    let all = json!(["trusted", "sandboxed"]);
    let token = |params: Value| stage.create_with(params);
    let lead = token(json!({ "agent_id": "lead", "preset": "trusted", "may_create": all }));
    let middle = token(
        json!({ "agent_id": "middle", "preset": "trusted", "parent_agent_id": "lead", "may_create": all }),
    );
    token(json!({ "agent_id": "leaf", "parent_agent_id": "middle" }));
    let gone = json!({ "agent_id": "middle", "orphan": true });
    assert_eq!(result_as(&stage.daemon, &lead, "/", "destroy_agent", gone)["success"], true);
    assert_eq!(agent_ids(&stage.daemon), ["lead", "leaf"]);
    assert_eq!(stage.agent("leaf")["ancestors"], json!(["middle", "lead"]));
    let context = result_as(&stage.daemon, &lead, &agent_path("leaf"), "get_context", json!({}));
    assert_eq!(context["message_count"], 0, "who was above it stays above it");
    let dead = crate::support::callers::post_as(&stage.daemon, &middle, &[], "/", "list_agents", json!({}));
    assert_eq!(dead.status, 403);
    assert_eq!(stage.resource_usage("lead", "children")[1], 1);
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead" }));
    assert!(!agent_ids(&stage.daemon).contains(&"lead".to_owned()));
}
