//! The fifteen examples of section 7 of the JSON-RPC 2.0 specification, through parser, a small dispatcher and encoder.
//! Responses are compared by meaning, and errors by code, because nexus3's messages are more specific.

use serde_json::{Value, json};

use super::*;
use crate::json::from_json;

const PARSE_ERROR: &str =
    r#"{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}"#;
const INVALID_REQUEST: &str =
    r#"{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}"#;

/// Name, message and expected response; empty: no response.
const EXAMPLES: [(&str, &str, &str); 15] = [
    (
        "positional parameters",
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 1}"#,
    ),
    (
        "positional parameters swapped",
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}"#,
        r#"{"jsonrpc": "2.0", "result": -19, "id": 2}"#,
    ),
    (
        "named parameters",
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 3}"#,
    ),
    (
        "named parameters swapped",
        r#"{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}"#,
        r#"{"jsonrpc": "2.0", "result": 19, "id": 4}"#,
    ),
    ("notification", r#"{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}"#, ""),
    ("notification of an unknown method", r#"{"jsonrpc": "2.0", "method": "foobar"}"#, ""),
    (
        "unknown method",
        r#"{"jsonrpc": "2.0", "method": "foobar", "id": "1"}"#,
        r#"{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"}"#,
    ),
    ("invalid JSON", r#"{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]"#, PARSE_ERROR),
    ("invalid request", r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#, INVALID_REQUEST),
    (
        "batch with invalid JSON",
        r#"[
            {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
            {"jsonrpc": "2.0", "method"
        ]"#,
        PARSE_ERROR,
    ),
    ("empty batch", "[]", INVALID_REQUEST),
    (
        "invalid batch of one",
        "[1]",
        r#"[{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}]"#,
    ),
    (
        "invalid batch of three",
        "[1,2,3]",
        r#"[
            {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
            {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
            {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}
        ]"#,
    ),
    (
        "batch",
        r#"[
            {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
            {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
            {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
            {"foo": "boo"},
            {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
            {"jsonrpc": "2.0", "method": "get_data", "id": "9"}
        ]"#,
        r#"[
            {"jsonrpc": "2.0", "result": 7, "id": "1"},
            {"jsonrpc": "2.0", "result": 19, "id": "2"},
            {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
            {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "5"},
            {"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}
        ]"#,
    ),
    (
        "batch of notifications",
        r#"[
            {"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
            {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
        ]"#,
        "",
    ),
];

/// Returns the numbers in the order of the method's parameters.
fn numbers(params: &Params<'_>, names: &[&str]) -> Vec<i64> {
    let number = |value| from_json::<i64>(value).unwrap();
    match params {
        Params::Positional(items) => items.iter().map(number).collect(),
        Params::Named(members) => {
            let find =
                |name: &&str| members.iter().find(|(key, _)| key == name).map(|(_, value)| number(value));
            names.iter().filter_map(find).collect()
        }
    }
}

fn execute(request: &Request<'_>) -> Result<Value, RpcError> {
    match request.method.as_ref() {
        "subtract" => {
            let numbers = numbers(&request.params, &["minuend", "subtrahend"]);
            Ok(json!(numbers[0] - numbers[1]))
        }
        "sum" => Ok(json!(numbers(&request.params, &[]).iter().sum::<i64>())),
        "get_data" => Ok(json!(["hello", 5])),
        "update" | "notify_hello" | "notify_sum" => Ok(Value::Null),
        unknown => Err(RpcError::new(ErrorCode::MethodNotFound, format!("Method not found: {unknown}"))),
    }
}

fn respond(parsed: Result<Request<'_>, RejectedRequest<'_>>) -> Option<Vec<u8>> {
    match parsed {
        Err(rejected) => Some(encode_error(&rejected.id, &rejected.error)),
        Ok(request) => {
            let outcome = execute(&request);
            request.id.map(|id| match outcome {
                Ok(result) => encode_result(&id, &result).unwrap(),
                Err(error) => encode_error(&id, &error),
            })
        }
    }
}

fn serve(message: &str) -> Option<Vec<u8>> {
    match Incoming::parse(message.as_bytes(), EnvelopeRules::FULL) {
        Ok(Incoming::Single(request)) => respond(Ok(request)),
        Err(rejected) => respond(Err(rejected)),
        Ok(Incoming::Batch(items)) => {
            let responses: Vec<Vec<u8>> = items.into_iter().filter_map(respond).collect();
            (!responses.is_empty()).then(|| [b"[", responses.join(&b","[..]).as_slice(), b"]"].concat())
        }
    }
}

/// Checks that an error has a message, and removes it.
fn without_message(mut response: Value) -> Value {
    if let Some(error) = response.get_mut("error").and_then(Value::as_object_mut) {
        let message = error.remove("message");
        assert!(message.is_some_and(|message| message.as_str().is_some_and(|text| !text.is_empty())));
    }
    response
}

/// Parses one response or a batch, sorted by id because a batch has no order.
fn normalized(text: &[u8]) -> (bool, Vec<Value>) {
    let value: Value = serde_json::from_slice(text).unwrap();
    let (batch, responses) = match value {
        Value::Array(responses) => (true, responses),
        single => (false, vec![single]),
    };
    let mut responses: Vec<Value> = responses.into_iter().map(without_message).collect();
    responses.sort_by_key(|response| response["id"].to_string());
    (batch, responses)
}

#[test]
fn all_fifteen_specification_examples_match() {
    for (name, message, expected) in EXAMPLES {
        let expected = (!expected.is_empty()).then(|| normalized(expected.as_bytes()));
        assert_eq!(serve(message).map(|response| normalized(&response)), expected, "{name}");
    }
}

#[test]
fn example_responses_are_accepted_by_the_response_parser() {
    for (name, message, _) in EXAMPLES {
        let Some(response) = serve(message).filter(|response| response.starts_with(b"{")) else { continue };
        assert!(Response::parse(&response).is_ok(), "{name}: {:?}", Response::parse(&response));
    }
}
