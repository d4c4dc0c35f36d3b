//! An invalid configuration stops the start: every problem is reported with its position and a suggestion, and no file
//! is created.

use std::fs;
use std::net::TcpListener;

use testkit::{CommandOutput, TestDaemon, run};

use crate::support::BIN;

/// Starts a daemon with this file on a free port, and checks that it fails without output, files or a bound port.
fn failed_start(file: &str, env: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.toml"), file).unwrap();
    let port = free_port().to_string();
    let finished = run(BIN, &[&["serve", "--port", &port], arguments].concat(), env, home.path());
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["config.toml"]);
    TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is free");
    finished
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn configuration_errors_have_position_and_suggestion() {
    for (file, expected) in [
        ("\nprot = 1", "config.toml:2:1: unknown key 'prot'; did you mean 'port'?"),
        ("[limts]\nhead_ms = 1", "config.toml:1:2: unknown table 'limts'; did you mean 'limits'?"),
        (
            "body_bytes_max = 1",
            "config.toml:1:1: unknown key 'body_bytes_max'; 'body_bytes_max' belongs in [limits]",
        ),
        (
            "port = \"9000\"",
            "config.toml:1:8: port must be an integer from 0 to 65535, got a string \"9000\"",
        ),
        ("port = 70000", "config.toml:1:8: port must be an integer from 0 to 65535, got 70000"),
        ("auth = 'no'", "config.toml:1:8: auth must be true or false, got a string \"no\""),
        (
            "host = '0.0.0.0'",
            "config.toml:1:8: host must be 127.0.0.1, localhost or ::1 (only loopback can be bound)",
        ),
        ("log.level = 'loud'", "must be one of error, warn, info, debug, trace, got \"loud\""),
        (
            "limits.turns_running_max = 0",
            "limits.turns_running_max must be an integer from 1 to 65536, got 0",
        ),
        ("port =", "config.toml:1:"),
        ("[limits", "config.toml:1:"),
    ] {
        let finished = failed_start(file, &[], &[]);
        assert!(finished.stderr.starts_with("nexus3: config.toml:"), "{file}: {}", finished.stderr);
        assert!(finished.stderr.contains(expected), "{file}: {}", finished.stderr);
    }
}

#[test]
fn errors_of_all_layers_are_reported_together() {
    let env = [("NEXUS3_PORT", "x"), ("NEXUS3_AUTH", "perhaps")];
    let finished = failed_start("hosst = 'x'\nmodel = 5", &env, &["--log-level", "loud"]);
    for expected in [
        "config.toml:1:1: unknown key 'hosst'; did you mean 'host'?",
        "config.toml:2:9: model must be \"provider/name\" or an alias, got an integer 5",
        "environment: NEXUS3_AUTH must be true or false, got \"perhaps\"",
        "environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"x\"",
        "--log-level must be one of error, warn, info, debug, trace, got \"loud\"",
    ] {
        assert!(finished.stderr.contains(expected), "{expected}: {}", finished.stderr);
    }
}

#[test]
fn unknown_environment_variable_is_a_warning() {
    let warning = "environment: NEXUS3_MODLE is ignored: it is not a setting; did you mean NEXUS3_MODEL?";
    let home = tempfile::tempdir().unwrap();
    let finished = run(BIN, &["config", "show"], &[("NEXUS3_MODLE", "x")], home.path());
    assert_eq!((finished.code, finished.stderr), (0, format!("nexus3: {warning}\n")));
    let daemon = TestDaemon::builder(BIN).env("NEXUS3_MODLE", "x").start();
    daemon.wait_stderr(warning);
}

#[test]
fn failed_start_leaves_an_existing_home_unchanged() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.toml"), "prot = 1").unwrap();
    let token = home.path().join("rpc.token");
    fs::write(&token, "nxk_of_another_daemon").unwrap();
    let finished = run(BIN, &["serve"], &[], home.path());
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert_eq!(fs::read_to_string(&token).unwrap(), "nxk_of_another_daemon");
}

#[test]
fn unreadable_configuration_is_reported() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("config.toml")).unwrap();
    let finished = run(BIN, &["serve", "0"], &[], home.path());
    assert_eq!(finished.code, 2);
    assert!(finished.stderr.contains("config.toml: it is a directory"), "{}", finished.stderr);
    let finished = run(BIN, &["config", "show"], &[], home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (2, ""));
}

#[test]
fn invalid_command_line_is_wrong_usage() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &[][..],
        &["sevre"],
        &["serve", "--prot", "0"],
        &["serve", "0", "--port", "0"],
        &["serve", "0", "1"],
        &["config"],
        &["config", "shwo"],
    ] {
        let finished = run(BIN, arguments, &[], home.path());
        assert_eq!(finished.code, 2, "{arguments:?}: {}", finished.stdout);
        assert_eq!(finished.stdout, "", "{arguments:?}");
        assert!(finished.stderr.contains("Usage: nexus3"), "{arguments:?}: {}", finished.stderr);
    }
    let version = run(BIN, &["--version"], &[], home.path());
    assert_eq!((version.code, version.stdout), (0, format!("nexus3 {}\n", env!("CARGO_PKG_VERSION"))));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
