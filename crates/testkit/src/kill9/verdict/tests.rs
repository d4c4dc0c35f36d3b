//! Tests of the checks: each kind of violation is detected.

use super::*;
use crate::kill9::expectations::Steer;

/// An agent with two acknowledged sends, an appended line and an accepted instruction.
fn expectations() -> Expectations {
    let mut expected = Expectations::default();
    let agent = expected.add_agent(None, 0);
    expected.agents[agent].state = AgentState::Alive;
    for (content, action, reply) in [
        ("!reply hi", ModelAction::Reply("hi".to_owned()), "hi"),
        ("!tool x", ModelAction::Append(vec!["line-1".to_owned()]), "tool said: yes"),
    ] {
        let index = expected.add_send(agent, content.to_owned(), action, 0);
        expected.sends[index].state = SendState::Acknowledged(reply.to_owned());
    }
    expected.steers.push(Steer { agent, content: "!reply instruction".to_owned(), accepted: Some(true) });
    expected
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
        message("user", "!reply instruction"),
        message("assistant", "tool said: yes"),
    ]
}

const APPENDED_RESULT: &str = r#"{"bytes_written":7,"success":true}"#;

fn check(expected: &Expectations, messages: &[Value], lines: &[(&str, usize)]) -> (usize, usize, usize) {
    let lines = lines.iter().map(|(line, times)| ((*line).to_owned(), *times)).collect();
    let mut verdict = Verdict::default();
    verdict.check_lines(&lines);
    verdict.check_history(expected, 0, Some(messages), &lines);
    (verdict.lost, verdict.duplicated, verdict.violations.len())
}

#[test]
fn consistent_history_has_no_violations() {
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[("line-1", 1)]), (0, 0, 0));
    let unknown = history("Outcome unknown: the daemon stopped");
    assert_eq!(check(&expectations(), &unknown, &[("line-1", 1)]), (0, 0, 0));
    assert_eq!(check(&expectations(), &unknown, &[]), (0, 0, 0));
    assert_eq!(check(&expectations(), &history("Did not execute: the daemon stopped"), &[]), (0, 0, 0));
}

#[test]
fn missing_message_or_other_reply_counts_as_lost() {
    let history = history(APPENDED_RESULT);
    assert_eq!(check(&expectations(), &history[2..], &[("line-1", 1)]).0, 1);
    let mut other = history.clone();
    other[1] = message("assistant", "ho");
    assert_eq!(check(&expectations(), &other, &[("line-1", 1)]).0, 1);
    let without_instruction = [&history[..5], &history[6..]].concat();
    assert_eq!(check(&expectations(), &without_instruction, &[("line-1", 1)]).0, 1);
    assert_eq!(check(&expectations(), &[], &[]).0, 3);
}

#[test]
fn message_or_line_that_occurs_twice_is_duplicated() {
    let twice = [history(APPENDED_RESULT), vec![message("user", "!reply hi")]].concat();
    assert_eq!(check(&expectations(), &twice, &[("line-1", 1)]).1, 1);
    let instruction_twice = [history(APPENDED_RESULT), vec![message("user", "!reply instruction")]].concat();
    assert_eq!(check(&expectations(), &instruction_twice, &[("line-1", 1)]).1, 1);
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[("line-1", 2)]).1, 1);
}

#[test]
fn tool_results_are_checked_against_the_file() {
    assert_eq!(check(&expectations(), &history(APPENDED_RESULT), &[]).0, 1);
    assert_eq!(check(&expectations(), &history("Did not execute: halted"), &[("line-1", 1)]).2, 1);
    assert_eq!(check(&expectations(), &history("Execution failed: no"), &[]).2, 1);
}

#[test]
fn unknown_message_or_pending_send_is_a_violation() {
    let extra = [history(APPENDED_RESULT), vec![message("user", "who?")]].concat();
    assert_eq!(check(&expectations(), &extra, &[("line-1", 1)]), (0, 0, 1));
    let mut pending = expectations();
    pending.sends[0].state = SendState::Pending;
    assert_eq!(check(&pending, &history(APPENDED_RESULT), &[("line-1", 1)]), (0, 0, 1));
}

#[test]
fn missing_and_unexpected_agents_are_violations() {
    let listed = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let check = |names: Option<&BTreeSet<String>>| {
        let mut verdict = Verdict::default();
        verdict.check_agent_list(&expectations(), names);
        (verdict.lost, verdict.violations.len())
    };
    let name = expectations().agents[0].name.clone();
    assert_eq!(check(Some(&listed(&[&name]))), (0, 0));
    assert_eq!(check(Some(&listed(&[]))), (1, 1));
    assert_eq!(check(Some(&listed(&[&name, "other"]))), (0, 1));
    assert_eq!(check(None), (0, 1));
}
