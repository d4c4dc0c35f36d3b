//! A daemon process that is stopped for a while with SIGSTOP, as when a machine is suspended, and continues.

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
fn a_daemon_paused_under_load_loses_nothing() {
    let fixture = Fixture::with_config("idle_sleep_s = 1\n");
    let names: Vec<String> = (0..AGENTS).map(|agent| format!("a{agent}")).collect();
    names.iter().for_each(|name| fixture.create(name));
    let mut events = fixture.daemon.events("/events?kind=turn_ended&deltas=false", Some(0));
    let mut calls = PendingCalls::new();
    for pause in 0..PAUSES {
        for send in 0..SENDS {
            for name in &names {
                let id = format!("{name}-{pause}-{send}");
                calls.start(&fixture.daemon, &agent_path(name), "send", send_params(&id, &id));
            }
        }
        fixture.daemon.signal("SIGSTOP");
        // Events in flight have arrived when none arrives for that long.
        while events.wait_event(PAUSE).expect("the stream is readable") != NextEvent::TimedOut {}
        fixture.daemon.signal("SIGCONT");
    }
    let total = AGENTS * SENDS * PAUSES;
    let request_ids: BTreeSet<String> = (0..total)
        .map(|_| calls.next_result()["request_id"].as_str().expect("a result has a request id").to_owned())
        .collect();
    assert_eq!(request_ids.len(), total);
    let entries = wait_turns_ended(&fixture.daemon, &[]);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), total);
    for name in &names {
        assert_eq!(fixture.messages(name).len(), 2 * SENDS * PAUSES);
    }
    let ledger = fixture.model.ledger();
    assert!(ledger.iter().all(|(_, counts)| counts.requests == 1), "a model call was repeated");
    let fixture = fixture.kill_and_start();
    assert_eq!(JournalReader::read_all(&fixture.daemon)[..entries.len()], entries);
    assert_sound(fixture.daemon.home());
}

#[test]
fn a_pause_does_not_time_out_a_running_model_call() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    let mut events = fixture.daemon.events("/agent/worker/events", None);
    fixture.daemon.signal("SIGSTOP");
    while events.wait_event(PAUSE).expect("the stream is readable") != NextEvent::TimedOut {}
    fixture.model.release("gate");
    assert_eq!(
        events.wait_event(PAUSE).expect("the stream is readable"),
        NextEvent::TimedOut,
        "a stopped daemon publishes nothing"
    );
    fixture.daemon.signal("SIGCONT");
    assert_eq!(pending.next_result()["content"], "so far released gate");
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "turn_ended") {
        kinds.push(events.next_event(WAIT_MAX).kind);
    }
    assert_eq!(fixture.agent("worker")["working"], json!(false));
}
