//! The daemon is aborted right before or right after a commit, in the middle of everything that can be done to an agent,
//! and started again: what was acknowledged is there, what was not can be asked for again, and nothing is done twice.

mod scenario;

use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use nexus3_protocol::events::EventKind;
use serde_json::json;

use self::scenario::Scenario;
use super::{FAILPOINTS_VARIABLE, assert_sound, wait_turns_ended};
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture};
use testkit::{TestDaemon, run};

/// Daemons at once.
const WORKERS: usize = 6;

/// Runs the course once for each of these places to fail at; all that went wrong is told.
fn fail_at(points: Vec<String>) {
    let points = Mutex::new(points.into_iter());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = points.lock().expect("nobody panics while it is held").next();
                    let Some(point) = next else { return };
                    if catch_unwind(AssertUnwindSafe(|| Scenario::run(&point))).is_err() {
                        failed.lock().expect("nobody panics while it is held").push(point);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics while it is held");
    assert!(failed.is_empty(), "these places to fail at were not survived: {failed:?}");
}

fn kinds() -> impl Iterator<Item = &'static str> {
    EventKind::ALL.iter().filter(|kind| kind.is_journalled()).map(|kind| kind.name())
}

#[test]
fn nothing_is_lost_or_doubled_when_a_record_of_any_kind_is_about_to_be_kept() {
    fail_at(kinds().map(|kind| format!("commit.before:{kind}=abort")).collect());
}

#[test]
fn nothing_is_lost_or_doubled_when_a_record_of_any_kind_was_just_kept() {
    fail_at(kinds().map(|kind| format!("commit.after:{kind}=abort")).collect());
}

#[test]
fn nothing_is_lost_or_doubled_at_later_records_of_a_kind() {
    let later = [("message", 2), ("message", 5), ("turn_ended", 2), ("turn_ended", 4), ("turn_accepted", 2)];
    let both = |(kind, time): (&str, u32)| {
        ["before", "after"].map(|edge| format!("commit.{edge}:{kind}@{time}=abort"))
    };
    let log = "checkpoint.before=abort".to_owned();
    fail_at(later.into_iter().flat_map(both).chain([log]).collect());
}

#[test]
fn a_once_tool_whose_outcome_nobody_knows_is_told_so_and_does_not_run_again() {
    for (point, lines) in [("commit.after:tool_begun=abort", 0), ("commit.before:turn_ended=abort", 1)] {
        let folder = TestDirectory::new();
        let stage = Fixture::with_failpoints(point);
        stage.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": folder.path_str() }));
        let call = r#"!tool fs_append_file {"path":"file","content":"line"}"#;
        stage.send_expecting_abort("worker", call, "r");
        let stage = stage.restart_after_abort();
        let answer = stage.send_with_request_id("worker", call, "r")["result"].take();
        let said = answer["content"].as_str().unwrap_or_default();
        assert_eq!(said.contains("Outcome unknown"), lines == 0, "{point}: {answer}");
        assert_eq!(folder.read("file").map_or(0, |text| text.lines().count()), lines, "{point}");
        assert_eq!(stage.model.call_counts(call, 0).requests, 1, "the answer with the call was kept");
    }
}

#[test]
fn a_pure_tool_whose_outcome_nobody_knows_runs_again() {
    let stage = Fixture::with_failpoints("commit.after:tool_begun=abort");
    stage.create("worker");
    let call = r#"!tool echo {"text":"again"}"#;
    stage.send_expecting_abort("worker", call, "r");
    let stage = stage.restart_after_abort();
    let answer = stage.send_with_request_id("worker", call, "r");
    let said = answer["result"]["content"].as_str().unwrap_or_default();
    assert!(said.contains("again") && !said.contains("unknown"), "{answer}");
    assert_eq!(stage.model.call_counts(call, 0).requests, 1, "the answer with the call was kept");
}

#[test]
fn a_schema_that_was_half_made_is_made_at_the_next_start() {
    for point in ["migrate.before=abort", "migrate.middle=abort"] {
        let home = TestDirectory::new();
        let builder = TestDaemon::builder(BIN).home(home.path());
        let failed = builder.clone().env(FAILPOINTS_VARIABLE, point).try_start().expect_err("it is aborted");
        assert_eq!(failed.status.signal(), Some(6), "{failed}");
        let daemon = builder.start();
        wait_turns_ended(&daemon, &[]);
        assert_sound(daemon.home());
    }
}

#[test]
fn a_failpoint_that_makes_no_sense_is_no_start() {
    let home = TestDirectory::new();
    let failed = run(BIN, &["serve", "0"], &[(FAILPOINTS_VARIABLE, "commit.never=abort")], home.path());
    assert_eq!(failed.code, 1);
    assert!(
        failed.stderr.contains("the failpoint \"commit.never=abort\" has an unknown edge"),
        "{}",
        failed.stderr
    );
}
