//! What the scripted model is told to do. A message is its own script: `#7 say hel; wait; say lo; done | say more`.
//! Rounds stand between bars; the last one is repeated for as long as it is asked for.

use std::time::Duration;

/// One thing the model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// `say TEXT`
    Say(String),
    /// `call NAME`: a tool call.
    Call(String),
    /// `report N`: used N tokens, and one for the answer.
    Report(u64),
    /// `yield`: lets others go first.
    Yield,
    /// `pass MS`: takes its time.
    Pass(Duration),
    /// `wait`: until it is released.
    Wait,
    /// `flood N`: says N letters without ever letting others go first.
    Flood(usize),
    /// `fail`
    Fail,
    /// `panic`
    Panic,
    /// `done`
    Done,
    /// `panic-at-ask`: before there is a stream.
    PanicAtAsk,
    /// `panic-at-drop`: when the stream is dropped.
    PanicAtDrop,
}

/// The steps of one round of a script.
pub(crate) fn round(script: &str, number: usize) -> Vec<Step> {
    let body = match script.split_once(' ') {
        Some((label, body)) if label.starts_with('#') => body,
        _ => script,
    };
    let rounds: Vec<&str> = body.split('|').collect();
    let round = rounds.get(number).or(rounds.last()).copied().unwrap_or_default();
    round.split(';').map(str::trim).filter(|word| !word.is_empty()).map(step).collect()
}

fn step(word: &str) -> Step {
    let (verb, object) = word.split_once(' ').unwrap_or((word, ""));
    let number = || object.parse::<u64>().expect("a number");
    match verb {
        "say" => Step::Say(object.to_owned()),
        "call" => Step::Call(object.to_owned()),
        "report" => Step::Report(number()),
        "yield" => Step::Yield,
        "pass" => Step::Pass(Duration::from_millis(number())),
        "wait" => Step::Wait,
        "flood" => Step::Flood(object.parse().expect("a number")),
        "fail" => Step::Fail,
        "panic" => Step::Panic,
        "done" => Step::Done,
        "panic-at-ask" => Step::PanicAtAsk,
        "panic-at-drop" => Step::PanicAtDrop,
        other => panic!("no such step: {other:?}"),
    }
}
