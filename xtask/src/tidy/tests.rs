//! Tests of all tidy rules together, on small temporary workspaces: real files, real cargo metadata, no network.
// tidy: allow retired-word because a test contains one

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::finding::Rule;
use super::{check, check_and_print};

/// A workspace in the temporary directory, removed on drop.
struct TestWorkspace {
    root: PathBuf,
}

impl TestWorkspace {
    /// Creates a workspace without findings: `agent`, `runtime`, which depends on it, and `vendor/tokio` as an external
    /// crate.
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("nexus3-tidy-{}-{count}", std::process::id()));
        let workspace = Self { root };
        workspace.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\nexclude = [\"vendor\"]\n\n\
             [workspace.dependencies]\nagent = { path = \"crates/agent\" }\n\
             tokio = { path = \"vendor/tokio\" }\n",
        );
        workspace.write("docs/decisions/0001-crates.md", "`tokio` is the async runtime.\n");
        workspace.package("vendor/tokio", "tokio", "");
        workspace.package("crates/agent", "agent", "");
        workspace.package("crates/runtime", "runtime", "agent.workspace = true\ntokio.workspace = true\n");
        workspace
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn package(&self, folder: &str, name: &str, dependencies: &str) {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}"
        );
        self.write(&format!("{folder}/Cargo.toml"), &manifest);
        self.write(&format!("{folder}/src/lib.rs"), &format!("//! The crate `{name}`.\n"));
    }

    fn findings(&self) -> Vec<String> {
        check(&self.root).unwrap().iter().map(ToString::to_string).collect()
    }
}

impl Drop for TestWorkspace {
    fn drop(&mut self) {
        // A directory that cannot be removed must not fail the test.
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn workspace_without_violations_passes() {
    let workspace = TestWorkspace::new();
    assert_eq!(workspace.findings(), Vec::<String>::new());
    assert!(check_and_print(&workspace.root).is_ok());
}

#[test]
fn dependency_on_a_room_that_is_not_allowed_fails() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/runtime", "runtime", "");
    workspace.package("crates/agent", "agent", "runtime = { path = \"../runtime\" }\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/Cargo.toml:7: room: `agent` may not depend on `runtime`; \
          it may depend on no workspace crate; move the code, or change the room table with a decision"]
    );
    assert!(check_and_print(&workspace.root).is_err());
}

#[test]
fn dependency_on_a_forbidden_external_crate_fails() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/agent", "agent", "tokio.workspace = true\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/Cargo.toml:7: room: `agent` must not depend on `tokio`; \
          move the code to the room that owns it, or pass it in through a trait"]
    );
    assert!(check_and_print(&workspace.root).is_err());
}

#[test]
fn pure_room_that_reads_a_file_fails() {
    let workspace = TestWorkspace::new();
    workspace.write("crates/agent/src/lib.rs", "//! Decides.\n\nuse std::{fmt, fs};\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/src/lib.rs:3: std-access: `agent` may not use `std::fs`; \
          the room has no side effects: take the value as a parameter or through a trait"]
    );
}

#[test]
fn tests_of_a_pure_room_may_read_files() {
    let workspace = TestWorkspace::new();
    workspace.write("crates/agent/src/lib.rs", "//! Decides.\n\n#[cfg(test)]\nmod cases;\n");
    workspace.write("crates/agent/src/cases.rs", "//! Cases.\n\nuse std::fs;\n");
    workspace.write("crates/agent/tests/fixtures.rs", "//! Fixtures.\n\nuse std::fs;\n");
    assert_eq!(workspace.findings(), Vec::<String>::new());
}

#[test]
fn crate_without_a_row_in_the_room_table_fails() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/attic", "attic", "");
    assert_eq!(
        workspace.findings(),
        ["crates/attic/Cargo.toml:1: room: `attic` is not in the room table; \
          add a row with its allowed dependencies to xtask/src/tidy/rooms.rs"]
    );
}

#[test]
fn all_findings_are_reported_in_path_order() {
    let workspace = TestWorkspace::new();
    workspace.write("README.md", &"line\n".repeat(61));
    workspace.write("crates/agent/src/lib.rs", "fn f() {\n    todo!()\n}\n");
    workspace.write("docs/decisions/0001-crates.md", "Nothing decided.\n");
    let rules: Vec<_> =
        check(&workspace.root).unwrap().into_iter().map(|finding| (finding.path, finding.rule)).collect();
    let expected = [
        ("README.md", Rule::DocumentLines),
        ("crates/agent/src/lib.rs", Rule::Header),
        ("crates/agent/src/lib.rs", Rule::Unfinished),
        ("crates/runtime/Cargo.toml", Rule::DependencyReason),
    ];
    assert_eq!(rules, expected.map(|(path, rule)| (path.to_owned(), rule)));
}

#[test]
fn retired_word_fails() {
    let workspace = TestWorkspace::new();
    workspace.write("crates/agent/src/lib.rs", "//! Decides.\n\n/// A desk.\npub struct Desk;\n");
    assert_eq!(
        workspace.findings(),
        [
            "crates/agent/src/lib.rs:3: retired-word: \"desk\" uses the retired word `desk`; write dispatcher",
            "crates/agent/src/lib.rs:4: retired-word: `Desk` uses the retired word `desk`; write dispatcher",
        ]
    );
}

#[test]
fn tool_that_opens_a_path_fails() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/tools", "tools", "agent.workspace = true\n");
    workspace.write(
        "crates/tools/src/fs/list.rs",
        "//! `fs.list`.\n\nfn run(path: &str) -> bool {\n    std::fs::read_dir(path).is_ok()\n}\n",
    );
    assert_eq!(
        workspace.findings(),
        ["crates/tools/src/fs/list.rs:4: std-access: `tools` may not use `std::fs`; \
          only commands/runner and fs/beneath_root and net/egress and workspace may: take a handle from there"]
    );
}
