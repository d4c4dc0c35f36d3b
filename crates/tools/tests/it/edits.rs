//! Editing: exact replacements, all or nothing, with a diff as result.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use agent::ToolOutcome;
use agent::permission::DirectorySet;
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, failed, path};
use crate::sandbox::{SECRET, Sandbox, path_denied};

const TEXT: &str = "one\ntwo\nthree\ntwo\n";

fn sandbox_with_text(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("inside/file"), text).unwrap();
    sandbox
}

async fn edit(fixture: &Fixture, old: &str, new: &str) -> ToolOutcome {
    fixture.call("fs.edit", &json!({"path": "file", "old": old, "new": new})).await
}

async fn edit_many(fixture: &Fixture, edits: Value) -> ToolOutcome {
    fixture.call("fs.edit", &json!({"path": "file", "edits": edits})).await
}

#[tokio::test]
async fn edit_replaces_one_text_and_returns_a_diff() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    fs::set_permissions(sandbox.path("inside/file"), fs::Permissions::from_mode(0o751)).unwrap();
    let expected = "1 replacement\n--- file\n+++ file\n@@ -1,4 +1,4 @@\n one\n two\n-three\n+3\n two";
    assert_eq!(edit(&fixture, "three", "3").await, done(expected));
    assert_eq!(sandbox.content("inside/file"), "one\ntwo\n3\ntwo\n");
    let mode = fs::metadata(sandbox.path("inside/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751, "the mode is retained");
    assert_eq!(sandbox.file_names("inside"), ["file", "ok.txt", "sub"]);
}

#[tokio::test]
async fn edit_of_a_text_that_is_not_found_changes_nothing() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    let expected = "Execution failed: the text to replace is not in file; nothing was changed: read the file and copy \
                    the text exactly, with its whitespace";
    assert_eq!(edit(&fixture, "four", "4").await, failed(expected));
    assert_eq!(sandbox.content("inside/file"), TEXT);
    let outcome = fixture.call("fs.edit", &json!({"path": "no/such", "old": "a", "new": "b"})).await;
    assert_eq!(outcome, failed("Execution failed: File not found: no/such"));
    assert_eq!(sandbox.file_names("inside"), ["file", "ok.txt", "sub"], "no directory is created");
}

#[tokio::test]
async fn edit_of_an_ambiguous_text_needs_all() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    let expected = "Execution failed: the text to replace is 2 times in file (lines 2, 4); nothing was changed: add \
                    lines around it, or set `all`";
    assert_eq!(edit(&fixture, "two", "2").await, failed(expected));
    assert_eq!(sandbox.content("inside/file"), TEXT);
    let all = json!({"path": "file", "old": "two", "new": "2", "all": true});
    assert!(fixture.call("fs.edit", &all).await.text().starts_with("2 replacements\n--- file\n"));
    assert_eq!(sandbox.content("inside/file"), "one\n2\nthree\n2\n");
}

#[tokio::test]
async fn several_edits_are_made_together_or_not_at_all() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    let outcome = edit_many(&fixture, json!([{"old": "one", "new": "1"}, {"old": "gone", "new": ""}])).await;
    assert!(
        outcome.text().starts_with("Execution failed: edit 2: the text to replace is not in"),
        "{outcome:?}"
    );
    assert_eq!(sandbox.content("inside/file"), TEXT);
    let overlapping = json!([{"old": "two\nthree", "new": "x"}, {"old": "three\ntwo", "new": "y"}]);
    let expected = "Execution failed: edits 1 and 2 overlap; nothing was changed: combine them to one edit";
    assert_eq!(edit_many(&fixture, overlapping).await, failed(expected));
    assert_eq!(sandbox.content("inside/file"), TEXT);
    // Each text is searched in the file as it was, so that an edit does not find the result of another.
    let both = json!([{"old": "three\n", "new": "one\n"}, {"old": "one\n", "new": "three\n"}]);
    assert!(edit_many(&fixture, both).await.text().starts_with("2 replacements\n"));
    assert_eq!(sandbox.content("inside/file"), "three\ntwo\none\ntwo\n");
}

#[tokio::test]
async fn edit_retains_the_newline_style() {
    let sandbox = sandbox_with_text("one\r\ntwo\r\nthree\r\n");
    let fixture = sandbox.fixture();
    let outcome = edit(&fixture, "one\ntwo\n", "1\n2\n2b\n").await;
    assert_eq!(outcome.name(), "done", "{outcome:?}");
    assert_eq!(sandbox.content("inside/file"), "1\r\n2\r\n2b\r\nthree\r\n");
    assert_eq!(edit(&fixture, "2b\r\nthree", "3").await.name(), "done");
    assert_eq!(sandbox.content("inside/file"), "1\r\n2\r\n3\r\n");
    fs::write(sandbox.path("inside/file"), "a\r\nb\nc\n").unwrap();
    assert_eq!(edit(&fixture, "b\nc", "b\nd").await.name(), "done");
    assert_eq!(sandbox.content("inside/file"), "a\r\nb\nd\n", "mixed line ends are edited exactly");
}

