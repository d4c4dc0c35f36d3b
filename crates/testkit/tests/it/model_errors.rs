//! Errors of the scripted model: statuses, broken streams, rejected requests.

use std::io::ErrorKind;

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, ScriptedModel, StreamEvent};

use crate::support::{chat_request, post_with, send_chat, start_chat, streamed_text, without_stream};

fn error_body(response: &RawResponse) -> Value {
    assert_eq!(response.header("content-type"), Some("application/json"));
    response.json()["error"].take()
}

fn send(model: &ScriptedModel, bytes: &[u8]) -> RawResponse {
    let mut connection = RawConnection::open(model.port());
    connection.send(bytes);
    connection.read_response()
}

#[test]
fn status_command_sends_an_error_or_the_given_body() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &chat_request("!status 503"));
    assert_eq!(response.status, 503);
    assert_eq!(response.header("retry-after"), None);
    assert_eq!(error_body(&response)["type"], "server_error");
    let response = send_chat(&model, &chat_request("!status 429 slow down"));
    assert_eq!((response.status, response.text().as_str()), (429, "slow down"));
    let response =
        send_chat(&model, &chat_request("!status 400 {\"error\":{\"code\":\"context_length_exceeded\"}}"));
    assert_eq!(error_body(&response)["code"], "context_length_exceeded");
    assert_eq!(send_chat(&model, &chat_request("!status 204")).body, b"");
}

#[test]
fn later_command_responds_to_the_retry() {
    let model = ScriptedModel::start();
    for content in ["!later 3 a", "!later 3 b"] {
        let first = send_chat(&model, &chat_request(content));
        assert_eq!((first.status, first.header("retry-after")), (429, Some("3")));
        assert_eq!(streamed_text(&model, &chat_request(content)), content[9..]);
    }
}

#[test]
fn azure_requires_api_version_and_api_key_header() {
    let model = ScriptedModel::with_key("k");
    let body = chat_request("hi").to_string();
    let status = |path: &str, key: &str| {
        let post = String::from_utf8(post_with(&format!("{key}\r\n"), body.as_bytes())).expect("text");
        send(&model, post.replacen("/v1/chat/completions", path, 1).as_bytes()).status
    };
    let path = "/openai/deployments/mine/chat/completions";
    let versioned = format!("{path}?api-version=1");
    assert_eq!(status(&versioned, "api-key: k"), 200);
    assert_eq!(status(&versioned, "Authorization: Bearer k"), 401);
    assert_eq!(status(path, "api-key: k"), 404);
    assert_eq!(status("/openai/deployments//chat/completions?api-version=1", "api-key: k"), 404);
}

#[test]
fn garbage_command_streams_events_that_are_not_json() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &chat_request("!garbage"));
    assert_eq!((response.status, response.header("transfer-encoding")), (200, Some("chunked")));
    let mut events = StreamEvent::parse_all(&response.body);
    assert_eq!(events.pop().expect("the stream has events").data, "[DONE]");
    let is_json = |event: &StreamEvent| serde_json::from_str::<Value>(&event.data).is_ok();
    assert!(!events.is_empty() && !events.iter().any(is_json));
    let response = send_chat(&model, &without_stream(chat_request("!garbage")));
    assert!(serde_json::from_slice::<Value>(&response.body).is_err());
}

#[test]
fn html_command_sends_a_web_page() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &chat_request("!html"));
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(response.text().starts_with("<!doctype html>"));
}

#[test]
fn cut_command_closes_inside_the_body() {
    let model = ScriptedModel::start();
    for content in ["!cut", "!cut half an ans"] {
        let mut connection = start_chat(&model, content);
        let cause = connection.try_read_response().expect_err("the body has no end");
        assert_eq!(cause.kind(), ErrorKind::UnexpectedEof);
    }
    let received = start_chat(&model, "!cut half an ans").read_to_end();
    let received = String::from_utf8(received).expect("text");
    assert!(received.contains("{\"content\":\"half an ans\"}"), "{received}");
    assert!(!received.contains("\r\n0\r\n"), "{received}");
    let unstreamed = without_stream(chat_request("!cut half")).to_string();
    let mut connection = RawConnection::open(model.port());
    connection.send(&post_with("", unstreamed.as_bytes()));
    assert_eq!(connection.try_read_response().expect_err("no end").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn unknown_command_error_lists_the_commands() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &chat_request("!sing a song"));
    assert_eq!(response.status, 400);
    let message = error_body(&response)["message"].take();
    assert!(
        message.as_str().is_some_and(|text| text.contains("!sing;") && text.contains("!history")),
        "{message}"
    );
}

#[test]
fn request_without_model_or_messages_is_rejected() {
    let model = ScriptedModel::start();
    let table = [
        (json!({ "messages": [{ "role": "user", "content": "x" }] }), json!("model")),
        (json!({ "model": " ", "messages": [{ "role": "user", "content": "x" }] }), json!("model")),
        (json!({ "model": null, "messages": [{ "role": "user", "content": "x" }] }), json!("model")),
        (json!({ "model": "m" }), json!("messages")),
        (json!({ "model": "m", "messages": [] }), json!("messages")),
        (json!({ "model": "m", "messages": "x" }), Value::Null),
        (json!([]), Value::Null),
    ];
    for (request, param) in table {
        let response = send_chat(&model, &request);
        let error = error_body(&response);
        assert_eq!(response.status, 400, "{request}");
        assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &param), "{request}");
    }
    assert_eq!(send(&model, &post_with("", b"{")).status, 400);
}

#[test]
fn unknown_endpoint_is_404() {
    let model = ScriptedModel::start();
    for line in ["GET /v1/chat/completions", "POST /chat/completions", "GET /v1/models", "POST /"] {
        let response =
            send(&model, format!("{line} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n").as_bytes());
        assert_eq!(response.status, 404, "{line}");
        assert_eq!(error_body(&response)["code"], "unknown_url");
    }
}

#[test]
fn wrong_api_key_is_401() {
    let model = ScriptedModel::with_key("sk-right");
    let body = chat_request("Hello").to_string();
    for line in ["", "Authorization: Bearer sk-wrong\r\n", "Authorization: sk-right\r\n"] {
        let response = send(&model, &post_with(line, body.as_bytes()));
        assert_eq!(response.status, 401, "{line:?}");
        assert_eq!(error_body(&response)["code"], "invalid_api_key");
    }
    let response = send(&model, &post_with("Authorization: Bearer sk-right\r\n", body.as_bytes()));
    assert_eq!(response.status, 200);
    assert_eq!(model.key(), Some("sk-right"));
}
