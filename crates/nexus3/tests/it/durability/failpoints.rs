//! Aborts right before or right after a commit, during every operation on an agent. After the restart, acknowledged
//! operations are in the store, others can be repeated, and nothing is done twice.

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

/// Number of scenarios that run at the same time.
const WORKERS: usize = 6;

/// Runs the scenario once for each of these failpoints, and reports all that failed.
fn fail_at(points: Vec<String>) {
    let points = Mutex::new(points.into_iter());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = points.lock().expect("no thread panics while it holds the lock").next();
                    let Some(point) = next else { return };
                    if catch_unwind(AssertUnwindSafe(|| Scenario::run(&point))).is_err() {
                        failed.lock().expect("no thread panics while it holds the lock").push(point);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics while it holds the lock");
    assert!(failed.is_empty(), "the scenario failed with these failpoints: {failed:?}");
}

fn kinds() -> impl Iterator<Item = &'static str> {
    let journalled = EventKind::ALL.iter().filter(|kind| kind.is_journalled()).map(|kind| kind.name());
    journalled.chain(["file_changes"])
}

#[test]
fn an_abort_before_any_commit_loses_and_repeats_nothing() {
    fail_at(kinds().map(|kind| format!("commit.before:{kind}=abort")).collect());
}

#[test]
fn an_abort_after_any_commit_loses_and_repeats_nothing() {
    fail_at(kinds().map(|kind| format!("commit.after:{kind}=abort")).collect());
}

#[test]
fn an_abort_at_later_commits_loses_and_repeats_nothing() {
    let later = [("message", 2), ("message", 5), ("turn_ended", 2), ("turn_ended", 4), ("turn_accepted", 2)];
    let both = |(kind, occurrence): (&str, u32)| {
        ["before", "after"].map(|edge| format!("commit.{edge}:{kind}@{occurrence}=abort"))
    };
    let checkpoint = "checkpoint.before=abort".to_owned();
    fail_at(later.into_iter().flat_map(both).chain([checkpoint]).collect());
}

#[test]
fn a_once_tool_with_unknown_outcome_is_not_repeated() {
    for (point, lines) in [("commit.after:tool_begun=abort", 0), ("commit.before:turn_ended=abort", 1)] {
        let folder = TestDirectory::new();
        let fixture = Fixture::with_failpoints(point);
        fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": folder.path_str() }));
        let call = r#"!tool fs_append_file {"path":"file","content":"line"}"#;
        fixture.send_expecting_abort("worker", call, "r");
        let fixture = fixture.restart_after_abort();
        let result = fixture.send_with_request_id("worker", call, "r")["result"].take();
        let content = result["content"].as_str().unwrap_or_default();
        assert_eq!(content.contains("Outcome unknown"), lines == 0, "{point}: {result}");
        assert_eq!(folder.read("file").map_or(0, |text| text.lines().count()), lines, "{point}");
        assert_eq!(
            fixture.model.call_counts(call, 0).requests,
            1,
            "the response with the tool call was committed"
        );
    }
}

#[test]
fn a_pure_tool_with_unknown_outcome_runs_again() {
    let fixture = Fixture::with_failpoints("commit.after:tool_begun=abort");
    fixture.create("worker");
    let call = r#"!tool echo {"text":"again"}"#;
    fixture.send_expecting_abort("worker", call, "r");
    let fixture = fixture.restart_after_abort();
    let response = fixture.send_with_request_id("worker", call, "r");
    let content = response["result"]["content"].as_str().unwrap_or_default();
    assert!(content.contains("again") && !content.contains("unknown"), "{response}");
    assert_eq!(
        fixture.model.call_counts(call, 0).requests,
        1,
        "the response with the tool call was committed"
    );
}

#[test]
fn an_aborted_migration_is_completed_at_the_next_start() {
    for point in ["migrate.before=abort", "migrate.middle=abort"] {
        let home = TestDirectory::new();
        let builder = TestDaemon::builder(BIN).home(home.path());
        let failed =
            builder.clone().env(FAILPOINTS_VARIABLE, point).try_start().expect_err("the daemon aborts");
        assert_eq!(failed.status.signal(), Some(6), "{failed}");
        let daemon = builder.start();
        wait_turns_ended(&daemon, &[]);
        assert_sound(daemon.home());
    }
}

#[test]
fn an_invalid_failpoint_prevents_the_start() {
    let home = TestDirectory::new();
    let failed = run(BIN, &["serve", "0"], &[(FAILPOINTS_VARIABLE, "commit.never=abort")], home.path());
    assert_eq!(failed.code, 1);
    assert!(
        failed.stderr.contains("the failpoint \"commit.never=abort\" has an unknown edge"),
        "{}",
        failed.stderr
    );
}
