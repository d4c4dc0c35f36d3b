//! Listing, globbing and searching: what is found, what is left out, and where the limits are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use agent::permission::Grant;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::blocked_aliases::{BindMount, trusted};
use crate::fixture::{Fixture, done, failed, path};
use crate::sandbox::{SECRET, Sandbox, path_denied};

async fn list(fixture: &Fixture, path: &str) -> String {
    fixture.call("fs.list", &json!({ "path": path })).await.text().to_owned()
}

async fn glob(fixture: &Fixture, pattern: &str) -> String {
    fixture.call("fs.glob", &json!({ "pattern": pattern })).await.text().to_owned()
}

async fn search(fixture: &Fixture, pattern: &str) -> String {
    fixture.call("fs.search", &json!({ "pattern": pattern })).await.text().to_owned()
}

fn put(sandbox: &Sandbox, name: &str, content: &str) {
    let file = sandbox.path(&format!("inside/{name}"));
    fs::create_dir_all(std::path::Path::new(&file).parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

#[tokio::test]
async fn list_shows_types_and_sizes_sorted() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, ".hidden", "12");
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    rustix::fs::mknodat(CWD, sandbox.path("inside/fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    fs::write(std::path::Path::new(&sandbox.path("inside")).join(OsStr::from_bytes(b"\xff")), "").unwrap();
    let expected = ".hidden 2\nfifo (a named pipe)\nok.txt 6\nsub/\nway@\n\
                    [1 entries cannot be shown: closed, or their name is not UTF-8]";
    assert_eq!(list(&fixture, ".").await, expected);
    assert_eq!(fixture.call("fs.list", &json!({})).await, done(expected));
    assert_eq!(list(&fixture, "sub").await, "deep.txt 4");
    fs::create_dir(sandbox.path("inside/none")).unwrap();
    assert_eq!(list(&fixture, "none").await, "none is empty");
    assert_eq!(
        list(&fixture, "ok.txt").await,
        "Execution failed: ok.txt is a file; read it with fs.read_file"
    );
    assert_eq!(list(&fixture, "gone").await, "Execution failed: File not found: gone");
    assert_eq!(fixture.call("fs.list", &json!({"path": "way"})).await, path_denied("way"));
}

#[tokio::test]
async fn long_listing_continues_at_its_offset() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for index in 0..1_005 {
        put(&sandbox, &format!("many/{index:04}"), "");
    }
    let first = list(&fixture, "many").await;
    assert!(first.starts_with("0000 0\n0001 0\n"), "{first}");
    assert!(first.ends_with("0999 0\n[entries 1 to 1000 of 1005; continue with offset 1000]"), "{first}");
    let rest = fixture.call("fs.list", &json!({"path": "many", "offset": 1000})).await;
    assert_eq!(rest, done("1000 0\n1001 0\n1002 0\n1003 0\n1004 0"));
    let beyond = fixture.call("fs.list", &json!({"path": "many", "offset": 1005})).await;
    assert_eq!(beyond, failed("Execution failed: offset 1005 is beyond the end: there are 1005 entries"));
    let found = glob(&fixture, "many/*").await;
    assert!(found.ends_with("many/0999\n[paths 1 to 1000 of 1005; continue with offset 1000]"), "{found}");
    let rest = fixture.call("fs.glob", &json!({"pattern": "many/*", "offset": 1004})).await;
    assert_eq!(rest, done("many/1004"));
}

#[tokio::test]
async fn glob_matches_paths_relative_to_the_directory() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for name in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/deep/d.txt", ".github/e.rs"] {
        put(&sandbox, name, "");
    }
    for (pattern, expected) in [
        ("*.rs", "a.rs"),
        ("**/*.rs", ".github/e.rs\na.rs\nsrc/b.rs\nsrc/deep/c.rs"),
        ("src/*", "src/b.rs\nsrc/deep/"),
        ("src/**/*.{rs,txt}", "src/b.rs\nsrc/deep/c.rs\nsrc/deep/d.txt"),
        ("./a.rs", "a.rs"),
        ("*.py", "no file matches *.py"),
    ] {
        assert_eq!(glob(&fixture, pattern).await, expected, "{pattern}");
    }
    let below = fixture.call("fs.glob", &json!({"pattern": "**/*.rs", "path": "src"})).await;
    assert_eq!(below, done("src/b.rs\nsrc/deep/c.rs"));
    for pattern in ["/etc/*", "../*", "a/../../*", ""] {
        let why = "the pattern is relative to `path`; pass the directory as `path`";
        assert_eq!(glob(&fixture, pattern).await, format!("Invalid input: field `pattern`: {why}"));
    }
    assert!(glob(&fixture, "[a").await.starts_with("Invalid input: field `pattern`: unclosed"));
}

