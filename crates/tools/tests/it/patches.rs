//! Patching: unified diffs that have drifted, several files, all or nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use agent::ToolOutcome;
use serde_json::json;

use crate::blocked_aliases::BindMount;
use crate::fixture::{Fixture, failed};
use crate::sandbox::Sandbox;
use crate::small_disk::SmallDisk;

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
async fn lines_without_context_are_added_behind_their_line() {
    for (hunk, expected) in [
        ("@@ -2,0 +3 @@\n+new\n", "line 1\nline 2\nnew\nline 3\n"),
        ("@@ -0,0 +1 @@\n+new\n", "new\nline 1\nline 2\nline 3\n"),
        ("@@ -3,0 +4 @@\n+new\n", "line 1\nline 2\nline 3\nnew\n"),
        ("@@ -1,0 +2 @@\n+a\n@@ -2,0 +4 @@\n+b\n", "line 1\na\nline 2\nb\nline 3\n"),
        ("@@ -1 +0,0 @@\n-line 1\n@@ -2,0 +2 @@\n+b\n", "line 2\nb\nline 3\n"),
    ] {
        let sandbox = sandbox_with_lines(3);
        let outcome = patch(&sandbox.fixture(), &format!("--- a/file\n+++ b/file\n{hunk}")).await;
        assert_eq!(outcome.name(), "done", "{outcome:?}");
        assert_eq!(sandbox.content("inside/file"), expected, "{hunk}");
    }
}

#[tokio::test]
async fn signature_of_a_mailed_patch_is_no_removed_line() {
    let sandbox = sandbox_with_lines(9);
    let mailed = format!(
        "From 0123 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n file | 2 +-\n\n{HUNK}-- \n2.43.0\n\n"
    );
    assert_eq!(patch(&sandbox.fixture(), &mailed).await.name(), "done");
    // In a hunk without counts it is a line.
    fs::write(sandbox.path("inside/file"), "a\n- \nb\n").unwrap();
    let bare = json!({"path": "file", "patch": "@@\n a\n-- \n b\n"});
    assert_eq!(sandbox.fixture().call("fs.patch", &bare).await.name(), "done");
    assert_eq!(sandbox.content("inside/file"), "a\nb\n");
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

/// A patch that changes `first`, creates `new/made`, deletes `third`, then changes `second`.
const FOUR_FILES: &str = "--- a/first\n+++ b/first\n@@ -1 +1 @@\n-old\n+new\n\
                          --- /dev/null\n+++ b/new/made\n@@ -0,0 +1 @@\n+made\n\
                          --- a/third\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\
                          --- a/second\n+++ b/second\n@@ -1 +1 @@\n-old\n+new\n";

fn sandbox_for_four_files() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["first", "second", "third"] {
        fs::write(sandbox.path(&format!("inside/{name}")), "old\n").unwrap();
    }
    sandbox
}

/// Asserts that the patch failed in its write phase and that all files are the ones before it.
fn assert_unchanged(sandbox: &Sandbox, inodes: &[u64; 3], outcome: &ToolOutcome) {
    assert_eq!(outcome.name(), "failed", "{outcome:?}");
    assert!(!outcome.text().contains("a part of the patch"), "{outcome:?}");
    assert_eq!(sandbox.file_names("inside"), ["first", "ok.txt", "second", "sub", "third"], "{outcome:?}");
    for name in ["first", "second", "third"] {
        assert_eq!(sandbox.content(&format!("inside/{name}")), "old\n", "{name}: {outcome:?}");
    }
    assert_eq!(*inodes, inodes_of(sandbox), "{outcome:?}");
}

fn inodes_of(sandbox: &Sandbox) -> [u64; 3] {
    let inode = |name| fs::metadata(sandbox.path(&format!("inside/{name}"))).unwrap().ino();
    ["first", "second", "third"].map(inode)
}

