//! Tests: the exact JSON of completions and chunks.

use serde_json::{Value, json};
use testkit::StreamEvent;

use super::*;

const SUMMARY: GenerationSummary = GenerationSummary {
    prompt_tokens: 20,
    cached_tokens: 15,
    answer_tokens: 3,
    finish_reason: FinishReason::Stop,
};

fn header() -> CompletionHeader {
    CompletionHeader { id: "chatcmpl-1".to_owned(), created: 1_700_000_000, model: "m".to_owned() }
}

fn call(id: &str) -> ChatToolCall {
    ChatToolCall { id: id.to_owned(), name: "read".to_owned(), arguments: "{\"path\":\"a\"}".to_owned() }
}

fn chunk(choices: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
           "choices": choices})
}

fn choice(delta: &Value, finish_reason: &Value) -> Value {
    chunk(&json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]))
}

/// Parses the data of each event; `[DONE]` becomes a string.
fn events(bytes: &[u8]) -> Vec<Value> {
    let data = |event: &StreamEvent| if event.data == "[DONE]" { json!("[DONE]") } else { event.json() };
    StreamEvent::parse_all(bytes).iter().map(data).collect()
}

#[test]
fn stream_starts_with_the_role_and_ends_with_done() {
    let mut writer = ChunkWriter::new(header(), UsageChunk::Omitted);
    let mut out = Vec::new();
    writer.write_role(&mut out);
    writer.write_part(&mut out, &OutputPart::Text("two\nlines".to_owned()));
    writer.write_finish(&mut out, &SUMMARY);
    assert_eq!(
        events(&out),
        [
            choice(&json!({"role": "assistant", "content": ""}), &Value::Null),
            choice(&json!({"content": "two\nlines"}), &Value::Null),
            choice(&json!({}), &json!("stop")),
            json!("[DONE]"),
        ]
    );
}

#[test]
fn tool_calls_are_indexed_and_finish_with_tool_calls() {
    let mut writer = ChunkWriter::new(header(), UsageChunk::Omitted);
    let mut out = Vec::new();
    writer.write_part(&mut out, &OutputPart::ToolCall(call("a")));
    writer.write_part(&mut out, &OutputPart::ToolCall(call("b")));
    writer.write_finish(&mut out, &GenerationSummary { finish_reason: FinishReason::ToolCalls, ..SUMMARY });
    let delta = |index: usize, id: &str| {
        json!({"tool_calls": [{"index": index, "id": id, "type": "function",
               "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]})
    };
    let expected = [
        choice(&delta(0, "a"), &Value::Null),
        choice(&delta(1, "b"), &Value::Null),
        choice(&json!({}), &json!("tool_calls")),
        json!("[DONE]"),
    ];
    assert_eq!(events(&out), expected);
}

#[test]
fn usage_is_a_separate_chunk_only_if_included() {
    let mut writer = ChunkWriter::new(header(), UsageChunk::Included);
    let mut out = Vec::new();
    writer.write_part(&mut out, &OutputPart::Text("a".to_owned()));
    writer.write_finish(&mut out, &GenerationSummary { finish_reason: FinishReason::Length, ..SUMMARY });
    let mut text = choice(&json!({"content": "a"}), &Value::Null);
    text["usage"] = Value::Null;
    let mut end = choice(&json!({}), &json!("length"));
    end["usage"] = Value::Null;
    let mut usage = chunk(&json!([]));
    usage["usage"] = json!({
        "prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 15}, "completion_tokens_details": {"reasoning_tokens": 0},
    });
    assert_eq!(events(&out), [text, end, usage, json!("[DONE]")]);
}

#[test]
fn completion_has_its_text_and_its_tool_calls() {
    let parts = [OutputPart::Text("a".to_owned()), OutputPart::Text("b".to_owned())];
    let response: Value = serde_json::from_slice(&write_completion(&header(), &parts, &SUMMARY)).unwrap();
    assert_eq!(response["object"], "chat.completion");
    assert_eq!(
        response["choices"],
        json!([{"index": 0, "message": {"role": "assistant", "content": "ab", "refusal": null},
                "logprobs": null, "finish_reason": "stop"}])
    );
    assert_eq!(response["usage"]["total_tokens"], 23);

    let parts = [OutputPart::ToolCall(call("a"))];
    let summary = GenerationSummary { finish_reason: FinishReason::ToolCalls, ..SUMMARY };
    let response: Value = serde_json::from_slice(&write_completion(&header(), &parts, &summary)).unwrap();
    let message = &response["choices"][0]["message"];
    assert!(message["content"].is_null());
    let expected = json!([{"id": "a", "type": "function",
                           "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]);
    assert_eq!(message["tool_calls"], expected);
}

#[test]
fn completion_without_output_has_empty_content() {
    let response: Value = serde_json::from_slice(&write_completion(&header(), &[], &SUMMARY)).unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], "");
}

#[test]
fn completion_ids_are_unique() {
    let (first, second) = (CompletionHeader::new("m"), CompletionHeader::new("m"));
    assert!(first.id != second.id && first.id.starts_with("chatcmpl-"));
}

#[test]
fn fault_in_a_stream_is_an_error_event() {
    let mut out = Vec::new();
    write_comment(&mut out, "reading 64/512");
    assert_eq!(out, b": reading 64/512\n\n");
    out.clear();
    write_error(&mut out, &Refusal::failed("it broke"));
    assert_eq!(events(&out)[0]["error"]["message"], "it broke");
}
