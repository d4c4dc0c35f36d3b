//! Script commands over Anthropic's Messages and OpenAI's Responses, and structured output in all three APIs.

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, ScriptedModel, StreamEvent};

use crate::support::{chat_request, send_chat, streamed_text as chat_text};

fn post(path: &str, header_lines: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: model\r\nContent-Length: {length}\r\n{header_lines}\r\n{body}")
        .into_bytes()
}

fn send(model: &ScriptedModel, path: &str, header_lines: &str, body: &Value) -> RawResponse {
    let mut connection = RawConnection::open(model.port());
    connection.send(&post(path, header_lines, body));
    connection.read_response()
}

const VERSION_HEADER: &str = "anthropic-version: 2023-06-01\r\n";

fn post_messages(model: &ScriptedModel, body: &Value) -> RawResponse {
    send(model, "/v1/messages", VERSION_HEADER, body)
}

fn post_responses(model: &ScriptedModel, body: &Value) -> RawResponse {
    send(model, "/v1/responses", "", body)
}

fn user_message(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

fn anthropic_request(messages: Value) -> Value {
    let mut body = json!({ "model": "scripted", "max_tokens": 100, "stream": true });
    body["messages"] = messages;
    body
}

fn responses_request(input: Value) -> Value {
    let mut body = json!({ "model": "scripted", "stream": true });
    body["input"] = input;
    body
}

/// The events of a stream; each has its type as its name.
fn events(response: &RawResponse) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let event = |event: &StreamEvent| {
        let data = event.json();
        assert_eq!(Some(event.kind.as_str()), data["type"].as_str());
        data
    };
    StreamEvent::parse_all(&response.body).iter().map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

/// The joined texts of all events of one type.
fn joined_text(events: &[Value], kind: &str, pointer: &str) -> String {
    let of_kind = events.iter().filter(|event| event["type"] == kind);
    of_kind.filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[test]
fn messages_stream_starts_and_stops_each_block() {
    let model = ScriptedModel::start();
    let response = post_messages(
        &model,
        &anthropic_request(json!([user_message("!think hm | !tool read {\"path\":\"a\"}\n!tool list {}")])),
    );
    let events = events(&response);
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let call = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"];
    let expected =
        [&["message_start"], &block[..], &call, &call, &["message_delta", "message_stop"]].concat();
    assert_eq!(kinds(&events), expected);
    assert_eq!(joined_text(&events, "content_block_delta", "/delta/thinking"), "hm");
    assert_eq!(joined_text(&events, "content_block_delta", "/delta/partial_json"), "{\"path\":\"a\"}{}");
    assert_eq!(
        events[4]["content_block"],
        json!({ "type": "tool_use", "id": "call_1_0", "name": "read", "input": {} })
    );
    assert_eq!((&events[4]["index"], &events[8]["index"]), (&json!(1), &json!(2)));
    assert_eq!(events[12]["delta"]["stop_reason"], "tool_use");
}

#[test]
fn messages_separate_tool_results_and_system_prompt() {
    let model = ScriptedModel::start();
    let called = json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "a", "input": {} }] });
    let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": "first" });
    let other = json!({ "type": "tool_result", "tool_use_id": "d", "content": [{ "type": "text", "text": "second" }] });
    let context = json!({ "type": "text", "text": "<session-context>\nTime: noon\n</session-context>" });
    let response_text = |content: Value| {
        let conversation =
            json!([user_message("!tool a {}"), called, { "role": "user", "content": content }]);
        let events = events(&post_messages(&model, &anthropic_request(conversation)));
        joined_text(&events, "content_block_delta", "/delta/text")
    };
    assert_eq!(response_text(json!([result, other])), "tool said: first, second");
    assert_eq!(
        response_text(json!([result, context])),
        "tool said: first",
        "the session context is not a message"
    );
    assert_eq!(response_text(json!([result, { "type": "text", "text": "thanks" }, context])), "echo: thanks");
    assert_eq!(model.call_counts("!tool a {}", 1).responses, 2);
    let mut request = anthropic_request(json!([user_message("!reply Hi")]));
    request["stream"] = json!(false);
    request["system"] = json!([{ "type": "text", "text": "be kind" }]);
    let response = post_messages(&model, &request).json();
    assert_eq!(response["content"], json!([{ "type": "text", "text": "Hi" }]));
    assert_eq!(
        (&response["stop_reason"], &response["usage"]["input_tokens"]),
        (&json!("end_turn"), &json!(4))
    );
}

#[test]
fn responses_stream_ends_with_all_items() {
    let model = ScriptedModel::start();
    let events = events(&post_responses(&model, &responses_request(json!("!think hm | !chunks 2 Hi"))));
    assert_eq!(joined_text(&events, "response.reasoning_summary_text.delta", "/delta"), "hm");
    assert_eq!(joined_text(&events, "response.output_text.delta", "/delta"), "Hi");
    let last = events.last().expect("events");
    assert_eq!(last["type"], "response.completed");
    let output = last["response"]["output"].as_array().expect("output");
    assert_eq!(output.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["reasoning", "message"]);
    assert_eq!(last["response"]["usage"]["output_tokens"], 1);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], json!(number));
    }
    let mut request = responses_request(json!([user_message("!tool list {}")]));
    request["stream"] = json!(false);
    let response = post_responses(&model, &request).json();
    let call = &response["output"][0];
    assert_eq!(
        (&call["type"], &call["call_id"], &call["name"]),
        (&json!("function_call"), &json!("call_2_0"), &json!("list"))
    );
}

