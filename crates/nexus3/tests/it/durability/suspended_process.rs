//! A daemon that stands still for a while, as when a machine is suspended, and goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use testkit::NextEvent;

use super::{JournalReader, assert_sound, entries_of_kind, send_params, wait_turns_ended};
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, WAIT_MAX, agent_path};

const AGENTS: usize = 8;
const SENDS: usize = 12;
const PAUSES: usize = 3;
const PAUSE: Duration = Duration::from_millis(250);

#[test]
fn nothing_is_lost_by_a_daemon_that_is_paused_under_load() {
    let stage = Fixture::with_config("idle_sleep_s = 1\n");
    let names: Vec<String> = (0..AGENTS).map(|agent| format!("a{agent}")).collect();
    names.iter().for_each(|name| stage.create(name));
    let mut events = stage.daemon.events("/events?kind=turn_ended&deltas=false", Some(0));
    let mut calls = PendingCalls::new();
    for pause in 0..PAUSES {
        for send in 0..SENDS {
            for name in &names {
                let id = format!("{name}-{pause}-{send}");
                calls.start(&stage.daemon, &agent_path(name), "send", send_params(&id, &id));
            }
        }
        stage.daemon.signal("SIGSTOP");
        // Whatever was on its way has come when nothing comes for that long.
        while events.wait_event(PAUSE).expect("a stream") != NextEvent::TimedOut {}
        stage.daemon.signal("SIGCONT");
    }
    let total = AGENTS * SENDS * PAUSES;
    let answers: BTreeSet<String> = (0..total)
        .map(|_| calls.next_result()["request_id"].as_str().expect("a send has a name").to_owned())
        .collect();
    assert_eq!(answers.len(), total);
    let entries = wait_turns_ended(&stage.daemon, &[]);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), total);
    for name in &names {
        assert_eq!(stage.messages(name).len(), 2 * SENDS * PAUSES);
    }
    let ledger = stage.model.ledger();
    assert!(ledger.iter().all(|(_, tally)| tally.requests == 1), "nobody is asked twice");
    let stage = stage.kill_and_start();
    assert_eq!(JournalReader::read_all(&stage.daemon)[..entries.len()], entries);
    assert_sound(stage.daemon.home());
}

#[test]
fn a_model_that_went_silent_during_a_pause_is_given_its_time() {
    let stage = Fixture::start();
    stage.create("worker");
    let open = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    let mut events = stage.daemon.events("/agent/worker/events", None);
    stage.daemon.signal("SIGSTOP");
    while events.wait_event(PAUSE).expect("a stream") != NextEvent::TimedOut {}
    stage.model.release("gate");
    assert_eq!(events.wait_event(PAUSE).expect("a stream"), NextEvent::TimedOut, "it stands still");
    stage.daemon.signal("SIGCONT");
    assert_eq!(open.next_result()["content"], "so far released gate");
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "turn_ended") {
        kinds.push(events.next_event(WAIT_MAX).kind);
    }
    assert_eq!(stage.agent("worker")["working"], json!(false));
}
