//! The commands about agents and their trees: creating with all there is to say, steering, showing, destroying.

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

/// Prints exactly what the daemon answered, in the order of the method list's documents.
async fn assert_prints(line: &[&str], method: &'static str, answer: Value) {
    let daemon = ScriptedDaemon::start(&[(method, Reply::Result(answer.clone()))]).await;
    let finished = rpc(&daemon, line).await;
    assert_eq!((finished.code, finished.json(), finished.errors.as_str()), (0, answer, ""));
    let asked = &daemon.received()[0];
    assert_eq!(
        (asked.path.as_str(), asked.method.as_str(), &asked.params),
        ("/agent/a", method, &Value::Null)
    );
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn create_says_everything_it_was_told() {
    let daemon = ScriptedDaemon::start(&[("create_agent", created_reply())]).await;
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
        "--disable-tool",
        "fs.read_file",
        "--disable-tool",
        "agent_send",
        "-m",
        "openai/gpt-4o-mini",
    ];
    let finished = rpc(&daemon, &line).await;
    assert_eq!((finished.code, &finished.json()["token"]), (0, &json!("nxc_a")), "{}", finished.errors);
    let expected = json!({
        "agent_id": "a", "system_prompt": "be brief", "preset": "trusted",
        "disable_tools": ["fs.read_file", "agent_send"], "parent_agent_id": "lead", "cwd": "/srv/project",
        "allowed_write_paths": ["/srv/project/out", "docs"], "model": "openai/gpt-4o-mini",
    });
    assert_eq!(daemon.received()[0].params, expected);

    rpc(&daemon, &["create", "--temporary", "--model", "m"]).await;
    assert_eq!(daemon.received()[1].params, json!({ "temporary": true, "model": "m" }));
}

#[tokio::test]
async fn a_relative_cwd_is_meant_from_where_the_user_stands() {
    let daemon = ScriptedDaemon::start(&[("create_agent", created_reply())]).await;
    let here = std::env::current_dir().unwrap();
    let given = [("project", here.join("project")), ("./project", here.join("project"))];
    for (cwd, expected) in given {
        rpc(&daemon, &["create", "--cwd", cwd]).await;
        let params = daemon.received().pop().unwrap().params;
        assert_eq!(params, json!({ "cwd": expected.to_str().unwrap() }), "{cwd}");
    }
    for cwd in ["~/project", "/srv"] {
        rpc(&daemon, &["create", "--cwd", cwd]).await;
        assert_eq!(daemon.received().pop().unwrap().params, json!({ "cwd": cwd }), "it is whole as it is");
    }
    let asked = daemon.received().len();
    let finished = rpc(&daemon, &["create", "--cwd", ""]).await;
    assert_eq!((finished.code, daemon.received().len()), (1, asked), "nothing was asked");
    assert_eq!(finished.errors, "--cwd needs a folder\n");
}

#[tokio::test]
async fn what_the_daemon_does_not_allow_is_said_in_its_words() {
    let refused = Reply::HttpRefusal(200, "Requested preset 'trusted' exceeds parent ceiling");
    let daemon = ScriptedDaemon::start(&[("create_agent", refused)]).await;
    let finished = rpc(&daemon, &["create", "--preset", "trusted", "--parent", "lead", "-M", "hi"]).await;
    assert_eq!((finished.code, finished.output.as_str()), (1, ""));
    assert_eq!(finished.errors, "Requested preset 'trusted' exceeds parent ceiling (-32600)\n");
    assert_eq!(daemon.methods(), ["create_agent"], "nobody is there to send to");
}

#[tokio::test]
async fn a_first_message_can_come_from_standard_input() {
    let daemon = ScriptedDaemon::start(&[
        ("create_agent", created_reply()),
        ("send", Reply::Result(send_output("hi"))),
    ])
    .await;
    let line = ["create", "a", "--preset", "worker", "-M", "-"];
    let finished = CommandRun { input: "two\nlines\n", ..CommandRun::new(&daemon, &line) }.finish().await;
    assert_eq!(finished.code, 0, "{}", finished.errors);
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "preset": "worker" }));
    assert_eq!(daemon.received()[1].params["content"], "two\nlines\n");
}

