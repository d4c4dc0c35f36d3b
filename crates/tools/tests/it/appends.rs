//! Appending: old content is unchanged, new content is at the end, completely or not at all.

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
async fn append_creates_files_and_extends_them() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    assert_eq!(append_file(&fixture, "a/b/log", "grüße\n").await, written_outcome("a/b/log", 8));
    assert_eq!(append_file(&fixture, "a/b/log", "more\n").await, written_outcome("a/b/log", 5));
    assert_eq!(append_file(&fixture, "a/b/log", "").await, written_outcome("a/b/log", 0));
    assert_eq!(sandbox.content("inside/a/b/log"), "grüße\nmore\n");
    assert_eq!(fs::metadata(sandbox.path("inside/a/b/log")).unwrap().permissions().mode() & 0o111, 0);
    assert_eq!(append_file(&fixture, "empty", "").await, written_outcome("empty", 0));
    assert_eq!(sandbox.file_names("inside"), ["a", "empty", "ok.txt", "sub"]);
    let new = Fixture::confined_to(&sandbox.path("fresh"));
    assert_eq!(append_file(&new, "x", "x").await, written_outcome("x", 1));
    let far = Fixture::confined_to(&sandbox.path("no/such"));
    assert_eq!(append_file(&far, "x", "x").await, failed("Execution failed: File not found: x"));
}

#[tokio::test]
async fn append_starts_a_new_line_by_default() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    assert_eq!(append_file(&fixture, "log", "one").await, written_outcome("log", 3));
    assert_eq!(append_file(&fixture, "log", "two\n").await, written_outcome("log", 5));
    assert_eq!(append_file(&fixture, "log", "three").await, written_outcome("log", 5));
    let same_line = json!({"path": "log", "content": "!", "newline": false});
    assert_eq!(fixture.call("append_file", &same_line).await, written_outcome("log", 1));
    assert_eq!(sandbox.content("inside/log"), "one\ntwo\nthree!");
}

#[tokio::test]
async fn append_retains_inode_and_mode() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let before = inode(&sandbox, "inside/ok.txt");
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("ok.txt", sandbox.path("inside/link")).unwrap();
    append_file(&fixture, "ok.txt", "1").await;
    append_file(&fixture, "link", "2").await;
    assert_eq!(inode(&sandbox, "inside/ok.txt"), before);
    assert_eq!(fs::metadata(sandbox.path("inside/ok.txt")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(sandbox.content("inside/ok.txt"), "inside\n1\n2");
    let long = fs::File::create(sandbox.path("inside/long")).unwrap();
    long.set_len(1 << 30).unwrap();
    assert_eq!(
        append_file(&fixture, "long", "x").await,
        written_outcome("long", 2),
        "the old content is not copied"
    );
    assert_eq!(long.metadata().unwrap().len(), (1 << 30) + 2);
}

#[tokio::test]
async fn append_leaves_other_hard_links_unchanged() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/one")).unwrap();
    assert_eq!(append_file(&fixture, "one", "mine").await, written_outcome("one", 5));
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(sandbox.content("inside/one"), format!("{SECRET}\nmine"));
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "one", "sub"]);
}

#[tokio::test]
async fn append_clears_set_id_bits() {
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path("inside/ok.txt"), fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(append_file(&sandbox.fixture(), "ok.txt", "x").await, written_outcome("ok.txt", 2));
    let mode = fs::metadata(sandbox.path("inside/ok.txt")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o755);
}

#[tokio::test]
async fn append_to_protected_names_is_denied() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::create_dir(sandbox.path("inside/.git")).unwrap();
    fs::write(sandbox.path("inside/.git/config"), "old").unwrap();
    symlink(".git/config", sandbox.path("inside/file")).unwrap();
    for name in
        [".git/config", ".git/hooks/pre-commit", ".BASHRC", "a/.profile", ".vscode/tasks.json", "file"]
    {
        assert!(matches!(append_file(&fixture, name, "x").await, ToolOutcome::Denied(_)), "{name}");
    }
    assert_eq!(sandbox.content("inside/.git/config"), "old");
    assert_eq!(sandbox.file_names("inside"), [".git", "file", "ok.txt", "sub"]);
    assert_eq!(append_file(&fixture, "../x", "x").await.name(), path_denied("../x").name());
}

#[tokio::test]
async fn append_rejects_other_than_regular_files() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let _socket = UnixListener::bind(sandbox.path("inside/socket")).unwrap();
    rustix::fs::mknodat(CWD, sandbox.path("inside/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    for (name, what) in [("sub", "a directory"), ("socket", "a socket"), ("pipe", "a named pipe")] {
        let text = format!("Execution failed: {name} is {what}, not a regular file");
        assert_eq!(append_file(&fixture, name, "x").await, failed(text));
    }
}

#[tokio::test]
async fn append_validates_arguments_first() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
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
        let outcome = fixture.call("fs_append_file", &arguments).await;
        assert_eq!(outcome, failed(format!("Invalid input: {expected}")));
    }
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}

#[tokio::test]
async fn threat_73_append_on_a_full_disk_changes_nothing() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.path("inside")) else {
        eprintln!("skipped: mounting a small disk needs privileges");
        return;
    };
    let fixture = sandbox.fixture();
    assert_eq!(write(&fixture, "file", "old").await, written_outcome("file", 3));
    for name in ["file", "new"] {
        let outcome = append_file(&fixture, name, &"x".repeat(100_000)).await;
        assert_eq!(
            outcome,
            failed(format!("Execution failed: {name}: No space left on device (os error 28)"))
        );
    }
    assert_eq!(sandbox.content("inside/file"), "old");
    assert_eq!(sandbox.file_names("inside"), ["file"]);
    assert_eq!(append_file(&fixture, "file", "x").await, written_outcome("file", 2), "a shorter append fits");
}
