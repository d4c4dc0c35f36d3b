//! Path traversal by the text of a path. BASE stands for the directory around the agent's.

use agent::ToolOutcome;
use agent::permission::Grant;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::sandbox::{SECRET, Sandbox, path_denied, read, write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedOutcome {
    /// The agent's own file.
    Inside,
    /// Permission denied.
    Denied,
    /// File not found.
    Missing,
    /// Another failure.
    Failed,
    /// An invalid path, rejected before the call runs.
    Invalid,
}

use ExpectedOutcome::{Denied, Failed, Inside, Invalid, Missing};

const PATHS: &[(&str, ExpectedOutcome)] = &[
    ("ok.txt", Inside),
    ("./ok.txt", Inside),
    (".//./ok.txt", Inside),
    ("ok.txt/", Inside),
    ("ok.txt/.", Inside),
    ("sub/../ok.txt", Inside),
    ("missing/../ok.txt", Inside),
    ("../inside/ok.txt", Inside),
    ("BASE/inside/ok.txt", Inside),
    ("BASE//inside/./sub/..//ok.txt", Inside),
    ("//BASE/inside/ok.txt", Inside),
    ("../outside/secret.txt", Denied),
    ("./../outside/secret.txt", Denied),
    (".././outside/secret.txt", Denied),
    ("..//outside/secret.txt", Denied),
    ("sub/../../outside/secret.txt", Denied),
    ("sub/../sub/../../outside/secret.txt", Denied),
    ("sub/./.././../outside/secret.txt", Denied),
    ("missing/../../outside/secret.txt", Denied),
    ("ok.txt/../../outside/secret.txt", Denied),
    ("../../../../../../../../../../../../etc/passwd", Denied),
    ("/../../etc/passwd", Denied),
    ("..", Denied),
    ("../", Denied),
    ("../..", Denied),
    ("/", Denied),
    ("//", Denied),
    ("../inside-sibling/secret.txt", Denied),
    ("BASE/inside-sibling/secret.txt", Denied),
    ("BASE/inside-sibling/", Denied),
    ("BASE/outside/secret.txt", Denied),
    ("BASE/inside/../outside/secret.txt", Denied),
    ("/etc/passwd", Denied),
    ("//etc/passwd", Denied),
    (concat!("/proc/self/", "root/etc/passwd"), Denied),
    ("/proc/self/rootBASE/outside/secret.txt", Denied),
    ("/proc/self/cwd", Denied),
    ("/proc/self/environ", Denied),
    ("/proc/self/fd/0", Denied),
    ("/dev/fd/0", Denied),
    ("/dev/stdin", Denied),
    ("/dev/zero", Denied),
    ("~", Missing),
    ("~/secret.txt", Missing),
    ("~root/.bashrc", Missing),
    ("file:///etc/passwd", Missing),
    ("file://BASE/outside/secret.txt", Missing),
    ("file:../outside/secret.txt", Missing),
    ("%2e%2e/outside/secret.txt", Missing),
    ("%2e%2e%2foutside%2fsecret.txt", Missing),
    ("..%2foutside%2fsecret.txt", Missing),
    ("..%c0%afoutside/secret.txt", Missing),
    ("..\\outside\\secret.txt", Missing),
    ("..\\/outside/secret.txt", Missing),
    ("...", Missing),
    (".../outside/secret.txt", Missing),
    (". ./outside/secret.txt", Missing),
    (".. /outside/secret.txt", Missing),
    (" ../outside/secret.txt", Missing),
    ("\u{2025}/outside/secret.txt", Missing),
    ("\u{ff0e}\u{ff0e}/outside/secret.txt", Missing),
    ("..\u{2215}outside\u{2215}secret.txt", Missing),
    ("$HOME/secret.txt", Missing),
    ("ok.txt\n", Missing),
    ("OK.TXT", Missing),
    ("*", Missing),
    ("ok.txt/x", Failed),
    ("sub", Failed),
    ("sub/..", Failed),
    (".", Failed),
    ("BASE/inside", Failed),
    ("", Invalid),
    ("\0", Invalid),
    ("ok.txt\0", Invalid),
    ("../outside/secret.txt\0ok.txt", Invalid),
];

fn classify(outcome: &ToolOutcome) -> ExpectedOutcome {
    match outcome {
        ToolOutcome::Done(_) => Inside,
        ToolOutcome::Denied(_) => Denied,
        ToolOutcome::Failed(text) if text.starts_with("Execution failed: File not found: ") => Missing,
        ToolOutcome::Failed(text) if text.starts_with("Execution failed: ") => Failed,
        ToolOutcome::Failed(_) => Invalid,
    }
}

#[tokio::test]
async fn threat_63_no_path_text_reads_outside_the_root() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for (path, expected) in PATHS {
        let path = path.replace("BASE", &sandbox.base);
        let outcome = read(&fixture, &path).await;
        assert_eq!(classify(&outcome), *expected, "{path:?}: {outcome:?}");
        assert!(*expected != Inside || outcome.text() == "inside", "{path:?}: {outcome:?}");
        assert!(!outcome.text().contains(SECRET) && !outcome.text().contains("root:"), "{path:?}");
    }
}

