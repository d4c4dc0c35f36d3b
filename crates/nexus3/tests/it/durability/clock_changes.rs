//! A clock that is set while the daemon runs: what happened is in the order it happened, and nothing is forgotten early.

use std::fs;

use serde_json::Value;
use testkit::ScriptedModel;

use super::{JournalReader, entries_of_kind, wait_turns_ended};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, daemon_builder};

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;

/// A daemon whose clock can be set.
struct ClockFixture {
    stage: Fixture,
    folder: TestDirectory,
}

impl ClockFixture {
    fn open() -> Self {
        let (folder, model) = (TestDirectory::with_files(&[("clock", "0")]), ScriptedModel::start());
        let daemon = daemon_builder(&model).env("NEXUS3_CLOCK_FILE", folder.path_of("clock")).start();
        Self { stage: Fixture { daemon, model }, folder }
    }

    /// Sets the clock so many seconds away from the right time.
    fn set_offset(&self, seconds: i64) {
        // At once: a clock that is read while it is written would be right.
        self.folder.write("next", &seconds.to_string());
        fs::rename(self.folder.path_of("next"), self.folder.path_of("clock")).expect("a file can be renamed");
    }

    fn kill_and_start(self) -> Self {
        Self { stage: self.stage.kill_and_start(), ..self }
    }
}

fn times(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["at"].as_str().expect("a time")).collect()
}

#[test]
fn events_are_in_the_order_they_happened_whatever_the_clock_said() {
    let timed = ClockFixture::open();
    timed.stage.create("worker");
    let mut last = 0;
    for (number, seconds) in [0, HOUR_S, -HOUR_S, 30 * DAY_S, 0].into_iter().enumerate() {
        timed.set_offset(seconds);
        assert_eq!(timed.stage.send_text("worker", &number.to_string()), format!("echo: {number}"));
        let mut later = timed.stage.daemon.events("/events", Some(last));
        let first = later.next_event(crate::support::WAIT_MAX).sequence();
        assert_eq!(first, Some(last + 1), "a cursor is a place and not a time");
        last = JournalReader::read_all(&timed.stage.daemon).len() as u64;
    }
    let entries = JournalReader::read_all(&timed.stage.daemon);
    assert!(!times(&entries).is_sorted(), "the clock did go back: {:?}", times(&entries));
    let ends: Vec<_> =
        entries_of_kind(&entries, "turn_ended").iter().map(|end| end["content"].clone()).collect();
    assert_eq!(ends, ["echo: 0", "echo: 1", "echo: 2", "echo: 3", "echo: 4"]);
    let timed = timed.kill_and_start();
    assert_eq!(JournalReader::read_all(&timed.stage.daemon)[..entries.len()], entries);
    let said: Vec<String> = timed.stage.messages("worker").into_iter().map(|(_, text)| text).collect();
    assert_eq!(said.len(), 10);
    assert_eq!(said[9], "echo: 4");
    super::assert_sound(timed.stage.daemon.home());
}

#[test]
fn a_turn_goes_on_whatever_the_clock_says() {
    let timed = ClockFixture::open();
    timed.stage.create_with(serde_json::json!({ "agent_id": "worker", "budget": { "wall_ms": 60_000 } }));
    for (number, seconds) in [2 * DAY_S, -2 * DAY_S, 0].into_iter().enumerate() {
        let gate = format!("gate{number}");
        let open = timed.stage.start_send("worker", &format!("!hold {gate} so far"), &gate);
        timed.stage.model.wait_called(&format!("!hold {gate} so far"), 0, 1);
        timed.set_offset(seconds);
        timed.stage.model.release(&gate);
        assert_eq!(open.next_result()["content"], format!("so far released {gate}"));
    }
    let timed = timed.kill_and_start();
    let entries = wait_turns_ended(&timed.stage.daemon, &[]);
    assert!(entries_of_kind(&entries, "turn_ended").iter().all(|end| end["outcome"] == "completed"));
}

#[test]
fn a_clock_that_goes_back_makes_nothing_forgotten() {
    let timed = ClockFixture::open();
    timed.stage.create("worker");
    timed.set_offset(30 * DAY_S);
    timed.stage.send_with_request_id("worker", "ahead", "ahead");
    timed.set_offset(0);
    timed.stage.send_with_request_id("worker", "right", "right");
    timed.set_offset(-30 * DAY_S);
    timed.stage.send_with_request_id("worker", "behind", "behind");
    let timed = timed.kill_and_start();
    for name in ["ahead", "right", "behind"] {
        let again = timed.stage.send_with_request_id("worker", name, name);
        assert_eq!(again["result"]["content"], format!("echo: {name}"), "{again}");
        assert_eq!(timed.stage.model.call_counts(name, 0).requests, 1, "{name}");
    }
    assert_eq!(timed.stage.messages("worker").len(), 6);
}

#[test]
fn names_of_sends_are_known_for_a_day_and_not_for_ever() {
    let timed = ClockFixture::open();
    timed.stage.create("worker");
    timed.stage.send_with_request_id("worker", "hello", "r");
    timed.set_offset(DAY_S - HOUR_S);
    let timed = timed.kill_and_start();
    timed.stage.send_with_request_id("worker", "hello", "r");
    assert_eq!(timed.stage.model.call_counts("hello", 0).requests, 1, "it is not a day old");
    timed.set_offset(DAY_S + HOUR_S);
    let timed = timed.kill_and_start();
    // Old names are forgotten in the background.
    crate::support::wait_until("the name to be forgotten", || {
        timed.stage.send_with_request_id("worker", "hello", "r");
        timed.stage.model.call_counts("hello", 0).requests == 2
    });
    assert_eq!(timed.stage.messages("worker").len(), 4);
}
