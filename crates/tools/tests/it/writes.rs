//! Writing: new content completely or the old one, mode retained, no temporary files, nothing protected.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use agent::ToolOutcome;
use serde_json::{Value, json};

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
async fn write_creates_replaces_and_appends() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    assert_eq!(write(&fixture, "new.txt", "grüße\n").await, written_outcome("new.txt", 8));
    assert_eq!(append(&fixture, "new.txt", "more").await, written_outcome("new.txt", 4));
    assert_eq!(sandbox.content("inside/new.txt"), "grüße\nmore");
    assert_eq!(write(&fixture, "new.txt", "").await, written_outcome("new.txt", 0));
    assert_eq!(sandbox.content("inside/new.txt"), "");
    assert_eq!(append(&fixture, "other.txt", "first").await, written_outcome("other.txt", 5));
    assert_eq!(sandbox.content("inside/other.txt"), "first");
    let absolute = sandbox.path("inside/abs.txt");
    assert_eq!(write(&fixture, &absolute, "x").await, written_outcome(&absolute, 1));
    assert_eq!(sandbox.file_names("inside"), ["abs.txt", "new.txt", "ok.txt", "other.txt", "sub"]);
}

#[tokio::test]
async fn write_creates_missing_directories() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    assert_eq!(write(&fixture, "a/b/c/d.txt", "x").await, written_outcome("a/b/c/d.txt", 1));
    assert_eq!(write(&fixture, "sub/e/f.txt", "x").await, written_outcome("sub/e/f.txt", 1));
    assert_eq!(sandbox.content("inside/a/b/c/d.txt"), "x");
    let below_file = write(&fixture, "ok.txt/a/b", "x").await;
    assert_eq!(below_file, failed("Execution failed: ok.txt/a/b: Not a directory (os error 20)"));
}

#[tokio::test]
async fn root_is_created_only_if_its_parent_exists() {
    let sandbox = Sandbox::new();
    let new = Fixture::confined_to(&sandbox.path("fresh"));
    assert_eq!(write(&new, "a/x.txt", "x").await, written_outcome("a/x.txt", 1));
    assert_eq!(sandbox.content("fresh/a/x.txt"), "x");
    let far = Fixture::confined_to(&sandbox.path("no/such"));
    assert_eq!(write(&far, "x.txt", "x").await, failed("Execution failed: File not found: x.txt"));
    assert_eq!(sandbox.file_names("."), ["fresh", "inside", "inside-sibling", "outside"]);
}

#[tokio::test]
async fn write_retains_the_mode_without_set_id_bits() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for mode_bits in [0o640, 0o600, 0o755, 0o777] {
        set_mode(&sandbox, "inside/ok.txt", mode_bits);
        write(&fixture, "ok.txt", "x").await;
        assert_eq!(mode(&sandbox, "inside/ok.txt"), mode_bits);
        append(&fixture, "ok.txt", "x").await;
        assert_eq!(mode(&sandbox, "inside/ok.txt"), mode_bits);
    }
    set_mode(&sandbox, "inside/ok.txt", 0o6755);
    write(&fixture, "ok.txt", "x").await;
    assert_eq!(mode(&sandbox, "inside/ok.txt"), 0o755, "set-id bits are cleared");
}

#[tokio::test]
async fn write_leaves_other_hard_links_unchanged() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for file in ["one", "two"] {
        fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path(&format!("inside/{file}"))).unwrap();
    }
    write(&fixture, "one", "mine").await;
    append(&fixture, "two", "mine").await;
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
    assert_eq!(fs::metadata(sandbox.path("outside/secret.txt")).unwrap().nlink(), 1);
}

/// Files that are executed later, or whose content is a credential; at the top and deep below.
const PROTECTED: &[&str] = &[
    ".git/config",
    ".git/hooks/pre-commit",
    ".git/info/attributes",
    "a/.git/config",
    ".GIT/config",
    ".gIt/HEAD",
    ".git/modules/x/hooks/post-checkout",
    ".gitconfig",
    ".envrc",
    "sub/.envrc",
    ".vscode/tasks.json",
    ".VSCode/settings.json",
    "a/b/.idea/x.xml",
    ".bashrc",
    ".Bash_Profile",
    "home/.profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".pam_environment",
    ".config/fish/config.fish",
    ".config/git/config",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    ".config/environment.d/x.conf",
    ".ssh/authorized_keys",
    ".ssh/id_rsa",
    ".gnupg/gpg.conf",
    ".aws/credentials",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".npmrc",
    "1/2/3/4/5/6/7/8/9/10/.git/hooks/pre-push",
    "1/2/3/4/5/6/7/8/9/10/.bashrc",
    "x/../.git/config",
];

