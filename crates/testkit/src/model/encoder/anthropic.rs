//! Encodes responses of Anthropic's Messages API.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{EventEncoder, call_id, estimate_tokens, output_bytes, push_event, split_evenly};
use crate::model::request::ParsedRequest;
use crate::model::script::ScriptedCall;

/// A stream of content blocks: each one is started before its deltas, and stopped before the next.
pub(super) struct AnthropicEncoder {
    number: usize,
    unsent: Vec<u8>,
    /// The kind of the open block.
    open_block: Option<&'static str>,
    blocks: usize,
    calls: usize,
    output_bytes: usize,
}

impl AnthropicEncoder {
    pub(super) fn new(request: &ParsedRequest, number: usize) -> Self {
        let mut encoder = Self {
            number,
            unsent: Vec::with_capacity(1024),
            open_block: None,
            blocks: 0,
            calls: 0,
            output_bytes: 0,
        };
        let usage = usage(request, 1);
        let message = message(request, number, &json!([]), &Value::Null, &usage);
        encoder.push("message_start", &json!({ "type": "message_start", "message": message }));
        encoder
    }

    fn push(&mut self, kind: &str, data: &Value) {
        push_event(&mut self.unsent, kind, data);
    }

    fn start_block(&mut self, kind: &'static str, block: &Value) {
        self.finish_block();
        let start = json!({ "type": "content_block_start", "index": self.blocks, "content_block": block });
        self.push("content_block_start", &start);
        self.open_block = Some(kind);
    }

    fn push_delta(&mut self, delta: &Value) {
        let event = json!({ "type": "content_block_delta", "index": self.blocks, "delta": delta });
        self.push("content_block_delta", &event);
    }

    fn finish_block(&mut self) {
        if self.open_block.take().is_some() {
            let stop = json!({ "type": "content_block_stop", "index": self.blocks });
            self.push("content_block_stop", &stop);
            self.blocks += 1;
        }
    }
}

impl EventEncoder for AnthropicEncoder {
    fn push_text(&mut self, text: &str) {
        if self.open_block != Some("text") {
            self.start_block("text", &json!({ "type": "text", "text": "" }));
        }
        self.push_delta(&json!({ "type": "text_delta", "text": text }));
        self.output_bytes += text.len();
    }

    fn push_reasoning(&mut self, thought: &str) {
        if self.open_block != Some("thinking") {
            self.start_block("thinking", &json!({ "type": "thinking", "thinking": "", "signature": "" }));
        }
        self.push_delta(&json!({ "type": "thinking_delta", "thinking": thought }));
        self.output_bytes += thought.len();
    }

    fn push_call(&mut self, call: &ScriptedCall) {
        let id = call_id(self.number, self.calls);
        self.calls += 1;
        self.start_block(
            "tool_use",
            &json!({ "type": "tool_use", "id": id, "name": call.name, "input": {} }),
        );
        for chunk in split_evenly(&call.arguments, 2) {
            self.push_delta(&json!({ "type": "input_json_delta", "partial_json": chunk }));
        }
        self.output_bytes += call.name.len() + call.arguments.len();
    }

    fn take_frame(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.unsent))
    }

    fn finish(mut self: Box<Self>) -> Bytes {
        self.finish_block();
        let delta = json!({ "stop_reason": stop_reason(self.calls), "stop_sequence": null });
        let usage = json!({ "output_tokens": estimate_tokens(self.output_bytes) });
        self.push("message_delta", &json!({ "type": "message_delta", "delta": delta, "usage": usage }));
        self.push("message_stop", &json!({ "type": "message_stop" }));
        self.take_frame()
    }
}

/// Encodes a response without streaming.
pub(super) fn completion(
    request: &ParsedRequest,
    number: usize,
    text: &str,
    calls: &[ScriptedCall],
) -> Bytes {
    let mut content: Vec<_> =
        (!text.is_empty()).then(|| json!({ "type": "text", "text": text })).into_iter().collect();
    content.extend(calls.iter().enumerate().map(|(index, call)| {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        json!({ "type": "tool_use", "id": call_id(number, index), "name": call.name, "input": input })
    }));
    let usage = usage(request, estimate_tokens(output_bytes(text, calls)));
    let reason = json!(stop_reason(calls.len()));
    Bytes::from(message(request, number, &json!(content), &reason, &usage).to_string())
}

fn message(request: &ParsedRequest, number: usize, content: &Value, reason: &Value, usage: &Value) -> Value {
    json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": request.model,
        "content": content, "stop_reason": reason, "stop_sequence": null, "usage": usage,
    })
}

fn usage(request: &ParsedRequest, output: usize) -> Value {
    json!({
        "input_tokens": estimate_tokens(request.content_bytes()), "output_tokens": output,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    })
}

fn stop_reason(calls: usize) -> &'static str {
    if calls == 0 { "end_turn" } else { "tool_use" }
}
