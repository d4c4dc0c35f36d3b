//! Each command once, against a daemon with agents.

use std::net::TcpListener;

use serde_json::json;
use testkit::{TestDaemon, run};

use super::{json_of, rpc, rpc_json};
use crate::support::{BIN, Fixture, agent_ids, assert_created, is_hex, member_names};

#[test]
fn detect_reports_whether_a_daemon_runs() {
    let daemon = TestDaemon::builder(BIN).start();
    let port = daemon.port();
    assert_eq!(
        rpc_json(&daemon, &["detect"]),
        json!({ "port": port, "result": "nexus_server", "running": true })
    );
    daemon.signal("SIGTERM");
    daemon.wait_exit();
    let after_exit = rpc(&daemon, &["detect"]);
    assert_eq!((after_exit.code, after_exit.stderr.as_str()), (1, ""));
    assert_eq!(json_of(&after_exit), json!({ "port": port, "result": "no_server", "running": false }));
}

#[test]
fn detect_needs_no_token() {
    let daemon = TestDaemon::builder(BIN).start();
    let elsewhere = tempfile::tempdir().unwrap();
    let port = daemon.port().to_string();
    let found = run(BIN, &["rpc", "detect", "--port", &port], &[], elsewhere.path());
    assert_eq!((found.code, json_of(&found)["running"] == true), (0, true), "{}", found.stderr);
}

#[test]
fn detect_recognizes_another_service() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let home = tempfile::tempdir().unwrap();
    let found = run(BIN, &["rpc", "detect", "-p", &port.to_string()], &[], home.path());
    assert_eq!(found.code, 1);
    assert_eq!(json_of(&found), json!({ "port": port, "result": "other_service", "running": false }));
}

#[test]
fn commands_cover_an_agents_whole_lifecycle() {
    let Fixture { daemon, model: _model } = Fixture::start();
    assert_eq!(rpc_json(&daemon, &["list"]), json!({ "agents": [], "total": 0 }));
    let created = rpc_json(&daemon, &["create", "worker", "--system-prompt", "Be brief."]);
    assert_created(&created, "worker");
    let sent = rpc_json(&daemon, &["send", "worker", "Hello there"]);
    assert_eq!(sent["content"], "echo: Hello there");
    assert!(is_hex(&sent["request_id"], 16), "{sent}");
    let status = rpc_json(&daemon, &["status", "worker"]);
    assert_eq!(member_names(&status), ["context", "tokens"]);
    assert_eq!(status["context"]["message_count"], 2);
    assert!(status["tokens"]["system"].as_u64().is_some_and(|tokens| (1..=2).contains(&tokens)), "{status}");
    let messages = rpc_json(&daemon, &["messages", "worker"]);
    assert_eq!((&messages["total"], &messages["limit"]), (&json!(2), &json!(200)));
    let page = rpc_json(&daemon, &["messages", "worker", "--offset", "1", "--limit", "1"]);
    assert_eq!(page["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(page["messages"][0]["content"], "echo: Hello there");
    assert_eq!(rpc_json(&daemon, &["list"])["agents"][0]["message_count"], 2);
    assert_eq!(rpc_json(&daemon, &["destroy", "worker"]), json!({ "success": true, "agent_id": "worker" }));
    let stopped = rpc_json(&daemon, &["shutdown"]);
    assert_eq!(stopped, json!({ "success": true, "message": "Server shutting down" }));
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn create_generates_an_id_and_takes_an_initial_message() {
    let Fixture { daemon, model: _model } = Fixture::start();
    let created = rpc_json(&daemon, &["create"]);
    assert!(is_hex(&created["agent_id"], 8), "{created}");
    let with_message = rpc_json(&daemon, &["create", "helper", "-M", "first words"]);
    assert_eq!(
        (&with_message["agent_id"], &with_message["url"]),
        (&json!("helper"), &json!("/agent/helper"))
    );
    assert_eq!(with_message["response"]["content"], "echo: first words");
    let failed = rpc(&daemon, &["create", "unlucky", "-M", "!status 500 boom"]);
    assert_eq!(failed.code, 1);
    assert_created(&json_of(&failed), "unlucky");
    assert!(failed.stderr.contains("API request failed (500): boom"), "{}", failed.stderr);
    assert_eq!(agent_ids(&daemon).len(), 3);
}

#[test]
fn cancel_ends_a_send_by_request_id() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut pending = fixture.start_send("worker", "!stall", "essay");
    fixture.model.wait_stalled(1);
    let result = rpc_json(&fixture.daemon, &["cancel", "worker", "essay"]);
    assert_eq!(result, json!({ "cancelled": true, "request_id": "essay" }));
    assert_eq!(pending.next_result()["cancelled"], true);
    let params = json!({ "content": "!stall", "request_id": 42 });
    pending.start(&fixture.daemon, "/agent/worker", "send", params);
    fixture.model.wait_requests(2);
    let result = rpc_json(&fixture.daemon, &["cancel", "worker", "42"]);
    assert_eq!(
        result,
        json!({ "cancelled": true, "request_id": 42 }),
        "digits also match a numeric request id"
    );
    let again = rpc_json(&fixture.daemon, &["cancel", "worker", "42"]);
    assert_eq!(again, json!({ "cancelled": false, "request_id": "42", "reason": "not_found_or_completed" }));
}

#[test]
fn port_and_token_can_come_from_the_environment() {
    let daemon = TestDaemon::builder(BIN).start();
    let elsewhere = tempfile::tempdir().unwrap();
    let port = daemon.port().to_string();
    let token = daemon.token().unwrap();
    let env = [("NEXUS3_PORT", port.as_str()), ("NEXUS3_API_KEY", token)];
    let found = run(BIN, &["rpc", "list"], &env, elsewhere.path());
    assert_eq!((found.code, json_of(&found)), (0, json!({ "agents": [], "total": 0 })), "{}", found.stderr);
    let by_flag = ["rpc", "list", "--port", &port, "--api-key", token];
    let env = [("NEXUS3_PORT", "1"), ("NEXUS3_API_KEY", "nxk_wrong")];
    let found = run(BIN, &by_flag, &env, elsewhere.path());
    assert_eq!(found.code, 0, "a flag overrides the environment: {}", found.stderr);
    let by_home = ["--home", daemon.home().to_str().unwrap(), "rpc", "list", "-p", &port];
    assert_eq!(run(BIN, &by_home, &[], elsewhere.path()).code, 0);
    let blank = run(BIN, &["rpc", "list", "-p", &port], &[("NEXUS3_API_KEY", " ")], daemon.home());
    assert_eq!(blank.code, 0, "a blank key counts as unset: {}", blank.stderr);
}

#[test]
fn token_files_of_older_servers_are_found() {
    let daemon = TestDaemon::builder(BIN).start();
    let token = daemon.token().unwrap();
    let port = daemon.port();
    for name in
        [format!("rpc-{port}.token"), "rpc.token".into(), format!("server-{port}.key"), "server.key".into()]
    {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        std::fs::write(&path, format!("{token}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let found = run(BIN, &["rpc", "list", "-p", &port.to_string()], &[], home.path());
        assert_eq!(found.code, 0, "{}: {}", path.display(), found.stderr);
    }
}

#[test]
fn help_goes_to_stdout_with_exit_code_0() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["rpc", "--help"], &["rpc", "send", "--help"], &["serve", "-h"]] {
        let help = run(BIN, arguments, &[], home.path());
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(help.stdout.contains("Usage: nexus3"), "{arguments:?}: {}", help.stdout);
    }
}
