//! A blocked directory, such as the daemon's home, under other names: hard links and second mounts.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use agent::permission::Grant;

use crate::fixture::{Fixture, path};
use crate::sandbox::{SECRET, Sandbox, append, append_file, path_denied, read, write};

/// A mount that ends with the test.
pub(crate) struct BindMount(String);

impl BindMount {
    /// Mounts a file or directory at another place; none without the privilege to mount.
    pub(crate) fn create(sandbox: &Sandbox, source: &str, target: &str) -> Option<Self> {
        let source = if source.starts_with('/') { source.to_owned() } else { sandbox.path(source) };
        let target = sandbox.path(target);
        let output = Command::new("mount").args(["--bind", &source, &target]).output();
        output.is_ok_and(|output| output.status.success()).then_some(Self(target))
    }
}

impl Drop for BindMount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0);
    }
}

/// An agent that may do everything, except in `outside`.
pub(crate) fn trusted(sandbox: &Sandbox) -> Fixture {
    let grant = Grant { blocked: vec![path(&sandbox.path("outside"))], ..Grant::everything() };
    Fixture::with_grant(&sandbox.path("inside"), grant)
}

async fn assert_closed(sandbox: &Sandbox, fixture: &Fixture, file: &str) {
    for outcome in [
        read(fixture, file).await,
        write(fixture, file, "mine").await,
        append(fixture, file, "mine").await,
        append_file(fixture, file, "mine").await,
    ] {
        assert_eq!(outcome, path_denied(file));
    }
    for secret in ["outside/secret.txt", "outside/sub/deep.txt"] {
        assert_eq!(sandbox.content(secret), SECRET, "{file}");
    }
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"], "{file}");
}

#[tokio::test]
async fn threat_68_hard_link_to_a_blocked_file_is_closed() {
    let sandbox = Sandbox::new();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/leaf")).unwrap();
    fs::hard_link(sandbox.path("outside/sub/deep.txt"), sandbox.path("inside/sub/leaf")).unwrap();
    let fixture = trusted(&sandbox);
    assert_closed(&sandbox, &fixture, "leaf").await;
    assert_closed(&sandbox, &fixture, "sub/leaf").await;
    // Links between files that are not blocked stay open.
    fs::hard_link(sandbox.path("inside/ok.txt"), sandbox.path("inside/other")).unwrap();
    assert_eq!(read(&fixture, "other").await.text(), "inside");
}

#[tokio::test]
async fn threat_68_hard_link_to_a_single_blocked_file_is_closed() {
    let sandbox = Sandbox::new();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/leaf")).unwrap();
    let grant = Grant { blocked: vec![path(&sandbox.path("outside/secret.txt"))], ..Grant::everything() };
    let fixture = Fixture::with_grant(&sandbox.path("inside"), grant);
    assert_closed(&sandbox, &fixture, "leaf").await;
    assert_eq!(read(&fixture, "../outside/sub/deep.txt").await.text(), SECRET, "not blocked");
}

#[tokio::test]
async fn blocked_link_closes_its_target_and_nothing_else() {
    let sandbox = Sandbox::new();
    symlink("outside", sandbox.path("link")).unwrap();
    symlink("nowhere", sandbox.path("dangling")).unwrap();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/leaf")).unwrap();
    let blocked = ["link", "dangling"].map(|name| path(&sandbox.path(name))).to_vec();
    let fixture = Fixture::with_grant(&sandbox.path("inside"), Grant { blocked, ..Grant::everything() });
    assert_closed(&sandbox, &fixture, "leaf").await;
    assert_eq!(read(&fixture, "ok.txt").await.text(), "inside");
    assert_eq!(write(&fixture, "ok.txt", "new").await.name(), "done");
}

#[tokio::test]
async fn threat_68_second_mount_of_a_blocked_directory_is_closed() {
    for (source, target, files) in [
        ("outside", "inside/sub", &["sub/secret.txt", "sub/sub/deep.txt", "sub/new.txt", "sub/new/x"][..]),
        // A directory above the blocked one, and one inside it.
        (".", "inside/sub", &["sub/outside/secret.txt", "sub/outside/sub/deep.txt", "sub/outside/new.txt"]),
        ("outside/sub", "inside/sub", &["sub/deep.txt"]),
        // A single file has one link, and is not in a directory of the other mount.
        ("outside/secret.txt", "inside/ok.txt", &["ok.txt"]),
    ] {
        let sandbox = Sandbox::new();
        let Some(mount) = BindMount::create(&sandbox, source, target) else { return };
        let fixture = trusted(&sandbox);
        for file in files {
            if file.contains("new") {
                assert_eq!(write(&fixture, file, "mine").await, path_denied(file));
                assert_eq!(append_file(&fixture, file, "mine").await, path_denied(file));
            } else {
                assert_closed(&sandbox, &fixture, file).await;
            }
        }
        drop(mount);
    }
}

#[tokio::test]
async fn second_mount_of_an_open_directory_is_open() {
    let sandbox = Sandbox::new();
    let Some(mount) = BindMount::create(&sandbox, "inside-sibling", "inside/sub") else { return };
    let fixture = trusted(&sandbox);
    assert_eq!(read(&fixture, "sub/secret.txt").await.text(), SECRET);
    assert_eq!(write(&fixture, "sub/new.txt", "mine").await.name(), "done");
    drop(mount);
}

#[tokio::test]
async fn second_mount_of_a_process_directory_is_closed() {
    let sandbox = Sandbox::new();
    let process = format!("/proc/{}", std::process::id());
    let Some(mount) = BindMount::create(&sandbox, &process, "inside/sub") else { return };
    assert_eq!(read(&trusted(&sandbox), "sub/environ").await, path_denied("sub/environ"));
    drop(mount);
}
