//! The same script words over Anthropic's Messages and OpenAI's Responses, and answers that fit a schema in all three APIs.

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, ScriptedModel};

use crate::support::{chat_request, send_chat, streamed_text as chat_said};

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
fn events(answer: &RawResponse) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').expect("an event has a name and data");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

/// The texts of all events of one type, put together.
fn joined_text(events: &[Value], kind: &str, place: &str) -> String {
    let of_kind = events.iter().filter(|event| event["type"] == kind);
    of_kind.filter_map(|event| event.pointer(place)?.as_str()).collect()
}

#[test]
fn messages_stream_blocks_that_open_grow_and_close() {
    let model = ScriptedModel::start();
    let answer = post_messages(
        &model,
        &anthropic_request(json!([user_message("!think hm | !tool read {\"path\":\"a\"}\n!tool list {}")])),
    );
    let events = events(&answer);
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
fn messages_are_told_apart_from_results_and_the_prompt() {
    let model = ScriptedModel::start();
    let called = json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "a", "input": {} }] });
    let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": "first" });
    let other = json!({ "type": "tool_result", "tool_use_id": "d", "content": [{ "type": "text", "text": "second" }] });
    let context = json!({ "type": "text", "text": "<session-context>\nTime: noon\n</session-context>" });
    let said = |content: Value| {
        let conversation =
            json!([user_message("!tool a {}"), called, { "role": "user", "content": content }]);
        let events = events(&post_messages(&model, &anthropic_request(conversation)));
        joined_text(&events, "content_block_delta", "/delta/text")
    };
    assert_eq!(said(json!([result, other])), "tool said: first, second");
    assert_eq!(said(json!([result, context])), "tool said: first", "the session's facts are no message");
    assert_eq!(said(json!([result, { "type": "text", "text": "thanks" }, context])), "echo: thanks");
    assert_eq!(model.call_counts("!tool a {}", 1).responses, 2);
    let mut whole = anthropic_request(json!([user_message("!reply Hi")]));
    whole["stream"] = json!(false);
    whole["system"] = json!([{ "type": "text", "text": "be kind" }]);
    let answer = post_messages(&model, &whole).json();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "Hi" }]));
    assert_eq!((&answer["stop_reason"], &answer["usage"]["input_tokens"]), (&json!("end_turn"), &json!(4)));
}

#[test]
fn responses_stream_items_and_end_with_all_of_them() {
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
    let mut whole = responses_request(json!([user_message("!tool list {}")]));
    whole["stream"] = json!(false);
    let answer = post_responses(&model, &whole).json();
    let call = &answer["output"][0];
    assert_eq!(
        (&call["type"], &call["call_id"], &call["name"]),
        (&json!("function_call"), &json!("call_2_0"), &json!("list"))
    );
}

#[test]
fn responses_read_calls_and_results_among_their_items() {
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
    assert_eq!(model.call_counts("!tool a {}", 1).responses, 1, "a text and its call are one answer");
}

#[test]
fn the_sessions_facts_behind_a_message_are_no_part_of_it() {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hi!");
    let behind = "\n\n<session-context>\nTime: noon\n</session-context>";
    assert_eq!(chat_said(&model, &chat_request(&format!("Hello{behind}"))), "Hi!");
    assert_eq!(chat_said(&model, &chat_request(&format!("!reply ok{behind}"))), "ok");
    assert_eq!(
        chat_said(&model, &chat_request("<session-context> what is it?")),
        "echo: <session-context> what is it?"
    );
    let shown = model.requests()[0].body["messages"][0]["content"].take();
    assert!(shown.as_str().is_some_and(|text| text.ends_with(behind)), "requests are kept as they came");
}

#[test]
fn an_answer_fits_the_schema_that_was_asked_for_in_every_api() {
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
    let answers = [
        chat_said(&model, &chat),
        joined_text(&anthropic, "content_block_delta", "/delta/text"),
        joined_text(&response, "response.output_text.delta", "/delta"),
    ];
    for answer in answers {
        assert_eq!(serde_json::from_str::<Value>(&answer).expect("JSON"), expected);
    }
    chat["messages"] = json!([user_message("!reply {\"name\": 7}")]);
    assert_eq!(chat_said(&model, &chat), "{\"name\": 7}", "a test may want a wrong answer");
}

#[test]
fn messages_are_refused_in_their_own_form() {
    let model = ScriptedModel::with_key("sk-right");
    let body = anthropic_request(json!([user_message("Hello")]));
    let error = |answer: &RawResponse| (answer.status, answer.json()["error"]["type"].take());
    let refused = post_messages(&model, &body);
    assert_eq!(error(&refused), (401, json!("authentication_error")));
    assert_eq!(refused.json()["type"], "error");
    let keyed = format!("{VERSION_HEADER}x-api-key: sk-right\r\n");
    assert_eq!(send(&model, "/v1/messages", &keyed, &body).status, 200);
    let unversioned = send(&model, "/v1/messages", "x-api-key: sk-right\r\n", &body);
    assert_eq!(error(&unversioned), (400, json!("invalid_request_error")));
    let limitless = json!({ "model": "m", "messages": [user_message("Hello")] });
    assert_eq!(
        error(&send(&model, "/v1/messages", &keyed, &limitless)),
        (400, json!("invalid_request_error"))
    );
    let scripted = anthropic_request(json!([user_message("!status 529")]));
    assert_eq!(error(&send(&model, "/v1/messages", &keyed, &scripted)), (529, json!("server_error")));
    let bearer = "Authorization: Bearer sk-right\r\n";
    assert_eq!(send(&model, "/v1/responses", "", &responses_request(json!("Hello"))).status, 401);
    assert_eq!(send(&model, "/v1/responses", bearer, &json!({ "model": "m" })).status, 400);
    assert_eq!(model.anthropic_base_url(), format!("http://127.0.0.1:{}", model.port()));
}

#[test]
fn cuts_and_stalls_are_the_same_in_every_api() {
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
