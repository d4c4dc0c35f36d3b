//! The scripted model's ways not to answer: statuses, broken streams, and requests that it refuses.

use std::io::ErrorKind;

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, ScriptedModel};

use crate::support::{chat_request, post_with, send_chat, start_chat, streamed_text, without_stream};

fn error_body(answer: &RawResponse) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()["error"].take()
}

fn send(model: &ScriptedModel, bytes: &[u8]) -> RawResponse {
    let mut connection = RawConnection::open(model.port());
    connection.send(bytes);
    connection.read_response()
}

#[test]
fn a_status_comes_with_an_error_or_with_the_given_body() {
    let model = ScriptedModel::start();
    let answer = send_chat(&model, &chat_request("!status 503"));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(error_body(&answer)["type"], "server_error");
    let answer = send_chat(&model, &chat_request("!status 429 slow down"));
    assert_eq!((answer.status, answer.text().as_str()), (429, "slow down"));
    let answer =
        send_chat(&model, &chat_request("!status 400 {\"error\":{\"code\":\"context_length_exceeded\"}}"));
    assert_eq!(error_body(&answer)["code"], "context_length_exceeded");
    assert_eq!(send_chat(&model, &chat_request("!status 204")).body, b"");
}

#[test]
fn whoever_comes_back_later_is_answered() {
    let model = ScriptedModel::start();
    for content in ["!later 3 a", "!later 3 b"] {
        let refused = send_chat(&model, &chat_request(content));
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("3")));
        assert_eq!(streamed_text(&model, &chat_request(content)), content[9..]);
    }
}

#[test]
fn a_deployment_of_azure_wants_its_version_and_its_own_header_for_the_key() {
    let model = ScriptedModel::with_key("k");
    let body = chat_request("hi").to_string();
    let ask = |path: &str, key: &str| {
        let post = String::from_utf8(post_with(&format!("{key}\r\n"), body.as_bytes())).expect("text");
        send(&model, post.replacen("/v1/chat/completions", path, 1).as_bytes()).status
    };
    let path = "/openai/deployments/mine/chat/completions";
    let whole = format!("{path}?api-version=1");
    assert_eq!(ask(&whole, "api-key: k"), 200);
    assert_eq!(ask(&whole, "Authorization: Bearer k"), 401);
    assert_eq!(ask(path, "api-key: k"), 404);
    assert_eq!(ask("/openai/deployments//chat/completions?api-version=1", "api-key: k"), 404);
}

#[test]
fn garbage_is_a_stream_of_events_that_are_not_json() {
    let model = ScriptedModel::start();
    let answer = send_chat(&model, &chat_request("!garbage"));
    assert_eq!((answer.status, answer.header("transfer-encoding")), (200, Some("chunked")));
    let text = answer.text();
    let events = text.strip_suffix("data: [DONE]\n\n").expect("the stream ends well");
    let events: Vec<_> = events.split_terminator("\n\n").map(|event| &event["data: ".len()..]).collect();
    assert!(!events.is_empty() && events.iter().all(|data| serde_json::from_str::<Value>(data).is_err()));
    let answer = send_chat(&model, &without_stream(chat_request("!garbage")));
    assert!(serde_json::from_slice::<Value>(&answer.body).is_err());
}

#[test]
fn html_is_a_page() {
    let model = ScriptedModel::start();
    let answer = send_chat(&model, &chat_request("!html"));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(answer.text().starts_with("<!doctype html>"));
}

#[test]
fn a_cut_ends_the_connection_inside_of_the_body() {
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
    let whole_request = without_stream(chat_request("!cut half")).to_string();
    let mut connection = RawConnection::open(model.port());
    connection.send(&post_with("", whole_request.as_bytes()));
    assert_eq!(connection.try_read_response().expect_err("no end").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn an_unknown_word_is_refused_with_the_known_ones() {
    let model = ScriptedModel::start();
    let answer = send_chat(&model, &chat_request("!sing a song"));
    assert_eq!(answer.status, 400);
    let message = error_body(&answer)["message"].take();
    assert!(
        message.as_str().is_some_and(|text| text.contains("!sing;") && text.contains("!history")),
        "{message}"
    );
}

#[test]
fn a_request_without_model_or_messages_is_refused() {
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
        let answer = send_chat(&model, &request);
        let error = error_body(&answer);
        assert_eq!(answer.status, 400, "{request}");
        assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &param), "{request}");
    }
    assert_eq!(send(&model, &post_with("", b"{")).status, 400);
}

#[test]
fn everything_else_is_not_found() {
    let model = ScriptedModel::start();
    for line in ["GET /v1/chat/completions", "POST /chat/completions", "GET /v1/models", "POST /"] {
        let answer =
            send(&model, format!("{line} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 404, "{line}");
        assert_eq!(error_body(&answer)["code"], "unknown_url");
    }
}

#[test]
fn a_model_with_a_key_refuses_every_other_one() {
    let model = ScriptedModel::with_key("sk-right");
    let body = chat_request("Hello").to_string();
    for line in ["", "Authorization: Bearer sk-wrong\r\n", "Authorization: sk-right\r\n"] {
        let answer = send(&model, &post_with(line, body.as_bytes()));
        assert_eq!(answer.status, 401, "{line:?}");
        assert_eq!(error_body(&answer)["code"], "invalid_api_key");
    }
    let answer = send(&model, &post_with("Authorization: Bearer sk-right\r\n", body.as_bytes()));
    assert_eq!(answer.status, 200);
    assert_eq!(model.key(), Some("sk-right"));
}
