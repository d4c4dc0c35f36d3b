//! Reading: text, line ranges, truncation of long files, and errors for other than regular files.

use std::fs;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::fixture::{Fixture, done, failed};
use crate::sandbox::{Sandbox, read, write};

const CONTENT_BYTES_MAX: usize = 10 << 20;

#[tokio::test]
async fn line_ranges_count_from_one() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("inside/lines"), "one\ntwo\r\nthree\n\nfive").unwrap();
    fs::write(sandbox.path("inside/empty"), "").unwrap();
    let fixture = sandbox.fixture();
    for (offset, limit, expected) in [
        (json!(null), json!(null), done("one\ntwo\r\nthree\n\nfive")),
        (json!(1), json!(1), done("one\n")),
        (json!(2), json!(2), done("two\r\nthree\n")),
        (json!(4), json!(9), done("\nfive")),
        (json!(5), json!(null), done("five")),
        (json!(null), json!(3), done("one\ntwo\r\nthree\n")),
        (json!(3), json!(0), done("")),
        (json!(1), json!(u64::MAX), done("one\ntwo\r\nthree\n\nfive")),
        (
            json!(6),
            json!(null),
            failed("Execution failed: offset 6 is beyond the end of lines: it has 5 lines"),
        ),
        (json!(0), json!(1), failed("Invalid input: field `offset`: lines are counted from 1")),
        (
            json!(-1),
            json!(1),
            failed("Invalid input: field `offset`: invalid value: integer `-1`, expected u64"),
        ),
    ] {
        let arguments = json!({"path": "lines", "offset": offset, "limit": limit});
        assert_eq!(fixture.call("read_file", &arguments).await, expected, "{arguments}");
    }
    assert_eq!(read(&fixture, "empty").await, done(""));
    let beyond = fixture.call("fs_read_file", &json!({"path": "ok.txt", "offset": 2})).await;
    assert_eq!(beyond, failed("Execution failed: offset 2 is beyond the end of ok.txt: it has 1 lines"));
}

/// The most that one call returns without `limit`.
const UNLIMITED_BYTES_MAX: usize = 1_000_000;

#[tokio::test]
async fn threat_71_long_file_is_cut_with_the_offset_to_continue() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let exact = "x".repeat(UNLIMITED_BYTES_MAX);
    fs::write(sandbox.path("inside/exact"), &exact).unwrap();
    assert!(read(&fixture, "exact").await == done(exact));

    let lines: String = (1..=300_000).map(|line| format!("line {line}\n")).collect();
    fs::write(sandbox.path("inside/lines"), &lines).unwrap();
    let (mut collected, mut offset, mut calls) = (String::new(), 1, 0);
    loop {
        let outcome = fixture.call("read_file", &json!({"path": "lines", "offset": offset})).await;
        calls += 1;
        let text = outcome.text();
        let Some((part, note)) = text.rsplit_once("[truncated: ") else {
            collected.push_str(text);
            break;
        };
        let (shown, total) = (part.len(), lines.len());
        offset = offset.max(1) + part.lines().count();
        assert_eq!(note, format!("{shown} of {total} bytes shown; continue with offset {offset}]"));
        collected.push_str(part);
    }
    assert!(collected == lines && calls == 4, "{calls} calls");
    let all = fixture.call("read_file", &json!({"path": "lines", "limit": 400_000})).await;
    assert!(all == done(lines), "a limit allows more, up to 10 MiB");
    let sparse = fs::File::create(sandbox.path("inside/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(
        read(&fixture, "sparse").await,
        failed("Execution failed: sparse is a binary file, not UTF-8 text")
    );
}

#[tokio::test]
async fn threat_71_long_line_is_cut_between_characters() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let long = format!("a{}\nnext", "é".repeat(CONTENT_BYTES_MAX / 2));
    fs::write(sandbox.path("inside/long"), &long).unwrap();
    for (limit, shown) in [(json!(null), UNLIMITED_BYTES_MAX - 1), (json!(5), CONTENT_BYTES_MAX - 1)] {
        let outcome = fixture.call("read_file", &json!({"path": "long", "limit": limit})).await;
        let (text, last) = outcome.text().rsplit_once('\n').unwrap();
        let why = "line 1 is too long to be read; continue with offset 2";
        assert_eq!(last, format!("[truncated: {shown} of {} bytes shown; {why}]", long.len()));
        assert!(text == &long[..shown]);
    }
    assert_eq!(fixture.call("read_file", &json!({"path": "long", "offset": 2})).await, done("next"));
}

/// Without a line break, a search for line 2 would read all of it.
#[tokio::test]
async fn threat_70_sparse_file_is_not_read_to_its_end() {
    let sandbox = Sandbox::new();
    fs::File::create(sandbox.path("inside/sparse")).unwrap().set_len(1 << 40).unwrap();
    fs::write(sandbox.path("inside/nul"), "a\0\nb\n").unwrap();
    for name in ["sparse", "nul"] {
        let outcome = sandbox.fixture().call("read_file", &json!({"path": name, "offset": 2})).await;
        assert_eq!(outcome, failed(format!("Execution failed: {name} is a binary file, not UTF-8 text")));
    }
}

#[tokio::test]
async fn threat_71_binary_file_is_named_and_not_shown() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    for (name, bytes) in [("bin", &b"ab\xff\n"[..]), ("half", &b"ab\xc3"[..]), ("nul", &b"a\0b"[..])] {
        fs::write(sandbox.path(&format!("inside/{name}")), bytes).unwrap();
        let expected = failed(format!("Execution failed: {name} is a binary file, not UTF-8 text"));
        assert_eq!(read(&fixture, name).await, expected);
    }
}

#[tokio::test]
async fn threat_70_special_files_are_rejected_at_once() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let fifo = sandbox.path("inside/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = UnixListener::bind(sandbox.path("inside/socket")).unwrap();
    for (name, what) in [("fifo", "a named pipe"), ("socket", "a socket"), ("sub", "a directory")] {
        let expected = failed(format!("Execution failed: {name} is {what}, not a regular file"));
        assert_eq!(read(&fixture, name).await, expected);
        assert_eq!(write(&fixture, name, "x").await, expected);
    }
    let devices = Fixture::confined_to("/dev");
    for device in ["zero", "null"] {
        let expected = failed(format!("Execution failed: {device} is a device, not a regular file"));
        assert_eq!(read(&devices, device).await, expected);
        assert_eq!(write(&devices, device, "x").await, expected);
    }
}

#[tokio::test]
async fn missing_root_directory_reads_as_file_not_found() {
    let sandbox = Sandbox::new();
    let missing = failed("Execution failed: File not found: ok.txt");
    assert_eq!(read(&Fixture::confined_to(&sandbox.path("nowhere")), "ok.txt").await, missing);
}
