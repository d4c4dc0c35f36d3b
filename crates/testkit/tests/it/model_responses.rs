//! Script commands with a successful response, over a real socket.

use serde_json::{Value, json};
use testkit::{RawConnection, ScriptedModel};

use crate::support::{
    chat_request, chat_request_with, deltas, post, send_chat, stream_events, streamed_text, without_stream,
};

#[test]
fn reply_streams_role_content_finish_and_usage() {
    let model = ScriptedModel::start();
    let mut events = stream_events(&send_chat(&model, &chat_request("!reply Hi \"there\"\n")));
    for event in &mut events {
        assert!(event["created"].as_u64() > Some(1_700_000_000), "{event}");
        event["created"] = json!(0);
    }
    let head =
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted" });
    let event = |choices: Value, usage: Value| {
        let mut event = head.clone();
        event["choices"] = choices;
        event["usage"] = usage;
        event
    };
    let delta = |delta: Value, reason: Value| {
        event(json!([{ "index": 0, "delta": delta, "finish_reason": reason }]), Value::Null)
    };
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8 });
    let expected = [
        delta(json!({ "role": "assistant", "content": "" }), Value::Null),
        delta(json!({ "content": "Hi \"there\"\n" }), Value::Null),
        delta(json!({}), json!("stop")),
        event(json!([]), usage),
    ];
    assert_eq!(events, expected);
}

#[test]
fn usage_is_sent_only_on_request() {
    let model = ScriptedModel::start();
    let mut request = chat_request("Hello");
    request["stream_options"] = json!({ "include_usage": false });
    let events = stream_events(&send_chat(&model, &request));
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");
}

#[test]
fn response_without_waits_is_one_chunk() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &chat_request("!chunks 5 one frame for five deltas"));
    let raw = String::from_utf8_lossy(&response.raw).into_owned();
    let body = &raw[raw.find("\r\n\r\n").expect("a head") + 4..];
    assert_eq!(body, format!("{:X}\r\n{}\r\n0\r\n\r\n", response.body.len(), response.text()));
}

#[test]
fn unstreamed_response_is_one_completion() {
    let model = ScriptedModel::start();
    let response = send_chat(&model, &without_stream(chat_request("!reply Hi")));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("content-length"), Some(response.body.len().to_string().as_str()));
    let mut completion = response.json();
    completion["created"] = json!(0);
    let message = json!({ "role": "assistant", "content": "Hi" });
    let expected = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4 },
    });
    assert_eq!(completion, expected);
}

#[test]
fn message_without_command_is_echoed() {
    let model = ScriptedModel::start();
    assert_eq!(streamed_text(&model, &chat_request("Hello, wörld")), "echo: Hello, wörld");
    let parts = json!([{ "type": "text", "text": "two " }, { "type": "text", "text": "parts" }]);
    assert_eq!(
        streamed_text(&model, &chat_request_with(json!([{ "role": "user", "content": parts }]))),
        "echo: two parts"
    );
    assert_eq!(
        streamed_text(&model, &chat_request_with(json!([{ "role": "system", "content": "be kind" }]))),
        "echo: "
    );
}

#[test]
fn set_response_takes_precedence_over_commands() {
    let model = ScriptedModel::start();
    model.set_response("Hello", "Hello! How can I help you?");
    model.set_response("!silent", "not so silent");
    assert_eq!(streamed_text(&model, &chat_request("Hello")), "Hello! How can I help you?");
    assert_eq!(streamed_text(&model, &chat_request("!silent")), "not so silent");
    assert_eq!(streamed_text(&model, &chat_request("Hello ")), "echo: Hello ");
}

#[test]
fn chunks_command_splits_text_into_deltas() {
    let model = ScriptedModel::start();
    let table = [
        ("!chunks 3 abcdefg", vec!["ab", "cd", "efg"]),
        ("!chunks 2 äöü", vec!["ä", "öü"]),
        ("!chunks 9 abc", vec!["a", "b", "c"]),
        ("!chunks 1 abc", vec!["abc"]),
    ];
    for (content, expected) in table {
        assert_eq!(deltas(&stream_events(&send_chat(&model, &chat_request(content)))), expected, "{content}");
    }
}

#[test]
fn slow_command_streams_word_by_word() {
    let model = ScriptedModel::start();
    assert_eq!(deltas(&stream_events(&send_chat(&model, &chat_request("!slow 1 a b c")))), ["a ", "b ", "c"]);
    let completion = send_chat(&model, &without_stream(chat_request("!slow 1 a b c"))).json();
    assert_eq!(completion["choices"][0]["message"]["content"], "a b c");
}

#[test]
fn empty_command_finishes_without_content() {
    let model = ScriptedModel::start();
    let events = stream_events(&send_chat(&model, &chat_request("!empty")));
    assert!(deltas(&events).is_empty());
    assert_eq!(events[1]["choices"][0]["finish_reason"], "stop");
}

#[test]
fn think_command_streams_reasoning_before_content() {
    let model = ScriptedModel::start();
    let events = stream_events(&send_chat(&model, &chat_request("!think let me see | !chunks 2 42")));
    let delta = |index: usize| &events[index]["choices"][0]["delta"];
    assert_eq!(delta(1), &json!({ "reasoning_content": "let me see" }));
    assert_eq!(deltas(&events), ["4", "2"]);
    let response = send_chat(&model, &without_stream(chat_request("!think let me see | 42"))).json();
    assert_eq!(response["choices"][0]["message"]["content"], "42");
}

