//! Turns cut off at every commit, once or several times: each reaches its end with a context that model APIs accept,
//! and no call runs twice that must not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use testkit::TestRng;

use super::simulation::{STEER_PREFIX, TurnSimulation};
use super::*;
use crate::TurnOutcome;

const SEEDS: u64 = 300;

/// Returns why the messages are not the valid context of one ended turn, if they are not.
fn find_violation(messages: &[Message]) -> Option<String> {
    let mut open_calls: VecDeque<&str> = VecDeque::new();
    for (index, message) in messages.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &messages[before]);
        let fits = match message.role {
            Role::User if index == 0 => message.text == "ask 1",
            Role::User => message.text.starts_with(STEER_PREFIX) && open_calls.is_empty(),
            Role::Assistant => {
                before.is_some_and(|before| before.role != Role::Assistant) && open_calls.is_empty()
            }
            Role::Tool => open_calls.pop_front() == message.tool_call_id.as_deref(),
        };
        if !fits {
            return Some(format!("message {index} does not belong there: {message:?} after {before:?}"));
        }
        open_calls.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
    }
    let last = messages.last();
    let is_open = last.is_none_or(|last| last.role != Role::Assistant || !last.tool_calls.is_empty());
    is_open.then(|| format!("it ends on {last:?}"))
}

