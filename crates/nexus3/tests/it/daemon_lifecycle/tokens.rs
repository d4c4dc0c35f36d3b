//! Token files: private, fresh at each start, gone at the end.

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
fn a_token_is_private_and_has_its_shape() {
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
fn each_start_has_a_token_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    let old = first.token().unwrap().to_owned();
    first.signal("SIGTERM");
    assert_stopped(&first);
    let second = TestDaemon::builder(BIN).home(home.path()).port(first.port()).start();
    assert_ne!(second.token(), Some(old.as_str()));
    let headers = [("Authorization", &*format!("Bearer {old}"))];
    let answer = second.post("/", &headers, br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#);
    assert_eq!(answer.status, 403);
}

#[test]
fn the_token_of_a_killed_daemon_is_replaced_by_the_next() {
    let home = tempfile::tempdir().unwrap();
    let first = TestDaemon::builder(BIN).home(home.path()).start();
    first.signal("SIGKILL");
    assert_eq!(first.wait_exit().code(), None);
    let path = token_path(&first);
    let left = fs::read_to_string(&path).unwrap();
    assert_eq!(first.token(), Some(left.as_str()), "it stays behind");
    let second = TestDaemon::builder(BIN).home(home.path()).port(first.port()).start();
    let token = fs::read_to_string(&path).unwrap();
    assert_ne!(token, left);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(second.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    second.signal("SIGTERM");
    assert_stopped(&second);
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let kept = ["logs", "nexus3.db", "nexus3.db.lock", "nexus3.db.mark"];
    assert_eq!(names, kept, "nothing else stays behind");
}

#[test]
fn a_planted_file_or_link_does_not_get_the_token() {
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
fn without_auth_there_is_no_token() {
    let daemon = TestDaemon::builder(BIN).arg("--no-auth").start();
    assert!(!token_path(&daemon).exists());
    assert!(daemon.stdout().contains("No token required (--no-auth)"), "{}", daemon.stdout());
    assert_eq!(daemon.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    let headers = [("Authorization", "Bearer whatever")];
    let answer = daemon.post("/", &headers, br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#);
    assert_eq!(answer.status, 200, "a token that nobody asked for does no harm");
}
