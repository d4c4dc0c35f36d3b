//! `get_permissions`: every limit with the agent that set it and the reason, in a tree of three levels.

use serde_json::{Value, json};

use crate::support::folder::TestDirectory;
use crate::support::{Fixture, HOST_TOOLS, offered_tools_except};

/// The tools that the leaf may not use: those that its preset denies, and the one that middle has disabled.
const NOT_FOR_LEAF: [&str; 23] = [
    "agent_cancel",
    "agent_create",
    "agent_destroy",
    "agent_list",
    "agent_status",
    "approvals_answer",
    "approvals_list",
    "base64.encode",
    "cmd.exec",
    "fs.append_file",
    "fs.copy",
    "fs.delete",
    "fs.edit",
    "fs.mkdir",
    "fs.move",
    "fs.patch",
    "fs.write_file",
    "process.list",
    "process.read",
    "process.start",
    "process.stop",
    "process.write",
    "shell.exec",
];

/// Creates lead (trusted) > middle (sandboxed, may create, one tool less, nine turns) > leaf (sandboxed, 500 tokens).
fn create_three_levels(fixture: &Fixture, folder: &TestDirectory) {
    folder.create_directory("src/deep");
    let create = |params: Value| fixture.create_with(params);
    create(json!({
        "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "may_create": ["sandboxed"],
    }));
    create(json!({
        "agent_id": "middle", "parent_agent_id": "lead", "cwd": folder.path_of("src"), "may_create": ["sandboxed"],
        "disable_tools": ["base64_encode"], "budget": { "turns": 9 },
    }));
    create(json!({
        "agent_id": "leaf", "parent_agent_id": "middle", "cwd": "deep", "allowed_write_paths": [],
        "budget": { "tokens": 500, "turns": 4 }, "system_prompt": "Be brief.",
    }));
}

/// Limits that an agent has set, as name, allowed values and reason.
fn limits_set_by(permissions: &Value, list: &str, agent: &str) -> Vec<[String; 3]> {
    let limits = permissions[list].as_array().unwrap().iter().filter(|limit| limit["set_by"] == agent);
    let text = |limit: &Value, name: &str| limit[name].as_str().unwrap().to_owned();
    limits.map(|limit| ["limit", "allows", "reason"].map(|name| text(limit, name))).collect()
}

fn owned(limits: &[[&str; 3]]) -> Vec<[String; 3]> {
    limits.iter().map(|limit| limit.map(str::to_owned)).collect()
}

#[test]
fn every_limit_names_the_agent_that_set_it_and_why() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    create_three_levels(&fixture, &folder);
    let permissions = fixture.permissions("leaf");
    let home = fixture.daemon.home().canonicalize().unwrap();
    let blocked = format!("nothing in {}", home.display());
    let lead = owned(&[
        ["tools", "all but approvals_answer, approvals_list", "preset 'trusted'"],
        ["write", folder.path_str(), "cwd of preset 'trusted'"],
        ["blocked", &blocked, "preset 'trusted'"],
        ["commands", "all in the sandbox", "preset 'trusted'"],
        ["hosts", "none", "preset 'trusted'"],
        ["create", "only sandboxed", "may_create"],
        ["targets", "parent and child agents", "preset 'trusted'"],
    ]);
    assert_eq!(limits_set_by(&permissions, "limits", "lead"), lead);
    let middle = owned(&[
        [
            "tools",
            "all but approvals_answer, approvals_list, base64.encode, cmd.exec, fs.append_file, fs.copy, fs.delete, \
             fs.edit, fs.mkdir, fs.move, fs.patch, fs.write_file, process.list, process.read, process.start, process.stop, process.write, shell.exec",
            "preset 'sandboxed' and disable_tools",
        ],
        ["read", &folder.path_of("src"), "cwd of preset 'sandboxed'"],
        ["write", "nowhere", "preset 'sandboxed'"],
        ["commands", "none", "preset 'sandboxed'"],
        ["turns", "9", "budget"],
    ]);
    assert_eq!(limits_set_by(&permissions, "limits", "middle"), middle);
    let tools = format!("all but {}", NOT_FOR_LEAF.join(", "));
    let leaf = owned(&[
        ["tools", &tools, "preset 'sandboxed'"],
        ["read", &folder.path_of("src/deep"), "cwd of preset 'sandboxed'"],
        ["create", "none", "preset 'sandboxed'"],
        ["targets", "parent agent", "preset 'sandboxed'"],
        ["turns", "4", "budget"],
        ["tokens", "500", "budget"],
    ]);
    assert_eq!(limits_set_by(&permissions, "limits", "leaf"), leaf);
    let all = permissions["limits"].as_array().unwrap().len();
    assert_eq!(all, lead.len() + middle.len() + leaf.len(), "only these agents set limits: {permissions}");
}