/// Every call that would change a file.
fn calls_that_change(name: &str) -> Vec<(&'static str, Value)> {
    let patch = |old: &str| format!("--- {old}\n+++ {name}\n@@ -1 +1 @@\n-old\n+mine\n");
    vec![
        ("fs.write_file", json!({ "path": name, "content": "mine" })),
        ("fs.write_file", json!({ "path": name, "content": "mine", "append": true })),
        ("fs.append_file", json!({ "path": name, "content": "mine" })),
        ("fs.edit", json!({ "path": name, "old": "old", "new": "mine" })),
        ("fs.patch", json!({ "patch": patch(name) })),
        ("fs.patch", json!({ "patch": format!("--- /dev/null\n+++ {name}\n@@ -0,0 +1 @@\n+mine\n") })),
        ("fs.move", json!({ "from": "ok.txt", "to": name, "overwrite": true })),
        ("fs.copy", json!({ "from": "ok.txt", "to": name, "overwrite": true })),
        ("fs.mkdir", json!({ "path": name })),
        ("fs.delete", json!({ "path": name })),
    ]
}

#[tokio::test]
async fn threat_72_protected_names_are_not_written() {
    for exists in [true, false] {
        let sandbox = Sandbox::new();
        let fixture = sandbox.fixture();
        for name in PROTECTED {
            let file =
                std::path::PathBuf::from(sandbox.path(&format!("inside/{}", name.replace("x/../", ""))));
            if exists {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, "old\n").unwrap();
            }
            for (tool, arguments) in calls_that_change(name) {
                let outcome = fixture.call(tool, &arguments).await;
                // What is not in the file, or is there already, may be said first.
                let is_checked_first = ["fs.edit", "fs.patch"].contains(&tool) && outcome.name() == "failed";
                let is_protected = outcome.name() == "denied" && outcome.text().contains("is protected");
                assert!(is_protected || is_checked_first, "{tool} {name} exists {exists}: {outcome:?}");
            }
            assert_eq!(fs::read_to_string(&file).ok(), exists.then(|| "old\n".to_owned()), "{name}");
        }
        if !exists {
            assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
        }
        assert_eq!(write(&fixture, ".gitignore", "x").await, written_outcome(".gitignore", 1));
    }
}

#[tokio::test]
async fn threat_72_protected_name_is_not_written_via_a_link() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::create_dir(sandbox.path("inside/.git")).unwrap();
    fs::write(sandbox.path("inside/.git/config"), "old").unwrap();
    symlink(".git", sandbox.path("inside/way")).unwrap();
    symlink(".git/config", sandbox.path("inside/file")).unwrap();
    for name in ["way/config", "way/new", "way/hooks/pre-commit", "file"] {
        assert!(matches!(write(&fixture, name, "x").await, ToolOutcome::Denied(_)), "{name}");
    }
    assert_eq!(sandbox.file_names("inside/.git"), ["config"]);
    assert_eq!(sandbox.content("inside/.git/config"), "old");
    assert_eq!(read(&fixture, "file").await.text(), "old", "reading is allowed");
}

#[tokio::test]
async fn threat_71_content_is_limited_to_ten_mebibytes() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let longest = "\n".repeat(10 << 20);
    assert_eq!(write(&fixture, "most", &longest).await, written_outcome("most", 10 << 20));
    let outcome = write(&fixture, "more", &format!("{longest}\n")).await;
    assert_eq!(outcome, failed("Invalid input: field `content`: longer than 10485760 bytes"));
    assert_eq!(sandbox.file_names("inside"), ["most", "ok.txt", "sub"]);
}

#[tokio::test]
async fn failed_write_retains_the_old_file() {
    let sandbox = Sandbox::new();
    let long = fs::File::create(sandbox.path("inside/long")).unwrap();
    long.set_len((100 << 20) + 1).unwrap();
    let outcome = append(&sandbox.fixture(), "long", "x").await;
    assert_eq!(outcome, failed("Execution failed: long is longer than 104857600 bytes"));
    assert_eq!(long.metadata().unwrap().len(), (100 << 20) + 1);
    assert_eq!(sandbox.file_names("inside"), ["long", "ok.txt", "sub"]);
}

#[tokio::test]
async fn threat_73_write_on_a_full_disk_retains_the_old_file() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.path("inside")) else {
        eprintln!("skipped: mounting a small disk needs privileges");
        return;
    };
    let fixture = sandbox.fixture();
    assert_eq!(write(&fixture, "file", "old").await, written_outcome("file", 3));
    let outcome = write(&fixture, "file", &"x".repeat(100_000)).await;
    assert_eq!(outcome, failed("Execution failed: file: No space left on device (os error 28)"));
    assert_eq!(append(&fixture, "file", &"x".repeat(100_000)).await, outcome);
    assert_eq!(sandbox.content("inside/file"), "old");
    assert_eq!(sandbox.file_names("inside"), ["file"]);
}

#[tokio::test]
async fn write_validates_arguments_first() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
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
        assert_eq!(
            fixture.call("write_file", &arguments).await,
            failed(format!("Invalid input: {expected}"))
        );
    }
    assert_eq!(write(&fixture, "../x", "x").await.name(), path_denied("../x").name());
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}
