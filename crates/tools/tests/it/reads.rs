//! What reading gives: text, lines, a cut where a file is too long, and a name for what is no file.

use std::fs;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::fixture::{Fixture, done, failed};
use crate::sandbox::{Sandbox, read, write};

const CONTENT_BYTES_MAX: usize = 10 << 20;

#[tokio::test]
async fn lines_are_counted_from_one() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("inside/lines"), "one\ntwo\r\nthree\n\nfive").unwrap();
    fs::write(sandbox.path("inside/empty"), "").unwrap();
    let world = sandbox.fixture();
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
        assert_eq!(world.call("read_file", &arguments).await, expected, "{arguments}");
    }
    assert_eq!(read(&world, "empty").await, done(""));
    let beyond = world.call("fs_read_file", &json!({"path": "ok.txt", "offset": 2})).await;
    assert_eq!(beyond, failed("Execution failed: offset 2 is beyond the end of ok.txt: it has 1 lines"));
}

#[tokio::test]
async fn long_files_are_cut_between_characters() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    let exact = "x".repeat(CONTENT_BYTES_MAX);
    fs::write(sandbox.path("inside/exact"), &exact).unwrap();
    assert!(read(&world, "exact").await == done(exact));

    let long = format!("a{}", "é".repeat(CONTENT_BYTES_MAX / 2));
    fs::write(sandbox.path("inside/long"), &long).unwrap();
    let outcome = read(&world, "long").await;
    let (text, last) = outcome.text().rsplit_once('\n').unwrap();
    assert_eq!(
        last,
        format!("[truncated: {} of {} bytes shown]", CONTENT_BYTES_MAX - 1, CONTENT_BYTES_MAX + 1)
    );
    assert!(text == &long[..CONTENT_BYTES_MAX - 1]);

    let lines = "0123456\n".repeat(CONTENT_BYTES_MAX / 8 + 10);
    fs::write(sandbox.path("inside/lines"), &lines).unwrap();
    let outcome = read(&world, "lines").await;
    assert!(
        outcome
            .text()
            .ends_with(&format!("0123456\n[truncated: {CONTENT_BYTES_MAX} of {} bytes shown]", lines.len()))
    );
    let far = world.call("read_file", &json!({"path": "lines", "offset": CONTENT_BYTES_MAX / 8 + 9})).await;
    assert_eq!(far, done("0123456\n0123456\n"));
}

#[tokio::test]
async fn what_is_not_text_is_said() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    for (name, bytes) in [("bin", &b"ab\xff\n"[..]), ("half", &b"ab\xc3"[..])] {
        fs::write(sandbox.path(&format!("inside/{name}")), bytes).unwrap();
        assert_eq!(read(&world, name).await, failed(format!("Execution failed: {name} is not UTF-8 text")));
    }
    fs::write(sandbox.path("inside/nul"), "a\0b").unwrap();
    assert_eq!(read(&world, "nul").await, done("a\0b"));
}

#[tokio::test]
async fn what_is_no_file_is_named_at_once() {
    let sandbox = Sandbox::new();
    let world = sandbox.fixture();
    let fifo = sandbox.path("inside/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = UnixListener::bind(sandbox.path("inside/socket")).unwrap();
    for (name, what) in [("fifo", "a named pipe"), ("socket", "a socket"), ("sub", "a directory")] {
        let expected = failed(format!("Execution failed: {name} is {what}, not a regular file"));
        assert_eq!(read(&world, name).await, expected);
        assert_eq!(write(&world, name, "x").await, expected);
    }
    let devices = Fixture::confined_to("/dev");
    for device in ["zero", "null"] {
        let expected = failed(format!("Execution failed: {device} is a device, not a regular file"));
        assert_eq!(read(&devices, device).await, expected);
        assert_eq!(write(&devices, device, "x").await, expected);
    }
}

#[tokio::test]
async fn a_missing_folder_is_a_missing_file() {
    let sandbox = Sandbox::new();
    let missing = failed("Execution failed: File not found: ok.txt");
    assert_eq!(read(&Fixture::confined_to(&sandbox.path("nowhere")), "ok.txt").await, missing);
}
