//! Reading and writing files within the grant, and the errors outside of it.

use serde_json::json;

use super::{fixture_with, tool_result};
use crate::support::Fixture;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};

fn path_denied_error(verb: &str, path: &str, allowed: &str) -> String {
    let setting = if verb == "write" { "; add the directory to allowed_write_paths" } else { "" };
    format!(
        "Permission denied: cannot {verb} '{path}': Path outside allowed directories. Allowed: {allowed}{setting}"
    )
}

#[test]
fn file_is_written_read_and_appended_to() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let written = tool_result(&fixture, &write_file_script("deep/er/a.txt", "one\ntwo\n"));
    assert_eq!(written, r#"{"bytes_written":8,"path":"deep/er/a.txt","success":true}"#);
    assert_eq!(tool_result(&fixture, &read_file_script("deep/er/a.txt")), "one\ntwo\n");
    let more = json!({ "path": directory.path_of("deep/er/a.txt"), "content": "three\n", "append": true });
    assert!(tool_result(&fixture, &format!("!tool write_file {more}")).ends_with("\"success\":true}"));
    assert_eq!(directory.read("deep/er/a.txt").as_deref(), Some("one\ntwo\nthree\n"));
    let line = json!({ "path": "./deep/../deep/er/a.txt", "offset": 2, "limit": 1 });
    assert_eq!(tool_result(&fixture, &format!("!tool read_file {line}")), "two\n");
    assert!(
        tool_result(&fixture, &write_file_script("deep/er/a.txt", "new")).contains("\"bytes_written\":3")
    );
    assert_eq!(directory.read("deep/er/a.txt").as_deref(), Some("new"));
    let names: Vec<_> = std::fs::read_dir(directory.path_of("deep/er")).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file is left");
}

#[test]
fn exchanged_directory_is_closed_until_it_is_granted_again() {
    let directory = TestDirectory::with_files(&[("work/a.txt", "granted"), ("other/a.txt", "not granted")]);
    let mut fixture = Fixture::start();
    let work = directory.path_of("work");
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": work }));
    for (from, to) in [("work", "away"), ("other", "work")] {
        std::fs::rename(directory.path_of(from), directory.path_of(to)).unwrap();
    }
    let replaced = format!(
        "Permission denied: {work} was replaced since it was granted; put the granted directory back, or grant the new \
         one with set_permissions"
    );
    assert_eq!(tool_result(&fixture, &write_file_script("a.txt", "mine")), replaced);
    let Fixture { daemon, model } = fixture;
    fixture = Fixture { daemon: daemon.stop().start(), model };
    assert_eq!(tool_result(&fixture, &write_file_script("a.txt", "mine")), replaced, "after a restart");
    assert_eq!(directory.read("work/a.txt").as_deref(), Some("not granted"));
    fixture.set_permissions("worker", json!({ "preset": "trusted" }));
    assert!(tool_result(&fixture, &write_file_script("a.txt", "mine")).contains("\"success\":true"));
}