#[tokio::test]
async fn ignored_files_are_left_out_unless_included() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for (name, content) in [
        (".gitignore", "*.log\n/build/\n!keep.log\n"),
        ("a.log", "needle"),
        ("keep.log", "needle"),
        ("build/x.txt", "needle"),
        ("sub/build/x.txt", "needle"),
        ("sub/.ignore", "x.txt\n"),
        ("sub/.gitignore", "!a.log\n"),
        ("sub/a.log", "needle"),
        (".git/x.txt", "needle"),
    ] {
        put(&sandbox, name, content);
    }
    assert_eq!(glob(&fixture, "**/*.{log,txt}").await, "keep.log\nok.txt\nsub/a.log\nsub/deep.txt");
    assert_eq!(search(&fixture, "needle").await, "keep.log:1: needle\nsub/a.log:1: needle");
    let in_sub = fixture.call("fs.glob", &json!({"pattern": "*", "path": "sub/build"})).await;
    assert_eq!(in_sub, done("no file matches *"), "rules above the directory apply");
    let all = fixture.call("fs.search", &json!({"pattern": "needle", "include_ignored": true})).await;
    assert_eq!(all.text().lines().count(), 6, "{all:?}");
}

#[tokio::test]
async fn search_returns_lines_of_text_files() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, "code/a.rs", "fn one() {}\r\nlet two = 2;\r\nFN THREE\r\n");
    put(&sandbox, "code/b.txt", "fn in text");
    put(&sandbox, "code/binary", "fn\0");
    put(&sandbox, "long", &format!("fn {}\n", "é".repeat(1000)));
    let binary = "[1 binary files were not searched]";
    let long = format!("long:1: fn {}… [2003 bytes]", "é".repeat(397));
    let expected = format!("code/a.rs:1: fn one() {{}}\ncode/b.txt:1: fn in text\n{long}\n{binary}");
    assert_eq!(search(&fixture, r"^fn\b").await, expected);
    for (arguments, expected) in [
        (json!({"pattern": "^fn.*$", "glob": "*.rs"}), "code/a.rs:1: fn one() {}"),
        (json!({"pattern": "}$", "path": "code/a.rs"}), "code/a.rs:1: fn one() {}"),
        (json!({"pattern": "fn", "path": "code", "glob": "*.txt"}), "code/b.txt:1: fn in text"),
        (
            json!({"pattern": "fn three", "ignore_case": true, "glob": "code/**/*.rs"}),
            "code/a.rs:3: FN THREE",
        ),
        (json!({"pattern": "^$", "path": "code/a.rs"}), "no line matches in 1 files"),
        (
            json!({"pattern": "x", "path": "code/binary"}),
            "no line matches in 0 files\n[1 binary files were not searched]",
        ),
    ] {
        assert_eq!(fixture.call("fs.search", &arguments).await, done(expected), "{arguments}");
    }
    assert_eq!(search(&fixture, "(").await, "Invalid input: field `pattern`: unclosed group");
    assert!(search(&fixture, r"\w{1000}").await.starts_with("Invalid input: field `pattern`: too large"));
}

#[tokio::test]
async fn long_search_result_continues_at_its_offset() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, "many", &"x\n".repeat(205));
    let first = search(&fixture, "^x$").await;
    assert!(
        first.ends_with("many:200: x\n[matching lines 1 to 200 of 205; continue with offset 200]"),
        "{first}"
    );
    let rest = fixture.call("fs.search", &json!({"pattern": "^x$", "offset": 200})).await;
    assert!(rest.text().starts_with("many:201: x\n") && rest.text().ends_with("many:205: x"), "{rest:?}");
}