#[tokio::test]
async fn threat_63_no_path_text_writes_outside_the_root() {
    for (path, expected) in PATHS {
        let sandbox = Sandbox::new();
        let path = path.replace("BASE", &sandbox.base);
        let outcome = write(&sandbox.fixture(), &path, "mine").await;
        let expected = match expected {
            // Inside the agent's directory, but a protected name.
            Missing if path.ends_with(".bashrc") => Denied,
            // A missing file is created, inside.
            Missing => Inside,
            expected => *expected,
        };
        assert_eq!(classify(&outcome), expected, "{path:?}: {outcome:?}");
        assert_eq!(sandbox.file_names("."), ["inside", "inside-sibling", "outside"], "{path:?}");
        assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"], "{path:?}");
        assert_eq!(sandbox.file_names("inside-sibling"), ["secret.txt"], "{path:?}");
        for file in ["outside/secret.txt", "outside/sub/deep.txt", "inside-sibling/secret.txt"] {
            assert_eq!(sandbox.content(file), SECRET, "{path:?}");
        }
    }
}

/// Every argument of every tool that takes a path, with `path` in it.
fn calls_with(path: &str) -> Vec<(&'static str, Value)> {
    let patch = |old: &str, new: &str| format!("--- {old}\n+++ {new}\n@@ -1 +1 @@\n-{SECRET}\n+mine\n");
    vec![
        ("fs.read_file", json!({ "path": path })),
        ("fs.write_file", json!({ "path": path, "content": "mine" })),
        ("fs.write_file", json!({ "path": path, "content": "mine", "append": true })),
        ("fs.append_file", json!({ "path": path, "content": "mine" })),
        ("fs.list", json!({ "path": path })),
        ("fs.glob", json!({ "path": path, "pattern": "**" })),
        ("fs.search", json!({ "path": path, "pattern": "secret|root" })),
        ("fs.info", json!({ "path": path })),
        ("fs.edit", json!({ "path": path, "old": SECRET, "new": "mine" })),
        ("fs.patch", json!({ "patch": patch(path, path) })),
        ("fs.patch", json!({ "patch": patch("/dev/null", path) })),
        ("fs.patch", json!({ "patch": patch(path, "/dev/null") })),
        ("fs.mkdir", json!({ "path": format!("{path}/new") })),
        ("fs.move", json!({ "from": path, "to": "moved" })),
        ("fs.move", json!({ "from": "ok.txt", "to": path, "overwrite": true })),
        ("fs.copy", json!({ "from": path, "to": "copied" })),
        ("fs.copy", json!({ "from": "ok.txt", "to": path, "overwrite": true })),
        ("fs.delete", json!({ "path": path, "recursive": true })),
        ("cmd.exec", json!({ "command": "true", "cwd": path })),
        ("shell.exec", json!({ "command": "true", "cwd": path })),
        ("process.start", json!({ "command": "true", "cwd": path })),
    ]
}

