//! What appending leaves behind: the old content untouched, the new one at its end, whole or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use agent::ToolOutcome;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::sandbox::{SECRET, Sandbox, add, outside, write, written};
use crate::small_disk::SmallDisk;
use crate::world::{World, failed};

fn inode(sandbox: &Sandbox, name: &str) -> u64 {
    fs::metadata(sandbox.at(name)).unwrap().ino()
}

#[tokio::test]
async fn files_are_made_and_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    assert_eq!(add(&world, "a/b/log", "grüße\n").await, written("a/b/log", 8));
    assert_eq!(add(&world, "a/b/log", "more\n").await, written("a/b/log", 5));
    assert_eq!(add(&world, "a/b/log", "").await, written("a/b/log", 0));
    assert_eq!(sandbox.content("inside/a/b/log"), "grüße\nmore\n");
    assert_eq!(fs::metadata(sandbox.at("inside/a/b/log")).unwrap().permissions().mode() & 0o111, 0);
    assert_eq!(add(&world, "empty", "").await, written("empty", 0));
    assert_eq!(sandbox.names("inside"), ["a", "empty", "ok.txt", "sub"]);
    let new = World::at(&sandbox.at("fresh"));
    assert_eq!(add(&new, "x", "x").await, written("x", 1));
    let far = World::at(&sandbox.at("no/such"));
    assert_eq!(add(&far, "x", "x").await, failed("Execution failed: File not found: x"));
}

#[tokio::test]
async fn a_new_line_is_begun_unless_that_is_not_wanted() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    assert_eq!(add(&world, "log", "one").await, written("log", 3));
    assert_eq!(add(&world, "log", "two\n").await, written("log", 5));
    assert_eq!(add(&world, "log", "three").await, written("log", 5));
    let same_line = json!({"path": "log", "content": "!", "newline": false});
    assert_eq!(world.call("append_file", &same_line).await, written("log", 1));
    assert_eq!(sandbox.content("inside/log"), "one\ntwo\nthree!");
}

#[tokio::test]
async fn the_file_stays_the_same_file() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    let before = inode(&sandbox, "inside/ok.txt");
    fs::set_permissions(sandbox.at("inside/ok.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("ok.txt", sandbox.at("inside/link")).unwrap();
    add(&world, "ok.txt", "1").await;
    add(&world, "link", "2").await;
    assert_eq!(inode(&sandbox, "inside/ok.txt"), before);
    assert_eq!(fs::metadata(sandbox.at("inside/ok.txt")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(sandbox.content("inside/ok.txt"), "inside\n1\n2");
    let long = fs::File::create(sandbox.at("inside/long")).unwrap();
    long.set_len(1 << 30).unwrap();
    assert_eq!(add(&world, "long", "x").await, written("long", 2), "what was there is not copied");
    assert_eq!(long.metadata().unwrap().len(), (1 << 30) + 2);
}

#[tokio::test]
async fn another_name_of_the_same_file_keeps_the_old_content() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    fs::hard_link(sandbox.at("outside/secret.txt"), sandbox.at("inside/one")).unwrap();
    assert_eq!(add(&world, "one", "mine").await, written("one", 5));
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(sandbox.content("inside/one"), format!("{SECRET}\nmine"));
    assert_eq!(sandbox.names("inside"), ["ok.txt", "one", "sub"]);
}

#[tokio::test]
async fn new_content_does_not_act_as_the_owner() {
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.at("inside/ok.txt"), fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(add(&sandbox.world(), "ok.txt", "x").await, written("ok.txt", 2));
    let mode = fs::metadata(sandbox.at("inside/ok.txt")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o755);
}

#[tokio::test]
async fn protected_names_are_never_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    fs::create_dir(sandbox.at("inside/.git")).unwrap();
    fs::write(sandbox.at("inside/.git/config"), "old").unwrap();
    symlink(".git/config", sandbox.at("inside/file")).unwrap();
    for name in
        [".git/config", ".git/hooks/pre-commit", ".BASHRC", "a/.profile", ".vscode/tasks.json", "file"]
    {
        assert!(matches!(add(&world, name, "x").await, ToolOutcome::Denied(_)), "{name}");
    }
    assert_eq!(sandbox.content("inside/.git/config"), "old");
    assert_eq!(sandbox.names("inside"), [".git", "file", "ok.txt", "sub"]);
    assert_eq!(add(&world, "../x", "x").await.name(), outside("../x").name());
}

#[tokio::test]
async fn only_regular_files_are_added_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
    let _socket = UnixListener::bind(sandbox.at("inside/socket")).unwrap();
    rustix::fs::mknodat(CWD, sandbox.at("inside/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    for (name, what) in [("sub", "a directory"), ("socket", "a socket"), ("pipe", "a named pipe")] {
        let text = format!("Execution failed: {name} is {what}, not a regular file");
        assert_eq!(add(&world, name, "x").await, failed(text));
    }
}

#[tokio::test]
async fn arguments_are_checked_before_anything_is_touched() {
    let sandbox = Sandbox::new();
    let world = sandbox.world();
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
    assert_eq!(sandbox.names("inside"), ["ok.txt", "sub"]);
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_no_new_one() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.at("inside")) else {
        eprintln!("skipped: only one who may mount can make a full disk");
        return;
    };
    let world = sandbox.world();
    assert_eq!(write(&world, "file", "old").await, written("file", 3));
    for name in ["file", "new"] {
        let outcome = add(&world, name, &"x".repeat(100_000)).await;
        assert_eq!(
            outcome,
            failed(format!("Execution failed: {name}: No space left on device (os error 28)"))
        );
    }
    assert_eq!(sandbox.content("inside/file"), "old");
    assert_eq!(sandbox.names("inside"), ["file"]);
    assert_eq!(add(&world, "file", "x").await, written("file", 2), "there is room for less");
}
