//! Encodes responses of OpenAI's Responses API.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{EventEncoder, call_id, estimate_tokens, now_s, output_bytes, push_event, split_evenly};
use crate::model::request::ParsedRequest;
use crate::model::script::ScriptedCall;

/// A stream of items: consecutive text deltas belong to one item.
pub(super) struct ResponsesEncoder {
    number: usize,
    unsent: Vec<u8>,
    sequence: usize,
    /// The response object as sent in the first event; completed in the last one.
    response: Value,
    /// Finished items.
    output: Vec<Value>,
    /// The open item and its text so far.
    open_item: Option<(ItemKind, String)>,
    prompt_tokens: usize,
    output_bytes: usize,
    calls: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
}

impl ResponsesEncoder {
    pub(super) fn new(request: &ParsedRequest, number: usize) -> Self {
        let mut encoder = Self {
            number,
            unsent: Vec::with_capacity(1024),
            sequence: 0,
            response: response(request, number, "in_progress", &[], &Value::Null),
            output: Vec::new(),
            open_item: None,
            prompt_tokens: estimate_tokens(request.content_bytes()),
            output_bytes: 0,
            calls: 0,
        };
        let response = encoder.response.clone();
        encoder.push("response.created", json!({ "response": response }));
        encoder
    }

    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.sequence);
        data["output_index"] = json!(self.output.len());
        self.sequence += 1;
        push_event(&mut self.unsent, kind, &data);
    }

    fn item_id(&self) -> String {
        format!("item_{}_{}", self.number, self.output.len())
    }

    /// Sends a delta to an item of this kind; opens one if the open item is of another kind.
    fn push_delta(&mut self, kind: ItemKind, text: &str) {
        if self.open_item.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.finish_item();
            let item = item(kind, &self.item_id(), "");
            self.push("response.output_item.added", json!({ "item": item }));
            self.open_item = Some((kind, String::new()));
        }
        let id = self.item_id();
        let (event, index_key) = match kind {
            ItemKind::Message => ("response.output_text.delta", "content_index"),
            ItemKind::Reasoning => ("response.reasoning_summary_text.delta", "summary_index"),
        };
        self.push(event, json!({ "item_id": id, index_key: 0, "delta": text }));
        if let Some((_, item_text)) = &mut self.open_item {
            item_text.push_str(text);
        }
        self.output_bytes += text.len();
    }

    fn finish_item(&mut self) {
        let Some((kind, item_text)) = self.open_item.take() else { return };
        let item = item(kind, &self.item_id(), &item_text);
        self.push_done_item(item);
    }

    fn push_done_item(&mut self, item: Value) {
        self.push("response.output_item.done", json!({ "item": item }));
        self.output.push(item);
    }
}

impl EventEncoder for ResponsesEncoder {
    fn push_text(&mut self, text: &str) {
        self.push_delta(ItemKind::Message, text);
    }

    fn push_reasoning(&mut self, thought: &str) {
        self.push_delta(ItemKind::Reasoning, thought);
    }

    fn push_call(&mut self, call: &ScriptedCall) {
        self.finish_item();
        let id = self.item_id();
        let call_id = call_id(self.number, self.calls);
        self.calls += 1;
        self.push(
            "response.output_item.added",
            json!({ "item": function_call_item(&id, &call_id, &call.name, "") }),
        );
        for chunk in split_evenly(&call.arguments, 2) {
            self.push("response.function_call_arguments.delta", json!({ "item_id": id, "delta": chunk }));
        }
        let done = json!({ "item_id": id, "arguments": call.arguments });
        self.push("response.function_call_arguments.done", done);
        self.push_done_item(function_call_item(&id, &call_id, &call.name, &call.arguments));
        self.output_bytes += call.name.len() + call.arguments.len();
    }

    fn take_frame(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.unsent))
    }

    fn finish(mut self: Box<Self>) -> Bytes {
        self.finish_item();
        let mut response = self.response.take();
        response["status"] = json!("completed");
        response["output"] = json!(self.output);
        response["usage"] = usage(self.prompt_tokens, estimate_tokens(self.output_bytes));
        self.push("response.completed", json!({ "response": response }));
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
    let id = |index: usize| format!("item_{number}_{index}");
    let mut output: Vec<_> =
        (!text.is_empty()).then(|| item(ItemKind::Message, &id(0), text)).into_iter().collect();
    for (index, call) in calls.iter().enumerate() {
        output.push(function_call_item(
            &id(output.len()),
            &call_id(number, index),
            &call.name,
            &call.arguments,
        ));
    }
    let usage = usage(estimate_tokens(request.content_bytes()), estimate_tokens(output_bytes(text, calls)));
    Bytes::from(response(request, number, "completed", &output, &usage).to_string())
}

fn response(request: &ParsedRequest, number: usize, status: &str, output: &[Value], usage: &Value) -> Value {
    json!({
        "id": format!("resp_{number}"), "object": "response", "created_at": now_s(), "status": status,
        "model": request.model, "output": output, "usage": usage, "error": null, "incomplete_details": null,
    })
}

fn item(kind: ItemKind, id: &str, text: &str) -> Value {
    match kind {
        ItemKind::Reasoning => {
            json!({ "type": "reasoning", "id": id, "summary": [{ "type": "summary_text", "text": text }] })
        }
        ItemKind::Message => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            json!({ "type": "message", "id": id, "role": "assistant", "content": content })
        }
    }
}

fn function_call_item(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments })
}

fn usage(input: usize, output: usize) -> Value {
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + output,
    })
}