#[tokio::test]
async fn threat_63_no_path_argument_leads_outside() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for (path, _) in PATHS.iter().filter(|(_, expected)| matches!(expected, Denied | Invalid)) {
        for (tool, arguments) in calls_with(&path.replace("BASE", &sandbox.base)) {
            let outcome = fixture.call(tool, &arguments).await;
            assert_ne!(outcome.name(), "done", "{tool} {path:?}: {outcome:?}");
            assert!(!outcome.text().contains(SECRET), "{tool} {path:?}: {outcome:?}");
        }
    }
    assert_eq!(sandbox.file_names("."), ["inside", "inside-sibling", "outside"]);
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
    for file in ["outside/secret.txt", "outside/sub/deep.txt", "inside-sibling/secret.txt"] {
        assert_eq!(sandbox.content(file), SECRET);
    }
}

#[tokio::test]
async fn threat_65_paths_are_compared_by_components() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("INSIDE")).unwrap();
    for directory in ["INSIDE", "inside-sibling"] {
        std::fs::write(sandbox.path(&format!("{directory}/ok.txt")), SECRET).unwrap();
    }
    let fixture = sandbox.fixture();
    for path in [
        "../inside-sibling/ok.txt",
        "../inside-sibling//ok.txt",
        "BASE/inside-sibling/ok.txt",
        "BASE/inside-sibling/../inside-sibling/ok.txt",
        "../INSIDE/ok.txt",
        "BASE/INSIDE/ok.txt",
        "BASE/INSIDE/",
        "BASE/Inside/ok.txt",
        "BASE/insid",
        "BASE/inside ",
        "BASE/inside./ok.txt",
    ] {
        let path = path.replace("BASE", &sandbox.base);
        assert_eq!(read(&fixture, &path).await.name(), "denied", "{path}");
        assert_eq!(write(&fixture, &path, "mine").await.name(), "denied", "{path}");
    }
    for path in ["BASE/inside/ok.txt/", "BASE/inside//ok.txt", "BASE/inside/./ok.txt"] {
        assert_eq!(read(&fixture, &path.replace("BASE", &sandbox.base)).await.text(), "inside");
    }
    assert_eq!(sandbox.content("INSIDE/ok.txt"), SECRET);
}

#[tokio::test]
async fn threat_63_too_long_paths_are_rejected() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let outcome = read(&fixture, &"x".repeat(5000)).await;
    assert_eq!(outcome.text(), "Invalid input: field `path`: the path is longer than 4096 bytes");
    let outcome = read(&fixture, &"../".repeat(5000)).await;
    assert_eq!(classify(&outcome), Denied);
    let outcome = read(&fixture, &"x".repeat(256)).await;
    let expected = format!("Execution failed: {}…: File name too long (os error 36)", "x".repeat(200));
    assert_eq!(outcome.text(), expected);
    assert_eq!(read(&fixture, &format!("{}ok.txt", "./".repeat(5000))).await.text(), "inside");
}

#[tokio::test]
async fn threat_64_magic_links_are_denied_even_with_every_grant() {
    let sandbox = Sandbox::new();
    let fixture = Fixture::with_grant(&sandbox.path("inside"), Grant::everything());
    for path in [
        concat!("/proc/self/", "root/etc/passwd"),
        "/proc/self/cwd/Cargo.toml",
        "/proc/self/exe",
        "/proc/self/fd/0",
        concat!("/proc/thread-self/", "root/etc/passwd"),
        "/dev/fd/0",
        "/dev/stdin",
        "/proc/self/environ",
        "/proc/1/environ",
        "/proc/self/task/../environ",
        "/proc/thread-self/environ",
    ] {
        assert_eq!(read(&fixture, path).await, path_denied(path));
    }
    assert_eq!(read(&fixture, "../outside/secret.txt").await.text(), SECRET);
    assert!(matches!(read(&fixture, "/proc/meminfo").await, ToolOutcome::Done(_)));
}

#[tokio::test]
async fn unrestricted_agent_follows_absolute_links() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink(sandbox.path("outside"), sandbox.path("inside/way")).unwrap();
    let fixture = Fixture::with_grant(&sandbox.path("inside"), Grant::everything());
    assert_eq!(read(&fixture, "way/secret.txt").await.text(), SECRET);
}