#[tokio::test]
async fn edit_validates_its_arguments() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    for (arguments, expected) in [
        (json!({"path": "file"}), "pass `old` and `new`, or `edits`"),
        (json!({"path": "file", "old": "a"}), "pass `old` and `new`, or `edits`"),
        (json!({"path": "file", "edits": []}), "field `edits`: there is no edit"),
        (json!({"path": "file", "old": "one", "new": "one"}), "`old` and `new` are equal"),
        (
            json!({"path": "file", "old": "", "new": "x"}),
            "field `old`: is empty; to create or replace a file use fs.write_file",
        ),
        (
            json!({"path": "file", "old": "a", "new": "b", "edits": [{"old": "c", "new": "d"}]}),
            "pass `old` and `new`, or `edits`, not both",
        ),
        (
            json!({"path": "file", "edits": vec![json!({"old": "c", "new": "d"}); 101]}),
            "field `edits`: more than 100",
        ),
        (
            json!({"path": "file", "all": true, "edits": [{"old": "c", "new": "d"}]}),
            "field `all`: belongs in each of `edits`",
        ),
        (json!({"path": "file", "edits": [{"old": "c"}]}), "field `edits[0]`: missing field `new`"),
    ] {
        assert_eq!(fixture.call("fs.edit", &arguments).await, failed(format!("Invalid input: {expected}")));
    }
    let large = json!({"path": "file", "old": "o", "new": "x".repeat(6 << 20), "all": true});
    let outcome = fixture.call("fs.edit", &large).await;
    assert_eq!(outcome, failed("Execution failed: file would be longer than 10485760 bytes"));
    assert_eq!(sandbox.content("inside/file"), TEXT);
}

#[tokio::test]
async fn only_text_files_are_edited() {
    let sandbox = sandbox_with_text("");
    let fixture = sandbox.fixture();
    fs::write(sandbox.path("inside/file"), b"a\xffb").unwrap();
    assert_eq!(
        edit(&fixture, "a", "b").await,
        failed("Execution failed: file is a binary file, not UTF-8 text")
    );
    let outcome = fixture.call("fs.edit", &json!({"path": "sub", "old": "a", "new": "b"})).await;
    assert_eq!(outcome, failed("Execution failed: sub is a directory, not a regular file"));
}

#[tokio::test]
async fn edit_stays_inside_and_leaves_protected_files() {
    let sandbox = sandbox_with_text(TEXT);
    let fixture = sandbox.fixture();
    symlink("../outside/secret.txt", sandbox.path("inside/leaf")).unwrap();
    symlink("file", sandbox.path("inside/link")).unwrap();
    fs::create_dir(sandbox.path("inside/.git")).unwrap();
    fs::write(sandbox.path("inside/.git/config"), TEXT).unwrap();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/hard")).unwrap();
    let call = |file: &str, old: &str| {
        let arguments = json!({"path": file, "old": old, "new": "1"});
        let fixture = &fixture;
        async move { fixture.call("fs.edit", &arguments).await }
    };
    assert_eq!(call("leaf", "secret").await, path_denied("leaf"));
    assert_eq!(call("../outside/secret.txt", "secret").await.name(), "denied");
    assert!(call(".git/config", "one").await.text().contains(".git/config is protected"));
    assert_eq!(call("hard", "secret").await.name(), "done", "the other hard link is not written");
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(call("link", "one").await.name(), "done");
    assert!(fs::symlink_metadata(sandbox.path("inside/link")).unwrap().is_symlink());
    assert_eq!(sandbox.content("inside/file"), "1\ntwo\nthree\ntwo\n");
    assert_eq!(sandbox.content("inside/.git/config"), TEXT);
}

#[tokio::test]
async fn edit_needs_permission_to_read_and_to_write() {
    let sandbox = sandbox_with_text(TEXT);
    for (read, write) in [("inside", "inside/sub"), ("inside/sub", "inside")] {
        let mut fixture = sandbox.fixture();
        fixture.grant.read = DirectorySet::from_roots([path(&sandbox.path(read))]);
        fixture.grant.write = DirectorySet::from_roots([path(&sandbox.path(write))]);
        assert_eq!(edit(&fixture, "one", "1").await.name(), "denied");
    }
    assert_eq!(sandbox.content("inside/file"), TEXT);
}
