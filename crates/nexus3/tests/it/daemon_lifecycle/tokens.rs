//! Token files: private, new at each start, removed at the stop.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use serde_json::json;
use testkit::TestDaemon;

use super::{assert_stopped, token_path};
use crate::support::BIN;

fn mode(path: &std::path::Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn token_file_is_private_and_well_formed() {
    let daemon = TestDaemon::builder(BIN).start();
    let path = token_path(&daemon);
    assert_eq!((mode(&path), mode(daemon.home())), (0o600, 0o700));
    let token = fs::read_to_string(&path).unwrap();
    assert_eq!((token.len(), token.get(..4)), (47, Some("nxk_")));
    assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{token}");
    assert!(daemon.stdout().contains(&format!("Token file: {}\n", path.display())));
    assert!(!daemon.stdout().contains(&token) && !daemon.stderr().contains(&token));
}

#[test]
fn each_start_creates_a_new_token() {
    let home = tempfile::tempdir().unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    let old = first.token().unwrap().to_owned();
    first.signal("SIGTERM");
    assert_stopped(&first);
    let second = TestDaemon::builder(BIN).home(home.path()).port(first.port()).start();
    assert_ne!(second.token(), Some(old.as_str()));
    let headers = [("Authorization", &*format!("Bearer {old}"))];
    let response = second.post("/", &headers, br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#);
    assert_eq!(response.status, 403);
}

#[test]
fn next_start_replaces_the_token_of_a_killed_daemon() {
    let home = tempfile::tempdir().unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    first.signal("SIGKILL");
    assert_eq!(first.wait_exit().code(), None);
    let path = token_path(&first);
    let leftover = fs::read_to_string(&path).unwrap();
    assert_eq!(first.token(), Some(leftover.as_str()), "the killed daemon leaves its token file");
    let second = TestDaemon::builder(BIN).home(home.path()).port(first.port()).start();
    let token = fs::read_to_string(&path).unwrap();
    assert_ne!(token, leftover);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(second.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    second.signal("SIGTERM");
    assert_stopped(&second);
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let expected = ["logs", "nexus3.db", "nexus3.db.mark"];
    assert_eq!(names, expected, "no other file remains");
}

#[test]
fn planted_link_does_not_receive_the_token() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "keep").unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    let (port, path) = (first.port(), token_path(&first));
    first.signal("SIGTERM");
    assert_stopped(&first);
    symlink(&victim, &path).unwrap();
    let second = TestDaemon::builder(BIN).home(home.path()).port(port).start();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(mode(&path), 0o600);
    second.signal("SIGTERM");
    assert_stopped(&second);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
}

#[test]
fn no_auth_creates_no_token() {
    let daemon = TestDaemon::builder(BIN).arg("--no-auth").start();
    assert!(!token_path(&daemon).exists());
    assert!(daemon.stdout().contains("No token required (--no-auth)"), "{}", daemon.stdout());
    assert_eq!(daemon.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    let headers = [("Authorization", "Bearer whatever")];
    let response = daemon.post("/", &headers, br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#);
    assert_eq!(response.status, 200, "an unneeded token is ignored");
}
