//! A judge that finds nothing is worth nothing: each thing that must not be is shown to it.

use super::*;
use crate::kill9::book::Word;

/// An agent with an answered send and a line.
fn book() -> Book {
    let mut book = Book::default();
    let agent = book.add_agent(None, 0);
    book.agents[agent].life = Life::There;
    for (content, act, answer) in [
        ("!reply hi", Act::Say("hi".to_owned()), "hi"),
        ("!tool x", Act::Append(vec!["line-1".to_owned()]), "tool said: yes"),
    ] {
        let place = book.add_send(agent, content.to_owned(), act, 0);
        book.sends[place].state = State::Acked(answer.to_owned());
    }
    book.words.push(Word { agent, content: "!reply word".to_owned(), taken: Some(true) });
    book
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn history(result: &str) -> Vec<Value> {
    vec![
        said("user", "!reply hi"),
        said("assistant", "hi"),
        said("user", "!tool x"),
        said("assistant", ""),
        said("tool", result),
        said("user", "!reply word"),
        said("assistant", "tool said: yes"),
    ]
}

const DONE: &str = r#"{"bytes_written":7,"success":true}"#;

fn found(book: &Book, messages: &[Value], lines: &[(&str, usize)]) -> (usize, usize, usize) {
    let lines = lines.iter().map(|(line, times)| ((*line).to_owned(), *times)).collect();
    let mut verdict = Verdict::default();
    verdict.check_lines(&lines);
    verdict.check_history(book, 0, Some(messages), &lines);
    (verdict.lost, verdict.doubled, verdict.faults.len())
}

#[test]
fn what_is_as_it_was_told_is_clean() {
    assert_eq!(found(&book(), &history(DONE), &[("line-1", 1)]), (0, 0, 0));
    let unknown = history("Outcome unknown: the daemon stopped");
    assert_eq!(found(&book(), &unknown, &[("line-1", 1)]), (0, 0, 0));
    assert_eq!(found(&book(), &unknown, &[]), (0, 0, 0));
    assert_eq!(found(&book(), &history("Did not execute: the daemon stopped"), &[]), (0, 0, 0));
}

#[test]
fn a_message_that_is_missing_or_has_another_answer_is_lost() {
    let history = history(DONE);
    assert_eq!(found(&book(), &history[2..], &[("line-1", 1)]).0, 1);
    let mut other = history.clone();
    other[1] = said("assistant", "ho");
    assert_eq!(found(&book(), &other, &[("line-1", 1)]).0, 1);
    let without_word = [&history[..5], &history[6..]].concat();
    assert_eq!(found(&book(), &without_word, &[("line-1", 1)]).0, 1);
    assert_eq!(found(&book(), &[], &[]).0, 3);
}

#[test]
fn a_message_or_a_line_that_is_there_twice_is_doubled() {
    let twice = [history(DONE), vec![said("user", "!reply hi")]].concat();
    assert_eq!(found(&book(), &twice, &[("line-1", 1)]).1, 1);
    let word_twice = [history(DONE), vec![said("user", "!reply word")]].concat();
    assert_eq!(found(&book(), &word_twice, &[("line-1", 1)]).1, 1);
    assert_eq!(found(&book(), &history(DONE), &[("line-1", 2)]).1, 1);
}

#[test]
fn what_the_model_was_told_of_a_line_is_held_against_the_file() {
    assert_eq!(found(&book(), &history(DONE), &[]).0, 1);
    assert_eq!(found(&book(), &history("Did not execute: halted"), &[("line-1", 1)]).2, 1);
    assert_eq!(found(&book(), &history("Execution failed: no"), &[]).2, 1);
}

#[test]
fn what_nobody_sent_and_what_nobody_answered_is_a_fault() {
    let more = [history(DONE), vec![said("user", "who?")]].concat();
    assert_eq!(found(&book(), &more, &[("line-1", 1)]), (0, 0, 1));
    let mut open = book();
    open.sends[0].state = State::Open;
    assert_eq!(found(&open, &history(DONE), &[("line-1", 1)]), (0, 0, 1));
}

#[test]
fn agents_that_are_missing_or_too_many_are_found() {
    let listed = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let judge = |names: Option<&BTreeSet<String>>| {
        let mut verdict = Verdict::default();
        verdict.check_list(&book(), names);
        (verdict.lost, verdict.faults.len())
    };
    let own = book().agents[0].name.clone();
    assert_eq!(judge(Some(&listed(&[&own]))), (0, 0));
    assert_eq!(judge(Some(&listed(&[]))), (1, 1));
    assert_eq!(judge(Some(&listed(&[&own, "other"]))), (0, 1));
    assert_eq!(judge(None), (0, 1));
}
