//! Changes of the wall clock while the daemon runs: entries stay in commit order, running turns are not affected, and
//! request ids do not expire early.

use std::fs;

use serde_json::Value;
use testkit::ScriptedModel;

use super::{JournalReader, entries_of_kind, wait_turns_ended};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, daemon_builder};

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;

/// A daemon whose wall clock a test can set.
struct ClockFixture {
    fixture: Fixture,
    folder: TestDirectory,
}

impl ClockFixture {
    fn open() -> Self {
        let (folder, model) = (TestDirectory::with_files(&[("clock", "0")]), ScriptedModel::start());
        let daemon = daemon_builder(&model).env("NEXUS3_CLOCK_FILE", folder.path_of("clock")).start();
        Self { fixture: Fixture { daemon, model }, folder }
    }

    /// Sets the daemon's clock this many seconds ahead of the real time.
    fn set_offset(&self, seconds: i64) {
        // Renaming is atomic: a daemon that read a half-written file would use the real time.
        self.folder.write("next", &seconds.to_string());
        fs::rename(self.folder.path_of("next"), self.folder.path_of("clock"))
            .expect("the clock file can be renamed");
    }

    fn kill_and_start(self) -> Self {
        Self { fixture: self.fixture.kill_and_start(), ..self }
    }
}

fn times(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["at"].as_str().expect("a time")).collect()
}

#[test]
fn clock_changes_do_not_reorder_events() {
    let timed = ClockFixture::open();
    timed.fixture.create("worker");
    let mut last = 0;
    for (number, seconds) in [0, HOUR_S, -HOUR_S, 30 * DAY_S, 0].into_iter().enumerate() {
        timed.set_offset(seconds);
        assert_eq!(timed.fixture.send_text("worker", &number.to_string()), format!("echo: {number}"));
        let mut later = timed.fixture.daemon.events("/events", Some(last));
        let first = later.next_event(crate::support::WAIT_MAX).sequence();
        assert_eq!(first, Some(last + 1), "a cursor is a sequence number, not a time");
        last = JournalReader::read_all(&timed.fixture.daemon).len() as u64;
    }
    let entries = JournalReader::read_all(&timed.fixture.daemon);
    assert!(!times(&entries).is_sorted(), "the clock should have gone back: {:?}", times(&entries));
    let ends: Vec<_> =
        entries_of_kind(&entries, "turn_ended").iter().map(|end| end["content"].clone()).collect();
    assert_eq!(ends, ["echo: 0", "echo: 1", "echo: 2", "echo: 3", "echo: 4"]);
    let timed = timed.kill_and_start();
    assert_eq!(JournalReader::read_all(&timed.fixture.daemon)[..entries.len()], entries);
    let texts: Vec<String> = timed.fixture.messages("worker").into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), 10);
    assert_eq!(texts[9], "echo: 4");
    super::assert_sound(timed.fixture.daemon.home());
}

#[test]
fn clock_changes_do_not_end_running_turns() {
    let timed = ClockFixture::open();
    timed.fixture.create_with(serde_json::json!({ "agent_id": "worker", "budget": { "wall_ms": 60_000 } }));
    for (number, seconds) in [2 * DAY_S, -2 * DAY_S, 0].into_iter().enumerate() {
        let gate = format!("gate{number}");
        let pending = timed.fixture.start_send("worker", &format!("!hold {gate} so far"), &gate);
        timed.fixture.model.wait_called(&format!("!hold {gate} so far"), 0, 1);
        timed.set_offset(seconds);
        timed.fixture.model.release(&gate);
        assert_eq!(pending.next_result()["content"], format!("so far released {gate}"));
    }
    let timed = timed.kill_and_start();
    let entries = wait_turns_ended(&timed.fixture.daemon, &[]);
    assert!(entries_of_kind(&entries, "turn_ended").iter().all(|end| end["outcome"] == "completed"));
}

#[test]
fn request_ids_stay_known_when_the_clock_goes_back() {
    let timed = ClockFixture::open();
    timed.fixture.create("worker");
    timed.set_offset(30 * DAY_S);
    timed.fixture.send_with_request_id("worker", "ahead", "ahead");
    timed.set_offset(0);
    timed.fixture.send_with_request_id("worker", "right", "right");
    timed.set_offset(-30 * DAY_S);
    timed.fixture.send_with_request_id("worker", "behind", "behind");
    let timed = timed.kill_and_start();
    for id in ["ahead", "right", "behind"] {
        let repeated = timed.fixture.send_with_request_id("worker", id, id);
        assert_eq!(repeated["result"]["content"], format!("echo: {id}"), "{repeated}");
        assert_eq!(timed.fixture.model.call_counts(id, 0).requests, 1, "{id}");
    }
    assert_eq!(timed.fixture.messages("worker").len(), 6);
}

#[test]
fn request_ids_expire_after_a_day() {
    let timed = ClockFixture::open();
    timed.fixture.create("worker");
    timed.fixture.send_with_request_id("worker", "hello", "r");
    timed.set_offset(DAY_S - HOUR_S);
    let timed = timed.kill_and_start();
    timed.fixture.send_with_request_id("worker", "hello", "r");
    assert_eq!(timed.fixture.model.call_counts("hello", 0).requests, 1, "the request id is not a day old");
    timed.set_offset(DAY_S + HOUR_S);
    let timed = timed.kill_and_start();
    // Expired request ids are removed in the background.
    crate::support::wait_until("the request id to expire", || {
        timed.fixture.send_with_request_id("worker", "hello", "r");
        timed.fixture.model.call_counts("hello", 0).requests == 2
    });
    assert_eq!(timed.fixture.messages("worker").len(), 4);
}
