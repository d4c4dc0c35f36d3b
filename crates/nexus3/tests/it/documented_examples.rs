//! The source documents' examples, typed as they stand there: only the port and the token are put in. An answer has to
//! show everything that the document shows; more may stand inside a result.

mod agent_pool;
mod hierarchies;
mod single_agent;

use serde_json::Value;
use testkit::run;

use crate::support::model_requests::last_conversation;
use crate::support::program::Program;
use crate::support::{Fixture, is_hex, is_timestamp};

/// Runs a command of a document; returns the HTTP status and the answer.
fn run_documented(stage: &Fixture, command: &str) -> (u16, Value) {
    let finished = run("sh", &["-c", &substitute_port_and_token(stage, command)], &[], stage.daemon.home());
    parse_curl_output(&finished.stdout)
}

/// Starts a command of a document in another terminal.
fn spawn_documented(stage: &Fixture, command: &str) -> Program {
    Program::shell(&substitute_port_and_token(stage, command))
}

fn substitute_port_and_token(stage: &Fixture, command: &str) -> String {
    let port = stage.daemon.port().to_string();
    let token = stage.daemon.token().unwrap_or("(none)");
    let fitted = command.replace("8765", &port).replace("nxk_...", token);
    format!("{fitted} -w '\\n%{{http_code}}'")
}

/// The body, and behind it the status that curl was asked for.
fn parse_curl_output(stdout: &str) -> (u16, Value) {
    let (body, status) = stdout.rsplit_once('\n').expect("curl writes the status on a line of its own");
    let answer = serde_json::from_str(body).unwrap_or_else(|fault| panic!("not JSON: {fault}: {body}"));
    (status.parse().expect("a status is a number"), answer)
}

/// The model was sent the documents' conversation, whole and in order.
fn assert_documented_conversation(stage: &Fixture) {
    let said = [
        ("user", "My name is Alice"),
        ("assistant", "Nice to meet you, Alice!"),
        ("user", "What is my name?"),
    ];
    let sent = last_conversation(&stage.model);
    assert_eq!(sent, said.map(|(role, content)| (role.to_owned(), content.to_owned())));
}

/// Holds an answer against the document's.
fn assert_matches_document(answer: &Value, documented: &str) {
    let documented: Value = serde_json::from_str(documented).expect("the document's answer is JSON");
    let names = |value: &Value| value.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(answer), names(&documented), "nothing beside the envelope's members: {answer}");
    assert!(
        matches_document("", answer, &documented),
        "{answer}\nshould show what the document shows:\n{documented}"
    );
}

fn matches_document(name: &str, answer: &Value, documented: &Value) -> bool {
    match (name, documented) {
        ("request_id", Value::String(text)) if ["req_abc123", "a1b2c3d4", "..."].contains(&text.as_str()) => {
            is_hex(answer, 16)
        }
        ("created_at", _) => is_timestamp(answer),
        ("system" | "tools" | "messages" | "total" | "budget" | "available", Value::Number(_)) => {
            answer.is_u64()
        }
        (_, Value::Object(members)) => members.iter().all(|(name, value)| {
            answer.get(name).is_some_and(|answer| matches_document(name, answer, value))
        }),
        (_, Value::Array(elements)) => {
            let answers = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            answers.len() == elements.len()
                && elements
                    .iter()
                    .zip(answers)
                    .all(|(element, answer)| matches_document(name, answer, element))
        }
        _ => answer == documented,
    }
}
