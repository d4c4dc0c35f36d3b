//! Commands in the sandbox: in a directory that contains the home of the daemon or another blocked directory.

use std::fs;

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant};
use serde_json::json;

use crate::fixture::{Fixture, path};
use crate::sandbox::Sandbox;

/// An agent that reads and writes in `inside/`, of which `blocked` are blocked.
fn fixture(sandbox: &Sandbox, blocked: &[&str]) -> Fixture {
    let inside = sandbox.path("inside");
    let directories = DirectorySet::from_roots([path(&inside)]);
    let blocked = blocked.iter().map(|name| path(&sandbox.path(name))).collect();
    let grant = Grant { read: directories.clone(), write: directories, blocked, ..Grant::everything() };
    Fixture::with_commands(&inside, grant)
}

async fn shell(fixture: &Fixture, line: &str) -> ToolOutcome {
    fixture.call("shell.exec", &json!({ "command": line })).await
}

#[tokio::test]
async fn command_runs_beside_a_blocked_directory_and_does_not_see_it() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("inside/.env"), "secret").unwrap();
    fs::create_dir(sandbox.path("inside/sub/nested")).unwrap();
    let fixture = fixture(&sandbox, &["inside/sub", "inside/sub/nested", "inside/.env", "outside"]);
    let outcome = shell(&fixture, "cat ok.txt .env; ls -A sub; echo new > made; (echo x > sub/x) 2>&1").await;
    let text = outcome.text();
    assert!(text.contains("\"stdout\":\"inside") && text.contains("Read-only file system"), "{text}");
    assert!(!text.contains("deep") && !text.contains("secret"), "{text}");
    assert_eq!(sandbox.content("inside/made"), "new\n");
    assert_eq!(sandbox.content("inside/sub/deep.txt"), "deep");
}

/// A command could replace a link where it may write.
#[tokio::test]
async fn blocked_link_keeps_commands_that_write_away() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink("sub", sandbox.path("inside/link")).unwrap();
    let mut fixture = fixture(&sandbox, &["inside/link", "inside/sub"]);
    let outcome = shell(&fixture, "cat ok.txt").await;
    assert!(matches!(&outcome, ToolOutcome::Denied(text) if text.contains("symbolic link")), "{outcome:?}");
    fixture.grant.write = DirectorySet::none();
    let outcome = shell(&fixture, "cat ok.txt link/deep.txt sub/deep.txt; true").await;
    assert!(outcome.text().contains("inside") && !outcome.text().contains(r#""insidedeep"#), "{outcome:?}");
}

#[tokio::test]
async fn command_is_dead_when_its_call_times_out() {
    let sandbox = Sandbox::new();
    let line = "trap '' TERM; flock lock sh -c 'trap \"\" TERM; while :; do : > $TMPDIR/x; done'";
    let call = json!({ "command": line, "timeout_secs": 1 });
    let outcome = fixture(&sandbox, &[]).call("shell.exec", &call).await;
    assert_eq!(outcome, ToolOutcome::Failed("Timeout after 1 seconds".to_owned()));
    fs::File::open(sandbox.path("inside/lock")).unwrap().try_lock().expect("no process holds the lock");
}

#[tokio::test]
async fn blocked_file_with_a_hard_link_keeps_commands_away() {
    let sandbox = Sandbox::new();
    fs::hard_link(sandbox.path("inside/sub/deep.txt"), sandbox.path("inside/other-name")).unwrap();
    let fixture = fixture(&sandbox, &["inside/sub"]);
    let outcome = shell(&fixture, "cat other-name").await;
    assert!(matches!(&outcome, ToolOutcome::Denied(text) if text.contains("hard links")), "{outcome:?}");
    fs::remove_file(sandbox.path("inside/other-name")).unwrap();
    assert!(matches!(shell(&fixture, "true").await, ToolOutcome::Done(_)));
}

/// A command could create it where it may write, and nothing can be mounted over what does not exist.
#[tokio::test]
async fn missing_blocked_directory_keeps_commands_that_write_away() {
    let sandbox = Sandbox::new();
    let mut fixture = fixture(&sandbox, &["inside/missing"]);
    let outcome = shell(&fixture, "mkdir missing").await;
    assert!(matches!(&outcome, ToolOutcome::Denied(text) if text.contains("create it")), "{outcome:?}");
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
    fixture.grant.write = DirectorySet::none();
    assert!(shell(&fixture, "cat ok.txt").await.text().contains("inside"));
}
