//! The git tools in the built binary, which is its own helper: for agents without commands, and on the command line.

use std::process::Command;

use serde_json::json;
use testkit::run;

use super::{fixture_with, tool_result};
use crate::support::BIN;
use crate::support::folder::TestDirectory;

/// A repository with a commit and a changed file.
fn repository() -> TestDirectory {
    let directory = TestDirectory::with_files(&[("a.txt", "one\n")]);
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "--message=first"],
    ] {
        let git = Command::new("git").args(arguments).current_dir(directory.path_str()).output().unwrap();
        assert!(git.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&git.stderr));
    }
    std::fs::write(directory.path_of("a.txt"), "two\n").unwrap();
    directory
}

#[test]
fn worker_reads_the_repository_of_its_directory() {
    let directory = repository();
    let fixture = fixture_with("worker", &directory);
    assert_eq!(tool_result(&fixture, "!tool git.status {}"), "## main\n M a.txt");
    let diff = tool_result(&fixture, "!tool git_diff {}");
    assert!(diff.ends_with("@@ -1 +1 @@\n-one\n+two"), "{diff}");
    for (tool, arguments, expected) in [
        ("git.log", json!({}), "    first"),
        ("git.show", json!({ "rev": "main", "path": "a.txt" }), "one"),
        ("git.blame", json!({ "path": "a.txt", "rev": "HEAD" }), " 1) one"),
    ] {
        let text = tool_result(&fixture, &format!("!tool {tool} {arguments}"));
        assert!(text.ends_with(expected), "{tool}: {text}");
    }
}

#[test]
fn command_line_runs_git_tools() {
    let directory = repository();
    let home = tempfile::tempdir().unwrap();
    let listed = run(BIN, &["tools"], &[], home.path());
    assert!(listed.stdout.contains("git.status"), "{}", listed.stdout);
    let output = Command::new(BIN)
        .args(["run", "git.status", "--home"])
        .arg(home.path())
        .current_dir(directory.path_str())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "## main\n M a.txt\n");
}
