//! What writing leaves behind: the whole content or the old one, the old mode, no drafts, nothing that is protected.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use agent::ToolOutcome;
use serde_json::json;

use crate::fixture::{Fixture, failed};
use crate::sandbox::{SECRET, Sandbox, append, path_denied, read, write, written_outcome};
use crate::small_disk::SmallDisk;

fn mode(sandbox: &Sandbox, name: &str) -> u32 {
    fs::metadata(sandbox.path(name)).unwrap().permissions().mode() & 0o7777
}

fn set_mode(sandbox: &Sandbox, name: &str, mode: u32) {
    fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn files_are_made_replaced_and_appended_to() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    assert_eq!(write(&world, "new.txt", "grüße\n").await, written_outcome("new.txt", 8));
    assert_eq!(append(&world, "new.txt", "more").await, written_outcome("new.txt", 4));
    assert_eq!(sandbox.content("inside/new.txt"), "grüße\nmore");
    assert_eq!(write(&world, "new.txt", "").await, written_outcome("new.txt", 0));
    assert_eq!(sandbox.content("inside/new.txt"), "");
    assert_eq!(append(&world, "other.txt", "first").await, written_outcome("other.txt", 5));
    assert_eq!(sandbox.content("inside/other.txt"), "first");
    let absolute = sandbox.path("inside/abs.txt");
    assert_eq!(write(&world, &absolute, "x").await, written_outcome(&absolute, 1));
    assert_eq!(sandbox.file_names("inside"), ["abs.txt", "new.txt", "ok.txt", "other.txt", "sub"]);
}

#[tokio::test]
async fn missing_folders_are_made() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    assert_eq!(write(&world, "a/b/c/d.txt", "x").await, written_outcome("a/b/c/d.txt", 1));
    assert_eq!(write(&world, "sub/e/f.txt", "x").await, written_outcome("sub/e/f.txt", 1));
    assert_eq!(sandbox.content("inside/a/b/c/d.txt"), "x");
    let below_file = write(&world, "ok.txt/a/b", "x").await;
    assert_eq!(below_file, failed("Execution failed: ok.txt/a/b: Not a directory (os error 20)"));
}

#[tokio::test]
async fn the_allowed_folder_is_made_only_beside_what_is_there() {
    let sandbox = Sandbox::new();
    let new = Fixture::confined_to(&sandbox.path("fresh"));
    assert_eq!(write(&new, "a/x.txt", "x").await, written_outcome("a/x.txt", 1));
    assert_eq!(sandbox.content("fresh/a/x.txt"), "x");
    let far = Fixture::confined_to(&sandbox.path("no/such"));
    assert_eq!(write(&far, "x.txt", "x").await, failed("Execution failed: File not found: x.txt"));
    assert_eq!(sandbox.file_names("."), ["fresh", "inside", "inside-sibling", "outside"]);
}

#[tokio::test]
async fn the_old_mode_stays() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for kept in [0o640, 0o600, 0o755, 0o777] {
        set_mode(&sandbox, "inside/ok.txt", kept);
        write(&world, "ok.txt", "x").await;
        assert_eq!(mode(&sandbox, "inside/ok.txt"), kept);
        append(&world, "ok.txt", "x").await;
        assert_eq!(mode(&sandbox, "inside/ok.txt"), kept);
    }
    set_mode(&sandbox, "inside/ok.txt", 0o6755);
    write(&world, "ok.txt", "x").await;
    assert_eq!(mode(&sandbox, "inside/ok.txt"), 0o755, "new content does not act as the owner");
}

#[tokio::test]
async fn another_name_of_the_same_file_keeps_the_old_content() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for file in ["one", "two"] {
        fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path(&format!("inside/{file}"))).unwrap();
    }
    write(&world, "one", "mine").await;
    append(&world, "two", "mine").await;
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(fs::metadata(sandbox.path("outside/secret.txt")).unwrap().nlink(), 1);
}

