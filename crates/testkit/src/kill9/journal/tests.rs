//! Tests of the event reader: it finds gaps, duplicates, excess model calls and open turns.

use serde_json::json;

use super::*;

/// Creates events with the sequence and numbers of a daemon.
#[derive(Default)]
struct FakeDaemon {
    sequence: u64,
    numbers: HashMap<String, u64>,
}

impl FakeDaemon {
    fn event(&mut self, agent: Option<&str>, kind: &str, mut data: Value) -> StreamEvent {
        self.sequence += 1;
        let number = self.numbers.entry(agent.unwrap_or_default().to_owned()).or_default();
        *number += 1;
        data["agent_id"] = json!(agent);
        data["number"] = json!(*number);
        StreamEvent { id: Some(self.sequence.to_string()), kind: kind.to_owned(), data: data.to_string() }
    }
}

fn daemon_started(daemon: &mut FakeDaemon) -> StreamEvent {
    daemon.event(None, "daemon_started", json!({}))
}

fn turn_accepted(daemon: &mut FakeDaemon, content: &str) -> [StreamEvent; 2] {
    [
        daemon.event(Some("a"), "turn_accepted", json!({ "turn": 1, "message": { "content": content } })),
        daemon.event(Some("a"), "turn_begun", json!({ "turn": 1 })),
    ]
}

fn assistant_message(daemon: &mut FakeDaemon) -> StreamEvent {
    daemon.event(Some("a"), "message", json!({ "role": "assistant", "content": "yes" }))
}

fn replay(events: &[StreamEvent]) -> Journal {
    let mut journal = Journal::default();
    events.iter().for_each(|event| journal.apply_event(event));
    journal
}

fn ledger_with_requests(user: &str, times: usize) -> Ledger {
    let mut ledger = Ledger::default();
    (0..times).for_each(|_| ledger.record_request(&RoundKey { user: user.to_owned(), round: 0 }));
    ledger
}

#[test]
fn gaps_and_duplicates_are_violations() {
    let mut daemon = FakeDaemon::default();
    let events: Vec<_> = (0..4).map(|_| daemon_started(&mut daemon)).collect();
    assert!(replay(&events).violations.is_empty());
    assert!(!replay(&[events[0].clone(), events[2].clone()]).violations.is_empty(), "gap");
    assert!(!replay(&[events[0].clone(), events[0].clone()]).violations.is_empty(), "duplicate");
    assert!(!replay(&events[1..]).violations.is_empty(), "the first sequence is 1");
    let gap = StreamEvent { kind: "gap".to_owned(), data: "{}".to_owned(), ..StreamEvent::default() };
    assert!(!replay(&[gap]).violations.is_empty());
    let delta = StreamEvent { kind: "text_delta".to_owned(), ..StreamEvent::default() };
    assert!(replay(&[delta]).violations.is_empty(), "an event without id has no sequence");
}

#[test]
fn each_daemon_run_may_request_a_round_once() {
    let mut daemon = FakeDaemon::default();
    let mut events = vec![daemon_started(&mut daemon)];
    events.extend(turn_accepted(&mut daemon, "hi"));
    events.push(daemon_started(&mut daemon));
    events.push(assistant_message(&mut daemon));
    events.push(daemon_started(&mut daemon));
    let journal = replay(&events);
    assert!(journal.violations.is_empty(), "{:?}", journal.violations);
    assert_eq!(journal.excess_calls(&ledger_with_requests("hi", 2)), [""; 0]);
    assert_eq!(
        journal.excess_calls(&ledger_with_requests("hi", 3)),
        ["\"hi\" (round 0) was requested 3 times, not 2"]
    );
    assert_eq!(journal.response_count(), 1);
}

#[test]
fn kills_are_counted_by_stage_of_open_turns() {
    let mut daemon = FakeDaemon::default();
    let mut events = vec![daemon_started(&mut daemon)];
    events.extend(turn_accepted(&mut daemon, "hi"));
    let calls = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c" }] });
    events.push(daemon.event(Some("a"), "message", calls));
    events.push(daemon.event(Some("a"), "tool_begun", json!({ "turn": 1 })));
    events.push(daemon_started(&mut daemon));
    events.push(daemon.event(Some("a"), "message", json!({ "role": "tool", "content": "unknown" })));
    let journal = replay(&events);
    assert_eq!(journal.open_turns.values().collect::<Vec<_>>(), [&Stage::ModelCall]);
    assert_eq!(journal.kills_by_stage, BTreeMap::from([(Stage::ToolRunning, 1)]));
    events.push(assistant_message(&mut daemon));
    events.push(daemon.event(Some("a"), "turn_ended", json!({ "turn": 1 })));
    events.push(daemon_started(&mut daemon));
    let journal = replay(&events);
    assert!(journal.open_turns.is_empty());
    assert_eq!(journal.kills_by_stage, BTreeMap::from([(Stage::Idle, 1), (Stage::ToolRunning, 1)]));
    let ledger = ledger_with_requests("hi", 1);
    assert_eq!((journal.response_count(), journal.excess_calls(&ledger).len()), (2, 0));
}

#[test]
fn reopened_turn_may_request_its_round_again() {
    let mut daemon = FakeDaemon::default();
    let mut events = vec![daemon_started(&mut daemon)];
    events.extend(turn_accepted(&mut daemon, "hi"));
    events.push(daemon_started(&mut daemon));
    let notice = json!({ "role": "assistant", "content": "", "meta": { "interrupted": true } });
    events.push(daemon.event(Some("a"), "message", notice));
    events.push(daemon.event(Some("a"), "turn_ended", json!({ "turn": 1, "outcome": "interrupted" })));
    assert!(replay(&events).open_turns.is_empty());
    events.push(daemon.event(Some("a"), "turn_reopened", json!({ "turn": 1, "messages": 1 })));
    assert_eq!(replay(&events).open_turns.len(), 1);
    events.push(assistant_message(&mut daemon));
    let journal = replay(&events);
    assert_eq!(
        (journal.response_count(), journal.excess_calls(&ledger_with_requests("hi", 2)).len()),
        (1, 0)
    );
    assert_eq!(journal.excess_calls(&ledger_with_requests("hi", 3)).len(), 1);
}

#[test]
fn renamed_agent_retains_its_open_turns() {
    let mut daemon = FakeDaemon::default();
    let mut events = vec![daemon_started(&mut daemon)];
    events.extend(turn_accepted(&mut daemon, "hi"));
    events.push(daemon.event(Some("a"), "agent_renamed", json!({ "new_agent_id": "b" })));
    daemon.numbers.insert("b".to_owned(), 3);
    events.push(daemon.event(Some("b"), "turn_ended", json!({ "turn": 1 })));
    let journal = replay(&events);
    assert!(journal.open_turns.is_empty() && journal.violations.is_empty(), "{:?}", journal.violations);
}
