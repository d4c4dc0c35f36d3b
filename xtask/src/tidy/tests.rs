//! The whole of tidy against small workspaces made for the test: real files, real cargo metadata, no network.
// tidy: allow retired-word because a test plants one

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::finding::Rule;
use super::{check, check_and_print};

/// A workspace in the temporary folder, removed with the value.
struct TestWorkspace {
    root: PathBuf,
}

impl TestWorkspace {
    /// A clean workspace: `agent` decides, `runtime` uses it, `vendor/tokio` is somebody else's crate.
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
        workspace.write("docs/decisions/0001-crates.md", "`tokio` runs what waits.\n");
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
        // What can't be removed stays in the temporary folder; the test has already spoken.
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn tidy_passes_when_every_room_keeps_to_its_row() {
    let workspace = TestWorkspace::new();
    assert_eq!(workspace.findings(), Vec::<String>::new());
    assert!(check_and_print(&workspace.root).is_ok());
}

#[test]
fn tidy_fails_when_a_room_uses_what_it_may_not() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/runtime", "runtime", "");
    workspace.package("crates/agent", "agent", "runtime = { path = \"../runtime\" }\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/Cargo.toml:7: room: `agent` may not use `runtime`; \
          it may use none of ours; move the code, or change the map with a decision"]
    );
    assert!(check_and_print(&workspace.root).is_err());
}

#[test]
fn tidy_fails_when_a_crate_enters_a_room_it_may_never_enter() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/agent", "agent", "tokio.workspace = true\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/Cargo.toml:7: room: `tokio` may never enter `agent`; \
          move the code to the room that owns it, or hand it in through a trait"]
    );
    assert!(check_and_print(&workspace.root).is_err());
}

#[test]
fn tidy_fails_when_a_deciding_room_reads_a_file() {
    let workspace = TestWorkspace::new();
    workspace.write("crates/agent/src/lib.rs", "//! Decides.\n\nuse std::{fmt, fs};\n");
    assert_eq!(
        workspace.findings(),
        ["crates/agent/src/lib.rs:3: std-access: `agent` may not touch `std::fs`; \
          the room only decides: take the value as a parameter or through a trait"]
    );
}

#[test]
fn tests_of_a_deciding_room_may_read_files_wherever_they_are_written() {
    let workspace = TestWorkspace::new();
    workspace.write("crates/agent/src/lib.rs", "//! Decides.\n\n#[cfg(test)]\nmod cases;\n");
    workspace.write("crates/agent/src/cases.rs", "//! Cases.\n\nuse std::fs;\n");
    workspace.write("crates/agent/tests/fixtures.rs", "//! Fixtures.\n\nuse std::fs;\n");
    assert_eq!(workspace.findings(), Vec::<String>::new());
}

#[test]
fn a_crate_that_is_not_on_the_map_is_found() {
    let workspace = TestWorkspace::new();
    workspace.package("crates/attic", "attic", "");
    assert_eq!(
        workspace.findings(),
        ["crates/attic/Cargo.toml:1: room: `attic` is not in the room table; \
          add a row to xtask/src/tidy/rooms.rs that says what it may use"]
    );
}

#[test]
fn all_findings_are_told_at_once_in_the_order_of_the_tree() {
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
fn tidy_fails_on_a_planted_retired_word() {
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
