//! The reader of events finds holes, repeats, questions that were asked too often, and turns that are left open.

use serde_json::json;

use super::*;

/// Numbers events as a daemon does.
#[derive(Default)]
struct Daemon {
    sequence: u64,
    numbers: HashMap<String, u64>,
}

impl Daemon {
    fn event(&mut self, agent: Option<&str>, kind: &str, mut data: Value) -> StreamEvent {
        self.sequence += 1;
        let number = self.numbers.entry(agent.unwrap_or_default().to_owned()).or_default();
        *number += 1;
        data["agent_id"] = json!(agent);
        data["number"] = json!(*number);
        StreamEvent { id: Some(self.sequence.to_string()), kind: kind.to_owned(), data: data.to_string() }
    }
}

fn start(daemon: &mut Daemon) -> StreamEvent {
    daemon.event(None, "daemon_started", json!({}))
}

fn accepted(daemon: &mut Daemon, content: &str) -> [StreamEvent; 2] {
    [
        daemon.event(Some("a"), "turn_accepted", json!({ "turn": 1, "message": { "content": content } })),
        daemon.event(Some("a"), "turn_begun", json!({ "turn": 1 })),
    ]
}

fn answered(daemon: &mut Daemon) -> StreamEvent {
    daemon.event(Some("a"), "message", json!({ "role": "assistant", "content": "yes" }))
}

fn read(events: &[StreamEvent]) -> Journal {
    let mut journal = Journal::default();
    events.iter().for_each(|event| journal.read(event));
    journal
}

fn asked(user: &str, times: usize) -> Ledger {
    let mut ledger = Ledger::default();
    (0..times).for_each(|_| ledger.record_request(&RoundKey { user: user.to_owned(), round: 0 }));
    ledger
}

#[test]
fn holes_and_repeats_are_found() {
    let mut daemon = Daemon::default();
    let events: Vec<_> = (0..4).map(|_| start(&mut daemon)).collect();
    assert!(read(&events).faults.is_empty());
    assert!(!read(&[events[0].clone(), events[2].clone()]).faults.is_empty(), "a hole");
    assert!(!read(&[events[0].clone(), events[0].clone()]).faults.is_empty(), "a repeat");
    assert!(!read(&events[1..]).faults.is_empty(), "it begins with 1");
    let gap = StreamEvent { kind: "gap".to_owned(), data: "{}".to_owned(), ..StreamEvent::default() };
    assert!(!read(&[gap]).faults.is_empty());
    let delta = StreamEvent { kind: "text_delta".to_owned(), ..StreamEvent::default() };
    assert!(read(&[delta]).faults.is_empty(), "what is not journalled has no place");
}

#[test]
fn each_life_may_ask_once_until_the_answer_is_kept() {
    let mut daemon = Daemon::default();
    let mut events = vec![start(&mut daemon)];
    events.extend(accepted(&mut daemon, "hi"));
    events.push(start(&mut daemon));
    events.push(answered(&mut daemon));
    events.push(start(&mut daemon));
    let journal = read(&events);
    assert!(journal.faults.is_empty(), "{:?}", journal.faults);
    assert_eq!(journal.asked_again(&asked("hi", 2)), [""; 0]);
    assert_eq!(journal.asked_again(&asked("hi", 3)), ["\"hi\" (round 0) was asked 3 times, not 2"]);
    assert_eq!(journal.answers(), 1);
}

#[test]
fn turns_are_open_until_they_end_and_kills_meet_them_there() {
    let mut daemon = Daemon::default();
    let mut events = vec![start(&mut daemon)];
    events.extend(accepted(&mut daemon, "hi"));
    let calls = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c" }] });
    events.push(daemon.event(Some("a"), "message", calls));
    events.push(daemon.event(Some("a"), "tool_begun", json!({ "turn": 1 })));
    events.push(start(&mut daemon));
    events.push(daemon.event(Some("a"), "message", json!({ "role": "tool", "content": "unknown" })));
    let journal = read(&events);
    assert_eq!(journal.open.values().collect::<Vec<_>>(), [&Stage::Asking]);
    assert_eq!(journal.kills, BTreeMap::from([(Stage::InTool, 1)]));
    events.push(answered(&mut daemon));
    events.push(daemon.event(Some("a"), "turn_ended", json!({ "turn": 1 })));
    events.push(start(&mut daemon));
    let journal = read(&events);
    assert!(journal.open.is_empty());
    assert_eq!(journal.kills, BTreeMap::from([(Stage::Idle, 1), (Stage::InTool, 1)]));
    let ledger = asked("hi", 1);
    assert_eq!((journal.answers(), journal.asked_again(&ledger).len()), (2, 0));
}

#[test]
fn an_interrupted_turn_that_is_opened_again_may_ask_again() {
    let mut daemon = Daemon::default();
    let mut events = vec![start(&mut daemon)];
    events.extend(accepted(&mut daemon, "hi"));
    events.push(start(&mut daemon));
    let notice = json!({ "role": "assistant", "content": "", "meta": { "interrupted": true } });
    events.push(daemon.event(Some("a"), "message", notice));
    events.push(daemon.event(Some("a"), "turn_ended", json!({ "turn": 1, "outcome": "interrupted" })));
    assert!(read(&events).open.is_empty());
    events.push(daemon.event(Some("a"), "turn_reopened", json!({ "turn": 1, "messages": 1 })));
    assert_eq!(read(&events).open.len(), 1);
    events.push(answered(&mut daemon));
    let journal = read(&events);
    assert_eq!((journal.answers(), journal.asked_again(&asked("hi", 2)).len()), (1, 0));
    assert_eq!(journal.asked_again(&asked("hi", 3)).len(), 1);
}

#[test]
fn a_renamed_agent_keeps_its_turns() {
    let mut daemon = Daemon::default();
    let mut events = vec![start(&mut daemon)];
    events.extend(accepted(&mut daemon, "hi"));
    events.push(daemon.event(Some("a"), "agent_renamed", json!({ "new_agent_id": "b" })));
    daemon.numbers.insert("b".to_owned(), 3);
    events.push(daemon.event(Some("b"), "turn_ended", json!({ "turn": 1 })));
    let journal = read(&events);
    assert!(journal.open.is_empty() && journal.faults.is_empty(), "{:?}", journal.faults);
}
