//! What file tools record before they change files, and its restoration.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use agent::outside::{FileChange, FileState, NewChanges, RestoreFault, UNDO_FILE_BYTES_MAX, Workspace as _};
use agent::permission::{DirectorySet, Effect, FilePath, Grant, Verdict, judge};
use serde_json::{Value, json};
use testkit::CountingEntropy;
use tools::LocalWorkspace;

use crate::fixture::{Fixture, failed, path};
use crate::sandbox::Sandbox;

/// What is at each path below a directory: type, mode and content.
fn snapshot(directory: &Path) -> BTreeMap<String, (u32, String)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            let name = entry.path().strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            let content = match metadata.file_type() {
                kind if kind.is_symlink() => fs::read_link(entry.path()).unwrap().display().to_string(),
                kind if kind.is_dir() => {
                    pending.push(entry.path());
                    String::new()
                }
                _ => String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned(),
            };
            found.insert(name, (metadata.permissions().mode(), content));
        }
    }
    found
}

/// The changes of all calls, merged as a store merges those of a turn.
fn recorded(fixture: &Fixture) -> Vec<FileChange> {
    let mut merged: BTreeMap<String, FileChange> = BTreeMap::new();
    for call in &*fixture.changes.calls.lock().unwrap() {
        let changes = match call {
            NewChanges::Recorded(changes) => Some(changes),
            NewChanges::NotUndoable(_) => None,
        };
        for change in changes.expect("undoable") {
            let first = merged.entry(change.path.to_string()).or_insert_with(|| change.clone());
            (first.last_before, first.after) = (change.last_before, change.after);
        }
    }
    merged.into_values().collect()
}

fn restore(changes: &[FileChange], grant: &Grant) -> Result<Vec<FilePath>, RestoreFault> {
    let effects: Vec<_> = changes.iter().map(|change| Effect::Write(change.path.clone())).collect();
    let permit = match judge(&effects, grant) {
        Verdict::Allowed(permit) => Some(permit),
        Verdict::Denied(_) => None,
    };
    let permit = permit.expect("allowed");
    let workspace = LocalWorkspace::new(None).with_entropy(Arc::new(CountingEntropy::default()));
    workspace.restore_files(changes, &permit)
}

async fn call_done(fixture: &Fixture, tool: &str, arguments: Value) {
    let outcome = fixture.call(tool, &arguments).await;
    assert!(matches!(outcome, agent::ToolOutcome::Done(_)), "{tool} {arguments}: {outcome:?}");
}

/// A sandbox with a file of mode 0640, a directory with a file and a link, and a hidden mode.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(sandbox.path("inside/tree")).unwrap();
    fs::write(sandbox.path("inside/tree/bytes"), [0xff, 0, 0xfe]).unwrap();
    symlink("../ok.txt", sandbox.path("inside/tree/link")).unwrap();
    fs::create_dir(sandbox.path("inside/tree/empty")).unwrap();
    fs::set_permissions(sandbox.path("inside/tree/empty"), fs::Permissions::from_mode(0o750)).unwrap();
    sandbox
}

#[tokio::test]
async fn change_of_each_tool_is_restored() {
    let patch = "--- ok.txt\n+++ ok.txt\n@@ -1 +1 @@\n-inside\n\\ No newline at end of file\n+patched\n\
                 --- /dev/null\n+++ new/n.txt\n@@ -0,0 +1 @@\n+new\n\
                 --- sub/deep.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-deep\n\\ No newline at end of file\n";
    for (tool, arguments) in [
        ("fs.write_file", json!({ "path": "ok.txt", "content": "new" })),
        ("fs.write_file", json!({ "path": "a/b/new.txt", "content": "new" })),
        ("fs.append_file", json!({ "path": "ok.txt", "content": "more" })),
        ("fs.append_file", json!({ "path": "a/new.txt", "content": "more" })),
        ("fs.edit", json!({ "path": "ok.txt", "old": "in", "new": "out" })),
        ("fs.edit", json!({ "path": "tree/link", "old": "in", "new": "out" })),
        ("fs.patch", json!({ "patch": patch })),
        ("fs.mkdir", json!({ "path": "a/b" })),
        ("fs.move", json!({ "from": "ok.txt", "to": "a/moved.txt" })),
        ("fs.move", json!({ "from": "ok.txt", "to": "sub/deep.txt", "overwrite": true })),
        ("fs.move", json!({ "from": "tree", "to": "moved" })),
        ("fs.copy", json!({ "from": "ok.txt", "to": "a/copy.txt" })),
        ("fs.copy", json!({ "from": "ok.txt", "to": "sub/deep.txt", "overwrite": true })),
        ("fs.copy", json!({ "from": "tree", "to": "copied" })),
        ("fs.delete", json!({ "path": "ok.txt" })),
        ("fs.delete", json!({ "path": "tree/link" })),
        ("fs.delete", json!({ "path": "tree", "recursive": true })),
    ] {
        let sandbox = prepared();
        let fixture = sandbox.fixture();
        let inside = sandbox.path("inside");
        let before = snapshot(Path::new(&inside));
        call_done(&fixture, tool, arguments.clone()).await;
        assert_ne!(snapshot(Path::new(&inside)), before, "{tool} {arguments}");
        let changes = recorded(&fixture);
        let restored = restore(&changes, &fixture.grant).unwrap();
        assert_eq!(snapshot(Path::new(&inside)), before, "{tool} {arguments}");
        assert_eq!(restored.len(), changes.len(), "{tool} {arguments}");
        assert_eq!(restore(&changes, &fixture.grant), Ok(Vec::new()), "all is as before");
    }
}

