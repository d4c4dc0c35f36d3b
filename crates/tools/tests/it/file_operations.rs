//! Creating, moving, copying, deleting and describing files and directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use agent::ToolOutcome;
use agent::permission::DirectorySet;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::blocked_aliases::{BindMount, trusted};
use crate::fixture::{Fixture, done, failed, path};
use crate::sandbox::{SECRET, Sandbox, path_denied};

async fn mkdir(fixture: &Fixture, path: &str) -> ToolOutcome {
    fixture.call("fs.mkdir", &json!({ "path": path })).await
}

async fn delete(fixture: &Fixture, path: &str) -> ToolOutcome {
    fixture.call("fs.delete", &json!({ "path": path })).await
}

async fn delete_all(fixture: &Fixture, path: &str) -> ToolOutcome {
    fixture.call("fs.delete", &json!({ "path": path, "recursive": true })).await
}

async fn transfer(fixture: &Fixture, tool: &str, from: &str, to: &str) -> ToolOutcome {
    fixture.call(tool, &json!({ "from": from, "to": to })).await
}

fn deleted(path: &str, count: usize) -> ToolOutcome {
    done(json!({"deleted": count, "path": path, "success": true}).to_string())
}

fn make_fifo(sandbox: &Sandbox, name: &str) {
    let file = sandbox.path(name);
    rustix::fs::mknodat(CWD, file, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[tokio::test]
async fn mkdir_creates_missing_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    assert_eq!(mkdir(&fixture, "a/b/c").await, done(r#"{"created":true,"path":"a/b/c","success":true}"#));
    assert_eq!(mkdir(&fixture, "a/b").await, done(r#"{"created":false,"path":"a/b","success":true}"#));
    assert_eq!(sandbox.file_names("inside/a/b"), ["c"]);
    assert_eq!(
        mkdir(&fixture, "ok.txt").await,
        failed("Execution failed: ok.txt exists and is not a directory")
    );
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    assert_eq!(mkdir(&fixture, "way/new").await, path_denied("way/new"));
    assert_eq!(mkdir(&fixture, "a/.git/hooks").await.name(), "denied");
    let deep = "d/".repeat(129);
    assert!(mkdir(&fixture, &deep).await.text().ends_with("more than 128 directories deep"));
    assert_eq!(sandbox.file_names("inside"), ["a", "ok.txt", "sub", "way"]);
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
}

#[tokio::test]
async fn delete_removes_files_links_and_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    symlink("../../outside", sandbox.path("inside/sub/way")).unwrap();
    fs::create_dir_all(sandbox.path("inside/sub/a/b")).unwrap();
    assert_eq!(delete(&fixture, "ok.txt").await, deleted("ok.txt", 1));
    assert_eq!(delete(&fixture, "way").await, deleted("way", 1), "the link, not its target");
    let expected = "Execution failed: sub is not empty; set `recursive` to delete its contents";
    assert_eq!(delete(&fixture, "sub").await, failed(expected));
    assert_eq!(delete(&fixture, "sub/a/b").await, deleted("sub/a/b", 1), "an empty directory");
    assert_eq!(delete_all(&fixture, "sub").await, deleted("sub", 4));
    assert_eq!(delete(&fixture, "sub").await, failed("Execution failed: File not found: sub"));
    assert!(sandbox.file_names("inside").is_empty());
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
    let itself = "was granted itself: only its contents can be changed";
    assert_eq!(delete_all(&fixture, ".").await, failed(format!("Execution failed: . {itself}")));
}

#[tokio::test]
async fn delete_and_move_leave_directories_with_protected_contents() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for name in ["x/.git/config", "y/a/.envrc", "z/.ssh/id_rsa", "v/.vscode/tasks.json"] {
        let file = sandbox.path(&format!("inside/{name}"));
        fs::create_dir_all(std::path::Path::new(&file).parent().unwrap()).unwrap();
        fs::write(&file, "old").unwrap();
        let (top, rest) = name.split_once('/').unwrap();
        for outcome in [delete_all(&fixture, top).await, transfer(&fixture, "fs.move", top, "new").await] {
            let expected = format!("Permission denied: {top} stays as it is: {top}/");
            assert!(outcome.text().starts_with(&expected), "{rest}: {outcome:?}");
        }
        for outcome in [delete(&fixture, name).await, transfer(&fixture, "fs.move", name, "new").await] {
            assert_eq!(outcome.name(), "denied", "{outcome:?}");
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "old");
    }
    for target in ["sub/.git", ".bashrc", ".git/hooks/pre-commit", ".ssh/config"] {
        for tool in ["fs.move", "fs.copy"] {
            assert_eq!(transfer(&fixture, tool, "ok.txt", target).await.name(), "denied", "{tool} {target}");
        }
    }
    assert_eq!(transfer(&fixture, "fs.copy", "z/.ssh/id_rsa", "key").await.name(), "denied");
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub", "v", "x", "y", "z"]);
}

#[tokio::test]
async fn delete_and_move_leave_directories_with_blocked_contents() {
    let sandbox = Sandbox::new();
    let mut fixture = trusted(&sandbox);
    fs::create_dir_all(sandbox.path("inside/a/b")).unwrap();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/a/b/leaf")).unwrap();
    fixture.grant.blocked.push(path(&sandbox.path("inside/sub")));
    let base = sandbox.base.clone();
    for target in [base.as_str(), "../inside", "a"] {
        for outcome in [
            delete_all(&fixture, target).await,
            transfer(&fixture, "fs.move", target, "/tmp/nexus3-never-created").await,
        ] {
            let expected = format!("Permission denied: {target} stays as it is: it contains a blocked file");
            assert_eq!(outcome, ToolOutcome::Denied(expected));
        }
    }
    for target in ["sub", "../outside", "a/b/leaf"] {
        assert_eq!(delete_all(&fixture, target).await.name(), "denied");
        assert_eq!(transfer(&fixture, "fs.move", target, "new").await.name(), "denied");
        assert_ne!(transfer(&fixture, "fs.move", "ok.txt", &format!("{target}/x")).await.name(), "done");
    }
    assert_eq!(transfer(&fixture, "fs.copy", "a/b/leaf", "new").await, path_denied("a/b/leaf"));
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(sandbox.file_names("inside"), ["a", "ok.txt", "sub"]);
}

#[tokio::test]
async fn delete_and_move_do_not_cross_mounts() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("inside/a/b")).unwrap();
    let Some(mount) = BindMount::create(&sandbox, "inside-sibling", "inside/a/b") else { return };
    let fixture = sandbox.fixture();
    for (target, why) in [("a", "a/b is on another mount"), ("a/b", "it is on another mount")] {
        let expected = format!("Permission denied: {target} stays as it is: {why}");
        assert_eq!(delete_all(&fixture, target).await, ToolOutcome::Denied(expected.clone()));
        assert_eq!(transfer(&fixture, "fs.move", target, "new").await, ToolOutcome::Denied(expected));
    }
    assert_eq!(sandbox.content("inside-sibling/secret.txt"), SECRET);
    let across = transfer(&fixture, "fs.move", "ok.txt", "a/b/ok.txt").await;
    assert!(across.text().ends_with("is on another file system; use fs.copy and fs.delete"), "{across:?}");
    drop(mount);
}

#[tokio::test]
async fn threat_70_pipes_and_devices_are_not_touched() {
    let sandbox = Sandbox::new();
    make_fifo(&sandbox, "inside/sub/fifo");
    let fixture = sandbox.fixture();
    for outcome in [delete_all(&fixture, "sub").await, transfer(&fixture, "fs.move", "sub", "new").await] {
        let expected = "Permission denied: sub stays as it is: sub/fifo is a named pipe";
        assert_eq!(outcome, ToolOutcome::Denied(expected.to_owned()));
    }
    let copied = transfer(&fixture, "fs.copy", "sub/fifo", "new").await;
    assert_eq!(copied, failed("Execution failed: sub/fifo is a named pipe, not a regular file"));
    assert_eq!(sandbox.file_names("inside/sub"), ["deep.txt", "fifo"], "nothing was deleted");
}

#[tokio::test]
async fn move_renames_files_and_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let outcome = transfer(&fixture, "fs.move", "sub", "new/place").await;
    assert_eq!(outcome, done(r#"{"from":"sub","success":true,"to":"new/place"}"#));
    assert_eq!(sandbox.content("inside/new/place/deep.txt"), "deep");
    let exists = "Execution failed: new/place/deep.txt exists; set `overwrite` to replace a file";
    assert_eq!(transfer(&fixture, "fs.move", "ok.txt", "new/place/deep.txt").await, failed(exists));
    assert_eq!(sandbox.content("inside/new/place/deep.txt"), "deep");
    let over = json!({"from": "ok.txt", "to": "new/place/deep.txt", "overwrite": true});
    assert_eq!(fixture.call("fs.move", &over).await.name(), "done");
    assert_eq!(sandbox.content("inside/new/place/deep.txt"), "inside");
    let into_itself = transfer(&fixture, "fs.move", "new", "new/place/x").await;
    assert_eq!(into_itself, failed("Execution failed: new/place/x: a directory cannot be moved into itself"));
    let over = json!({"from": "new/place/deep.txt", "to": "new", "overwrite": true});
    assert_eq!(
        fixture.call("fs.move", &over).await,
        failed("Execution failed: new is a directory, not a regular file")
    );
    let gone = transfer(&fixture, "fs.move", "gone", "far/x").await;
    assert_eq!(gone, failed("Execution failed: File not found: gone"));
    assert_eq!(sandbox.file_names("inside"), ["new"], "a failed move creates no directory");
}

#[tokio::test]
async fn copy_retains_content_and_mode() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::write(sandbox.path("inside/tool"), b"\x00\xff").unwrap();
    fs::set_permissions(sandbox.path("inside/tool"), fs::Permissions::from_mode(0o4700)).unwrap();
    let outcome = transfer(&fixture, "fs.copy", "tool", "a/b").await;
    assert_eq!(outcome, done(r#"{"bytes_written":2,"from":"tool","success":true,"to":"a/b"}"#));
    assert_eq!(fs::read(sandbox.path("inside/a/b")).unwrap(), b"\x00\xff");
    let mode = fs::metadata(sandbox.path("inside/a/b")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o700, "without set-id bits");
    let exists = "Execution failed: ok.txt exists; set `overwrite` to replace a file";
    assert_eq!(transfer(&fixture, "fs.copy", "tool", "ok.txt").await, failed(exists));
    assert_eq!(sandbox.content("inside/ok.txt"), "inside");
    let over = json!({"from": "tool", "to": "ok.txt", "overwrite": true});
    assert_eq!(fixture.call("fs.copy", &over).await.name(), "done");
    let long = fs::File::create(sandbox.path("inside/long")).unwrap();
    long.set_len((100 << 20) + 1).unwrap();
    let too_long = transfer(&fixture, "fs.copy", "long", "longer").await;
    assert_eq!(too_long, failed("Execution failed: long is longer than 104857600 bytes"));
    assert_eq!(sandbox.file_names("inside"), ["a", "long", "ok.txt", "sub", "tool"]);
}

#[tokio::test]
async fn both_ends_of_move_and_copy_are_judged() {
    let sandbox = Sandbox::new();
    let mut fixture = sandbox.fixture();
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    for (from, to) in [
        ("../outside/secret.txt", "x"),
        ("way/secret.txt", "x"),
        ("ok.txt", "../outside/x"),
        ("ok.txt", "way/x"),
        ("ok.txt", "way/new/x"),
    ] {
        for tool in ["fs.move", "fs.copy"] {
            assert_eq!(transfer(&fixture, tool, from, to).await.name(), "denied", "{tool} {from} {to}");
        }
    }
    fixture.grant.write = DirectorySet::from_roots([path(&sandbox.path("inside/sub"))]);
    assert_eq!(transfer(&fixture, "fs.move", "ok.txt", "sub/x").await.name(), "denied");
    assert_eq!(transfer(&fixture, "fs.copy", "ok.txt", "sub/x").await.name(), "done");
    fixture.grant.write = fixture.grant.read.clone();
    fixture.grant.read = DirectorySet::from_roots([path(&sandbox.path("inside/sub"))]);
    assert_eq!(transfer(&fixture, "fs.move", "ok.txt", "sub/y").await.name(), "denied");
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub", "way"]);
}

#[tokio::test]
async fn move_needs_permission_where_its_source_really_is() {
    let sandbox = Sandbox::new();
    let mut fixture = sandbox.fixture();
    for (directory, link) in [("inside/a", "../b"), ("inside/b", "../a")] {
        fs::create_dir(sandbox.path(directory)).unwrap();
        fs::write(sandbox.path(&format!("{directory}/x")), directory).unwrap();
        symlink(link, sandbox.path(&format!("{directory}/way"))).unwrap();
    }
    let all = fixture.grant.read.clone();
    let only_a = DirectorySet::from_roots([path(&sandbox.path("inside/a"))]);
    (fixture.grant.read, fixture.grant.write) = (only_a.clone(), all.clone());
    assert_eq!(transfer(&fixture, "fs.move", "a/way/x", "a/y").await, path_denied("a/way/x"), "not readable");
    assert_eq!(transfer(&fixture, "fs.copy", "a/way/x", "a/y").await, path_denied("a/way/x"));
    (fixture.grant.read, fixture.grant.write) = (all, only_a);
    assert_eq!(transfer(&fixture, "fs.move", "a/way/x", "a/y").await, path_denied("a/way/x"), "not writable");
    assert_eq!(transfer(&fixture, "fs.move", "a/x", "a/way/y").await, path_denied("a/way/y"), "target");
    assert_eq!(sandbox.content("inside/b/x"), "inside/b");
    assert_eq!(sandbox.file_names("inside/a"), ["way", "x"]);
    assert_eq!(transfer(&fixture, "fs.move", "a/x", "a/y").await.name(), "done");
    assert_eq!(transfer(&fixture, "fs.move", "b/way/y", "a/z").await.name(), "denied", "by its text");
}

#[tokio::test]
async fn moved_directory_puts_nothing_protected_or_blocked_into_place() {
    let sandbox = Sandbox::new();
    let mut fixture = sandbox.fixture();
    fixture.grant.blocked.push(path(&sandbox.path("inside/closed/x")));
    for name in ["new/fish/config.fish", "other/x/y"] {
        let file = sandbox.path(&format!("inside/{name}"));
        fs::create_dir_all(std::path::Path::new(&file).parent().unwrap()).unwrap();
        fs::write(&file, "evil").unwrap();
    }
    for tool in ["fs.move", "fs.copy"] {
        for (from, to) in [("new", ".config"), ("new/fish", ".config/fish"), ("other", "closed")] {
            let outcome = transfer(&fixture, tool, from, to).await;
            assert_eq!(outcome.name(), "denied", "{tool} {from} {to}: {outcome:?}");
        }
    }
    assert_eq!(sandbox.file_names("inside"), ["new", "ok.txt", "other", "sub"]);
}

#[tokio::test]
async fn failed_calls_leave_no_new_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let long = "x".repeat(256);
    for (tool, arguments) in [
        ("fs.mkdir", json!({"path": format!("new/deep/{long}")})),
        ("fs.write_file", json!({"path": format!("new/deep/{long}"), "content": "x"})),
        ("fs.append_file", json!({"path": format!("new/deep/{long}"), "content": "x"})),
        ("fs.move", json!({"from": "ok.txt", "to": format!("new/deep/{long}")})),
        ("fs.copy", json!({"from": "ok.txt", "to": format!("new/deep/{long}")})),
        ("fs.copy", json!({"from": "sub", "to": format!("new/deep/{long}")})),
        ("fs.patch", json!({"patch": format!("--- /dev/null\n+++ b/new/deep/{long}\n@@ -0,0 +1 @@\n+x\n")})),
    ] {
        let outcome = fixture.call(tool, &arguments).await;
        assert!(outcome.text().contains("File name too long"), "{tool}: {outcome:?}");
        assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"], "{tool}");
    }
}

#[tokio::test]
async fn large_trees_are_not_deleted_at_once() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::create_dir_all(sandbox.path(&format!("inside/deep/{}", "d/".repeat(70)))).unwrap();
    for index in 0..10_001 {
        fs::File::create(sandbox.path(&format!("inside/sub/{index}"))).unwrap();
    }
    for directory in ["sub", "deep"] {
        let outcome = delete_all(&fixture, directory).await;
        assert!(outcome.text().contains("has more than 10000 entries or is more than 64"), "{outcome:?}");
    }
    assert_eq!(sandbox.file_names("inside/sub").len(), 10_002);
}

#[tokio::test]
async fn info_describes_files_and_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let file = fs::File::options().write(true).open(sandbox.path("inside/ok.txt")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000)).unwrap();
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let expected =
        r#"{"bytes":6,"mode":"0640","modified":"2023-11-14T22:13:20Z","path":"ok.txt","type":"file"}"#;
    assert_eq!(fixture.call("fs.info", &json!({"path": "ok.txt"})).await, done(expected));
    let directory = fixture.call("fs.info", &json!({"path": "."})).await;
    assert!(directory.text().ends_with(r#""path":".","type":"directory"}"#), "{directory:?}");
    make_fifo(&sandbox, "inside/fifo");
    assert!(fixture.call("fs.info", &json!({"path": "fifo"})).await.text().ends_with(r#""type":"pipe"}"#));
    let missing = fixture.call("fs.info", &json!({"path": "gone"})).await;
    assert_eq!(missing, failed("Execution failed: File not found: gone"));
    assert_eq!(fixture.call("fs.info", &json!({"path": "../outside/secret.txt"})).await.name(), "denied");
}
