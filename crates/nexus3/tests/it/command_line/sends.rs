//! `nexus3 rpc send`: a time limit and Ctrl-C end the turn at the daemon, and what was said until then is printed.

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use testkit::CommandOutput;

use super::{json_of, rpc, rpc_json};
use crate::support::program::Program;
use crate::support::{Fixture, is_hex, wait_until};

fn fixture_with_worker(config: &str) -> Fixture {
    let stage = Fixture::with_config(config);
    stage.create("worker");
    stage
}

fn start(stage: &Fixture, arguments: &[&str], input: &[u8]) -> Program {
    let port = stage.daemon.port().to_string();
    Program::start(&[&["rpc", "-p", &port], arguments].concat(), &[], stage.daemon.home(), input)
}

/// A signal is sent before it has reached every thread.
fn is_process_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let is_stopped = |status: String| status.contains("\nState:\tT");
    threads.flatten().all(|thread| fs::read_to_string(thread.path().join("status")).is_ok_and(is_stopped))
}

/// It ended because it was cancelled: code 1, the partial text as JSON, and why.
fn assert_cancelled(stage: &Fixture, finished: &CommandOutput, content: &str, reason: &str) {
    assert_eq!(finished.code, 1, "{finished:?}");
    let printed = json_of(finished);
    assert_eq!((&printed["cancelled"], &printed["content"]), (&json!(true), &json!(content)));
    assert!(is_hex(&printed["request_id"], 16), "{printed}");
    let id = printed["request_id"].as_str().unwrap();
    assert!(finished.stderr.starts_with(&format!("{reason}; cancelling {id}\n")), "{}", finished.stderr);
    assert!(finished.stderr.contains("its content is what was said until then"), "{}", finished.stderr);
    stage.model.wait_aborted(1);
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi", "the agent is free again");
}

#[test]
fn a_time_limit_cancels_the_turn_and_prints_what_was_said() {
    let stage = fixture_with_worker("");
    let finished = rpc(&stage.daemon, &["send", "worker", "!stall so far", "-t", "1"]);
    assert_cancelled(&stage, &finished, "so far", "no response within 1s");
}

#[test]
fn ctrl_c_cancels_the_turn_and_prints_what_was_said() {
    let stage = fixture_with_worker("log.raw = true");
    let command = start(&stage, &["send", "worker", "!stall so far"], b"");
    stage.model.wait_stalled(1);
    stage.wait_streamed("worker", "so far");
    command.signal(Signal::INT);
    assert_cancelled(&stage, &command.finish(), "so far", "interrupted");
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_a_daemon_that_hangs() {
    let stage = fixture_with_worker("");
    let mut command = start(&stage, &["send", "worker", "!stall so far"], b"");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGSTOP");
    wait_until("the daemon to stand still", || is_process_stopped(stage.daemon.pid()));
    command.signal(Signal::INT);
    assert!(command.next_stderr_line().starts_with("interrupted; cancelling"));
    command.signal(Signal::INT);
    let finished = command.finish();
    assert_eq!(finished.code, 130, "{finished:?}");
}

#[test]
fn a_time_limit_cancels_a_send_that_waits() {
    let stage = fixture_with_worker("");
    let running = stage.start_send("worker", "!hold gate", "running");
    stage.model.wait_stalled(1);
    let command = start(&stage, &["send", "worker", "waits", "-t", "1"], b"");
    let finished = command.finish();
    assert_eq!((finished.code, &json_of(&finished)["content"]), (1, &json!("")));
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(stage.context("worker")["message_count"], 2);
}

#[test]
fn ctrl_c_cancels_a_first_message() {
    let stage = fixture_with_worker("log.raw = true");
    let command = start(&stage, &["create", "helper", "-M", "!stall so far"], b"");
    stage.model.wait_stalled(1);
    stage.wait_streamed("helper", "so far");
    command.signal(Signal::INT);
    let finished = command.finish();
    assert_eq!(finished.code, 1, "{finished:?}");
    let printed = json_of(&finished);
    assert_eq!((&printed["agent_id"], &printed["response"]["content"]), (&json!("helper"), &json!("so far")));
    stage.model.wait_aborted(1);
}

#[test]
fn a_message_can_be_read_from_stdin() {
    let stage = fixture_with_worker("");
    let text = "two lines\nand \"quotes\" \u{1F980}\n";
    let finished = start(&stage, &["send", "worker", "-"], text.as_bytes()).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
    assert_eq!(json_of(&finished)["content"], format!("echo: {text}"));
    let finished = start(&stage, &["send", "worker", "-"], b"").finish();
    assert_eq!(json_of(&finished)["content"], "echo: ");
    let finished = start(&stage, &["create", "helper", "-M", "-"], b"first words").finish();
    assert_eq!(json_of(&finished)["response"]["content"], "echo: first words");
}

#[test]
fn what_is_no_text_is_not_sent() {
    let stage = fixture_with_worker("");
    let finished = start(&stage, &["send", "worker", "-"], b"\xff\xfe").finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("cannot read the message from standard input"), "{}", finished.stderr);
    let finished = start(&stage, &["create", "helper", "-M", "-"], b"\xff").finish();
    assert_eq!(finished.code, 1);
    assert_eq!(crate::support::agent_ids(&stage.daemon), ["worker"], "and nobody is created for it");
}

#[test]
fn a_message_that_is_too_long_for_the_daemon_is_refused_by_it() {
    let stage = fixture_with_worker("");
    let finished = start(&stage, &["send", "worker", "-"], &vec![b'x'; 1_100_000]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("Request body too large"), "{}", finished.stderr);
}

#[test]
fn a_text_that_looks_like_a_flag_can_be_sent() {
    let stage = fixture_with_worker("");
    let sent = rpc_json(&stage.daemon, &["send", "worker", "--", "-t is a flag"]);
    assert_eq!(sent["content"], "echo: -t is a flag");
    assert_eq!(rpc_json(&stage.daemon, &["send", "worker", ""])["content"], "echo: ");
}

#[test]
fn a_turn_that_fails_is_told_on_stderr() {
    let stage = fixture_with_worker("");
    let failed = rpc(&stage.daemon, &["send", "worker", "!status 401"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""));
    assert_eq!(failed.stderr, "Authentication failed. Check your API key. (-32603)\n");
}

#[test]
fn a_daemon_that_stops_in_the_middle_is_told() {
    let stage = fixture_with_worker("stop_grace_ms = 0");
    let command = start(&stage, &["send", "worker", "!silent"], b"");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGTERM");
    let finished = command.finish();
    assert_eq!(finished.code, 1, "{finished:?}");
    assert_eq!(json_of(&finished)["cancelled"], true);
    stage.daemon.wait_exit();
    let stage = fixture_with_worker("");
    let command = start(&stage, &["send", "worker", "!silent"], b"");
    stage.model.wait_stalled(1);
    stage.daemon.signal("SIGKILL");
    let finished = command.finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{finished:?}");
    assert!(finished.stderr.contains("the request may have been executed"), "{}", finished.stderr);
}