#[tokio::test]
async fn several_changes_of_a_file_are_restored_to_the_first_state() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    let before = snapshot(Path::new(&sandbox.path("inside")));
    for (tool, arguments) in [
        ("fs.edit", json!({ "path": "ok.txt", "old": "in", "new": "out" })),
        ("fs.move", json!({ "from": "ok.txt", "to": "tree/ok.txt" })),
        ("fs.append_file", json!({ "path": "tree/ok.txt", "content": "more" })),
        ("fs.move", json!({ "from": "tree", "to": "there" })),
        ("fs.write_file", json!({ "path": "ok.txt", "content": "again" })),
        ("fs.delete", json!({ "path": "there", "recursive": true })),
    ] {
        call_done(&fixture, tool, arguments).await;
    }
    restore(&recorded(&fixture), &fixture.grant).unwrap();
    assert_eq!(snapshot(Path::new(&sandbox.path("inside"))), before);
}

#[tokio::test]
async fn file_that_changed_since_is_named_and_nothing_is_restored() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    call_done(&fixture, "fs.write_file", json!({ "path": "ok.txt", "content": "new" })).await;
    call_done(&fixture, "fs.delete", json!({ "path": "sub/deep.txt" })).await;
    call_done(&fixture, "fs.write_file", json!({ "path": "made.txt", "content": "new" })).await;
    fs::write(sandbox.path("inside/ok.txt"), "by hand").unwrap();
    fs::create_dir(sandbox.path("inside/sub/deep.txt")).unwrap();
    let before = snapshot(Path::new(&sandbox.path("inside")));
    let changed = ["inside/ok.txt", "inside/sub/deep.txt"].map(|name| path(&sandbox.path(name)));
    let refused = restore(&recorded(&fixture), &fixture.grant).unwrap_err();
    assert_eq!(refused, RestoreFault::ChangedSince(changed.to_vec()));
    assert_eq!(snapshot(Path::new(&sandbox.path("inside"))), before);
}

#[tokio::test]
async fn change_that_was_recorded_and_never_made_needs_nothing() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    call_done(&fixture, "fs.write_file", json!({ "path": "ok.txt", "content": "new" })).await;
    call_done(&fixture, "fs.write_file", json!({ "path": "ok.txt", "content": "newer" })).await;
    call_done(&fixture, "fs.delete", json!({ "path": "tree", "recursive": true })).await;
    let changes = recorded(&fixture);
    // A daemon that was killed after it recorded the second write.
    fs::write(sandbox.path("inside/ok.txt"), "new").unwrap();
    restore(&changes, &fixture.grant).unwrap();
    assert_eq!(sandbox.content("inside/ok.txt"), "inside");
    // A daemon that was killed while it deleted the tree, and one that was killed while it restored it.
    fs::remove_file(sandbox.path("inside/tree/bytes")).unwrap();
    let restored = restore(&changes, &fixture.grant).unwrap();
    assert_eq!(restored, [path(&sandbox.path("inside/tree/bytes"))]);
}

#[tokio::test]
async fn failed_restoration_puts_everything_back() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    call_done(&fixture, "fs.write_file", json!({ "path": "ok.txt", "content": "new" })).await;
    call_done(&fixture, "fs.delete", json!({ "path": "sub/deep.txt" })).await;
    call_done(&fixture, "fs.mkdir", json!({ "path": "sub/deep.txt/below" })).await;
    call_done(&fixture, "fs.delete", json!({ "path": "tree/link" })).await;
    call_done(&fixture, "fs.write_file", json!({ "path": "z.txt", "content": "new" })).await;
    fs::write(sandbox.path("inside/sub/deep.txt/below/other"), "by hand").unwrap();
    let before = snapshot(Path::new(&sandbox.path("inside")));
    let changes = recorded(&fixture);
    assert!(matches!(restore(&changes, &fixture.grant), Err(RestoreFault::Failed(_))));
    assert_eq!(snapshot(Path::new(&sandbox.path("inside"))), before);
    fs::remove_file(sandbox.path("inside/sub/deep.txt/below/other")).unwrap();
    restore(&changes, &fixture.grant).unwrap();
    assert_eq!(
        (sandbox.content("inside/sub/deep.txt"), sandbox.content("inside/ok.txt")),
        ("deep".to_owned(), "inside".to_owned())
    );
}

