//! Ceilings: no parameter of `create_agent` or `set_permissions` exceeds what the ancestors may grant, and a rejected
//! `create_agent` leaves nothing behind.

use serde_json::{Value, json};
use testkit::TestDaemon;

use super::create_lead_and_child;
use crate::support::callers::{call_as, permission_denied};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{ExpectError as _, Fixture, agent_ids, agent_path};

/// Creates `extra` with these parameters below `parent` and returns the error. Panics if the call succeeds.
fn create_error(fixture: &Fixture, parent: &str, mut params: Value) -> Value {
    params["agent_id"] = json!("extra");
    params["parent_agent_id"] = json!(parent);
    // The model would get this message if the agent were created before the check.
    params["initial_message"] = json!("hello");
    fixture.daemon.error("/", "create_agent", params)
}

fn assert_nothing_created(fixture: &Fixture, agents: &[&str]) {
    assert_eq!(agent_ids(&fixture.daemon), agents);
    assert!(!fixture.daemon.home().join("logs/extra").exists(), "a rejected agent has no log");
    assert_eq!(fixture.model.requests().len(), 0, "a rejected agent calls no model");
}

#[test]
fn no_parameter_exceeds_what_a_trusted_parent_may_grant() {
    let fixture = Fixture::start();
    let (folder, outside) = (TestDirectory::new(), TestDirectory::new());
    let budget = json!({ "turns": 5, "tool_calls": 5, "tokens": 5, "wall_ms": 5 });
    let params =
        json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str(), "budget": budget });
    fixture.create_with(params);
    let out = outside.path_str();
    let beyond_write = format!("allowed_write_path '{out}' is outside parent's allowed paths");
    let cases = [
        (json!({ "preset": "trusted" }), "Requested preset 'trusted' exceeds parent ceiling".to_owned()),
        (json!({ "preset": "yolo" }), "Requested preset 'yolo' exceeds parent ceiling".to_owned()),
        (json!({ "allowed_write_paths": [out], "cwd": out }), beyond_write.clone()),
        (json!({ "may_create": ["trusted"] }), "may_create 'trusted' exceeds parent ceiling".to_owned()),
        (
            json!({ "may_grant": { "preset": "trusted" } }),
            "Requested preset 'trusted' exceeds parent ceiling".to_owned(),
        ),
        (json!({ "may_grant": { "allowed_write_paths": [out] } }), beyond_write),
        (
            json!({ "may_grant": { "may_create": ["trusted"] } }),
            "may_grant.may_create 'trusted' exceeds parent ceiling".to_owned(),
        ),
        (
            json!({ "budget": { "turns": 6 } }),
            "budget of turns exceeds what the parent has left: 5".to_owned(),
        ),
        (
            json!({ "budget": { "tool_calls": 6 } }),
            "budget of tool_calls exceeds what the parent has left: 5".to_owned(),
        ),
        (
            json!({ "budget": { "tokens": 6 } }),
            "budget of tokens exceeds what the parent has left: 5".to_owned(),
        ),
        (
            json!({ "budget": { "turns": 5, "wall_ms": 6 } }),
            "budget of wall_ms exceeds what the parent has left: 5".to_owned(),
        ),
    ];
    for (params, message) in cases {
        assert_eq!(create_error(&fixture, "lead", params.clone()), permission_denied(&message), "{params}");
        assert_nothing_created(&fixture, &["lead"]);
    }
    for resource in ["turns", "tool_calls", "tokens", "wall_ms"] {
        assert_eq!(
            fixture.resource_usage("lead", resource)[2],
            0,
            "nothing should stay reserved: {resource}"
        );
    }
}

#[test]
fn a_cwd_outside_the_parents_is_rejected_also_by_symlink() {
    let fixture = Fixture::start();
    let (folder, outside) = (TestDirectory::new(), TestDirectory::new());
    folder.create_directory("in");
    folder.link("way-out", outside.path_str());
    fixture.create_with(json!({ "agent_id": "lead", "cwd": folder.path_str(), "may_create": ["sandboxed"] }));
    let beyond = format!("cwd '{}' is outside parent's allowed paths", outside.path_str());
    for cwd in [outside.path_str().to_owned(), "way-out".to_owned(), folder.path_of("in/../way-out/.")] {
        assert_eq!(
            create_error(&fixture, "lead", json!({ "cwd": cwd })),
            permission_denied(&beyond),
            "{cwd}"
        );
    }
    let above = folder.path().parent().unwrap().to_str().unwrap().to_owned();
    let beyond = format!("cwd '{above}' is outside parent's allowed paths");
    assert_eq!(create_error(&fixture, "lead", json!({ "cwd": ".." })), permission_denied(&beyond));
    folder.write("file", "");
    for (cwd, message) in
        [("nowhere", "cwd does not exist: nowhere"), ("file", "cwd is not a directory: file")]
    {
        let error = create_error(&fixture, "lead", json!({ "cwd": cwd }));
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    assert_nothing_created(&fixture, &["lead"]);
}

#[test]
fn an_empty_write_path_is_rejected() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    for params in [
        json!({ "agent_id": "extra", "cwd": folder.path_str(), "allowed_write_paths": [""] }),
        json!({ "agent_id": "extra", "cwd": folder.path_str(), "may_grant": { "allowed_write_paths": ["a", ""] } }),
    ] {
        // An unset variable in a script must not open the whole working directory.
        let error = fixture.daemon.error("/", "create_agent", params);
        assert!(error["message"].as_str().unwrap().contains("the path is empty"), "{error}");
    }
    assert_nothing_created(&fixture, &[]);
}

