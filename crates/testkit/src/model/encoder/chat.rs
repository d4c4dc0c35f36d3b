//! Encodes responses of OpenAI's Chat Completions API.

use std::io::Write as _;

use bytes::Bytes;
use serde_json::json;

use super::{EventEncoder, call_id, estimate_tokens, now_s, output_bytes, push_string, split_evenly};
use crate::model::request::{ParsedRequest, ResponseMode};
use crate::model::script::ScriptedCall;

/// A stream of completion chunks; `unsent` has the encoded bytes that were not sent yet.
pub(super) struct ChatEncoder {
    number: usize,
    /// The start of an event up to its delta; equal for all events of a response.
    event_prefix: Vec<u8>,
    /// The end of an event after the finish reason; with `include_usage`, OpenAI sends a null usage in every event
    /// but the last.
    event_suffix: &'static str,
    unsent: Vec<u8>,
    usage: Option<UsageBytes>,
    calls: usize,
}

#[derive(Debug, Clone, Copy)]
struct UsageBytes {
    prompt_bytes: usize,
    output_bytes: usize,
}

impl ChatEncoder {
    pub(super) fn new(request: &ParsedRequest, number: usize) -> Self {
        let with_usage = request.response_mode == ResponseMode::StreamedWithUsage;
        let mut encoder = Self {
            number,
            event_prefix: event_prefix(request, number),
            event_suffix: if with_usage { "}],\"usage\":null}\n\n" } else { "}]}\n\n" },
            unsent: Vec::with_capacity(1024),
            usage: with_usage.then(|| UsageBytes { prompt_bytes: request.content_bytes(), output_bytes: 0 }),
            calls: 0,
        };
        encoder.push_delta(b"{\"role\":\"assistant\",\"content\":\"\"}", "null");
        encoder
    }

    fn push_text_delta(&mut self, member: &[u8], text: &str) {
        let mut delta = Vec::with_capacity(text.len() + 32);
        delta.extend_from_slice(member);
        push_string(&mut delta, text);
        delta.push(b'}');
        self.push_delta(&delta, "null");
        self.count_output(text);
    }

    fn push_delta(&mut self, delta: &[u8], finish_reason: &str) {
        self.unsent.extend_from_slice(&self.event_prefix);
        self.unsent.extend_from_slice(delta);
        self.unsent.extend_from_slice(b",\"finish_reason\":");
        self.unsent.extend_from_slice(finish_reason.as_bytes());
        self.unsent.extend_from_slice(self.event_suffix.as_bytes());
    }

    fn count_output(&mut self, text: &str) {
        if let Some(usage) = &mut self.usage {
            usage.output_bytes += text.len();
        }
    }
}

impl EventEncoder for ChatEncoder {
    fn push_text(&mut self, text: &str) {
        self.push_text_delta(b"{\"content\":", text);
    }

    fn push_reasoning(&mut self, thought: &str) {
        self.push_text_delta(b"{\"reasoning_content\":", thought);
    }

    /// Encodes a call as OpenAI streams it: first id and name, then the arguments, here in two chunks.
    fn push_call(&mut self, call: &ScriptedCall) {
        let index = self.calls;
        self.calls += 1;
        let id = call_id(self.number, index);
        let function = json!({ "name": call.name, "arguments": "" });
        let start = json!({ "index": index, "id": id, "type": "function", "function": function });
        self.push_delta(json!({ "tool_calls": [start] }).to_string().as_bytes(), "null");
        for chunk in split_evenly(&call.arguments, 2) {
            let delta = json!({ "index": index, "function": { "arguments": chunk } });
            self.push_delta(json!({ "tool_calls": [delta] }).to_string().as_bytes(), "null");
        }
        self.count_output(&call.name);
        self.count_output(&call.arguments);
    }

    fn take_frame(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.unsent))
    }

    fn finish(mut self: Box<Self>) -> Bytes {
        self.push_delta(b"{}", if self.calls == 0 { "\"stop\"" } else { "\"tool_calls\"" });
        if let Some(usage) = self.usage {
            // The prefix ends inside `choices`, which is empty in this event.
            let head = self.event_prefix.len() - FIRST_CHOICE.len();
            self.unsent.extend_from_slice(&self.event_prefix[..head]);
            self.unsent.extend_from_slice(b"],\"usage\":");
            usage.write(&mut self.unsent);
            self.unsent.extend_from_slice(b"}\n\n");
        }
        self.unsent.extend_from_slice(b"data: [DONE]\n\n");
        self.take_frame()
    }
}

const FIRST_CHOICE: &str = "{\"index\":0,\"delta\":";

fn event_prefix(request: &ParsedRequest, number: usize) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(192);
    write!(
        prefix,
        "data: {{\"id\":\"chatcmpl-{number}\",\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":",
        now_s()
    )
    .expect("writing to a Vec cannot fail");
    push_string(&mut prefix, &request.model);
    prefix.extend_from_slice(b",\"choices\":[");
    prefix.extend_from_slice(FIRST_CHOICE.as_bytes());
    prefix
}

impl UsageBytes {
    fn write(self, buffer: &mut Vec<u8>) {
        let (prompt, completion) = (estimate_tokens(self.prompt_bytes), estimate_tokens(self.output_bytes));
        let total = prompt + completion;
        write!(
            buffer,
            "{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\"total_tokens\":{total}}}"
        )
        .expect("writing to a Vec cannot fail");
    }
}

/// Encodes a response without streaming.
pub(super) fn completion(
    request: &ParsedRequest,
    number: usize,
    text: &str,
    calls: &[ScriptedCall],
) -> Bytes {
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        let tool_calls = calls.iter().enumerate().map(|(index, call)| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call_id(number, index), "type": "function", "function": function })
        });
        message["tool_calls"] = tool_calls.collect();
    }
    let finish_reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let (prompt, completion) =
        (estimate_tokens(request.content_bytes()), estimate_tokens(output_bytes(text, calls)));
    let body = json!({
        "id": format!("chatcmpl-{number}"),
        "object": "chat.completion",
        "created": now_s(),
        "model": request.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason }],
        "usage": { "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion },
    });
    Bytes::from(body.to_string())
}