#[test]
fn effective_permissions_are_listed_with_their_limits() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    create_three_levels(&fixture, &folder);
    let permissions = fixture.permissions("leaf");
    let home = fixture.daemon.home().canonicalize().unwrap();
    let may = json!({
        "tools": { "all_but": NOT_FOR_LEAF },
        "read": [folder.path_of("src/deep")],
        "write": [],
        "blocked": [home],
        "commands": { "only": [] },
        "unsandboxed": false,
        "hosts": { "only": [] },
        "create": { "only": [] },
        "targets": "parent agent",
    });
    assert_eq!(permissions["may"], may);
    assert_eq!(permissions["may_grant"], may, "may_grant defaults to may");
    assert_eq!(permissions["grant_limits"], permissions["limits"]);
    assert_eq!((&permissions["agent_id"], &permissions["preset"]), (&json!("leaf"), &json!("sandboxed")));
    assert_eq!(
        (&permissions["permission_level"], &permissions["ancestors"]),
        (&json!("SANDBOXED"), &json!(["middle", "lead"]))
    );
    assert_eq!(fixture.resource_usage("leaf", "turns"), [json!(4), json!(0), json!(0), json!(4)]);
    assert_eq!(
        fixture.resource_usage("middle", "turns"),
        [json!(9), json!(0), json!(4), json!(5)],
        "reserved for the leaf"
    );
    assert_eq!(fixture.resource_usage("leaf", "tool_calls"), [json!(null), json!(0), json!(0), json!(null)]);
    assert_eq!(fixture.resource_usage("lead", "children"), [json!(null), json!(2), json!(0), json!(null)]);
}

#[test]
fn get_agent_lists_lineage_tools_and_queue() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    create_three_levels(&fixture, &folder);
    let leaf = fixture.agent("leaf");
    assert_eq!(
        (&leaf["depth"], &leaf["ancestors"], &leaf["children"]),
        (&json!(2), &json!(["middle", "lead"]), &json!([]))
    );
    let tools: Vec<_> = offered_tools_except(&[&NOT_FOR_LEAF[..], &HOST_TOOLS].concat())
        .iter()
        .map(|spec| spec.name.to_string())
        .collect();
    assert_eq!(leaf["tools"], json!(tools));
    assert_eq!(
        (&leaf["working"], &leaf["queued"], &leaf["halted"]),
        (&json!(false), &json!(0), &json!(null))
    );
    assert_eq!(leaf["agent"]["cwd"], *folder.path_of("src/deep"));
    let middle = fixture.agent("middle");
    assert_eq!((&middle["depth"], &middle["children"]), (&json!(1), &json!(["leaf"])));
    let children = fixture.daemon.call_result("/agent/lead", "list_children", json!({}));
    assert_eq!(children["agent_id"], "lead");
    let names: Vec<_> =
        children["children"].as_array().unwrap().iter().map(|child| &child["agent_id"]).collect();
    assert_eq!(names, ["middle"], "only children, no grandchildren");
    let pending = fixture.start_send("leaf", "!hold gate", "r");
    fixture.model.wait_stalled(1);
    let queued = fixture.enqueue_send("leaf", "later", "later");
    let leaf = fixture.agent("leaf");
    assert_eq!((&leaf["working"], &leaf["queued"]), (&json!(true), &json!(1)));
    fixture.model.release("gate");
    assert_eq!(pending.next_result()["content"], " released gate");
    assert_eq!(queued.next_result()["content"], "echo: later");
}