#[test]
fn write_paths_outside_the_sandbox_are_rejected() {
    let fixture = Fixture::start();
    let (folder, outside) = (TestDirectory::new(), TestDirectory::new());
    let error = |params: Value| fixture.daemon.error("/", "create_agent", params);
    let (cwd, out) = (folder.path_str(), outside.path_str());
    let found = error(json!({ "agent_id": "extra", "cwd": cwd, "allowed_write_paths": ["ok", out] }));
    let text = format!("allowed_write_path '{out}' is outside sandbox root '{cwd}'");
    assert_eq!(found, json!({ "code": -32602, "message": text }));
    let found =
        error(json!({ "agent_id": "extra", "preset": "worker", "cwd": cwd, "allowed_write_paths": ["a"] }));
    let text = "preset 'worker' cannot write: leave allowed_write_paths out, or choose another preset";
    assert_eq!(found, json!({ "code": -32602, "message": text }));
    assert_nothing_created(&fixture, &[]);
}

#[test]
fn a_sandboxed_or_unknown_parent_is_rejected() {
    let fixture = Fixture::start();
    fixture.create("lead");
    for preset in ["sandboxed", "worker", "trusted"] {
        let text = format!("Requested preset '{preset}' exceeds parent ceiling");
        assert_eq!(create_error(&fixture, "lead", json!({ "preset": preset })), permission_denied(&text));
    }
    let text = "Parent agent not found: missing";
    assert_eq!(create_error(&fixture, "missing", json!({})), json!({ "code": -32602, "message": text }));
    let unknown = "preset must be one of sandboxed, trusted, worker, got: 'admin'";
    assert_eq!(
        create_error(&fixture, "lead", json!({ "preset": "admin" })),
        json!({ "code": -32602, "message": unknown })
    );
    assert_nothing_created(&fixture, &["lead"]);
}

#[test]
fn limits_of_the_parent_apply_to_the_child_by_default() {
    let fixture = Fixture::start();
    let (folder, outside) =
        (TestDirectory::with_files(&[("in.txt", "in")]), TestDirectory::with_files(&[("out.txt", "out")]));
    let params = json!({ "agent_id": "lead", "cwd": folder.path_str(), "may_create": ["sandboxed"], "disable_tools": ["echo"] });
    fixture.create_with(params);
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let content = fixture.send_text("child", r#"!tool echo {"text":"hi"}"#);
    assert_eq!(
        content,
        "tool said: Permission denied: Tool 'echo' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
    );
    assert_eq!(fixture.send_text("child", &read_file_script("in.txt")), "tool said: in");
    let content = fixture.send_text("child", &read_file_script(&outside.path_of("out.txt")));
    assert!(content.starts_with("tool said: Permission denied: cannot read '"), "{content}");
    let content = fixture.send_text("child", &write_file_script("in.txt", "changed"));
    assert_eq!(
        content,
        "tool said: Permission denied: Tool 'fs.write_file' is disabled by permission policy; it needs allowed_write_paths"
    );
    assert_eq!(folder.read("in.txt").as_deref(), Some("in"));
}

#[test]
fn an_agent_cannot_widen_a_grant_over_http() {
    let fixture = Fixture::start();
    let folder = TestDirectory::new();
    let token =
        fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": folder.path_str() }));
    fixture.create("stranger");
    let widen = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    for (params, message) in [
        (json!({ "preset": "trusted" }), "Requested preset 'trusted' exceeds parent ceiling"),
        (json!({ "preset": "yolo" }), "Requested preset 'yolo' exceeds parent ceiling"),
        (json!({ "may_create": ["sandboxed"] }), widen),
        (json!({ "may_create": [] }), widen),
        (json!({ "may_grant": {} }), widen),
        (
            json!({ "parent_agent_id": "stranger" }),
            "Cannot create agent: requester does not match the parent agent",
        ),
        (
            json!({ "parent_agent_id": "missing" }),
            "Cannot create agent: requester does not match the parent agent",
        ),
    ] {
        let response = call_as(&fixture.daemon, &token, "/", "create_agent", params.clone());
        assert_eq!(response["error"], permission_denied(message), "{params}");
    }
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "stranger"]);
    let params = json!({ "agent_id": "own", "parent_agent_id": "lead" });
    let response = call_as(&fixture.daemon, &token, "/", "create_agent", params);
    assert_eq!(response["result"]["agent_id"], "own", "{response}");
    assert_eq!(fixture.agent("own")["ancestors"], json!(["lead"]), "the creator becomes the parent");
}