#[tokio::test]
async fn a_send_that_ran_out_of_budget_is_an_answer_that_says_so() {
    let mut halted = send_output("[Stopping: the budget of turns is used up]");
    halted["halted"] = json!("budget");
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(halted.clone()))]).await;
    let finished = rpc(&daemon, &["send", "a", "hello"]).await;
    assert_eq!((finished.code, finished.json()), (0, halted));
}

#[tokio::test]
async fn steer_adds_a_word_and_exits_with_1_when_no_turn_took_it() {
    let taken = json!({ "steered": true, "request_id": "r" });
    let idle = json!({ "steered": false, "reason": "no_running_turn_or_full" });
    for (answer, code, errors) in
        [(taken, 0, ""), (idle, 1, "a has no running turn that takes another word\n")]
    {
        let daemon = ScriptedDaemon::start(&[("steer", Reply::Result(answer.clone()))]).await;
        let finished = rpc(&daemon, &["steer", "a", "only rivers"]).await;
        assert_eq!((finished.code, finished.json(), finished.errors.as_str()), (code, answer, errors));
        let asked = &daemon.received()[0];
        assert_eq!((asked.path.as_str(), &asked.params), ("/agent/a", &json!({ "content": "only rivers" })));
    }
    let daemon = ScriptedDaemon::start(&[("steer", Reply::Result(json!({ "steered": true })))]).await;
    CommandRun { input: "from a file", ..CommandRun::new(&daemon, &["steer", "a", "-"]) }.finish().await;
    assert_eq!(daemon.received()[0].params, json!({ "content": "from a file" }));
}

#[tokio::test]
async fn show_prints_one_agent_in_full() {
    let answer = json!({
        "agent": summary("a"), "depth": 1, "ancestors": ["lead"], "children": ["b"],
        "tools": ["fs.read_file"], "working": false, "queued": 0, "halted": null, "budget": [resource_usage()],
    });
    assert_prints(&["show", "a"], "get_agent", answer).await;
}

#[tokio::test]
async fn children_prints_those_right_below() {
    let answer = json!({ "agent_id": "a", "children": [summary("b"), summary("c")] });
    assert_prints(&["children", "a"], "list_children", answer).await;
}

#[tokio::test]
async fn permissions_prints_every_limit_with_its_reason() {
    let grant = json!({
        "tools": { "all_but": ["agent_send"] }, "read": ["/"], "write": [], "blocked": [],
        "commands": { "only": [] }, "hosts": { "only": [] }, "create": { "only": ["worker"] },
        "targets": "parent agent",
    });
    let limit =
        json!({ "limit": "write", "allows": "nowhere", "set_by": "lead", "reason": "preset 'worker'" });
    let answer = json!({
        "agent_id": "a", "preset": "worker", "permission_level": "SANDBOXED", "ancestors": ["lead"],
        "may": grant, "may_grant": grant, "limits": [limit], "grant_limits": [], "budget": [resource_usage()],
    });
    assert_prints(&["permissions", "a"], "get_permissions", answer).await;
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_exit_1_for_every_command_about_it() {
    let gone = || Reply::HttpRefusal(404, "Agent not found: a");
    let lines: [(&[&str], &'static str); 4] = [
        (&["show", "a"], "get_agent"),
        (&["children", "a"], "list_children"),
        (&["permissions", "a"], "get_permissions"),
        (&["steer", "a", "word"], "steer"),
    ];
    for (line, method) in lines {
        let daemon = ScriptedDaemon::start(&[(method, gone())]).await;
        let finished = rpc(&daemon, line).await;
        assert_eq!((finished.code, finished.output.as_str()), (1, ""), "{method}");
        assert_eq!(finished.errors, "Agent not found: a (-32600)\n");
    }
}

#[tokio::test]
async fn destroy_leaves_the_children_only_when_it_is_told_to() {
    let answer = json!({ "success": true, "agent_id": "a" });
    let daemon = ScriptedDaemon::start(&[("destroy_agent", Reply::Result(answer.clone()))]).await;
    let finished = rpc(&daemon, &["destroy", "a", "--orphan"]).await;
    assert_eq!((finished.code, finished.json()), (0, answer));
    rpc(&daemon, &["destroy", "a"]).await;
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "orphan": true }));
    assert_eq!(daemon.received()[1].params, json!({ "agent_id": "a" }));
}
