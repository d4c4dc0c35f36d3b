//! A judge that finds nothing is worth nothing: each thing that must not be is shown to it.

use super::*;
use crate::kill9::expectations::Steer;

/// An agent with an answered send and a line.
fn expectations() -> Expectations {
    let mut book = Expectations::default();
    let agent = book.add_agent(None, 0);
    book.agents[agent].state = AgentState::Alive;
    for (content, act, answer) in [
        ("!reply hi", ModelAction::Reply("hi".to_owned()), "hi"),
        ("!tool x", ModelAction::Append(vec!["line-1".to_owned()]), "tool said: yes"),
    ] {
        let place = book.add_send(agent, content.to_owned(), act, 0);
        book.sends[place].state = SendState::Acknowledged(answer.to_owned());
    }
    book.steers.push(Steer { agent, content: "!reply word".to_owned(), accepted: Some(true) });
    book
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn history(result: &str) -> Vec<Value> {
    vec![
        message("user", "!reply hi"),
        message("assistant", "hi"),
        message("user", "!tool x"),
        message("assistant", ""),
        message("tool", result),
        message("user", "!reply word"),
        message("assistant", "tool said: yes"),
    ]
}

const APPENDED_RESULT: &str = r#"{"bytes_written":7,"success":true}"#;

fn check(book: &Expectations, messages: &[Value], lines: &[(&str, usize)]) -> (usize, usize, usize) {
    let lines = lines.iter().map(|(line, times)| ((*line).to_owned(), *times)).collect();
    let mut verdict = Verdict::default();
    verdict.check_lines(&lines);
    verdict.check_history(book, 0, Some(messages), &lines);
    (verdict.lost, verdict.duplicated, verdict.violations.len())
}

#[test]
fn what_is_as_it_was_told_is_clean() {
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[("line-1", 1)]), (0, 0, 0));
    let unknown = history("Outcome unknown: the daemon stopped");
    assert_eq!(check(&expectations(), &unknown, &[("line-1", 1)]), (0, 0, 0));
    assert_eq!(check(&expectations(), &unknown, &[]), (0, 0, 0));
    assert_eq!(check(&expectations(), &history("Did not execute: the daemon stopped"), &[]), (0, 0, 0));
}

#[test]
fn a_message_that_is_missing_or_has_another_answer_is_lost() {
    let history = history(APPENDED_RESULT);
    assert_eq!(check(&expectations(), &history[2..], &[("line-1", 1)]).0, 1);
    let mut other = history.clone();
    other[1] = message("assistant", "ho");
    assert_eq!(check(&expectations(), &other, &[("line-1", 1)]).0, 1);
    let without_word = [&history[..5], &history[6..]].concat();
    assert_eq!(check(&expectations(), &without_word, &[("line-1", 1)]).0, 1);
    assert_eq!(check(&expectations(), &[], &[]).0, 3);
}

#[test]
fn a_message_or_a_line_that_is_there_twice_is_doubled() {
    let twice = [history(APPENDED_RESULT), vec![message("user", "!reply hi")]].concat();
    assert_eq!(check(&expectations(), &twice, &[("line-1", 1)]).1, 1);
    let word_twice = [history(APPENDED_RESULT), vec![message("user", "!reply word")]].concat();
    assert_eq!(check(&expectations(), &word_twice, &[("line-1", 1)]).1, 1);
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[("line-1", 2)]).1, 1);
}

#[test]
fn what_the_model_was_told_of_a_line_is_held_against_the_file() {
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[]).0, 1);
    assert_eq!(check(&expectations(), &history("Did not execute: halted"), &[("line-1", 1)]).2, 1);
    assert_eq!(check(&expectations(), &history("Execution failed: no"), &[]).2, 1);
}

#[test]
fn what_nobody_sent_and_what_nobody_answered_is_a_fault() {
    let more = [history(APPENDED_RESULT), vec![message("user", "who?")]].concat();
    assert_eq!(check(&expectations(), &more, &[("line-1", 1)]), (0, 0, 1));
    let mut open = expectations();
    open.sends[0].state = SendState::Pending;
    assert_eq!(check(&open, &history(APPENDED_RESULT), &[("line-1", 1)]), (0, 0, 1));
}

#[test]
fn agents_that_are_missing_or_too_many_are_found() {
    let listed = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let judge = |names: Option<&BTreeSet<String>>| {
        let mut verdict = Verdict::default();
        verdict.check_agent_list(&expectations(), names);
        (verdict.lost, verdict.violations.len())
    };
    let own = expectations().agents[0].name.clone();
    assert_eq!(judge(Some(&listed(&[&own]))), (0, 0));
    assert_eq!(judge(Some(&listed(&[]))), (1, 1));
    assert_eq!(judge(Some(&listed(&[&own, "other"]))), (0, 1));
    assert_eq!(judge(None), (0, 1));
}
