//! Patching: unified diffs that have drifted, several files, all or nothing.

use std::fs;
use std::os::unix::fs::symlink;

use agent::ToolOutcome;
use serde_json::json;

use crate::fixture::{Fixture, failed};
use crate::sandbox::Sandbox;

fn sandbox_with_lines(count: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    let text: String = (1..=count).map(|line| format!("line {line}\n")).collect();
    fs::write(sandbox.path("inside/file"), text).unwrap();
    sandbox
}

async fn patch(fixture: &Fixture, text: &str) -> ToolOutcome {
    fixture.call("fs.patch", &json!({ "patch": text })).await
}

const HUNK: &str = "--- a/file\n+++ b/file\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+five\n line 6\n";

#[tokio::test]
async fn patch_applies_and_returns_the_diff() {
    let sandbox = sandbox_with_lines(9);
    let outcome = patch(&sandbox.fixture(), HUNK).await;
    let expected = "1 files changed\n--- file\n+++ file\n@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+five\n \
                    line 6\n line 7\n line 8";
    assert_eq!(outcome.text(), expected);
    assert!(sandbox.content("inside/file").contains("line 4\nfive\nline 6\n"));
}

#[tokio::test]
async fn drifted_hunks_are_found_nearby() {
    let sandbox = sandbox_with_lines(9);
    let fixture = sandbox.fixture();
    let old = sandbox.content("inside/file");
    fs::write(sandbox.path("inside/file"), format!("{}{old}", "new\n".repeat(30))).unwrap();
    let two = format!("{HUNK}@@ -8,2 +8,3 @@\n line 8\n+eight and a half\n line 9\n");
    assert_eq!(patch(&fixture, &two).await.name(), "done");
    let text = sandbox.content("inside/file");
    assert!(text.ends_with("line 4\nfive\nline 6\nline 7\nline 8\neight and a half\nline 9\n"), "{text}");
    let bare = json!({"path": "file", "patch": "@@\n-five\n+5\n"});
    assert_eq!(fixture.call("fs.patch", &bare).await.name(), "done", "no line numbers, no file names");
    assert!(sandbox.content("inside/file").contains("line 4\n5\nline 6\n"));
}

#[tokio::test]
async fn fuzz_is_limited_to_context_and_unique_places() {
    let sandbox = sandbox_with_lines(9);
    let fixture = sandbox.fixture();
    let old = sandbox.content("inside/file");
    for (hunk, why) in [
        ("@@ -4,3 +4,3 @@\n line 4\n-line five\n+x\n line 6\n", "a removed line differs"),
        ("@@ -2,7 +2,7 @@\n a\n b\n c\n line 4\n-line 5\n+x\n line 6\n d\n", "three context lines differ"),
    ] {
        let outcome = patch(&fixture, &format!("--- a/file\n+++ b/file\n{hunk}")).await;
        let expected = "Execution failed: file: hunk 1: its lines are not in the file; read the file and write the \
                        patch for its current content; no file was changed";
        assert_eq!(outcome, failed(expected), "{why}");
        assert_eq!(sandbox.content("inside/file"), old);
    }
    let fuzzy =
        "--- a/file\n+++ b/file\n@@ -4,3 +4,3 @@\n other\n line 4\n-line 5  \n+five\n line 6\n other\n";
    assert_eq!(patch(&fixture, fuzzy).await.name(), "done", "one context line and trailing spaces differ");
    assert!(sandbox.content("inside/file").contains("line 4\nfive\nline 6\n"));
    fs::write(sandbox.path("inside/file"), "x\na\nx\n").unwrap();
    let ambiguous = "--- a/file\n+++ b/file\n@@ -2 +2 @@\n-x\n+y\n";
    let outcome = patch(&fixture, ambiguous).await;
    assert!(outcome.text().contains("its lines are 2 times in the file; add context lines"), "{outcome:?}");
    assert_eq!(sandbox.content("inside/file"), "x\na\nx\n");
}

