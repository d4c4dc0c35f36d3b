//! Canonical form of requests, for comparison, and conversion between model events and recorded events.

use agent::outside::{ModelEvent, ModelRequest, StopReason};
use agent::{Fault, FaultKind, Message, ToolCall, Usage};
use serde_json::{Value, json};

use super::RecordedEvent;

/// Returns the parts of a request that determine its response. Excludes the volatile suffix, which contains the time.
pub(super) fn request(request: &ModelRequest) -> Value {
    json!({
        "system": request.system.as_deref(),
        "messages": request.messages.iter().map(|message| canonical_message(message)).collect::<Vec<_>>(),
        "tools": request.tools.iter().map(|tool| json!({
            "name": *tool.model_name,
            "description": *tool.description,
            "input_schema": *tool.input_schema,
        })).collect::<Vec<_>>(),
        "output_schema": request.output_schema.as_deref(),
        "answer_tokens_max": request.answer_tokens_max,
    })
}

fn canonical_message(message: &Message) -> Value {
    let calls = message.tool_calls.iter();
    let images = message.images.iter();
    json!({
        "role": message.role.as_str(),
        "text": message.text,
        "images": images.map(|image| json!({
            "media_type": image.media_type,
            "bytes": image.data.len(),
            "digest": fnv1a_hex(&image.data),
        })).collect::<Vec<_>>(),
        "tool_calls": calls.map(|call| json!({
            "id": call.id, "name": call.name, "arguments": call.arguments,
        })).collect::<Vec<_>>(),
        "tool_call_id": message.tool_call_id,
    })
}

/// Returns the FNV-1a hash as hex, for request digests and shortened call ids.
pub(crate) fn fnv1a_hex(bytes: &[u8]) -> String {
    format!("{:016x}", fnv1a(bytes))
}

/// Returns the 64-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const STOP_REASON_NAMES: [(&str, StopReason); 4] = [
    ("finished", StopReason::Finished),
    ("tool_calls", StopReason::ToolCalls),
    ("length", StopReason::Length),
    ("filtered", StopReason::Filtered),
];

/// Converts an event for the recording; `None` for progress events, because recordings have no timing.
pub(super) fn to_recorded(item: &Result<ModelEvent, Fault>) -> Option<RecordedEvent> {
    Some(match item {
        Ok(ModelEvent::Waiting | ModelEvent::Heartbeat | ModelEvent::Buffered(_)) => return None,
        Ok(ModelEvent::Text(text)) => RecordedEvent::Text(text.clone()),
        Ok(ModelEvent::Reasoning(text)) => RecordedEvent::Reasoning(text.clone()),
        Ok(ModelEvent::ReasoningBlock(text)) => RecordedEvent::ReasoningBlock(text.clone()),
        Ok(ModelEvent::ToolCall(ToolCall { id, name, arguments })) => {
            RecordedEvent::ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() }
        }
        Ok(ModelEvent::Usage(usage) | ModelEvent::FallbackUsage(usage, _)) => {
            let Usage { input, output, cached, cache_written, reasoning, estimated: _ } = *usage;
            RecordedEvent::Usage { input, output, cached, cache_written, reasoning }
        }
        Ok(ModelEvent::Stopped(reason)) => {
            let name = STOP_REASON_NAMES
                .iter()
                .find(|(_, other)| other == reason)
                .map_or("finished", |(name, _)| name);
            RecordedEvent::Stopped(name.to_owned())
        }
        Ok(ModelEvent::Done) => RecordedEvent::Done,
        Err(fault) => {
            let kind = if fault.kind == FaultKind::ContextFull { "context_full" } else { "model" };
            RecordedEvent::Failed { kind: kind.to_owned(), text: fault.public.to_string() }
        }
    })
}

pub(super) fn from_recorded(event: RecordedEvent) -> Result<ModelEvent, Fault> {
    Ok(match event {
        RecordedEvent::Text(text) => ModelEvent::Text(text),
        RecordedEvent::Reasoning(text) => ModelEvent::Reasoning(text),
        RecordedEvent::ReasoningBlock(text) => ModelEvent::ReasoningBlock(text),
        RecordedEvent::ToolCall { id, name, arguments } => {
            ModelEvent::ToolCall(ToolCall { id, name, arguments })
        }
        RecordedEvent::Usage { input, output, cached, cache_written, reasoning } => {
            ModelEvent::Usage(Usage { input, output, cached, cache_written, reasoning, estimated: 0 })
        }
        RecordedEvent::Stopped(name) => {
            let reason =
                STOP_REASON_NAMES.iter().find(|(other, _)| *other == name).map(|(_, reason)| *reason);
            ModelEvent::Stopped(reason.unwrap_or(StopReason::Finished))
        }
        RecordedEvent::Done => ModelEvent::Done,
        RecordedEvent::Failed { kind, text } => {
            let kind = if kind == "context_full" { FaultKind::ContextFull } else { FaultKind::Model };
            return Err(Fault::new(kind, text));
        }
    })
}

/// Describes the first difference between two requests.
pub(super) fn first_difference(recorded: &Value, actual: &Value) -> String {
    let shown = |value: &Value| {
        let text = value.to_string();
        match text.char_indices().nth(SHOWN_CHARS_MAX) {
            None => text,
            Some((end, _)) => format!("{}…", &text[..end]),
        }
    };
    let (before, now) = (&recorded["messages"], &actual["messages"]);
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    for index in 0..count(before).max(count(now)) {
        if before[index] != now[index] {
            let number = index + 1;
            return format!(
                "message {number}: recorded {}, requested {}",
                shown(&before[index]),
                shown(&now[index])
            );
        }
    }
    let differs = |key: &&&str| recorded[**key] != actual[**key];
    match ["system", "tools", "output_schema", "answer_tokens_max"].iter().find(differs) {
        Some(key) => {
            format!("{key}: recorded {}, requested {}", shown(&recorded[*key]), shown(&actual[*key]))
        }
        None => "the difference is unknown".to_owned(),
    }
}

const SHOWN_CHARS_MAX: usize = 200;