#[tokio::test]
async fn created_directory_with_other_entries_stays() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    call_done(&fixture, "fs.write_file", json!({ "path": "made/new.txt", "content": "new" })).await;
    fs::write(sandbox.path("inside/made/other"), "by hand").unwrap();
    let restored = restore(&recorded(&fixture), &fixture.grant).unwrap();
    assert_eq!(restored, [path(&sandbox.path("inside/made/new.txt"))]);
    assert_eq!(sandbox.file_names("inside/made"), ["other"]);
}

#[tokio::test]
async fn too_large_content_is_changed_and_not_undoable() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    let file = fs::File::create(sandbox.path("inside/large")).unwrap();
    file.set_len(UNDO_FILE_BYTES_MAX as u64 + 1).unwrap();
    call_done(&fixture, "fs.delete", json!({ "path": "large" })).await;
    let text = format!("{} was larger than 8 MiB", sandbox.path("inside/large"));
    assert_eq!(*fixture.changes.calls.lock().unwrap(), [NewChanges::NotUndoable(text)]);
    assert!(!Path::new(&sandbox.path("inside/large")).exists());
}

#[tokio::test]
async fn tree_beyond_the_limits_of_a_turn_is_not_undoable() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for number in 0..5 {
        let file = fs::File::create(sandbox.path(&format!("inside/sub/{number}"))).unwrap();
        file.set_len(UNDO_FILE_BYTES_MAX as u64 - 1024).unwrap();
    }
    call_done(&fixture, "fs.delete", json!({ "path": "sub", "recursive": true })).await;
    fs::create_dir(sandbox.path("inside/many")).unwrap();
    for number in 0..512 {
        fs::write(sandbox.path(&format!("inside/many/{number}")), "").unwrap();
    }
    call_done(&fixture, "fs.move", json!({ "from": "many", "to": "moved" })).await;
    let texts = ["what it replaced is larger than 32 MiB", "it changed more than 512 files"];
    let expected = texts.map(|text| NewChanges::NotUndoable(text.to_owned()));
    assert_eq!(*fixture.changes.calls.lock().unwrap(), expected);
}

#[tokio::test]
async fn change_that_cannot_be_recorded_is_not_made() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    let before = snapshot(Path::new(&sandbox.path("inside")));
    *fixture.changes.failure.lock().unwrap() = Some("disk full".to_owned());
    for (tool, arguments, name) in [
        ("fs.write_file", json!({ "path": "a/new.txt", "content": "new" }), "a/new.txt"),
        ("fs.append_file", json!({ "path": "ok.txt", "content": "more" }), "ok.txt"),
        ("fs.edit", json!({ "path": "ok.txt", "old": "in", "new": "out" }), "ok.txt"),
        ("fs.mkdir", json!({ "path": "a/b" }), "a/b"),
        ("fs.move", json!({ "from": "tree", "to": "a/moved" }), "tree"),
        ("fs.copy", json!({ "from": "tree", "to": "a/copied" }), "a/copied"),
        ("fs.delete", json!({ "path": "tree", "recursive": true }), "tree"),
    ] {
        let text = format!(
            "Execution failed: {name}: not changed, because what it replaces cannot be stored: disk full"
        );
        assert_eq!(fixture.call(tool, &arguments).await, failed(text), "{tool}");
        assert_eq!(snapshot(Path::new(&sandbox.path("inside"))), before, "{tool}");
    }
}

#[tokio::test]
async fn link_in_place_of_a_file_is_not_followed() {
    let sandbox = prepared();
    let fixture = sandbox.fixture();
    call_done(&fixture, "fs.write_file", json!({ "path": "ok.txt", "content": "new" })).await;
    let changes = recorded(&fixture);
    let FileState::File { mode, .. } = changes[0].before else { panic!("{changes:?}") };
    assert_eq!(mode, 0o640);
    // The link leads to a file with the expected content, outside of what the agent may write.
    fs::remove_file(sandbox.path("inside/ok.txt")).unwrap();
    fs::write(sandbox.path("outside/same.txt"), "new").unwrap();
    symlink("../outside/same.txt", sandbox.path("inside/ok.txt")).unwrap();
    let refused = restore(&changes, &fixture.grant).unwrap_err();
    assert_eq!(refused, RestoreFault::ChangedSince(vec![path(&sandbox.path("inside/ok.txt"))]));
    let nowhere = Grant { write: DirectorySet::from_roots([]), ..fixture.grant.clone() };
    let effects = [Effect::Write(changes[0].path.clone())];
    assert!(matches!(judge(&effects, &nowhere), Verdict::Denied(_)));
}
