//! What appending leaves behind: the old content untouched, the new one at its end, whole or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use agent::ToolOutcome;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::fixture::{Fixture, failed};
use crate::sandbox::{SECRET, Sandbox, append_file, path_denied, write, written_outcome};
use crate::small_disk::SmallDisk;

fn inode(sandbox: &Sandbox, name: &str) -> u64 {
    fs::metadata(sandbox.path(name)).unwrap().ino()
}

#[tokio::test]
async fn files_are_made_and_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    assert_eq!(append_file(&world, "a/b/log", "grüße\n").await, written_outcome("a/b/log", 8));
    assert_eq!(append_file(&world, "a/b/log", "more\n").await, written_outcome("a/b/log", 5));
    assert_eq!(append_file(&world, "a/b/log", "").await, written_outcome("a/b/log", 0));
    assert_eq!(sandbox.content("inside/a/b/log"), "grüße\nmore\n");
    assert_eq!(fs::metadata(sandbox.path("inside/a/b/log")).unwrap().permissions().mode() & 0o111, 0);
    assert_eq!(append_file(&world, "empty", "").await, written_outcome("empty", 0));
    assert_eq!(sandbox.file_names("inside"), ["a", "empty", "ok.txt", "sub"]);
    let new = Fixture::confined_to(&sandbox.path("fresh"));
    assert_eq!(append_file(&new, "x", "x").await, written_outcome("x", 1));
    let far = Fixture::confined_to(&sandbox.path("no/such"));
    assert_eq!(append_file(&far, "x", "x").await, failed("Execution failed: File not found: x"));
}

#[tokio::test]
async fn a_new_line_is_begun_unless_that_is_not_wanted() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    assert_eq!(append_file(&world, "log", "one").await, written_outcome("log", 3));
    assert_eq!(append_file(&world, "log", "two\n").await, written_outcome("log", 5));
    assert_eq!(append_file(&world, "log", "three").await, written_outcome("log", 5));
    let same_line = json!({"path": "log", "content": "!", "newline": false});
    assert_eq!(world.call("append_file", &same_line).await, written_outcome("log", 1));
    assert_eq!(sandbox.content("inside/log"), "one\ntwo\nthree!");
}

#[tokio::test]
async fn the_file_stays_the_same_file() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    let before = inode(&sandbox, "inside/ok.txt");
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("ok.txt", sandbox.path("inside/link")).unwrap();
    append_file(&world, "ok.txt", "1").await;
    append_file(&world, "link", "2").await;
    assert_eq!(inode(&sandbox, "inside/ok.txt"), before);
    assert_eq!(fs::metadata(sandbox.path("inside/ok.txt")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(sandbox.content("inside/ok.txt"), "inside\n1\n2");
    let long = fs::File::create(sandbox.path("inside/long")).unwrap();
    long.set_len(1 << 30).unwrap();
    assert_eq!(
        append_file(&world, "long", "x").await,
        written_outcome("long", 2),
        "what was there is not copied"
    );
    assert_eq!(long.metadata().unwrap().len(), (1 << 30) + 2);
}

#[tokio::test]
async fn another_name_of_the_same_file_keeps_the_old_content() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/one")).unwrap();
    assert_eq!(append_file(&world, "one", "mine").await, written_outcome("one", 5));
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(sandbox.content("inside/one"), format!("{SECRET}\nmine"));
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "one", "sub"]);
}

#[tokio::test]
async fn new_content_does_not_act_as_the_owner() {
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(append_file(&sandbox.fixture(), "ok.txt", "x").await, written_outcome("ok.txt", 2));
    let mode = fs::metadata(sandbox.path("inside/ok.txt")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o755);
}

#[tokio::test]
async fn protected_names_are_never_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    fs::create_dir(sandbox.path("inside/.git")).unwrap();
    fs::write(sandbox.path("inside/.git/config"), "old").unwrap();
    symlink(".git/config", sandbox.path("inside/file")).unwrap();
    for name in
        [".git/config", ".git/hooks/pre-commit", ".BASHRC", "a/.profile", ".vscode/tasks.json", "file"]
    {
        assert!(matches!(append_file(&world, name, "x").await, ToolOutcome::Denied(_)), "{name}");
    }
    assert_eq!(sandbox.content("inside/.git/config"), "old");
    assert_eq!(sandbox.file_names("inside"), [".git", "file", "ok.txt", "sub"]);
    assert_eq!(append_file(&world, "../x", "x").await.name(), path_denied("../x").name());
}

#[tokio::test]
async fn only_regular_files_are_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    let _socket = UnixListener::bind(sandbox.path("inside/socket")).unwrap();
    rustix::fs::mknodat(CWD, sandbox.path("inside/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    for (name, what) in [("sub", "a directory"), ("socket", "a socket"), ("pipe", "a named pipe")] {
        let text = format!("Execution failed: {name} is {what}, not a regular file");
        assert_eq!(append_file(&world, name, "x").await, failed(text));
    }
}

#[tokio::test]
async fn arguments_are_checked_before_anything_is_touched() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for (arguments, expected) in [
        (json!({"path": "x"}), "missing field `content`"),
        (json!({"path": "", "content": "x"}), "field `path`: the path is empty"),
        (
            json!({"path": "a", "content": "x", "append": true}),
            "unknown field `append`, expected one of `path`, `content`, `newline`",
        ),
        (
            json!({"path": "a", "content": "x".repeat((10 << 20) + 1)}),
            "field `content`: longer than 10485760 bytes",
        ),
    ] {
        let outcome = world.call("fs_append_file", &arguments).await;
        assert_eq!(outcome, failed(format!("Invalid input: {expected}")));
    }
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_no_new_one() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.path("inside")) else {
        eprintln!("skipped: only one who may mount can make a full disk");
        return;
    };
    let world = sandbox.fixture();
    assert_eq!(write(&world, "file", "old").await, written_outcome("file", 3));
    for name in ["file", "new"] {
        let outcome = append_file(&world, name, &"x".repeat(100_000)).await;
        assert_eq!(
            outcome,
            failed(format!("Execution failed: {name}: No space left on device (os error 28)"))
        );
    }
    assert_eq!(sandbox.content("inside/file"), "old");
    assert_eq!(sandbox.file_names("inside"), ["file"]);
    assert_eq!(append_file(&world, "file", "x").await, written_outcome("file", 2), "there is room for less");
}
