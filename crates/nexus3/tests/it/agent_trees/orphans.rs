//! Orphans: children that outlive their parent keep its ceiling, also when another agent gets the parent's name.

use serde_json::{Value, json};

use crate::support::callers::{call_as, permission_denied, result_as};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{ExpectError as _, Fixture, agent_ids, agent_path};

/// Creates `child` below a narrow `lead`, destroys `lead`, and creates a new `lead` with more permissions. Returns the
/// token of the new one.
fn create_orphan_and_new_lead(fixture: &Fixture, folder: &TestDirectory) -> String {
    folder.create_directory("work");
    fixture.create_with(json!({
        "agent_id": "lead", "cwd": folder.path_of("work"), "may_create": ["sandboxed"], "disable_tools": ["echo"],
        "allowed_write_paths": ["out"], "budget": { "tool_calls": 20 },
    }));
    fixture.create_with(
        json!({ "agent_id": "child", "parent_agent_id": "lead", "allowed_write_paths": ["out"] }),
    );
    let destroyed =
        fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead", "orphan": true }));
    assert_eq!(destroyed, json!({ "success": true, "agent_id": "lead" }));
    assert_eq!(agent_ids(&fixture.daemon), ["child"]);
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }))
}

#[test]
fn an_orphan_keeps_its_ceiling_when_its_parents_name_is_reused() {
    let fixture = Fixture::start();
    let folder = TestDirectory::with_files(&[("secret.txt", "secret"), ("work/a.txt", "a")]);
    create_orphan_and_new_lead(&fixture, &folder);
    assert_eq!(fixture.send_text("child", &read_file_script("a.txt")), "tool said: a");
    assert!(fixture.send_text("child", &write_file_script("out/b.txt", "b")).contains("\"success\":true"));
    let content = fixture.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: Tool 'echo' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
    );
    let content = fixture.send_text("child", &read_file_script("../secret.txt"));
    assert!(content.starts_with("tool said: Permission denied: cannot read '"), "{content}");
    let permissions = fixture.permissions("child");
    assert_eq!(permissions["ancestors"], json!(["lead"]), "the destroyed agent, not the new one");
    assert_eq!(permissions["may"]["read"], json!([folder.path_of("work")]));
    let error = fixture.daemon.error(&agent_path("child"), "set_permissions", json!({ "preset": "trusted" }));
    assert_eq!(
        error,
        permission_denied("Requested preset 'trusted' exceeds parent ceiling"),
        "the ceiling cannot be raised later"
    );
    let wide = json!({ "allowed_write_paths": [folder.path_str()] });
    let error = fixture.daemon.error(&agent_path("child"), "set_permissions", wide);
    assert_eq!(error["data"]["kind"], "permission_denied", "{error}");
    assert_eq!(
        fixture.resource_usage("child", "tool_calls")[3],
        18,
        "the budget of the destroyed ancestor still applies"
    );
}

#[test]
fn a_new_agent_with_the_parents_name_is_no_parent() {
    let fixture = Fixture::start();
    let folder = TestDirectory::with_files(&[("work/a.txt", "a")]);
    let token = create_orphan_and_new_lead(&fixture, &folder);
    let lead = fixture.agent("lead");
    assert_eq!((&lead["children"], &lead["agent"]["child_count"]), (&json!([]), &json!(0)));
    for (method, params) in [
        ("get_context", json!({})),
        ("get_permissions", json!({})),
        ("send", json!({ "content": "hi" })),
        ("steer", json!({ "content": "hi" })),
        ("set_permissions", json!({})),
    ] {
        let response = call_as(&fixture.daemon, &token, &agent_path("child"), method, params);
        let text = format!("Agent 'lead' is not authorized to call {method} on 'child'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    let response = call_as(&fixture.daemon, &token, "/", "destroy_agent", json!({ "agent_id": "child" }));
    assert_eq!(response["error"], permission_denied("Agent 'lead' is not authorized to destroy 'child'"));
    let list = result_as(&fixture.daemon, &token, "/", "list_agents", json!({}));
    assert_eq!(list["total"], 1, "{list}");
    let content =
        fixture.send_text("child", r#"!tool agent_send {"agent_id":"lead","content":"hello, parent"}"#);
    assert_eq!(content, "tool said: Permission denied: cannot target agent 'lead'; allowed: parent agent");
    let content =
        fixture.send_text("lead", r#"!tool agent_send {"agent_id":"child","content":"hello, child"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: cannot target agent 'child'; allowed: parent and child agents"
    );
    assert_eq!(fixture.context("lead")["message_count"], 4, "only its own turn and no message of the child");
}

#[test]
fn an_orphan_stays_below_its_grandparent() {
    let fixture = Fixture::start();
    let all = json!(["trusted", "sandboxed"]);
    let token = |params: Value| fixture.create_with(params);
    let lead = token(json!({ "agent_id": "lead", "preset": "trusted", "may_create": all }));
    let middle = token(
        json!({ "agent_id": "middle", "preset": "trusted", "parent_agent_id": "lead", "may_create": all }),
    );
    token(json!({ "agent_id": "leaf", "parent_agent_id": "middle" }));
    let params = json!({ "agent_id": "middle", "orphan": true });
    assert_eq!(result_as(&fixture.daemon, &lead, "/", "destroy_agent", params)["success"], true);
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "leaf"]);
    assert_eq!(fixture.agent("leaf")["ancestors"], json!(["middle", "lead"]));
    let context = result_as(&fixture.daemon, &lead, &agent_path("leaf"), "get_context", json!({}));
    assert_eq!(context["message_count"], 0, "the grandparent still has access");
    let refused =
        crate::support::callers::post_as(&fixture.daemon, &middle, &[], "/", "list_agents", json!({}));
    assert_eq!(refused.status, 403);
    assert_eq!(fixture.resource_usage("lead", "children")[1], 1);
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "lead" }));
    assert!(!agent_ids(&fixture.daemon).contains(&"lead".to_owned()));
}
