//! Shared helpers: requests as bytes, and parsed streams.

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, ScriptedModel, StreamEvent};

/// A streamed request with one user message.
pub(crate) fn chat_request(content: &str) -> Value {
    chat_request_with(json!([{ "role": "user", "content": content }]))
}

/// A streamed request with these messages.
pub(crate) fn chat_request_with(messages: Value) -> Value {
    let mut request =
        json!({ "model": "scripted", "stream": true, "stream_options": { "include_usage": true } });
    request["messages"] = messages;
    request
}

/// The same request without streaming.
pub(crate) fn without_stream(mut request: Value) -> Value {
    request["stream"] = json!(false);
    request
}

/// A request as HTTP bytes.
pub(crate) fn post(request: &Value) -> Vec<u8> {
    post_with("", request.to_string().as_bytes())
}

/// A request as HTTP bytes, with more header lines.
pub(crate) fn post_with(header_lines: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Length: {length}\r\n{header_lines}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Sends a request on a new connection and reads the response.
pub(crate) fn send_chat(model: &ScriptedModel, request: &Value) -> RawResponse {
    let mut connection = RawConnection::open(model.port());
    connection.send(&post(request));
    connection.read_response()
}

/// Sends a request on a new connection without reading the response.
pub(crate) fn start_chat(model: &ScriptedModel, content: &str) -> RawConnection {
    let mut connection = RawConnection::open(model.port());
    connection.send(&post(&chat_request(content)));
    connection
}

/// The events of a stream, which must end with `[DONE]`.
pub(crate) fn stream_events(response: &RawResponse) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    let mut events = StreamEvent::parse_all(&response.body);
    assert_eq!(events.pop().expect("a stream has events").data, "[DONE]");
    events.iter().map(StreamEvent::json).collect()
}

/// The contents of all deltas with content.
pub(crate) fn deltas(events: &[Value]) -> Vec<&str> {
    let contents = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    contents.filter(|content| !content.is_empty()).collect()
}

/// The joined text of a streamed response.
pub(crate) fn streamed_text(model: &ScriptedModel, request: &Value) -> String {
    deltas(&stream_events(&send_chat(model, request))).concat()
}
