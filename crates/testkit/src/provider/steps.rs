//! The steps of the model in the test process. Each user message is a script:
//! `#7 say hel; wait; say lo; done | say more`. `;` separates steps and `|` separates rounds (model calls of a turn);
//! the last round repeats. The arguments of a call may stand in braces, and may contain a script for another agent.

use std::time::Duration;

/// One step of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// `say TEXT`: stream text.
    Say(String),
    /// `think TEXT`: stream reasoning.
    Think(String),
    /// `call NAME ARGUMENTS`: call a tool.
    Call(String, String),
    /// `again NAME ARGUMENTS`: call a tool with the id of the call before.
    CallAgain(String, String),
    /// `report N`: report a usage of N input tokens and one output token.
    Report(u64),
    /// `yield`: yield to other tasks.
    Yield,
    /// `pass MS`: sleep.
    Sleep(Duration),
    /// `wait`: wait until the test releases it.
    Wait,
    /// `queue`: report that the request waits in the provider's queue.
    ReportQueued,
    /// `live`: send a heartbeat.
    Heartbeat,
    /// `flood N`: stream N letters without yielding.
    Flood(usize),
    /// `cut`: stop because the output token limit is reached.
    StopAtLength,
    /// `fail`: fail with a model error.
    Fail,
    /// `panic`: panic in the stream.
    Panic,
    /// `done`: end the response.
    Done,
    /// `panic-at-call`: panic in the call, before there is a stream.
    PanicAtCall,
    /// `panic-at-drop`: panic when the stream is dropped.
    PanicAtDrop,
}

/// The steps of one round of a script.
pub(super) fn round_steps(script: &str, number: usize) -> Vec<Step> {
    let body = match script.split_once(' ') {
        Some((label, body)) if label.starts_with('#') => body,
        _ => script,
    };
    let rounds = split_outside_braces(body, '|');
    let round = rounds.get(number).or(rounds.last()).copied().unwrap_or_default();
    split_outside_braces(round, ';')
        .into_iter()
        .map(str::trim)
        .filter(|step| !step.is_empty())
        .map(parse_step)
        .collect()
}

/// Splits a text at separators outside of braces.
fn split_outside_braces(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (index, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1).expect("unbalanced closing brace"),
            character if character == separator && depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_step(step: &str) -> Step {
    let (verb, object) = step.split_once(' ').unwrap_or((step, ""));
    let number = || object.parse::<u64>().expect("a step with a number");
    match verb {
        "say" => Step::Say(object.to_owned()),
        "think" => Step::Think(object.to_owned()),
        "call" => parse_call(object, Step::Call),
        "again" => parse_call(object, Step::CallAgain),
        "report" => Step::Report(number()),
        "yield" => Step::Yield,
        "pass" => Step::Sleep(Duration::from_millis(number())),
        "wait" => Step::Wait,
        "queue" => Step::ReportQueued,
        "live" => Step::Heartbeat,
        "flood" => Step::Flood(object.parse().expect("a step with a number")),
        "cut" => Step::StopAtLength,
        "fail" => Step::Fail,
        "panic" => Step::Panic,
        "done" => Step::Done,
        "panic-at-call" => Step::PanicAtCall,
        "panic-at-drop" => Step::PanicAtDrop,
        other => panic!("no such step: {other:?}"),
    }
}

fn parse_call(object: &str, step: fn(String, String) -> Step) -> Step {
    let (name, arguments) = object.split_once(' ').unwrap_or((object, ""));
    let arguments = arguments.trim();
    let bare = arguments.strip_prefix('{').and_then(|bare| bare.strip_suffix('}'));
    step(name.to_owned(), bare.unwrap_or(arguments).to_owned())
}
