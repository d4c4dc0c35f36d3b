//! Calls that authenticate with an agent's capability token instead of the admin token.

use serde_json::{Value, json};
use testkit::{RawResponse, TestDaemon, rpc_request};

/// Calls a method with this bearer token and these headers.
pub(crate) fn post_as(
    daemon: &TestDaemon,
    token: &str,
    headers: &[(&str, &str)],
    path: &str,
    method: &str,
    params: Value,
) -> RawResponse {
    let bearer = format!("Bearer {token}");
    let headers = [&[("Authorization", bearer.as_str())], headers].concat();
    daemon.post(path, &headers, rpc_request(1, method, params).as_bytes())
}

/// Calls a method as an agent; returns the response object.
pub(crate) fn call_as(daemon: &TestDaemon, token: &str, path: &str, method: &str, params: Value) -> Value {
    let response = post_as(daemon, token, &[], path, method, params);
    assert_eq!(response.status, 200, "{method} on {path}: {}", response.text());
    response.json()
}

/// Calls a method as an agent that is authorized; returns the result.
pub(crate) fn result_as(daemon: &TestDaemon, token: &str, path: &str, method: &str, params: Value) -> Value {
    let mut response = call_as(daemon, token, path, method, params);
    assert!(response.get("error").is_none(), "{method} on {path}: {response}");
    response["result"].take()
}

/// The error of a denied call.
pub(crate) fn permission_denied(message: &str) -> Value {
    json!({ "code": -32602, "message": message, "data": { "kind": "permission_denied" } })
}