#[tokio::test]
async fn failure_of_the_last_rename_restores_the_files_before_it() {
    let sandbox = sandbox_for_four_files();
    fs::write(sandbox.path("outside/second"), "old\n").unwrap();
    // Nothing can be renamed to a mount point.
    let Some(mount) = BindMount::create(&sandbox, "outside/second", "inside/second") else { return };
    let inodes = inodes_of(&sandbox);
    let outcome = patch(&sandbox.fixture(), FOUR_FILES).await;
    assert!(outcome.text().contains("busy"), "{outcome:?}");
    assert_unchanged(&sandbox, &inodes, &outcome);
    drop(mount);
    assert_eq!(patch(&sandbox.fixture(), FOUR_FILES).await.name(), "done", "without the mount");
    assert_eq!(sandbox.file_names("inside"), ["first", "new", "ok.txt", "second", "sub"]);
}

#[tokio::test]
async fn threat_73_patched_files_are_restored_on_a_full_disk() {
    let sandbox = Sandbox::new();
    let Some(disk) = SmallDisk::mount(sandbox.path("inside")) else { return };
    let old = format!("{}\n", "x".repeat(20 << 10));
    for name in ["first", "second"] {
        fs::write(sandbox.path(&format!("inside/{name}")), &old).unwrap();
    }
    fs::create_dir(sandbox.path("inside/other")).unwrap();
    for name in ["first", "second"] {
        let other = sandbox.path(&format!("inside/other/{name}"));
        fs::hard_link(sandbox.path(&format!("inside/{name}")), other).unwrap();
    }
    let Some(mount) = BindMount::create(&sandbox, "inside/other/second", "inside/second") else { return };
    let hunk = |name: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}+new\n");
    // The new files fit; further copies of the old ones do not.
    fs::write(sandbox.path("inside/filler"), vec![0; 8 << 10]).unwrap();
    let outcome = patch(&sandbox.fixture(), &format!("{}{}", hunk("first"), hunk("second"))).await;
    assert!(outcome.text().contains("busy") && !outcome.text().contains("a part"), "{outcome:?}");
    assert_eq!(sandbox.content("inside/first"), old);
    assert_eq!(sandbox.file_names("inside"), ["filler", "first", "other", "second"]);
    drop(mount);
    drop(disk);
}

#[tokio::test]
async fn failure_between_two_renames_restores_the_first_file() {
    // The rename of `first` changes the version of its other link.
    let sandbox = sandbox_for_four_files();
    fs::remove_file(sandbox.path("inside/second")).unwrap();
    fs::hard_link(sandbox.path("inside/first"), sandbox.path("inside/second")).unwrap();
    let inodes = inodes_of(&sandbox);
    let outcome = patch(&sandbox.fixture(), FOUR_FILES).await;
    assert!(outcome.text().contains("second was changed meanwhile"), "{outcome:?}");
    assert_unchanged(&sandbox, &inodes, &outcome);
}

#[tokio::test]
async fn one_file_under_two_names_is_refused() {
    let sandbox = sandbox_for_four_files();
    let fixture = sandbox.fixture();
    symlink("second", sandbox.path("inside/link")).unwrap();
    symlink("../inside", sandbox.path("inside/sub/up")).unwrap();
    for alias in ["./second", "sub/../second", "link", "sub/../link"] {
        let again = format!("{FOUR_FILES}--- a/{alias}\n+++ b/{alias}\n@@ -1 +1 @@\n-old\n+newer\n");
        let outcome = patch(&fixture, &again).await;
        let expected = format!("Execution failed: second and {alias} are the same file; combine their hunks");
        assert_eq!(outcome, failed(expected));
        assert_eq!(sandbox.content("inside/first"), "old\n");
        assert_eq!(sandbox.file_names("inside"), ["first", "link", "ok.txt", "second", "sub", "third"]);
    }
}

#[tokio::test]
async fn directory_that_the_patch_itself_creates_is_no_file() {
    let sandbox = Sandbox::new();
    let text = "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/a/b\n@@ -0,0 +1 @@\n+x\n";
    let outcome = patch(&sandbox.fixture(), text).await;
    assert_eq!(outcome, failed("Execution failed: a is a directory, not a regular file"));
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
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
