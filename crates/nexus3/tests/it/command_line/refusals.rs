//! Commands that fail: no false output on stdout, an error message that says what to do, and the right exit code.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use testkit::{TestDaemon, run};

use super::{json_of, rpc, rpc_json};
use crate::support::{BIN, agent_ids};

fn daemon_without_model() -> TestDaemon {
    TestDaemon::builder(BIN).start()
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let home = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    for command in [
        &["list"][..],
        &["create", "a"],
        &["send", "a", "hi"],
        &["cancel", "a", "r"],
        &["status", "a"],
        &["messages", "a"],
        &["destroy", "a"],
        &["shutdown"],
    ] {
        let failed = run(BIN, &[&["rpc", "-p", &port], command].concat(), &[], home.path());
        assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{command:?}");
        let text = format!("no nexus3 daemon at 127.0.0.1:{port}; start one with: nexus3 serve {port}\n");
        assert_eq!(failed.stderr, text, "{command:?}");
    }
}

#[test]
fn token_file_readable_by_others_is_rejected_with_the_fix() {
    let daemon = daemon_without_model();
    let path = daemon.home().join(format!("rpc-{}.token", daemon.port()));
    for mode in [0o640, 0o604, 0o660, 0o666, 0o610] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let failed = rpc(&daemon, &["list"]);
        assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{mode:o}");
        assert!(
            failed.stderr.contains(&format!("fix it with: chmod 600 {}", path.display())),
            "{}",
            failed.stderr
        );
        assert!(!failed.stderr.contains(daemon.token().unwrap()));
    }
    assert_eq!(rpc(&daemon, &["detect"]).code, 0, "a probe needs no token");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(rpc_json(&daemon, &["list"]), json!({ "agents": [], "total": 0 }));
}

#[test]
fn wrong_token_error_names_the_tokens_source() {
    let daemon = daemon_without_model();
    let port = daemon.port().to_string();
    let list = ["rpc", "list", "-p", &port];
    let by_env = run(BIN, &list, &[("NEXUS3_API_KEY", "nxk_wrong")], daemon.home());
    assert_eq!((by_env.code, by_env.stdout.as_str()), (1, ""));
    assert!(by_env.stderr.contains("Invalid API key"), "{}", by_env.stderr);
    assert!(by_env.stderr.contains("the token came from NEXUS3_API_KEY"), "{}", by_env.stderr);
    let by_flag = rpc(&daemon, &["list", "--api-key", "nxk_wrong"]);
    assert!(by_flag.stderr.contains("the token came from --api-key"), "{}", by_flag.stderr);
    let path = daemon.home().join(format!("rpc-{port}.token"));
    fs::write(&path, "nxk_of_yesterday").unwrap();
    let by_file = rpc(&daemon, &["list"]);
    assert_eq!(by_file.code, 1);
    assert!(
        by_file.stderr.contains(&format!("the token came from {}", path.display())),
        "{}",
        by_file.stderr
    );
    fs::remove_file(&path).unwrap();
    let none = rpc(&daemon, &["list"]);
    assert!(
        none.stderr.contains("Authorization header required (-32600); no token was found"),
        "{}",
        none.stderr
    );
    for failed in [by_env, by_flag, by_file, none] {
        assert!(!failed.stderr.contains("nxk_"), "no token is shown: {}", failed.stderr);
    }
}

#[test]
fn malformed_token_is_rejected_and_not_shown() {
    let daemon = daemon_without_model();
    for key in ["nxk_secret words", "nxk_secr\u{e9}t", ""] {
        let by_flag = rpc(&daemon, &["list", "--api-key", key]);
        assert_eq!((by_flag.code, by_flag.stdout.as_str()), (2, ""), "{}", by_flag.stderr);
        assert!(by_flag.stderr.contains("--api-key"), "{}", by_flag.stderr);
        assert!(!by_flag.stderr.contains("nxk_"), "{}", by_flag.stderr);
    }
    let port = daemon.port().to_string();
    let env = [("NEXUS3_API_KEY", "nxk_secret words")];
    let by_env = run(BIN, &["rpc", "list", "-p", &port], &env, daemon.home());
    assert_eq!((by_env.code, by_env.stdout.as_str()), (1, ""));
    assert!(!by_env.stderr.contains("nxk_"), "{}", by_env.stderr);
}

#[test]
fn daemon_errors_are_printed_unchanged() {
    let daemon = daemon_without_model();
    rpc_json(&daemon, &["create", "taken"]);
    for (command, expected) in [
        (&["create", "taken"][..], "Agent already exists: taken"),
        (&["create", "a..b"], "contains forbidden pattern '..'"),
        (&["send", "missing", "hi"], "Agent not found: missing"),
        (&["status", "missing"], "Agent not found: missing"),
        (&["messages", "missing"], "Agent not found: missing"),
        (&["cancel", "missing", "r"], "Agent not found: missing"),
        (&["send", "taken", "hi"], "No model is configured."),
        (&["send", "../etc", "hi"], "invalid agent id"),
        (&["status", ""], "invalid agent id"),
        (&["cancel", "taken", ""], "request_id cannot be empty"),
    ] {
        let failed = rpc(&daemon, command);
        assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{command:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(expected), "{command:?}: {}", failed.stderr);
    }
    assert_eq!(agent_ids(&daemon), ["taken"]);
}

#[test]
fn destroy_of_a_missing_agent_fails_with_json_output() {
    let daemon = daemon_without_model();
    let failed = rpc(&daemon, &["destroy", "missing"]);
    assert_eq!((failed.code, failed.stderr.as_str()), (1, "agent not found: missing\n"));
    assert_eq!(json_of(&failed), json!({ "success": false, "agent_id": "missing" }));
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    let daemon = daemon_without_model();
    for command in [
        &[][..],
        &["lsit"],
        &["send"],
        &["send", "a"],
        &["send", "a", "hi", "there"],
        &["send", "a", "hi", "-t", "0"],
        &["send", "a", "hi", "-t", "soon"],
        &["send", "a", "hi", "-t", "-1"],
        &["send", "a", "hi", "-t", "inf"],
        &["messages", "a", "--limit", "0"],
        &["messages", "a", "--limit", "2001"],
        &["messages", "a", "--offset", "-1"],
        &["list", "-p", "0"],
        &["list", "-p", "65536"],
        &["list", "--api-key", "two words"],
        &["list", "--no-such-flag"],
    ] {
        let failed = rpc(&daemon, command);
        assert_eq!((failed.code, failed.stdout.as_str()), (2, ""), "{command:?}: {}", failed.stderr);
        assert!(!failed.stderr.is_empty(), "{command:?}");
    }
    let port = run(BIN, &["rpc", "list"], &[("NEXUS3_PORT", "http")], daemon.home());
    assert_eq!(
        (port.code, port.stderr.as_str()),
        (2, "nexus3: environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"http\"\n")
    );
}

#[test]
fn another_service_on_the_port_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let home = tempfile::tempdir().unwrap();
    let failed = run(BIN, &["rpc", "list", "-p", &port], &[], home.path());
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""));
    assert!(failed.stderr.contains(&format!("127.0.0.1:{port}")), "{}", failed.stderr);
}