#[test]
fn failed_reads_get_precise_errors() {
    let directory = TestDirectory::with_files(&[("a.txt", "one\n")]);
    directory.create_directory("folder");
    std::fs::write(directory.path_of("bytes"), [0xff, 0xfe]).unwrap();
    let fixture = fixture_with("sandboxed", &directory);
    assert_eq!(
        tool_result(&fixture, &read_file_script("none.txt")),
        "Execution failed: File not found: none.txt"
    );
    assert_eq!(
        tool_result(&fixture, &read_file_script("folder")),
        "Execution failed: folder is a directory, not a regular file"
    );
    assert_eq!(
        tool_result(&fixture, &read_file_script("bytes")),
        "Execution failed: bytes is a binary file, not UTF-8 text"
    );
    assert_eq!(
        tool_result(&fixture, &read_file_script("")),
        "Invalid input: field `path`: the path is empty"
    );
    let beyond_end = tool_result(&fixture, r#"!tool fs_read_file {"path":"a.txt","offset":5}"#);
    assert_eq!(beyond_end, "Execution failed: offset 5 is beyond the end of a.txt: it has 1 lines");
    let zero = tool_result(&fixture, r#"!tool fs_read_file {"path":"a.txt","offset":0}"#);
    assert_eq!(zero, "Invalid input: field `offset`: lines are counted from 1");
}

#[test]
fn sandboxed_agent_reads_only_in_its_cwd() {
    let (directory, outside) =
        (TestDirectory::with_files(&[("a.txt", "in")]), TestDirectory::with_files(&[("b.txt", "out")]));
    let fixture = fixture_with("sandboxed", &directory);
    assert_eq!(tool_result(&fixture, &read_file_script("a.txt")), "in");
    assert_eq!(tool_result(&fixture, &read_file_script(&directory.path_of("a.txt"))), "in");
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    for path in [outside.path_of("b.txt"), format!("../{name}/b.txt"), format!("./x/../../{name}/./b.txt")] {
        assert_eq!(
            tool_result(&fixture, &read_file_script(&path)),
            path_denied_error("read", &outside.path_of("b.txt"), directory.path_str()),
            "{path}"
        );
    }
    let near = format!("{}-near/b.txt", directory.path_str());
    assert_eq!(
        tool_result(&fixture, &read_file_script(&near)),
        path_denied_error("read", &near, directory.path_str()),
        "a common prefix does not make it a subdirectory"
    );
    assert_eq!(
        tool_result(&fixture, &read_file_script("/etc/passwd")),
        path_denied_error("read", "/etc/passwd", directory.path_str())
    );
    let tool_disabled = "Permission denied: Tool 'fs.write_file' is disabled by permission policy; it needs allowed_write_paths";
    assert_eq!(tool_result(&fixture, &write_file_script("a.txt", "changed")), tool_disabled);
}

#[test]
fn trusted_agent_reads_anywhere_and_writes_in_its_cwd() {
    let (directory, outside) = (TestDirectory::new(), TestDirectory::with_files(&[("b.txt", "out")]));
    let fixture = fixture_with("trusted", &directory);
    assert_eq!(tool_result(&fixture, &read_file_script(&outside.path_of("b.txt"))), "out");
    for name in ["b.txt", "new/c.txt"] {
        let path = outside.path_of(name);
        assert_eq!(
            tool_result(&fixture, &write_file_script(&path, "changed")),
            path_denied_error("write", &path, directory.path_str())
        );
    }
    assert_eq!(outside.read("b.txt").as_deref(), Some("out"));
    assert!(!outside.path().join("new").exists());
    assert!(tool_result(&fixture, &write_file_script("c.txt", "in")).contains("\"success\":true"));
}

#[test]
fn writes_are_limited_to_allowed_write_paths() {
    let directory = TestDirectory::with_files(&[("b/keep.txt", "keep")]);
    let fixture = Fixture::start();
    fixture.create_with(json!({
        "agent_id": "worker", "cwd": directory.path_str(), "allowed_write_paths": ["a", "one-file.txt"],
    }));
    assert!(tool_result(&fixture, &write_file_script("a/x/y.txt", "y")).contains("\"success\":true"));
    assert!(tool_result(&fixture, &write_file_script("one-file.txt", "only")).contains("\"success\":true"));
    let allowed = format!(
        "{}, {}; add the directory to allowed_write_paths",
        directory.path_of("a"),
        directory.path_of("one-file.txt")
    );
    for name in ["b/keep.txt", "a.txt", "ab/c.txt", "one-file.txt.bak", "a/../b/keep.txt"] {
        let result = tool_result(&fixture, &write_file_script(name, "gone"));
        assert!(
            result.starts_with("Permission denied: cannot write '") && result.ends_with(&allowed),
            "{name}: {result}"
        );
    }
    assert_eq!(directory.read("b/keep.txt").as_deref(), Some("keep"));
    assert_eq!(
        (directory.read("a/x/y.txt").as_deref(), directory.read("one-file.txt").as_deref()),
        (Some("y"), Some("only"))
    );
}
