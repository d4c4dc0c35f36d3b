//! The commands that create, steer, show and destroy agents.

use super::*;

fn created_reply() -> Reply {
    Reply::Result(json!({ "agent_id": "a", "url": "/agent/a", "token": "nxc_a" }))
}

fn summary(name: &str) -> Value {
    json!({
        "agent_id": name, "is_temp": false, "created_at": "2024-01-15T10:30:00.000000", "message_count": 0,
        "should_shutdown": false, "parent_agent_id": null, "child_count": 0,
        "halted_at_iteration_limit": false, "model": null, "last_action_at": null,
        "permission_level": "TRUSTED", "cwd": "/srv", "write_paths": null, "preset": "trusted",
        "state": "live",
    })
}

fn resource_usage() -> Value {
    json!({ "resource": "turns", "limit": 3, "used": 1, "reserved": 0, "left": 2 })
}

/// Checks that the command calls `method` at the agent and prints its result.
async fn assert_prints(line: &[&str], method: &'static str, result: Value) {
    let daemon = ScriptedDaemon::start(&[(method, Reply::Result(result.clone()))]);
    let outcome = rpc(&daemon, line).await;
    assert_eq!((outcome.code, outcome.json(), outcome.errors.as_str()), (0, result, ""));
    let request = &daemon.received()[0];
    assert_eq!(
        (request.path.as_str(), request.method.as_str(), &request.params),
        ("/agent/a", method, &Value::Null)
    );
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn create_sends_every_option() {
    let daemon = ScriptedDaemon::start(&[("create_agent", created_reply())]);
    let line = [
        "create",
        "a",
        "--system-prompt",
        "be brief",
        "--preset",
        "trusted",
        "--parent",
        "lead",
        "--cwd",
        "/srv/project",
        "--write-path",
        "/srv/project/out",
        "--write-path",
        "docs",
        "--allow-command",
        "cargo",
        "--allow-command",
        "/usr/bin/git",
        "--allow-host",
        "*.docs.rs",
        "--allow-host",
        "localhost:3000",
        "--deny-host",
        "x.docs.rs",
        "--tool",
        "echo",
        "--tool",
        "get_time",
        "--disable-tool",
        "fs.read_file",
        "--disable-tool",
        "agent_send",
        "-m",
        "openai/gpt-4o-mini",
    ];
    let outcome = rpc(&daemon, &line).await;
    assert_eq!((outcome.code, &outcome.json()["token"]), (0, &json!("nxc_a")), "{}", outcome.errors);
    let expected = json!({
        "agent_id": "a", "system_prompt": "be brief", "preset": "trusted",
        "tools": ["echo", "get_time"], "allowed_commands": ["cargo", "/usr/bin/git"],
        "allowed_hosts": ["*.docs.rs", "localhost:3000"], "denied_hosts": ["x.docs.rs"],
        "disable_tools": ["fs.read_file", "agent_send"], "parent_agent_id": "lead", "cwd": "/srv/project",
        "allowed_write_paths": ["/srv/project/out", "docs"], "model": "openai/gpt-4o-mini",
    });
    assert_eq!(daemon.received()[0].params, expected);

    rpc(&daemon, &["create", "--temporary", "--model", "m"]).await;
    assert_eq!(daemon.received()[1].params, json!({ "temporary": true, "model": "m" }));
}

#[tokio::test]
async fn relative_cwd_is_resolved_by_the_client() {
    let daemon = ScriptedDaemon::start(&[("create_agent", created_reply())]);
    let current_dir = std::env::current_dir().unwrap();
    let cases = [("project", current_dir.join("project")), ("./project", current_dir.join("project"))];
    for (cwd, expected) in cases {
        rpc(&daemon, &["create", "--cwd", cwd]).await;
        let params = daemon.received().pop().unwrap().params;
        assert_eq!(params, json!({ "cwd": expected.to_str().unwrap() }), "{cwd}");
    }
    for cwd in ["~/project", "/srv"] {
        rpc(&daemon, &["create", "--cwd", cwd]).await;
        assert_eq!(daemon.received().pop().unwrap().params, json!({ "cwd": cwd }), "sent unchanged");
    }
    let request = daemon.received().len();
    let outcome = rpc(&daemon, &["create", "--cwd", ""]).await;
    assert_eq!((outcome.code, daemon.received().len()), (1, request), "no request was sent");
    assert_eq!(outcome.errors, "--cwd needs a directory\n");
}

#[tokio::test]
async fn permission_error_is_printed_unchanged() {
    let rejection = Reply::HttpRefusal(200, "Requested preset 'trusted' exceeds parent ceiling");
    let daemon = ScriptedDaemon::start(&[("create_agent", rejection)]);
    let outcome = rpc(&daemon, &["create", "--preset", "trusted", "--parent", "lead", "-M", "hi"]).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert_eq!(outcome.errors, "Requested preset 'trusted' exceeds parent ceiling (-32600)\n");
    assert_eq!(daemon.methods(), ["create_agent"], "no send without an agent");
}

#[tokio::test]
async fn first_message_is_read_from_standard_input() {
    let daemon = ScriptedDaemon::start(&[
        ("create_agent", created_reply()),
        ("send", Reply::Result(send_output("hi"))),
    ]);
    let line = ["create", "a", "--preset", "worker", "-M", "-"];
    let outcome = CommandRun { input: "two\nlines\n", ..CommandRun::new(&daemon, &line) }.finish().await;
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "preset": "worker" }));
    assert_eq!(daemon.received()[1].params["content"], "two\nlines\n");
}

