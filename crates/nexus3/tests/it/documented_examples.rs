//! The examples of the original programs' documents, verbatim except for the port and the token. A response must
//! contain everything that the document shows; a result may have more members.

mod agent_pool;
mod hierarchies;
mod single_agent;

use serde_json::Value;
use testkit::run;

use crate::support::model_requests::last_conversation;
use crate::support::program::Program;
use crate::support::{Fixture, is_hex, is_timestamp};

/// Runs a command of a document; returns the HTTP status and the response.
fn run_documented(fixture: &Fixture, command: &str) -> (u16, Value) {
    let finished =
        run("sh", &["-c", &substitute_port_and_token(fixture, command)], &[], fixture.daemon.home());
    parse_curl_output(&finished.stdout)
}

/// Starts a command of a document and does not wait for it, as in another terminal.
fn spawn_documented(fixture: &Fixture, command: &str) -> Program {
    Program::shell(&substitute_port_and_token(fixture, command))
}

fn substitute_port_and_token(fixture: &Fixture, command: &str) -> String {
    let port = fixture.daemon.port().to_string();
    let token = fixture.daemon.token().unwrap_or("(none)");
    let substituted = command.replace("8765", &port).replace("nxk_...", token);
    format!("{substituted} -w '\\n%{{http_code}}'")
}

/// Splits curl's output into the body and the status that `-w` appends.
fn parse_curl_output(stdout: &str) -> (u16, Value) {
    let (body, status) = stdout.rsplit_once('\n').expect("curl writes the status on its own line");
    let response = serde_json::from_str(body).unwrap_or_else(|fault| panic!("not JSON: {fault}: {body}"));
    (status.parse().expect("a status is a number"), response)
}

/// Checks that the last model request has the documents' conversation, complete and in order.
fn assert_documented_conversation(fixture: &Fixture) {
    let expected = [
        ("user", "My name is Alice"),
        ("assistant", "Nice to meet you, Alice!"),
        ("user", "What is my name?"),
    ];
    let sent = last_conversation(&fixture.model);
    assert_eq!(sent, expected.map(|(role, content)| (role.to_owned(), content.to_owned())));
}

/// Compares a response with the document's.
fn assert_matches_document(response: &Value, documented: &str) {
    let documented: Value = serde_json::from_str(documented).expect("the document's response is JSON");
    let names = |value: &Value| value.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(response), names(&documented), "only the envelope's members: {response}");
    assert!(
        matches_document("", response, &documented),
        "{response}\nshould contain what the document shows:\n{documented}"
    );
}

fn matches_document(name: &str, response: &Value, documented: &Value) -> bool {
    match (name, documented) {
        ("request_id", Value::String(text)) if ["req_abc123", "a1b2c3d4", "..."].contains(&text.as_str()) => {
            is_hex(response, 16)
        }
        ("created_at", _) => is_timestamp(response),
        ("system" | "tools" | "messages" | "total" | "budget" | "available", Value::Number(_)) => {
            response.is_u64()
        }
        (_, Value::Object(members)) => members.iter().all(|(name, value)| {
            response.get(name).is_some_and(|response| matches_document(name, response, value))
        }),
        (_, Value::Array(elements)) => {
            let responses = response.as_array().map(Vec::as_slice).unwrap_or_default();
            responses.len() == elements.len()
                && elements
                    .iter()
                    .zip(responses)
                    .all(|(element, response)| matches_document(name, response, element))
        }
        _ => response == documented,
    }
}