#[tokio::test]
async fn lines_of_long_files_have_their_numbers() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let lines: String = (1..=100_000).map(|line| format!("line {line}\r\n")).collect();
    put(&sandbox, "lines", &lines);
    let found = search(&fixture, "^line (1|26214|52000|99999|100000)$").await;
    let expected = "lines:1: line 1\nlines:26214: line 26214\nlines:52000: line 52000\nlines:99999: line 99999\n\
        lines:100000: line 100000";
    assert_eq!(found, expected);
    // Of a line longer than 256 KiB only the beginning is searched.
    let long = "x".repeat(300_000);
    put(&sandbox, "lines", &format!("first\nneedle {long} end\nneedle\n{long}needle\nlast needle"));
    let found = search(&fixture, "needle|end").await;
    let shown = format!("lines:2: needle {}… [300011 bytes]", "x".repeat(393));
    assert_eq!(found, format!("{shown}\nlines:3: needle\nlines:5: last needle"));
}

#[tokio::test]
async fn pattern_is_matched_against_single_lines() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, "text", "one\ntwo\n\n  three\r\n\r\nlast");
    for (pattern, expected) in [
        (r"one\s+two", "no line matches in 3 files"),
        (r"^\s*three\s*$", "text:4:   three"),
        (r"^$", "text:3: \ntext:5: "),
        (r"^[^a-z]*$", "text:3: \ntext:5: "),
        (r"(?s)one.two", "no line matches in 3 files"),
        (r"last$", "text:6: last"),
    ] {
        let found = search(&fixture, pattern).await;
        assert_eq!(found, expected, "{pattern}");
    }
    for pattern in [r"one\ntwo", "one\ntwo", r"three\r$"] {
        let expected =
            "Invalid input: field `pattern`: it has a line break, but lines are searched one by one";
        assert_eq!(search(&fixture, pattern).await, expected, "{pattern:?}");
    }
}

