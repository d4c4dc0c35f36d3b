//! Calls by somebody else than the admin: whoever shows an agent's capability token.

use serde_json::{Value, json};
use testkit::{RawResponse, TestDaemon};

/// Calls a method with this bearer token and these headers.
pub(crate) fn post_as(
    daemon: &TestDaemon,
    token: &str,
    headers: &[(&str, &str)],
    path: &str,
    method: &str,
    params: Value,
) -> RawResponse {
    let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    request["params"] = params;
    let bearer = format!("Bearer {token}");
    let headers = [&[("Authorization", bearer.as_str())], headers].concat();
    daemon.post(path, &headers, request.to_string().as_bytes())
}

/// Calls a method as an agent; returns the response object.
pub(crate) fn call_as(daemon: &TestDaemon, token: &str, path: &str, method: &str, params: Value) -> Value {
    let answer = post_as(daemon, token, &[], path, method, params);
    assert_eq!(answer.status, 200, "{method} on {path}: {}", answer.text());
    answer.json()
}

/// Calls a method as an agent that may; returns the result.
pub(crate) fn result_as(daemon: &TestDaemon, token: &str, path: &str, method: &str, params: Value) -> Value {
    let mut response = call_as(daemon, token, path, method, params);
    assert!(response.get("error").is_none(), "{method} on {path}: {response}");
    response["result"].take()
}

/// The answer to something that was not allowed.
pub(crate) fn permission_denied(message: &str) -> Value {
    json!({ "code": -32602, "message": message, "data": { "kind": "permission_denied" } })
}
