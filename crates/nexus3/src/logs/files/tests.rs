//! Tests of rotation, file permissions and the limit on open handles.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::super::record::{AgentDirectory, LogStream, StreamKey};
use super::{FileLimits, LogFiles};

const LIMITS: FileLimits = FileLimits { file_bytes_max: 10, files_max: 3, handles_max: 2 };

fn key(agent: &str) -> StreamKey {
    StreamKey { agent: AgentDirectory::new(agent).unwrap(), stream: LogStream::Context }
}

fn files(home: &TempDir, limits: FileLimits) -> LogFiles {
    LogFiles::new(home.path().join("logs"), limits)
}

fn read(home: &TempDir, name: &str) -> Option<String> {
    fs::read_to_string(home.path().join("logs/a").join(name)).ok()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_is_rotated_when_the_next_record_does_not_fit() {
    let home = TempDir::new().unwrap();
    let mut files = files(&home, LIMITS);
    files.append(&key("a"), b"12345").unwrap();
    files.append(&key("a"), b"67890").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("1234567890"));
    assert_eq!(read(&home, "context.md.1"), None);
    files.append(&key("a"), b"x").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("x"));
    assert_eq!(read(&home, "context.md.1").as_deref(), Some("1234567890"));
    files.append(&key("a"), b"1234567890").unwrap();
    assert_eq!(read(&home, "context.md.1").as_deref(), Some("x"));
}

#[test]
fn batched_appends_equal_single_appends() {
    let records = ["123", "4567", "a record longer than a file", "8", "90123", "4567890", "1"];
    let batched_home = TempDir::new().unwrap();
    let single_home = TempDir::new().unwrap();
    let limits = FileLimits { files_max: 9, ..LIMITS };
    let (mut batched, mut single) = (files(&batched_home, limits), files(&single_home, limits));
    for start in 0..records.len() {
        let ends: Vec<usize> =
            (start..records.len()).map(|end| records[start..=end].concat().len()).collect();
        batched.append_all(&key("a"), records[start..].concat().as_bytes(), &ends).unwrap();
        records[start..].iter().for_each(|record| single.append(&key("a"), record.as_bytes()).unwrap());
        for name in ["context.md", "context.md.1", "context.md.2", "context.md.5", "context.md.8"] {
            assert_eq!(read(&batched_home, name), read(&single_home, name), "{start}: {name}");
        }
    }
}

#[test]
fn files_beyond_the_limit_are_deleted() {
    for (files_max, count) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let home = TempDir::new().unwrap();
        let mut files = files(&home, FileLimits { files_max, ..LIMITS });
        for number in 0..6 {
            files.append(&key("a"), format!("record {number}\n").as_bytes()).unwrap();
        }
        let names = ["context.md", "context.md.1", "context.md.2", "context.md.3"];
        let found: Vec<String> = names.iter().filter_map(|name| read(&home, name)).collect();
        let expected: Vec<String> = (0..count).map(|age| format!("record {}\n", 5 - age)).collect();
        assert_eq!(found, expected, "{files_max}");
    }
}

#[test]
fn files_of_an_earlier_larger_limit_are_deleted() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("logs/a");
    fs::create_dir_all(&directory).unwrap();
    for number in 1..6 {
        fs::write(directory.join(format!("context.md.{number}")), "old").unwrap();
    }
    let mut files = files(&home, LIMITS);
    files.append(&key("a"), b"1234567890").unwrap();
    files.append(&key("a"), b"x").unwrap();
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["context.md", "context.md.1", "context.md.2"]);
}

#[test]
fn a_record_larger_than_the_limit_gets_its_own_file() {
    let home = TempDir::new().unwrap();
    let mut files = files(&home, LIMITS);
    files.append(&key("a"), b"1").unwrap();
    files.append(&key("a"), b"a very long record").unwrap();
    files.append(&key("a"), b"2").unwrap();
    assert_eq!(read(&home, "context.md.2").as_deref(), Some("1"));
    assert_eq!(read(&home, "context.md.1").as_deref(), Some("a very long record"));
    assert_eq!(read(&home, "context.md").as_deref(), Some("2"));
}

