//! Turns that are cut off at every commit, once or several times: each reaches its end, in a context that a model would
//! take, and nothing that must not run twice does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::simulation::{STEER_PREFIX, TestRng, TurnSimulation};
use super::*;
use crate::TurnOutcome;

const SEEDS: u64 = 300;

/// Why the messages are no context of one turn that has ended; nothing when they are.
fn find_violation(messages: &[Message]) -> Option<String> {
    let mut unanswered: VecDeque<&str> = VecDeque::new();
    for (place, message) in messages.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &messages[before]);
        let fits = match message.role {
            Role::User if place == 0 => message.text == "ask 1",
            Role::User => message.text.starts_with(STEER_PREFIX) && unanswered.is_empty(),
            Role::Assistant => {
                before.is_some_and(|before| before.role != Role::Assistant) && unanswered.is_empty()
            }
            Role::Tool => unanswered.pop_front() == message.tool_call_id.as_deref(),
        };
        if !fits {
            return Some(format!("message {place} does not belong there: {message:?} after {before:?}"));
        }
        unanswered.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
    }
    let last = messages.last();
    let is_open = last.is_none_or(|last| last.role != Role::Assistant || !last.tool_calls.is_empty());
    is_open.then(|| format!("it ends on {last:?}"))
}

fn steer_texts(records: &[Record]) -> Vec<&str> {
    let words = records.iter().filter_map(|record| match record {
        Record::Steered { message, .. } => Some(message.text.as_str()),
        _ => None,
    });
    words.collect()
}

/// How often calls that may run once have begun, by their id.
fn once_calls_started(records: &[Record]) -> BTreeMap<&str, usize> {
    let mut begun = BTreeMap::new();
    for record in records {
        if let Record::CallBegun { call_id, class: ToolClass::Once, .. } = record {
            *begun.entry(call_id.as_str()).or_default() += 1;
        }
    }
    begun
}

/// Everything that must hold of a turn that has ended, whatever happened to it.
fn check(records: &[Record], play: &TurnSimulation, what: &str) {
    assert_eq!(find_violation(&play.context), None, "{what}");
    let (messages, open) = Replay::from_records(records.to_vec()).into_parts();
    let messages: Vec<_> = messages.iter().map(|message| Message::clone(message)).collect();
    assert_eq!(messages, play.context, "{what}: the records say what was there");
    assert_eq!(open.len(), 0, "{what}: nothing is open");
    let asked: Vec<_> = play.context.iter().filter(|one| one.role == Role::User).collect();
    let said: Vec<_> = asked[1..].iter().map(|one| one.text.as_str()).collect();
    assert_eq!(said, steer_texts(records), "{what}: every word is there once");
    assert!(once_calls_started(records).values().all(|times| *times == 1), "{what}: a call ran twice");
    check_results(records, play, what);
}

/// A call that was done has the result it had; one that may have run and must not run twice says so.
fn check_results(records: &[Record], play: &TurnSimulation, what: &str) {
    let mut calls: Vec<ToolCall> = Vec::new();
    let mut lost: BTreeSet<String> = BTreeSet::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for record in records {
        match record {
            Record::MessageAdded(message) if message.role == Role::Assistant => {
                calls.clone_from(&message.tool_calls);
            }
            Record::CallDone { index: place, outcome, .. } => {
                known.insert(calls[*place].id.clone(), outcome.text().to_owned());
                lost.remove(&calls[*place].id);
            }
            Record::CallBegun { call_id, class: ToolClass::Once, .. } => {
                lost.insert(call_id.clone());
            }
            // Whatever ran then was cut off.
            Record::TurnReopened { .. } => {
                for id in std::mem::take(&mut lost) {
                    known.insert(id, "Outcome unknown".to_owned());
                }
            }
            Record::MessageAdded(message) if message.role == Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                lost.remove(id);
                if let Some(text) = known.get(id) {
                    assert!(message.text.starts_with(text), "{what}: {id} is {message:?} and not {text}");
                }
            }
            _ => {}
        }
    }
    let ran = play.executed.iter().filter(|id| known.get(*id).is_some_and(|text| text == "Outcome unknown"));
    assert_eq!(ran.count(), 0, "{what}: what may have run ran again");
}