#[tokio::test]
async fn several_files_are_created_changed_and_deleted_together() {
    let sandbox = sandbox_with_lines(9);
    let fixture = sandbox.fixture();
    let text = format!(
        "diff --git a/file b/file\nindex 1..2 100644\n{HUNK}--- /dev/null\n+++ b/new/made.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\
         --- a/ok.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-inside\n\\ No newline at end of file\n"
    );
    let dry = fixture.call("fs.patch", &json!({"patch": text, "dry_run": true})).await;
    assert!(dry.text().starts_with("dry run: the patch applies; no file was changed\n--- file\n"), "{dry:?}");
    assert_eq!(sandbox.file_names("inside"), ["file", "ok.txt", "sub"], "a dry run changes nothing");
    assert!(sandbox.content("inside/file").contains("line 5\n"));
    assert!(patch(&fixture, &text).await.text().starts_with("3 files changed\n"));
    assert_eq!(sandbox.file_names("inside"), ["file", "new", "sub"]);
    assert_eq!(sandbox.content("inside/new/made.txt"), "a\nb\n");
}

#[tokio::test]
async fn patch_changes_all_files_or_none() {
    let sandbox = sandbox_with_lines(9);
    let fixture = sandbox.fixture();
    let old = sandbox.content("inside/file");
    symlink("../outside/secret.txt", sandbox.path("inside/leaf")).unwrap();
    for second in [
        "--- a/ok.txt\n+++ b/ok.txt\n@@ -1 +1 @@\n-not there\n+x\n",
        "--- a/gone\n+++ b/gone\n@@ -1 +1 @@\n-x\n+y\n",
        "--- /dev/null\n+++ b/ok.txt\n@@ -0,0 +1 @@\n+x\n",
        "--- a/leaf\n+++ b/leaf\n@@ -1 +1 @@\n-the secret outside\n+x\n",
        "--- a/../outside/secret.txt\n+++ b/../outside/secret.txt\n@@ -1 +1 @@\n-x\n+y\n",
        "--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+x\n",
        "--- a/ok.txt\n+++ /dev/null\n@@ -1 +1 @@\n-inside\n+more\n",
    ] {
        let outcome = patch(&fixture, &format!("{HUNK}{second}")).await;
        assert_ne!(outcome.name(), "done", "{second}");
        assert_eq!(sandbox.content("inside/file"), old, "{second}");
        assert_eq!(sandbox.file_names("inside"), ["file", "leaf", "ok.txt", "sub"], "{second}");
    }
}

#[tokio::test]
async fn patch_retains_line_ends() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::write(sandbox.path("inside/file"), "a\r\nb\r\nc").unwrap();
    assert_eq!(
        patch(&fixture, "--- a/file\n+++ b/file\n@@ -1,2 +1,3 @@\n a\n-b\n+B\n+B2\n").await.name(),
        "done"
    );
    assert_eq!(sandbox.content("inside/file"), "a\r\nB\r\nB2\r\nc");
    let end = "--- a/file\n+++ b/file\n@@ -4 +4,2 @@\n c\n+d\n\\ No newline at end of file\n";
    assert_eq!(patch(&fixture, end).await.name(), "done");
    assert_eq!(sandbox.content("inside/file"), "a\r\nB\r\nB2\r\nc\r\nd");
}

#[tokio::test]
async fn malformed_patches_are_explained() {
    let sandbox = sandbox_with_lines(3);
    let fixture = sandbox.fixture();
    for (text, why) in [
        ("", "the patch has no hunks"),
        ("@@ -1 +1 @@\n-a\n+b\n", "the patch names no file"),
        (
            "--- a/file\n+++ b/file\n@@ -1,2 +1,2 @@\n line 1\nrubbish\n",
            "line 5: a line of a hunk begins with",
        ),
        ("--- a/file\n+++ b/file\n@@ -1 +1 @@\n line 1\n", "line 3: the hunk changes nothing"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n", "line 2: binary patches and renames"),
    ] {
        let outcome = patch(&fixture, text).await;
        assert!(outcome.text().starts_with(&format!("Invalid input: field `patch`: {why}")), "{outcome:?}");
    }
}
