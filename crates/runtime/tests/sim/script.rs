//! What the scripted model is told to do. A message is its own script: `#7 say hel; wait; say lo; done | say more`.
//! Rounds stand between bars; the last one is repeated for as long as it is asked for. Arguments of a call may stand in
//! braces, and hold a script for another agent.

use std::time::Duration;

/// One thing the model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// `say TEXT`
    Say(String),
    /// `think TEXT`
    Think(String),
    /// `call NAME ARGUMENTS`: a tool call.
    Call(String, String),
    /// `report N`: used N tokens, and one for the answer.
    Report(u64),
    /// `yield`: lets others go first.
    Yield,
    /// `pass MS`: takes its time.
    Sleep(Duration),
    /// `wait`: until it is released.
    Wait,
    /// `queue`: says that the question waits.
    ReportQueued,
    /// `live`: says that it is at it.
    Heartbeat,
    /// `flood N`: says N letters without ever letting others go first.
    Flood(usize),
    /// `cut`: says that the answer is as long as it may be.
    StopAtLength,
    /// `fail`
    Fail,
    /// `panic`
    Panic,
    /// `done`
    Done,
    /// `panic-at-ask`: before there is a stream.
    PanicAtCall,
    /// `panic-at-drop`: when the stream is dropped.
    PanicAtDrop,
}

/// The steps of one round of a script.
pub(crate) fn round_steps(script: &str, number: usize) -> Vec<Step> {
    let body = match script.split_once(' ') {
        Some((label, body)) if label.starts_with('#') => body,
        _ => script,
    };
    let rounds = split_outside_braces(body, '|');
    let round = rounds.get(number).or(rounds.last()).copied().unwrap_or_default();
    split_outside_braces(round, ';')
        .into_iter()
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(parse_step)
        .collect()
}

/// Splits where no brace is open.
fn split_outside_braces(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (place, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1).expect("a brace is closed that was never opened"),
            letter if letter == separator && depth == 0 => {
                parts.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn parse_step(word: &str) -> Step {
    let (verb, object) = word.split_once(' ').unwrap_or((word, ""));
    let number = || object.parse::<u64>().expect("a number");
    match verb {
        "say" => Step::Say(object.to_owned()),
        "think" => Step::Think(object.to_owned()),
        "call" => parse_call(object),
        "report" => Step::Report(number()),
        "yield" => Step::Yield,
        "pass" => Step::Sleep(Duration::from_millis(number())),
        "wait" => Step::Wait,
        "queue" => Step::ReportQueued,
        "live" => Step::Heartbeat,
        "flood" => Step::Flood(object.parse().expect("a number")),
        "cut" => Step::StopAtLength,
        "fail" => Step::Fail,
        "panic" => Step::Panic,
        "done" => Step::Done,
        "panic-at-ask" => Step::PanicAtCall,
        "panic-at-drop" => Step::PanicAtDrop,
        other => panic!("no such step: {other:?}"),
    }
}

fn parse_call(object: &str) -> Step {
    let (name, arguments) = object.split_once(' ').unwrap_or((object, ""));
    let arguments = arguments.trim();
    let bare = arguments.strip_prefix('{').and_then(|bare| bare.strip_suffix('}'));
    Step::Call(name.to_owned(), bare.unwrap_or(arguments).to_owned())
}