#[tokio::test]
async fn threat_70_huge_files_are_not_searched() {
    let sandbox = Sandbox::new();
    let sparse = fs::File::create(sandbox.path("inside/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let expected =
        "no line matches in 2 files\n[1 files were not searched: longer than 10485760 bytes, or closed]";
    assert_eq!(search(&sandbox.fixture(), "needle").await, expected);
}

/// In memory, where the files are created fast.
#[tokio::test]
async fn threat_70_huge_directory_gets_a_bounded_answer() {
    const ENTRIES: usize = 100_001;
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let handle = fs::File::open(directory.path()).unwrap();
    for index in 0..ENTRIES {
        rustix::fs::symlinkat("x", &handle, format!("{index:06}").as_str()).unwrap();
    }
    let fixture = Fixture::confined_to(directory.path().to_str().unwrap());
    let incomplete = "[incomplete: too many files or too deep; choose a directory further down]";
    let listed = list(&fixture, ".").await;
    assert!(listed.contains("[entries 1 to 1000 of 100000") && listed.ends_with(incomplete), "{listed}");
    assert!(listed.len() < 20_000, "{}", listed.len());
    for found in [search(&fixture, "x").await, glob(&fixture, "*.rs").await] {
        assert!(found.ends_with(incomplete), "{found}");
    }
}

#[tokio::test]
async fn links_are_not_followed_by_a_walk() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    symlink("../outside/secret.txt", sandbox.path("inside/leaf")).unwrap();
    symlink(".", sandbox.path("inside/loop")).unwrap();
    assert_eq!(search(&fixture, "secret").await, "no line matches in 2 files");
    assert_eq!(glob(&fixture, "**/*.txt").await, "ok.txt\nsub/deep.txt");
    for tool in ["fs.list", "fs.search", "fs.glob"] {
        for escaping in ["way", "..", "../outside", "/", "/proc/self/root", "way/sub"] {
            let mut arguments = json!({"path": escaping});
            if tool != "fs.list" {
                arguments["pattern"] = json!("*x");
            }
            if tool == "fs.search" {
                arguments["pattern"] = json!("x");
            }
            let outcome = fixture.call(tool, &arguments).await;
            assert_eq!(outcome.name(), "denied", "{tool} {escaping}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn blocked_directory_is_never_listed_or_searched() {
    let sandbox = Sandbox::new();
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/leaf")).unwrap();
    let mut fixture = trusted(&sandbox);
    fixture.grant.blocked.push(path(&sandbox.path("inside/sub")));
    let base = json!(sandbox.base);
    assert_eq!(list(&fixture, ".").await, "ok.txt 6");
    assert_eq!(fixture.call("fs.list", &json!({"path": base})).await, done("inside/\ninside-sibling/"));
    let found = fixture.call("fs.search", &json!({"pattern": "deep|secret", "path": base})).await;
    let expected = format!("{}/inside-sibling/secret.txt:1: {SECRET}", sandbox.base);
    assert_eq!(found, done(expected), "the sibling is not blocked");
    let found = fixture.call("fs.glob", &json!({"pattern": "**/deep.txt", "path": base})).await;
    assert_eq!(found, done("no file matches **/deep.txt"));
}

#[tokio::test]
async fn second_mount_of_a_blocked_directory_is_not_walked() {
    for (source, listed) in [("outside", "ok.txt 6"), ("outside/sub", "ok.txt 6"), (".", "ok.txt 6\nsub/")] {
        let sandbox = Sandbox::new();
        let Some(mount) = BindMount::create(&sandbox, source, "inside/sub") else { return };
        let fixture = trusted(&sandbox);
        assert_eq!(list(&fixture, ".").await, listed, "{source}");
        let found = search(&fixture, "secret").await;
        assert!(!found.contains("outside/") && !found.contains("deep"), "{source}: {found}");
        drop(mount);
    }
}

#[tokio::test]
async fn walks_do_not_enter_proc_and_sys() {
    let fixture = Fixture::with_grant("/", Grant::everything());
    for (pattern, directory) in [("*/environ", "/proc"), ("{proc,sys}/*", "/")] {
        let found = fixture.call("fs.glob", &json!({"pattern": pattern, "path": directory})).await;
        assert!(!found.text().contains("environ") && !found.text().contains("/kernel"), "{found:?}");
    }
    assert_eq!(fixture.call("fs.list", &json!({"path": "/proc/self"})).await, path_denied("/proc/self"));
}

#[tokio::test]
async fn walk_is_limited_in_depth() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, &format!("{}needle", "d/".repeat(70)), "needle");
    let incomplete = "[incomplete: too many files or too deep; choose a directory further down]";
    assert_eq!(glob(&fixture, "**/needle").await, format!("no file matches **/needle\n{incomplete}"));
    let deep = fixture.call("fs.glob", &json!({"pattern": "**/needle", "path": "d/".repeat(20)})).await;
    assert!(deep.text().ends_with("/needle"), "{deep:?}");
}

#[tokio::test]
async fn credentials_are_not_read_by_any_tool() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    put(&sandbox, ".ssh/id_ed25519", "needle");
    put(&sandbox, ".ssh/id_ed25519.pub", "public needle");
    put(&sandbox, ".netrc", "needle");
    symlink(".netrc", sandbox.path("inside/way")).unwrap();
    for file in [".ssh/id_ed25519", ".netrc", "way"] {
        for tool in ["fs.read_file", "fs.search"] {
            let arguments = if tool == "fs.search" {
                json!({"path": file, "pattern": "x"})
            } else {
                json!({"path": file})
            };
            let outcome = fixture.call(tool, &arguments).await;
            let expected = format!("Permission denied: {file} is protected: it contains credentials; ");
            assert!(outcome.text().starts_with(&expected), "{tool}: {outcome:?}");
        }
    }
    let found = search(&fixture, "needle").await;
    assert!(found.starts_with(".ssh/id_ed25519.pub:1: public needle\n[2 files were not searched"), "{found}");
}