#[test]
fn appends_continue_the_file_of_an_earlier_run() {
    let home = TempDir::new().unwrap();
    files(&home, LIMITS).append(&key("a"), b"12345").unwrap();
    let mut second = files(&home, LIMITS);
    second.append(&key("a"), b"67890").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("1234567890"));
    second.append(&key("a"), b"x").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("x"));
}

#[test]
fn files_and_directories_are_owner_only() {
    let home = TempDir::new().unwrap();
    let mut files = files(&home, LIMITS);
    files.append(&key("a"), b"1234567890").unwrap();
    files.append(&key("a"), b"1").unwrap();
    let logs = home.path().join("logs");
    assert_eq!((mode(&logs), mode(&logs.join("a"))), (0o700, 0o700));
    assert_eq!((mode(&logs.join("a/context.md")), mode(&logs.join("a/context.md.1"))), (0o600, 0o600));
}

#[test]
fn symbolic_links_are_not_followed() {
    let home = TempDir::new().unwrap();
    let logs = home.path().join("logs");
    fs::create_dir_all(logs.join("a")).unwrap();
    fs::create_dir(home.path().join("elsewhere")).unwrap();
    symlink(home.path().join("stolen"), logs.join("a/context.md")).unwrap();
    symlink(home.path().join("elsewhere"), logs.join("b")).unwrap();
    let mut files = files(&home, LIMITS);
    assert!(files.append(&key("a"), b"1").is_err());
    assert!(files.append(&key("b"), b"1").is_err());
    assert!(!home.path().join("stolen").exists());
    assert_eq!(fs::read_dir(home.path().join("elsewhere")).unwrap().count(), 0);

    let linked = TempDir::new().unwrap();
    symlink(home.path().join("elsewhere"), linked.path().join("logs")).unwrap();
    assert!(LogFiles::new(linked.path().join("logs"), LIMITS).append(&key("a"), b"1").is_err());
    assert_eq!(fs::read_dir(home.path().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_fifo_in_place_of_a_file_is_rejected_without_blocking() {
    let home = TempDir::new().unwrap();
    fs::create_dir_all(home.path().join("logs/a")).unwrap();
    let pipe = home.path().join("logs/a/context.md");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(files(&home, LIMITS).append(&key("a"), b"1").is_err());
    // Also when the FIFO has a reader.
    let _reader = rustix::fs::open(&pipe, rustix::fs::OFlags::RDWR, Mode::empty()).unwrap();
    let fault = files(&home, LIMITS).append(&key("a"), b"1").unwrap_err();
    assert_eq!(fault.to_string(), "not a regular file");
}

#[test]
fn the_least_recently_used_handle_is_evicted() {
    let home = TempDir::new().unwrap();
    let mut files = files(&home, LIMITS);
    for agent in ["a", "b", "a", "c"] {
        files.append(&key(agent), b"1").unwrap();
    }
    let mut open: Vec<&str> = files.open_handles.keys().map(|key| key.agent.as_str()).collect();
    open.sort_unstable();
    assert_eq!(open, ["a", "c"]);
    for agent in ["b", "c", "a"] {
        files.append(&key(agent), b"2").unwrap();
    }
    assert_eq!(files.open_handles.len(), 2);
    for (agent, expected) in [("a", "112"), ("b", "12"), ("c", "12")] {
        let path = home.path().join("logs").join(agent).join("context.md");
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }
}

#[test]
fn a_deleted_file_or_directory_is_recreated() {
    let home = TempDir::new().unwrap();
    let mut files = files(&home, LIMITS);
    files.append(&key("a"), b"1").unwrap();
    fs::remove_file(home.path().join("logs/a/context.md")).unwrap();
    files.append(&key("a"), b"2").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("2"));
    fs::remove_dir_all(home.path().join("logs")).unwrap();
    files.append(&key("a"), b"3").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("3"));
}

#[test]
fn appending_works_again_after_an_error() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("logs"), "not a directory").unwrap();
    let mut files = files(&home, LIMITS);
    assert!(files.append(&key("a"), b"1").is_err());
    fs::remove_file(home.path().join("logs")).unwrap();
    files.append(&key("a"), b"2").unwrap();
    assert_eq!(read(&home, "context.md").as_deref(), Some("2"));
}
