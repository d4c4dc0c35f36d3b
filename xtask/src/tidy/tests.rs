//! The whole of tidy against small workspaces made for the test: real files, real cargo metadata, no network.

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
        let house = Self { root };
        house.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\nexclude = [\"vendor\"]\n\n\
             [workspace.dependencies]\nagent = { path = \"crates/agent\" }\n\
             tokio = { path = \"vendor/tokio\" }\n",
        );
        house.write("docs/decisions/0001-crates.md", "`tokio` runs what waits.\n");
        house.package("vendor/tokio", "tokio", "");
        house.package("crates/agent", "agent", "");
        house.package("crates/runtime", "runtime", "agent.workspace = true\ntokio.workspace = true\n");
        house
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
    let house = TestWorkspace::new();
    assert_eq!(house.findings(), Vec::<String>::new());
    assert!(check_and_print(&house.root).is_ok());
}

#[test]
fn tidy_fails_when_a_room_uses_what_it_may_not() {
    let house = TestWorkspace::new();
    house.package("crates/runtime", "runtime", "");
    house.package("crates/agent", "agent", "runtime = { path = \"../runtime\" }\n");
    assert_eq!(
        house.findings(),
        ["crates/agent/Cargo.toml:7: room: `agent` may not use `runtime`; \
          it may use none of ours; move the code, or change the map with a decision"]
    );
    assert!(check_and_print(&house.root).is_err());
}

#[test]
fn tidy_fails_when_a_crate_enters_a_room_it_may_never_enter() {
    let house = TestWorkspace::new();
    house.package("crates/agent", "agent", "tokio.workspace = true\n");
    assert_eq!(
        house.findings(),
        ["crates/agent/Cargo.toml:7: room: `tokio` may never enter `agent`; \
          move the code to the room that owns it, or hand it in through a trait"]
    );
    assert!(check_and_print(&house.root).is_err());
}

#[test]
fn tidy_fails_when_a_deciding_room_reads_a_file() {
    let house = TestWorkspace::new();
    house.write("crates/agent/src/lib.rs", "//! Decides.\n\nuse std::{fmt, fs};\n");
    assert_eq!(
        house.findings(),
        ["crates/agent/src/lib.rs:3: reach: `agent` may not touch `std::fs`; \
          the room only decides: take the value as a parameter or through a trait"]
    );
}

#[test]
fn tests_of_a_deciding_room_may_read_files_wherever_they_are_written() {
    let house = TestWorkspace::new();
    house.write("crates/agent/src/lib.rs", "//! Decides.\n\n#[cfg(test)]\nmod cases;\n");
    house.write("crates/agent/src/cases.rs", "//! Cases.\n\nuse std::fs;\n");
    house.write("crates/agent/tests/fixtures.rs", "//! Fixtures.\n\nuse std::fs;\n");
    assert_eq!(house.findings(), Vec::<String>::new());
}

#[test]
fn a_crate_that_is_not_on_the_map_is_found() {
    let house = TestWorkspace::new();
    house.package("crates/attic", "attic", "");
    assert_eq!(
        house.findings(),
        ["crates/attic/Cargo.toml:1: room: `attic` is not in the room table; \
          add a row to xtask/src/tidy/rooms.rs that says what it may use"]
    );
}

#[test]
fn all_findings_are_told_at_once_in_the_order_of_the_tree() {
    let house = TestWorkspace::new();
    house.write("README.md", &"line\n".repeat(61));
    house.write("crates/agent/src/lib.rs", "fn f() {\n    todo!()\n}\n");
    house.write("docs/decisions/0001-crates.md", "Nothing decided.\n");
    let rules: Vec<_> =
        check(&house.root).unwrap().into_iter().map(|finding| (finding.path, finding.rule)).collect();
    let expected = [
        ("README.md", Rule::DocumentLines),
        ("crates/agent/src/lib.rs", Rule::Header),
        ("crates/agent/src/lib.rs", Rule::Unfinished),
        ("crates/runtime/Cargo.toml", Rule::DependencyReason),
    ];
    assert_eq!(rules, expected.map(|(path, rule)| (path.to_owned(), rule)));
}