#[test]
fn may_grant_can_be_narrower_than_may() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    folder.create_directory("shared");
    fixture.create_with(json!({
        "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(),
        "may_grant": { "disable_tools": ["echo"], "allowed_write_paths": ["shared"] },
    }));
    let params = json!({ "agent_id": "child", "parent_agent_id": "lead", "allowed_write_paths": ["shared"] });
    fixture.create_with(params);
    assert_eq!(fixture.send_text("lead", r#"!tool echo {"text":"hi"}"#), "tool said: hi");
    let content = fixture.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: Tool 'echo' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
    );
    assert_eq!(fixture.permissions("lead")["may"]["write"], json!([folder.path_str()]));
    assert_eq!(fixture.permissions("lead")["may_grant"]["write"], json!([folder.path_of("shared")]));
    assert_eq!(fixture.permissions("child")["may"]["write"], json!([folder.path_of("shared")]));
    let limits = fixture.permissions("child");
    let lead = limits_set_by(&limits, "limits", "lead");
    assert!(
        lead.iter()
            .any(|limit| limit[0] == "tools" && limit[1] == "all but approvals_answer, approvals_list, echo"),
        "{limits}"
    );
}

#[test]
fn commands_of_each_preset_are_explained_and_survive_a_restart() {
    let fixture = Fixture::with_config(
        "[presets.builder]\nextends = \"sandboxed\"\nallowed_commands = [\"cargo\", \"git\"]\n",
    );
    let error = |params: Value| {
        let response = fixture.daemon.call("/", "create_agent", params);
        (
            response["error"]["code"].clone(),
            response["error"]["message"].clone(),
            response["error"]["data"].clone(),
        )
    };
    let invalid = |text: &str| (json!(-32602), json!(text), Value::Null);
    let denied = |text: &str| (json!(-32602), json!(text), json!({ "kind": "permission_denied" }));
    fixture.create_with(json!({ "agent_id": "box" }));
    fixture.create_with(json!({ "agent_id": "runner", "allowed_commands": ["cargo", "/bin/ls"] }));
    fixture.create_with(json!({ "agent_id": "worker", "preset": "worker", "allowed_commands": [] }));
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "narrow", "preset": "trusted", "allowed_commands": ["git"] }));
    let child = json!({ "agent_id": "child", "parent_agent_id": "narrow", "allowed_commands": ["git"] });
    fixture.create_with(child);
    fixture.create_with(json!({ "agent_id": "builder", "preset": "builder", "tools": ["read_file"] }));
    assert_eq!(
        error(json!({ "preset": "worker", "allowed_commands": ["cargo"] })),
        invalid("preset 'worker' runs no commands: leave allowed_commands out, or choose another preset")
    );
    assert_eq!(
        error(json!({ "parent_agent_id": "narrow", "allowed_commands": ["cargo"] })),
        denied("allowed_command 'cargo' is not among the commands the parent may grant")
    );
    assert_eq!(
        error(json!({ "preset": "builder", "allowed_commands": ["rm"] })),
        invalid(
            "allowed_command 'rm' is not among the commands of preset 'builder'; choose from: only cargo, git"
        )
    );
    let commands_of = |fixture: &Fixture| {
        ["box", "runner", "worker", "lead", "narrow", "child", "builder"].map(|agent| {
            let permissions = fixture.permissions(agent);
            let limits = permissions["limits"].as_array().unwrap();
            let last = limits.iter().rfind(|limit| limit["limit"] == "commands");
            let reason = last.map_or(Value::Null, |limit| limit["reason"].clone());
            (agent, permissions["may"]["commands"].clone(), reason)
        })
    };
    let expected = [
        ("box", json!({ "only": [] }), json!("preset 'sandboxed'")),
        ("runner", json!({ "only": ["/bin/ls", "cargo"] }), json!("allowed_commands")),
        ("worker", json!({ "only": [] }), json!("allowed_commands")),
        ("lead", json!({ "all_but": [] }), json!("preset 'trusted'")),
        ("narrow", json!({ "only": ["git"] }), json!("allowed_commands")),
        ("child", json!({ "only": ["git"] }), json!("allowed_commands")),
        ("builder", json!({ "only": ["cargo", "git"] }), json!("preset 'builder'")),
    ];
    assert_eq!(commands_of(&fixture), expected);
    let Fixture { daemon, model } = fixture;
    let fixture = Fixture { daemon: daemon.stop().start(), model };
    assert_eq!(commands_of(&fixture), expected, "after a restart");
    assert_eq!(fixture.agent("builder")["tools"], json!(["fs.read_file"]), "after a restart");
}