#[test]
fn responses_input_items_include_calls_and_results() {
    let model = ScriptedModel::start();
    let input = json!([
        { "role": "user", "content": [{ "type": "input_text", "text": "!tool a {}" }] },
        { "role": "assistant", "content": "Sure." },
        { "type": "function_call", "call_id": "c", "name": "a", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c", "output": "done" },
        { "role": "user", "content": [{ "type": "input_text", "text": "<session-context>\nx\n</session-context>" }] },
    ]);
    let events = events(&post_responses(&model, &responses_request(input)));
    assert_eq!(joined_text(&events, "response.output_text.delta", "/delta"), "tool said: done");
    assert_eq!(model.call_counts("!tool a {}", 1).responses, 1, "a text and its call are one response");
}

#[test]
fn session_context_is_stripped_from_the_prompt() {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hi!");
    let context = "\n\n<session-context>\nTime: noon\n</session-context>";
    assert_eq!(chat_text(&model, &chat_request(&format!("Hello{context}"))), "Hi!");
    assert_eq!(chat_text(&model, &chat_request(&format!("!reply ok{context}"))), "ok");
    assert_eq!(
        chat_text(&model, &chat_request("<session-context> what is it?")),
        "echo: <session-context> what is it?"
    );
    let recorded = model.requests()[0].body["messages"][0]["content"].take();
    assert!(recorded.as_str().is_some_and(|text| text.ends_with(context)), "requests are recorded unchanged");
}

#[test]
fn response_fits_the_requested_schema_in_every_api() {
    let model = ScriptedModel::start();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 3 },
            "size": { "type": "integer", "minimum": 4 },
            "kind": { "enum": ["red", "blue"] },
            "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" } },
            "maybe": { "type": ["boolean", "null"] },
        },
        "required": ["name"],
        "$defs": { "tag": { "anyOf": [{ "type": "string", "minLength": 6 }, { "type": "null" }] } },
    });
    let expected = json!({ "name": "Hel", "size": 4, "kind": "red", "tags": ["Hellox"], "maybe": true });
    let mut chat = chat_request("Hello");
    chat["response_format"] =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let mut anthropic = anthropic_request(json!([user_message("Hello")]));
    anthropic["output_config"] = json!({ "format": { "type": "json_schema", "schema": schema } });
    let mut response = responses_request(json!("Hello"));
    response["text"] = json!({ "format": { "type": "json_schema", "name": "x", "schema": schema } });
    let anthropic = events(&post_messages(&model, &anthropic));
    let response = events(&post_responses(&model, &response));
    let texts = [
        chat_text(&model, &chat),
        joined_text(&anthropic, "content_block_delta", "/delta/text"),
        joined_text(&response, "response.output_text.delta", "/delta"),
    ];
    for text in texts {
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
    }
    chat["messages"] = json!([user_message("!reply {\"name\": 7}")]);
    assert_eq!(chat_text(&model, &chat), "{\"name\": 7}", "JSON is not changed");
}

#[test]
fn messages_errors_have_the_anthropic_format() {
    let model = ScriptedModel::with_key("sk-right");
    let body = anthropic_request(json!([user_message("Hello")]));
    let error = |response: &RawResponse| (response.status, response.json()["error"]["type"].take());
    let response = post_messages(&model, &body);
    assert_eq!(error(&response), (401, json!("authentication_error")));
    assert_eq!(response.json()["type"], "error");
    let with_key = format!("{VERSION_HEADER}x-api-key: sk-right\r\n");
    assert_eq!(send(&model, "/v1/messages", &with_key, &body).status, 200);
    let unversioned = send(&model, "/v1/messages", "x-api-key: sk-right\r\n", &body);
    assert_eq!(error(&unversioned), (400, json!("invalid_request_error")));
    let without_max_tokens = json!({ "model": "m", "messages": [user_message("Hello")] });
    assert_eq!(
        error(&send(&model, "/v1/messages", &with_key, &without_max_tokens)),
        (400, json!("invalid_request_error"))
    );
    let scripted = anthropic_request(json!([user_message("!status 529")]));
    assert_eq!(error(&send(&model, "/v1/messages", &with_key, &scripted)), (529, json!("server_error")));
    let bearer = "Authorization: Bearer sk-right\r\n";
    assert_eq!(send(&model, "/v1/responses", "", &responses_request(json!("Hello"))).status, 401);
    assert_eq!(send(&model, "/v1/responses", bearer, &json!({ "model": "m" })).status, 400);
    assert_eq!(model.anthropic_base_url(), format!("http://127.0.0.1:{}", model.port()));
}

#[test]
fn cut_and_stall_work_in_every_api() {
    let model = ScriptedModel::start();
    for (path, body) in [
        ("/v1/messages", anthropic_request(json!([user_message("!cut half")]))),
        ("/v1/responses", responses_request(json!("!cut half"))),
    ] {
        let mut connection = RawConnection::open(model.port());
        connection.send(&post(path, VERSION_HEADER, &body));
        let received = String::from_utf8(connection.read_to_end()).expect("text");
        assert!(received.contains("\"half\""), "{received}");
        assert!(!received.contains("message_stop") && !received.contains("response.completed"), "{received}");
    }
    let mut connection = RawConnection::open(model.port());
    connection.send(&post(
        "/v1/messages",
        VERSION_HEADER,
        &anthropic_request(json!([user_message("!stall so far")])),
    ));
    model.wait_stalled(1);
    drop(connection);
    model.wait_aborted(1);
    assert_eq!(send_chat(&model, &chat_request("still there")).status, 200);
}
