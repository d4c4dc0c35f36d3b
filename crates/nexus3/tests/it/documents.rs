//! The source documents' examples, typed as they stand there: only the port and the token are put in. An answer has to
//! show everything that the document shows; more may stand inside a result.

mod agent_pool;
mod hierarchies;
mod single_agent;

use serde_json::Value;
use testkit::run;

use crate::support::history::last_sent;
use crate::support::program::Program;
use crate::support::{Stage, is_hex, is_time};

/// Runs a command of a document; returns the HTTP status and the answer.
fn typed(stage: &Stage, command: &str) -> (u16, Value) {
    let finished = run("sh", &["-c", &fitted(stage, command)], &[], stage.daemon.home());
    read(&finished.stdout)
}

/// Starts a command of a document in another terminal.
fn typed_elsewhere(stage: &Stage, command: &str) -> Program {
    Program::shell(&fitted(stage, command))
}

fn fitted(stage: &Stage, command: &str) -> String {
    let port = stage.daemon.port().to_string();
    let token = stage.daemon.token().unwrap_or("(none)");
    let fitted = command.replace("8765", &port).replace("nxk_...", token);
    format!("{fitted} -w '\\n%{{http_code}}'")
}

/// The body, and behind it the status that curl was asked for.
fn read(stdout: &str) -> (u16, Value) {
    let (body, status) = stdout.rsplit_once('\n').expect("curl writes the status on a line of its own");
    let answer = serde_json::from_str(body).unwrap_or_else(|fault| panic!("not JSON: {fault}: {body}"));
    (status.parse().expect("a status is a number"), answer)
}

/// The model was sent the documents' conversation, whole and in order.
fn assert_alice_was_sent(stage: &Stage) {
    let said = [
        ("user", "My name is Alice"),
        ("assistant", "Nice to meet you, Alice!"),
        ("user", "What is my name?"),
    ];
    let sent = last_sent(&stage.model);
    assert_eq!(sent, said.map(|(role, content)| (role.to_owned(), content.to_owned())));
}

/// Holds an answer against the document's.
fn assert_shows(answer: &Value, documented: &str) {
    let documented: Value = serde_json::from_str(documented).expect("the document's answer is JSON");
    let names = |value: &Value| value.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(answer), names(&documented), "nothing beside the envelope's members: {answer}");
    assert!(covers("", answer, &documented), "{answer}\nshould show what the document shows:\n{documented}");
}

fn covers(name: &str, answer: &Value, documented: &Value) -> bool {
    match (name, documented) {
        ("request_id", Value::String(text)) if ["req_abc123", "a1b2c3d4", "..."].contains(&text.as_str()) => {
            is_hex(answer, 16)
        }
        ("created_at", _) => is_time(answer),
        ("system" | "tools" | "messages" | "total" | "budget" | "available", Value::Number(_)) => {
            answer.is_u64()
        }
        (_, Value::Object(members)) => members
            .iter()
            .all(|(name, value)| answer.get(name).is_some_and(|answer| covers(name, answer, value))),
        (_, Value::Array(elements)) => {
            let answers = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            answers.len() == elements.len()
                && elements.iter().zip(answers).all(|(element, answer)| covers(name, answer, element))
        }
        _ => answer == documented,
    }
}