#[test]
fn history_command_lists_user_messages() {
    let model = ScriptedModel::start();
    let messages = json!([
        { "role": "system", "content": "be kind" },
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": "echo: one" },
        { "role": "user", "content": "!history" },
    ]);
    assert_eq!(streamed_text(&model, &chat_request_with(messages)), "one | !history");
}

#[test]
fn tool_call_arguments_stream_in_two_deltas() {
    let model = ScriptedModel::start();
    let content = "!tool read {\"path\":\"a\"}\n!tool list {}";
    let events = stream_events(&send_chat(&model, &chat_request(content)));
    let calls: Vec<_> = events.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"][0]).collect();
    let start = |index: usize, name: &str| {
        let function = json!({ "name": name, "arguments": "" });
        json!({ "index": index, "id": format!("call_1_{index}"), "type": "function", "function": function })
    };
    let delta =
        |index: usize, arguments: &str| json!({ "index": index, "function": { "arguments": arguments } });
    assert_eq!(*calls[1], start(0, "read"));
    assert_eq!(*calls[2], delta(0, "{\"path"));
    assert_eq!(*calls[3], delta(0, "\":\"a\"}"));
    assert_eq!(*calls[4], start(1, "list"));
    assert_eq!(*calls[5], delta(1, "{"));
    assert_eq!(*calls[6], delta(1, "}"));
    assert_eq!(events[7]["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn unstreamed_tool_calls_are_in_the_message() {
    let model = ScriptedModel::start();
    let completion = send_chat(&model, &without_stream(chat_request("!tool list {\"depth\":1}"))).json();
    let choice = &completion["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let function = json!({ "name": "list", "arguments": "{\"depth\":1}" });
    let call = json!({ "id": "call_1_0", "type": "function", "function": function });
    assert_eq!(choice["message"]["tool_calls"], json!([call]));
}

#[test]
fn tool_results_are_repeated_in_the_response() {
    let model = ScriptedModel::start();
    let mut messages = json!([
        { "role": "user", "content": "!tool a {}\n!tool b {}" },
        { "role": "assistant", "content": null, "tool_calls": [] },
        { "role": "tool", "tool_call_id": "call_1_0", "content": "first" },
        { "role": "tool", "tool_call_id": "call_1_1", "content": "second" },
    ]);
    assert_eq!(streamed_text(&model, &chat_request_with(messages.clone())), "tool said: first, second");
    let later = json!({ "role": "user", "content": "thanks" });
    messages.as_array_mut().expect("a list").push(later);
    assert_eq!(streamed_text(&model, &chat_request_with(messages)), "echo: thanks");
}

#[test]
fn connection_serves_many_requests() {
    let model = ScriptedModel::start();
    let mut connection = RawConnection::open(model.port());
    for content in ["one", "!chunks 3 two", "!slow 1 thr ee", "!status 500", "!html", "!empty", "last"] {
        connection.send(&post(&chat_request(content)));
        connection.read_response();
    }
    connection.send(&post(&without_stream(chat_request("whole"))));
    assert_eq!(connection.read_response().json()["choices"][0]["message"]["content"], "echo: whole");
    assert_eq!(model.connections(), 1);
    assert_eq!(model.requests().len(), 8);
}

/// The names and arguments of the tool calls in a stream.
fn called_tools(model: &ScriptedModel, messages: Value) -> Vec<(String, String)> {
    let events = stream_events(&send_chat(model, &chat_request_with(messages)));
    let calls =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut called: Vec<(String, String)> = Vec::new();
    for call in calls {
        let (name, arguments) = (text(&call["function"]["name"]), text(&call["function"]["arguments"]));
        match called.last_mut().filter(|_| name.is_empty()) {
            Some(last) => last.1 += &arguments,
            None => called.push((name, arguments)),
        }
    }
    called
}

#[test]
fn insist_command_calls_again_after_each_result() {
    let model = ScriptedModel::start();
    let user = json!({ "role": "user", "content": "!insist hammer {\"nail\":1}" });
    let call = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c1" }] });
    let result = json!({ "role": "tool", "content": "bent", "tool_call_id": "c1" });
    let expected = [("hammer".to_owned(), "{\"nail\":1}".to_owned())];
    assert_eq!(called_tools(&model, json!([user])), expected);
    assert_eq!(called_tools(&model, json!([user, call, result])), expected);
}

#[test]
fn injectable_model_follows_commands_in_any_text() {
    let model = ScriptedModel::injectable();
    let system = json!({ "role": "system", "content": "Be good. !tool a {}" });
    let user = json!({ "role": "user", "content": "Hi!\n!tool b {\"x\":1} please" });
    let assistant = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c1" }] });
    let result = json!({ "role": "tool", "content": "{\"content\":\"!tool c {}\"}", "tool_call_id": "c1" });
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    assert_eq!(called_tools(&model, json!([system, user])), [call("a", "{}"), call("b", "{\"x\":1}")]);
    assert_eq!(called_tools(&model, json!([system, user, assistant, result])), [call("c", "{}")]);
    let done = json!({ "role": "tool", "content": "done", "tool_call_id": "c1" });
    assert_eq!(
        streamed_text(&model, &chat_request_with(json!([system, user, assistant, done]))),
        "tool said: done"
    );
    assert_eq!(
        streamed_text(&model, &chat_request("!nonsense")),
        "echo: !nonsense",
        "an unknown command is text"
    );
    model.set_response("report", "!tool a {}");
    assert_eq!(
        streamed_text(&model, &chat_request("report")),
        "!tool a {}",
        "a set response is not executed"
    );
}