#[test]
fn set_permissions_beyond_the_ceiling_changes_nothing() {
    let fixture = Fixture::start();
    let (folder, outside) = (TestDirectory::new(), TestDirectory::new());
    create_lead_and_child(&fixture, &folder);
    fixture.set_permissions("lead", json!({ "budget": { "turns": 5 } }));
    let before = fixture.permissions("child");
    let out = outside.path_str();
    for (params, message) in [
        (json!({ "preset": "trusted" }), "Requested preset 'trusted' exceeds parent ceiling".to_owned()),
        (
            json!({ "allowed_write_paths": [out] }),
            format!("allowed_write_path '{out}' is outside parent's allowed paths"),
        ),
        (
            json!({ "disable_tools": ["echo"], "budget": { "turns": 6 } }),
            "budget of turns exceeds what the parent has left: 5".to_owned(),
        ),
    ] {
        let error = fixture.daemon.error(&agent_path("child"), "set_permissions", params.clone());
        assert_eq!(error, permission_denied(&message), "{params}");
        assert_eq!(fixture.permissions("child"), before, "{params}");
    }
    for (params, message) in [
        (json!({ "preset": "yolo" }), "preset must be one of sandboxed, trusted, worker, got: 'yolo'"),
        (
            json!({ "unlimited": ["lives"] }),
            "unlimited must hold names of turns, tool_calls, tokens, wall_ms, children, got: 'lives'",
        ),
        (json!({ "unlimited": ["turns"], "budget": { "turns": 1 } }), "unlimited and budget both name turns"),
        (
            json!({ "may_create": ["root"] }),
            "may_create must be one of sandboxed, trusted, worker, got: 'root'",
        ),
    ] {
        for agent in ["lead", "child"] {
            let error = fixture.daemon.error(&agent_path(agent), "set_permissions", params.clone());
            let is_ceiling = error == permission_denied("Requested preset 'yolo' exceeds parent ceiling");
            assert!(is_ceiling || error == json!({ "code": -32602, "message": message }), "{agent}: {error}");
        }
    }
    assert_eq!(fixture.permissions("child"), before);
}

#[test]
fn depth_five_is_allowed_and_six_is_rejected() {
    let fixture = Fixture::start();
    let chain = ["d0", "d1", "d2", "d3", "d4", "d5"];
    for (depth, name) in chain.iter().enumerate() {
        let mut params =
            json!({ "agent_id": name, "preset": "trusted", "may_create": ["trusted", "sandboxed"] });
        if depth > 0 {
            params["parent_agent_id"] = json!(chain[depth - 1]);
        }
        fixture.create_with(params);
        assert_eq!(fixture.agent(name)["depth"], depth);
    }
    assert_eq!(fixture.agent("d5")["ancestors"], json!(["d4", "d3", "d2", "d1", "d0"]));
    let text = "Cannot create agent: max nesting depth (5) exceeded";
    for preset in ["sandboxed", "trusted"] {
        assert_eq!(create_error(&fixture, "d5", json!({ "preset": preset })), permission_denied(text));
    }
    assert_nothing_created(&fixture, &chain);
    let content = fixture.send_text("d5", r#"!tool agent_create {"agent_id":"extra","preset":"sandboxed"}"#);
    assert_eq!(content, format!("tool said: Permission denied: {text}"));
    let content = fixture.send_text("d4", r#"!tool agent_create {"agent_id":"last","preset":"trusted"}"#);
    assert_eq!(content, r#"tool said: {"agent_id":"last","url":"/agent/last"}"#);
    assert_eq!(fixture.agent("last")["depth"], 5);
}

#[test]
fn a_create_rejected_by_a_full_pool_runs_no_message() {
    let model = testkit::ScriptedModel::start();
    let daemon: TestDaemon = crate::support::daemon_builder(&model).config("limits.agents_max = 1").start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "one" }));
    let error = daemon.error("/", "create_agent", json!({ "agent_id": "extra", "initial_message": "hello" }));
    assert_eq!(error["code"], -32001, "{error}");
    assert_eq!(daemon.call_result("/agent/one", "send", json!({ "content": "hi" }))["content"], "echo: hi");
    assert_eq!(model.requests().len(), 1);
    assert!(!daemon.home().join("logs/extra").exists());
}
