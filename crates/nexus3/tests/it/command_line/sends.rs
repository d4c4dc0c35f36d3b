//! `nexus3 rpc send`: a timeout or Ctrl-C cancels the turn in the daemon, and the command prints the partial text.

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use testkit::CommandOutput;

use super::{json_of, rpc, rpc_json};
use crate::support::program::Program;
use crate::support::{Fixture, is_hex, wait_until};

fn fixture_with_worker(config: &str) -> Fixture {
    let fixture = Fixture::with_config(config);
    fixture.create("worker");
    fixture
}

fn start(fixture: &Fixture, arguments: &[&str], input: &[u8]) -> Program {
    let port = fixture.daemon.port().to_string();
    Program::start(&[&["rpc", "-p", &port], arguments].concat(), &[], fixture.daemon.home(), input)
}

/// Whether all threads are stopped: `kill` returns before the signal has reached every thread.
fn is_process_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let is_stopped = |status: String| status.contains("\nState:\tT");
    threads.flatten().all(|thread| fs::read_to_string(thread.path().join("status")).is_ok_and(is_stopped))
}

/// Checks that the command ended as cancelled: exit code 1, the partial text as JSON, and the reason.
fn assert_cancelled(fixture: &Fixture, finished: &CommandOutput, content: &str, reason: &str) {
    assert_eq!(finished.code, 1, "{finished:?}");
    let printed = json_of(finished);
    assert_eq!((&printed["cancelled"], &printed["content"]), (&json!(true), &json!(content)));
    assert!(is_hex(&printed["request_id"], 16), "{printed}");
    let id = printed["request_id"].as_str().unwrap();
    assert!(finished.stderr.starts_with(&format!("{reason}; cancelling {id}\n")), "{}", finished.stderr);
    assert!(finished.stderr.contains("cancelled; the text is partial"), "{}", finished.stderr);
    fixture.model.wait_aborted(1);
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi", "the agent is idle again");
}

#[test]
fn timeout_cancels_the_turn_and_prints_partial_text() {
    let fixture = fixture_with_worker("");
    let finished = rpc(&fixture.daemon, &["send", "worker", "!stall so far", "-t", "1"]);
    assert_cancelled(&fixture, &finished, "so far", "no response within 1s");
}

#[test]
fn ctrl_c_cancels_the_turn_and_prints_partial_text() {
    let fixture = fixture_with_worker("log.raw = true");
    let command = start(&fixture, &["send", "worker", "!stall so far"], b"");
    fixture.model.wait_stalled(1);
    fixture.wait_streamed("worker", "so far");
    command.signal(Signal::INT);
    assert_cancelled(&fixture, &command.finish(), "so far", "interrupted");
}

#[test]
fn second_ctrl_c_does_not_wait_for_a_hung_daemon() {
    let fixture = fixture_with_worker("");
    let mut command = start(&fixture, &["send", "worker", "!stall so far"], b"");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGSTOP");
    wait_until("the daemon to be stopped", || is_process_stopped(fixture.daemon.pid()));
    command.signal(Signal::INT);
    assert!(command.next_stderr_line().starts_with("interrupted; cancelling"));
    command.signal(Signal::INT);
    let finished = command.finish();
    assert_eq!(finished.code, 130, "{finished:?}");
}

#[test]
fn timeout_cancels_a_queued_send() {
    let fixture = fixture_with_worker("");
    let running = fixture.start_send("worker", "!hold gate", "running");
    fixture.model.wait_stalled(1);
    let command = start(&fixture, &["send", "worker", "waits", "-t", "1"], b"");
    let finished = command.finish();
    assert_eq!((finished.code, &json_of(&finished)["content"]), (1, &json!("")));
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(fixture.context("worker")["message_count"], 2);
}

#[test]
fn ctrl_c_cancels_an_initial_message() {
    let fixture = fixture_with_worker("log.raw = true");
    let command = start(&fixture, &["create", "helper", "-M", "!stall so far"], b"");
    fixture.model.wait_stalled(1);
    fixture.wait_streamed("helper", "so far");
    command.signal(Signal::INT);
    let finished = command.finish();
    assert_eq!(finished.code, 1, "{finished:?}");
    let printed = json_of(&finished);
    assert_eq!((&printed["agent_id"], &printed["response"]["content"]), (&json!("helper"), &json!("so far")));
    fixture.model.wait_aborted(1);
}

#[test]
fn message_can_be_read_from_stdin() {
    let fixture = fixture_with_worker("");
    let text = "two lines\nand \"quotes\" \u{1F980}\n";
    let finished = start(&fixture, &["send", "worker", "-"], text.as_bytes()).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
    assert_eq!(json_of(&finished)["content"], format!("echo: {text}"));
    let finished = start(&fixture, &["send", "worker", "-"], b"").finish();
    assert_eq!(json_of(&finished)["content"], "echo: ");
    let finished = start(&fixture, &["create", "helper", "-M", "-"], b"first words").finish();
    assert_eq!(json_of(&finished)["response"]["content"], "echo: first words");
}

#[test]
fn invalid_utf8_is_not_sent() {
    let fixture = fixture_with_worker("");
    let finished = start(&fixture, &["send", "worker", "-"], b"\xff\xfe").finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("cannot read the message from standard input"), "{}", finished.stderr);
    let finished = start(&fixture, &["create", "helper", "-M", "-"], b"\xff").finish();
    assert_eq!(finished.code, 1);
    assert_eq!(crate::support::agent_ids(&fixture.daemon), ["worker"], "no agent is created for it");
}

#[test]
fn daemon_rejects_a_message_over_its_body_limit() {
    let fixture = fixture_with_worker("");
    let finished = start(&fixture, &["send", "worker", "-"], &vec![b'x'; 1_100_000]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("Request body too large"), "{}", finished.stderr);
}

#[test]
fn text_that_looks_like_a_flag_can_be_sent() {
    let fixture = fixture_with_worker("");
    let sent = rpc_json(&fixture.daemon, &["send", "worker", "--", "-t is a flag"]);
    assert_eq!(sent["content"], "echo: -t is a flag");
    assert_eq!(rpc_json(&fixture.daemon, &["send", "worker", ""])["content"], "echo: ");
}

#[test]
fn failed_turn_is_reported_on_stderr() {
    let fixture = fixture_with_worker("");
    let failed = rpc(&fixture.daemon, &["send", "worker", "!status 401"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""));
    assert_eq!(failed.stderr, "Authentication failed. Check your API key. (-32603)\n");
}

#[test]
fn daemon_stop_during_a_send_is_reported() {
    let fixture = fixture_with_worker("stop_grace_ms = 0");
    let command = start(&fixture, &["send", "worker", "!silent"], b"");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGTERM");
    let finished = command.finish();
    assert_eq!(finished.code, 1, "{finished:?}");
    assert_eq!(json_of(&finished)["cancelled"], true);
    fixture.daemon.wait_exit();
    let fixture = fixture_with_worker("");
    let command = start(&fixture, &["send", "worker", "!silent"], b"");
    fixture.model.wait_stalled(1);
    fixture.daemon.signal("SIGKILL");
    let finished = command.finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{finished:?}");
    assert!(finished.stderr.contains("the request may have been executed"), "{}", finished.stderr);
}
