//! Reading and writing files within the grant, and the words outside of it.

use serde_json::json;

use super::{stage_with, told};
use crate::support::Stage;
use crate::support::folder::{Folder, reading, writing};

fn beyond(verb: &str, path: &str, allowed: &str) -> String {
    format!("Permission denied: cannot {verb} '{path}': Path outside allowed directories. Allowed: {allowed}")
}

#[test]
fn a_file_is_written_read_and_continued() {
    let folder = Folder::new();
    let stage = stage_with("trusted", &folder);
    let written = told(&stage, &writing("deep/er/a.txt", "one\ntwo\n"));
    assert_eq!(written, r#"{"bytes_written":8,"path":"deep/er/a.txt","success":true}"#);
    assert_eq!(told(&stage, &reading("deep/er/a.txt")), "one\ntwo\n");
    let more = json!({ "path": folder.at("deep/er/a.txt"), "content": "three\n", "append": true });
    assert!(told(&stage, &format!("!tool write_file {more}")).ends_with("\"success\":true}"));
    assert_eq!(folder.read("deep/er/a.txt").as_deref(), Some("one\ntwo\nthree\n"));
    let line = json!({ "path": "./deep/../deep/er/a.txt", "offset": 2, "limit": 1 });
    assert_eq!(told(&stage, &format!("!tool read_file {line}")), "two\n");
    assert!(told(&stage, &writing("deep/er/a.txt", "new")).contains("\"bytes_written\":3"));
    assert_eq!(folder.read("deep/er/a.txt").as_deref(), Some("new"));
    let names: Vec<_> = std::fs::read_dir(folder.at("deep/er")).unwrap().collect();
    assert_eq!(names.len(), 1, "no draft is left");
}

#[test]
fn what_cannot_be_read_is_told_precisely() {
    let folder = Folder::with(&[("a.txt", "one\n")]);
    folder.make("folder");
    std::fs::write(folder.at("bytes"), [0xff, 0xfe]).unwrap();
    let stage = stage_with("sandboxed", &folder);
    assert_eq!(told(&stage, &reading("none.txt")), "Execution failed: File not found: none.txt");
    assert_eq!(
        told(&stage, &reading("folder")),
        "Execution failed: folder is a directory, not a regular file"
    );
    assert_eq!(told(&stage, &reading("bytes")), "Execution failed: bytes is not UTF-8 text");
    assert_eq!(told(&stage, &reading("")), "Invalid input: field `path`: the path is empty");
    let beyond_end = told(&stage, r#"!tool fs_read_file {"path":"a.txt","offset":5}"#);
    assert_eq!(beyond_end, "Execution failed: offset 5 is beyond the end of a.txt: it has 1 lines");
    let zero = told(&stage, r#"!tool fs_read_file {"path":"a.txt","offset":0}"#);
    assert_eq!(zero, "Invalid input: field `offset`: lines are counted from 1");
}

#[test]
fn a_sandboxed_agent_reads_in_its_cwd_alone() {
    let (folder, outside) = (Folder::with(&[("a.txt", "in")]), Folder::with(&[("b.txt", "out")]));
    let stage = stage_with("sandboxed", &folder);
    assert_eq!(told(&stage, &reading("a.txt")), "in");
    assert_eq!(told(&stage, &reading(&folder.at("a.txt"))), "in");
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    for path in [outside.at("b.txt"), format!("../{name}/b.txt"), format!("./x/../../{name}/./b.txt")] {
        assert_eq!(
            told(&stage, &reading(&path)),
            beyond("read", &outside.at("b.txt"), folder.text()),
            "{path}"
        );
    }
    let near = format!("{}-near/b.txt", folder.text());
    assert_eq!(told(&stage, &reading(&near)), beyond("read", &near, folder.text()), "a prefix is no folder");
    assert_eq!(told(&stage, &reading("/etc/passwd")), beyond("read", "/etc/passwd", folder.text()));
    let none = "Permission denied: Tool 'fs.write_file' is disabled by permission policy";
    assert_eq!(told(&stage, &writing("a.txt", "changed")), none);
}

#[test]
fn a_trusted_agent_reads_anywhere_and_writes_in_its_cwd() {
    let (folder, outside) = (Folder::new(), Folder::with(&[("b.txt", "out")]));
    let stage = stage_with("trusted", &folder);
    assert_eq!(told(&stage, &reading(&outside.at("b.txt"))), "out");
    for name in ["b.txt", "new/c.txt"] {
        let path = outside.at(name);
        assert_eq!(told(&stage, &writing(&path, "changed")), beyond("write", &path, folder.text()));
    }
    assert_eq!(outside.read("b.txt").as_deref(), Some("out"));
    assert!(!outside.path().join("new").exists());
    assert!(told(&stage, &writing("c.txt", "in")).contains("\"success\":true"));
}

#[test]
fn asked_folders_are_all_that_is_written_to() {
    let folder = Folder::with(&[("b/keep.txt", "keep")]);
    let stage = Stage::open();
    stage.create_with(json!({
        "agent_id": "worker", "cwd": folder.text(), "allowed_write_paths": ["a", "one-file.txt"],
    }));
    assert!(told(&stage, &writing("a/x/y.txt", "y")).contains("\"success\":true"));
    assert!(told(&stage, &writing("one-file.txt", "only")).contains("\"success\":true"));
    let allowed = format!("{}, {}", folder.at("a"), folder.at("one-file.txt"));
    for name in ["b/keep.txt", "a.txt", "ab/c.txt", "one-file.txt.bak", "a/../b/keep.txt"] {
        let said = told(&stage, &writing(name, "gone"));
        assert!(
            said.starts_with("Permission denied: cannot write '") && said.ends_with(&allowed),
            "{name}: {said}"
        );
    }
    assert_eq!(folder.read("b/keep.txt").as_deref(), Some("keep"));
    assert_eq!(
        (folder.read("a/x/y.txt").as_deref(), folder.read("one-file.txt").as_deref()),
        (Some("y"), Some("only"))
    );
}
