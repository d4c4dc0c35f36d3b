//! Commands that are refused: nothing on stdout but what is true, a message that says what to do, the right code.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use testkit::{TestDaemon, run};

use super::{json_of, rpc, rpc_json};
use crate::support::{BIN, agent_ids};

fn bare() -> TestDaemon {
    TestDaemon::builder(BIN).start()
}

#[test]
fn without_a_daemon_the_message_says_how_to_start_one() {
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
        let refused = run(BIN, &[&["rpc", "-p", &port], command].concat(), &[], home.path());
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{command:?}");
        let text = format!("no nexus3 daemon at 127.0.0.1:{port}; start one with: nexus3 serve {port}\n");
        assert_eq!(refused.stderr, text, "{command:?}");
    }
}

#[test]
fn a_token_file_that_others_can_read_is_refused_with_the_cure() {
    let daemon = bare();
    let path = daemon.home().join(format!("rpc-{}.token", daemon.port()));
    for mode in [0o640, 0o604, 0o660, 0o666, 0o610] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let refused = rpc(&daemon, &["list"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{mode:o}");
        assert!(
            refused.stderr.contains(&format!("fix it with: chmod 600 {}", path.display())),
            "{}",
            refused.stderr
        );
        assert!(!refused.stderr.contains(daemon.token().unwrap()));
    }
    assert_eq!(rpc(&daemon, &["detect"]).code, 0, "a probe needs no token");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(rpc_json(&daemon, &["list"]), json!({ "agents": [], "total": 0 }));
}

#[test]
fn a_wrong_token_is_refused_and_its_origin_told() {
    let daemon = bare();
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
    for refused in [by_env, by_flag, by_file, none] {
        assert!(!refused.stderr.contains("nxk_"), "no token is shown: {}", refused.stderr);
    }
}

#[test]
fn a_token_that_cannot_be_one_is_refused_without_showing_it() {
    let daemon = bare();
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
fn what_the_daemon_refuses_is_told_in_its_words() {
    let daemon = bare();
    rpc_json(&daemon, &["create", "taken"]);
    for (command, told) in [
        (&["create", "taken"][..], "Agent already exists: taken"),
        (&["create", "a..b"], "contains forbidden pattern '..'"),
        (&["send", "nobody", "hi"], "Agent not found: nobody"),
        (&["status", "nobody"], "Agent not found: nobody"),
        (&["messages", "nobody"], "Agent not found: nobody"),
        (&["cancel", "nobody", "r"], "Agent not found: nobody"),
        (&["send", "taken", "hi"], "No model is configured."),
        (&["send", "../etc", "hi"], "invalid agent id"),
        (&["status", ""], "invalid agent id"),
        (&["cancel", "taken", ""], "request_id cannot be empty"),
    ] {
        let refused = rpc(&daemon, command);
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(told), "{command:?}: {}", refused.stderr);
    }
    assert_eq!(agent_ids(&daemon), ["taken"]);
}

#[test]
fn a_destroy_of_nobody_fails_and_still_answers() {
    let daemon = bare();
    let refused = rpc(&daemon, &["destroy", "nobody"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (1, "agent not found: nobody\n"));
    assert_eq!(json_of(&refused), json!({ "success": false, "agent_id": "nobody" }));
}

#[test]
fn wrong_usage_is_told_apart_from_a_refusal() {
    let daemon = bare();
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
        let refused = rpc(&daemon, command);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{command:?}: {}", refused.stderr);
        assert!(!refused.stderr.is_empty(), "{command:?}");
    }
    let port = run(BIN, &["rpc", "list"], &[("NEXUS3_PORT", "http")], daemon.home());
    assert_eq!(
        (port.code, port.stderr.as_str()),
        (2, "nexus3: environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"http\"\n")
    );
}

#[test]
fn a_stranger_on_the_port_is_told() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stranger.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || stranger.incoming().for_each(drop));
    let home = tempfile::tempdir().unwrap();
    let refused = run(BIN, &["rpc", "list", "-p", &port], &[], home.path());
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains(&format!("127.0.0.1:{port}")), "{}", refused.stderr);
}