#[test]
fn a_turn_that_nobody_interrupts_leaves_records_that_say_what_was_there() {
    for seed in 0..SEEDS {
        let mut play = TurnSimulation::begin();
        play.run(&mut TestRng(seed), usize::MAX);
        check(&play.records(), &play, &format!("seed {seed}"));
    }
}

#[test]
fn a_turn_that_is_cut_off_at_any_commit_reaches_its_end() {
    for seed in 0..SEEDS {
        let mut whole = TurnSimulation::begin();
        whole.run(&mut TestRng(seed), usize::MAX);
        for cut in 1..whole.commits.len() {
            let mut records = whole.commits[..cut].concat();
            let mut dice = TestRng(seed << 16 | cut as u64);
            let mut play = TurnSimulation::resume(&records, &mut dice);
            play.run(&mut dice, usize::MAX);
            records.extend(play.records());
            check(&records, &play, &format!("seed {seed} cut {cut}"));
        }
    }
}

#[test]
fn a_turn_that_is_cut_off_again_and_again_reaches_its_end() {
    for seed in 0..SEEDS * 4 {
        let mut dice = TestRng(seed);
        let mut play = TurnSimulation::begin();
        let mut records = Vec::new();
        for life in 0.. {
            let commits = play.commits.len() + usize::try_from(dice.below(4)).expect("small");
            play.run(&mut dice, if life < 6 { commits } else { usize::MAX });
            records.extend(play.records());
            if play.end.is_some() {
                break;
            }
            play = TurnSimulation::resume(&records, &mut dice);
        }
        check(&records, &play, &format!("seed {seed}"));
    }
}

#[test]
fn a_turn_that_is_marked_at_any_commit_ends_well_formed_and_can_be_opened_again() {
    for seed in 0..SEEDS {
        let mut whole = TurnSimulation::begin();
        whole.run(&mut TestRng(seed), usize::MAX);
        for cut in 1..whole.commits.len() {
            let what = format!("seed {seed} cut {cut}");
            let mut records = whole.commits[..cut].concat();
            let mut dice = TestRng(seed << 16 | cut as u64);
            let mut play = TurnSimulation::resume(&records, &mut dice);
            if play.end.is_none() {
                // What the first actions would have begun is not begun.
                play.commits.truncate(1);
                play.commits[0].retain(|record| !matches!(record, Record::CallBegun { .. }));
                play.executed.clear();
                play.interrupt();
            }
            records.extend(play.records());
            check(&records, &play, &what);
            if !matches!(play.outcome(), TurnOutcome::Interrupted(_)) {
                continue;
            }
            let mut again = TurnSimulation::reopen(&records, &mut dice);
            again.run(&mut dice, usize::MAX);
            records.extend(again.records());
            check(&records, &again, &what);
        }
    }
}

#[test]
fn the_content_of_a_turn_is_all_that_was_said_in_all_its_lives() {
    for seed in 0..SEEDS {
        let mut whole = TurnSimulation::begin();
        whole.run(&mut TestRng(seed), usize::MAX);
        for cut in 1..whole.commits.len() {
            let mut dice = TestRng(seed << 16 | cut as u64);
            let mut play = TurnSimulation::resume(&whole.commits[..cut].concat(), &mut dice);
            play.run(&mut dice, usize::MAX);
            let said = play.context.iter().filter(|one| one.role == Role::Assistant);
            let said: String = said.map(|one| one.text.as_str()).collect();
            let content = &play.end.as_ref().expect("it has ended").content;
            // An empty answer leaves a notice in the content and nothing in the context.
            let content = content.replace("[Provider returned an empty response]", "");
            assert_eq!(content, said, "seed {seed} cut {cut}");
        }
    }
}