#[tokio::test]
async fn exhausted_budget_is_a_successful_response() {
    let mut halted = send_output("[Stopping: the budget of turns is used up]");
    halted["halted"] = json!("budget");
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(halted.clone()))]);
    let outcome = rpc(&daemon, &["send", "a", "hello"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, halted));
}

#[tokio::test]
async fn steer_exits_1_when_no_turn_accepts_it() {
    let accepted = json!({ "steered": true, "request_id": "r" });
    let idle = json!({ "steered": false, "reason": "no_running_turn_or_full" });
    for (result, code, errors) in [
        (accepted, 0, ""),
        (idle, 1, "agent a did not accept the instructions: no running turn, or too many are pending\n"),
    ] {
        let daemon = ScriptedDaemon::start(&[("steer", Reply::Result(result.clone()))]);
        let outcome = rpc(&daemon, &["steer", "a", "only rivers"]).await;
        assert_eq!((outcome.code, outcome.json(), outcome.errors.as_str()), (code, result, errors));
        let request = &daemon.received()[0];
        assert_eq!(
            (request.path.as_str(), &request.params),
            ("/agent/a", &json!({ "content": "only rivers" }))
        );
    }
    let daemon = ScriptedDaemon::start(&[("steer", Reply::Result(json!({ "steered": true })))]);
    CommandRun { input: "from a file", ..CommandRun::new(&daemon, &["steer", "a", "-"]) }.finish().await;
    assert_eq!(daemon.received()[0].params, json!({ "content": "from a file" }));
}

#[tokio::test]
async fn show_prints_one_agent_in_full() {
    let result = json!({
        "agent": summary("a"), "depth": 1, "ancestors": ["lead"], "children": ["b"],
        "tools": ["fs.read_file"], "working": false, "queued": 0, "halted": null, "budget": [resource_usage()],
    });
    assert_prints(&["show", "a"], "get_agent", result).await;
}

#[tokio::test]
async fn children_prints_the_direct_children() {
    let result = json!({ "agent_id": "a", "children": [summary("b"), summary("c")] });
    assert_prints(&["children", "a"], "list_children", result).await;
}

#[tokio::test]
async fn permissions_prints_every_limit_with_its_reason() {
    let grant = json!({
        "tools": { "all_but": ["agent_send"] }, "read": ["/"], "write": [], "blocked": [],
        "commands": { "only": [] }, "unsandboxed": false, "hosts": { "only": [] }, "create": { "only": ["worker"] },
        "targets": "parent agent",
    });
    let limit =
        json!({ "limit": "write", "allows": "nowhere", "set_by": "lead", "reason": "preset 'worker'" });
    let result = json!({
        "agent_id": "a", "preset": "worker", "permission_level": "SANDBOXED", "ancestors": ["lead"],
        "rules": [], "may": grant, "may_grant": grant, "limits": [limit], "grant_limits": [], "budget": [resource_usage()],
    });
    assert_prints(&["permissions", "a"], "get_permissions", result).await;
}

#[tokio::test]
async fn missing_agent_exits_1_for_every_command() {
    let destroyed = || Reply::HttpRefusal(404, "Agent not found: a");
    let lines: [(&[&str], &'static str); 4] = [
        (&["show", "a"], "get_agent"),
        (&["children", "a"], "list_children"),
        (&["permissions", "a"], "get_permissions"),
        (&["steer", "a", "word"], "steer"),
    ];
    for (line, method) in lines {
        let daemon = ScriptedDaemon::start(&[(method, destroyed())]);
        let outcome = rpc(&daemon, line).await;
        assert_eq!((outcome.code, outcome.output.as_str()), (1, ""), "{method}");
        assert_eq!(outcome.errors, "Agent not found: a (-32600)\n");
    }
}

#[tokio::test]
async fn destroy_keeps_the_children_only_with_orphan() {
    let result = json!({ "success": true, "agent_id": "a" });
    let daemon = ScriptedDaemon::start(&[("destroy_agent", Reply::Result(result.clone()))]);
    let outcome = rpc(&daemon, &["destroy", "a", "--orphan"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, result));
    rpc(&daemon, &["destroy", "a"]).await;
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "orphan": true }));
    assert_eq!(daemon.received()[1].params, json!({ "agent_id": "a" }));
}