#[tokio::test]
async fn protected_names_are_never_written() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for name in [
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        "a/.git/config",
        ".GIT/config",
        ".gIt",
        ".vscode/tasks.json",
        ".VSCode/settings.json",
        "a/b/.idea/x.xml",
        ".bashrc",
        ".Bash_Profile",
        "home/.profile",
        ".zshrc",
        ".zprofile",
        ".zshenv",
        ".bash_login",
        ".bash_logout",
        "x/../.git/config",
    ] {
        let outcome = write(&world, name, "x").await;
        let said = format!("Permission denied: {name} is protected: ");
        assert!(matches!(&outcome, ToolOutcome::Denied(text) if text.starts_with(&said)), "{outcome:?}");
    }
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
    assert_eq!(write(&world, ".gitignore", "x").await, written_outcome(".gitignore", 1));
}

#[tokio::test]
async fn no_link_leads_to_a_protected_name() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    fs::create_dir(sandbox.path("inside/.git")).unwrap();
    fs::write(sandbox.path("inside/.git/config"), "old").unwrap();
    symlink(".git", sandbox.path("inside/way")).unwrap();
    symlink(".git/config", sandbox.path("inside/file")).unwrap();
    for name in ["way/config", "way/new", "way/hooks/pre-commit", "file"] {
        assert!(matches!(write(&world, name, "x").await, ToolOutcome::Denied(_)), "{name}");
    }
    assert_eq!(sandbox.file_names("inside/.git"), ["config"]);
    assert_eq!(sandbox.content("inside/.git/config"), "old");
    assert_eq!(read(&world, "file").await.text(), "old", "reading is another matter");
}

#[tokio::test]
async fn content_ends_at_ten_mebibytes() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    let most = "\n".repeat(10 << 20);
    assert_eq!(write(&world, "most", &most).await, written_outcome("most", 10 << 20));
    let outcome = write(&world, "more", &format!("{most}\n")).await;
    assert_eq!(outcome, failed("Invalid input: field `content`: longer than 10485760 bytes"));
    assert_eq!(sandbox.file_names("inside"), ["most", "ok.txt", "sub"]);
}

#[tokio::test]
async fn a_failed_write_leaves_the_old_file_and_no_draft() {
    let sandbox = Sandbox::new();
    let long = fs::File::create(sandbox.path("inside/long")).unwrap();
    long.set_len((100 << 20) + 1).unwrap();
    let outcome = append(&sandbox.fixture(), "long", "x").await;
    assert_eq!(outcome, failed("Execution failed: long is longer than 104857600 bytes"));
    assert_eq!(long.metadata().unwrap().len(), (100 << 20) + 1);
    assert_eq!(sandbox.file_names("inside"), ["long", "ok.txt", "sub"]);
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_no_draft() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.path("inside")) else {
        eprintln!("skipped: only one who may mount can make a full disk");
        return;
    };
    let world = sandbox.fixture();
    assert_eq!(write(&world, "file", "old").await, written_outcome("file", 3));
    let outcome = write(&world, "file", &"x".repeat(100_000)).await;
    assert_eq!(outcome, failed("Execution failed: file: No space left on device (os error 28)"));
    assert_eq!(append(&world, "file", &"x".repeat(100_000)).await, outcome);
    assert_eq!(sandbox.content("inside/file"), "old");
    assert_eq!(sandbox.file_names("inside"), ["file"]);
}

#[tokio::test]
async fn arguments_are_checked_before_anything_is_touched() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for (arguments, expected) in [
        (json!({"path": "x"}), "missing field `content`"),
        (json!({"content": "x"}), "missing field `path`"),
        (json!({"path": "", "content": "x"}), "field `path`: the path is empty"),
        (json!({"path": "a\0", "content": "x"}), "field `path`: the path contains a NUL byte"),
        (
            json!({"path": "a", "content": "x", "append": "yes"}),
            "field `append`: invalid type: string \"yes\", expected a boolean",
        ),
        (
            json!({"path": "a", "content": "x", "mode": 1}),
            "unknown field `mode`, expected one of `path`, `content`, `append`",
        ),
    ] {
        assert_eq!(world.call("write_file", &arguments).await, failed(format!("Invalid input: {expected}")));
    }
    assert_eq!(write(&world, "../x", "x").await.name(), path_denied("../x").name());
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}