fn steer_texts(records: &[Record]) -> Vec<&str> {
    let texts = records.iter().filter_map(|record| match record {
        Record::Steered { message, .. } => Some(message.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// How often each call of class `Once` started, by call id.
fn once_calls_started(records: &[Record]) -> BTreeMap<&str, usize> {
    let mut begun = BTreeMap::new();
    for record in records {
        if let Record::CallBegun { call_id, class: ToolClass::Once, .. } = record {
            *begun.entry(call_id.as_str()).or_default() += 1;
        }
    }
    begun
}

/// Checks all invariants of a turn that has ended.
fn check(records: &[Record], simulation: &TurnSimulation, what: &str) {
    assert_eq!(find_violation(&simulation.context), None, "{what}");
    let (messages, open) = Replay::from_records(records.to_vec()).into_parts();
    let messages: Vec<_> = messages.iter().map(|message| Message::clone(message)).collect();
    assert_eq!(messages, simulation.context, "{what}: replay restores the context");
    assert_eq!(open.len(), 0, "{what}: no open turn");
    let user_messages: Vec<_> =
        simulation.context.iter().filter(|message| message.role == Role::User).collect();
    let steers: Vec<_> = user_messages[1..].iter().map(|message| message.text.as_str()).collect();
    assert_eq!(steers, steer_texts(records), "{what}: every steer is there once");
    assert!(once_calls_started(records).values().all(|times| *times == 1), "{what}: a call ran twice");
    check_results(records, simulation, what);
}

/// Checks that a finished call has its recorded result, and a `Once` call cut off by a crash an unknown outcome.
fn check_results(records: &[Record], simulation: &TurnSimulation, what: &str) {
    let mut calls: Vec<ToolCall> = Vec::new();
    let mut lost: BTreeSet<String> = BTreeSet::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for record in records {
        match record {
            Record::MessageAdded(message) if message.role == Role::Assistant => {
                calls.clone_from(&message.tool_calls);
            }
            Record::CallDone { index, outcome, .. } => {
                known.insert(calls[*index].id.clone(), outcome.text().to_owned());
                lost.remove(&calls[*index].id);
            }
            Record::CallBegun { call_id, class: ToolClass::Once, .. } => {
                lost.insert(call_id.clone());
            }
            // The crash before this record cut off every running call.
            Record::TurnReopened { .. } => {
                for id in std::mem::take(&mut lost) {
                    known.insert(id, "Outcome unknown".to_owned());
                }
            }
            Record::MessageAdded(message) if message.role == Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                lost.remove(id);
                if let Some(text) = known.get(id) {
                    assert!(
                        message.text.starts_with(text),
                        "{what}: result of {id} is {message:?}, not {text}"
                    );
                }
            }
            _ => {}
        }
    }
    let executed =
        simulation.executed.iter().filter(|id| known.get(*id).is_some_and(|text| text == "Outcome unknown"));
    assert_eq!(executed.count(), 0, "{what}: a call with unknown outcome ran again");
}

#[test]
fn uninterrupted_turn_replays_to_its_context() {
    for seed in 0..SEEDS {
        let mut simulation = TurnSimulation::begin();
        simulation.run(&mut TestRng::new(seed), usize::MAX);
        check(&simulation.records(), &simulation, &format!("seed {seed}"));
    }
}

#[test]
fn turn_cut_off_at_any_commit_reaches_its_end() {
    for seed in 0..SEEDS {
        let mut uncut = TurnSimulation::begin();
        uncut.run(&mut TestRng::new(seed), usize::MAX);
        for cut in 1..uncut.commits.len() {
            let mut records = uncut.commits[..cut].concat();
            let mut rng = TestRng::new(seed << 16 | cut as u64);
            let mut simulation = TurnSimulation::resume(&records, &mut rng);
            simulation.run(&mut rng, usize::MAX);
            records.extend(simulation.records());
            check(&records, &simulation, &format!("seed {seed} cut {cut}"));
        }
    }
}

#[test]
fn turn_cut_off_repeatedly_reaches_its_end() {
    for seed in 0..SEEDS * 4 {
        let mut rng = TestRng::new(seed);
        let mut simulation = TurnSimulation::begin();
        let mut records = Vec::new();
        for restarts in 0.. {
            let commits = simulation.commits.len() + rng.below(4);
            simulation.run(&mut rng, if restarts < 6 { commits } else { usize::MAX });
            records.extend(simulation.records());
            if simulation.end.is_some() {
                break;
            }
            simulation = TurnSimulation::resume(&records, &mut rng);
        }
        check(&records, &simulation, &format!("seed {seed}"));
    }
}

#[test]
fn turn_marked_at_any_commit_is_valid_and_reopenable() {
    for seed in 0..SEEDS {
        let mut uncut = TurnSimulation::begin();
        uncut.run(&mut TestRng::new(seed), usize::MAX);
        for cut in 1..uncut.commits.len() {
            let what = format!("seed {seed} cut {cut}");
            let mut records = uncut.commits[..cut].concat();
            let mut rng = TestRng::new(seed << 16 | cut as u64);
            let mut simulation = TurnSimulation::resume(&records, &mut rng);
            if simulation.end.is_none() {
                // The interruption precedes the first actions: none of their calls starts.
                simulation.commits.truncate(1);
                simulation.commits[0].retain(|record| !matches!(record, Record::CallBegun { .. }));
                simulation.executed.clear();
                simulation.interrupt();
            }
            records.extend(simulation.records());
            check(&records, &simulation, &what);
            if !matches!(simulation.outcome(), TurnOutcome::Interrupted(_)) {
                continue;
            }
            let mut reopened = TurnSimulation::reopen(&records, &mut rng);
            reopened.run(&mut rng, usize::MAX);
            records.extend(reopened.records());
            check(&records, &reopened, &what);
        }
    }
}

#[test]
fn turn_content_spans_all_restarts() {
    for seed in 0..SEEDS {
        let mut uncut = TurnSimulation::begin();
        uncut.run(&mut TestRng::new(seed), usize::MAX);
        for cut in 1..uncut.commits.len() {
            let mut rng = TestRng::new(seed << 16 | cut as u64);
            let mut simulation = TurnSimulation::resume(&uncut.commits[..cut].concat(), &mut rng);
            simulation.run(&mut rng, usize::MAX);
            let responses = simulation.context.iter().filter(|message| message.role == Role::Assistant);
            let text: String = responses.map(|message| message.text.as_str()).collect();
            let content = &simulation.end.as_ref().expect("an ended turn").content;
            // An empty response adds a notice to the content and no message to the context.
            let content = content.replace("[Provider returned an empty response]", "");
            assert_eq!(content, text, "seed {seed} cut {cut}");
        }
    }
}
