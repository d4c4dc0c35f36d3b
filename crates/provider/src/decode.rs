//! Response decoding shared by all dialects: lenient field parsing, assembly of tool calls, limits, and the end of a
//! response. The event types are left to the dialects.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, FaultKind, TokenCount, ToolCall, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Most tool calls in one response; a response with more fails the turn.
const CALLS_MAX: usize = 128;

/// Most bytes of one tool call, name and arguments together.
const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Largest plausible token count: numbers above 2^53 are not exact in JavaScript.
const TOKENS_MAX: TokenCount = 1 << 53;

/// Longest part of an error object's message, code and type that is passed on.
const REASON_CHARS_MAX: usize = 2_000;

/// Callback for decoded events.
pub(crate) type EventSink<'a> = &'a mut dyn FnMut(Result<ModelEvent, Fault>);

/// An unparsed JSON value of any type. Servers differ, and a field of an unexpected type must not fail the event.
pub(crate) type RawField<'a> = Option<&'a RawValue>;

/// Parses a field; `None` if it is absent or has another type.
pub(crate) fn parse_field<'a, T: Deserialize<'a>>(raw: RawField<'a>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Parses a field as a non-empty string.
pub(crate) fn parse_text(raw: RawField<'_>) -> Option<String> {
    parse_field::<String>(raw).filter(|text| !text.is_empty())
}

/// Parses a field that is part of a tool call. Skipping a malformed one would run an incomplete call.
///
/// # Errors
/// When the field has another type.
pub(crate) fn parse_field_strict<'a, T: Deserialize<'a>>(raw: RawField<'a>) -> Result<Option<T>, Fault> {
    match raw {
        Some(_) => parse_field(raw).map(Some).ok_or_else(malformed_call_fault),
        None => Ok(None),
    }
}

/// Parses a delta of a call's arguments. Some servers send a JSON object instead of its text.
///
/// # Errors
/// When it is a malformed string.
pub(crate) fn parse_arguments(raw: RawField<'_>) -> Result<String, Fault> {
    match raw {
        Some(object) if !object.get().starts_with('"') => Ok(object.get().to_owned()),
        text => Ok(parse_field_strict(text)?.unwrap_or_default()),
    }
}

fn malformed_call_fault() -> Fault {
    model_fault("The model sent a piece of a tool call that cannot be read.".to_owned())
}

/// Parses a field as a token count; negative, fractional and implausible numbers are ignored.
pub(crate) fn parse_token_count(raw: RawField<'_>) -> Option<TokenCount> {
    parse_field::<TokenCount>(raw).filter(|count| *count <= TOKENS_MAX)
}

/// Converts an error object inside the stream to a fault. Its code and type become the cause, because the error class
/// depends on them as well as on the message.
pub(crate) fn fault_from_error(error: RawField<'_>) -> Fault {
    #[derive(Deserialize)]
    struct ErrorFields<'a> {
        #[serde(borrow)]
        message: RawField<'a>,
        #[serde(borrow, rename = "type")]
        kind: RawField<'a>,
        #[serde(borrow)]
        code: RawField<'a>,
    }
    let fields = parse_field::<ErrorFields<'_>>(error);
    let reason = fields.as_ref().and_then(|fields| parse_text(fields.message)).or_else(|| parse_text(error));
    let mut reason = reason.unwrap_or_else(|| "no reason given".to_owned());
    reason.truncate(reason.char_indices().nth(REASON_CHARS_MAX).map_or(reason.len(), |(end, _)| end));
    let fault = model_fault(format!("API request failed: {reason}"));
    let names = fields.map_or([None, None], |fields| [fields.code, fields.kind]);
    let names: Vec<_> = names.into_iter().flatten().map(|name| name.get()).collect();
    if names.is_empty() {
        return fault;
    }
    fault.caused_by(names.join(" ").chars().take(REASON_CHARS_MAX).collect::<String>())
}

pub(crate) fn model_fault(text: String) -> Fault {
    Fault::new(FaultKind::Model, text)
}

/// Whether a text is one complete JSON object with valid strings.
pub(crate) fn is_json_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Position of a tool call: the server's index, then a counter for calls that share that index.
pub(crate) type CallIndex = (u64, u32);

/// State of a response that is being decoded.
#[derive(Debug, Default)]
pub(crate) struct ResponseState {
    calls: BTreeMap<CallIndex, ToolCall>,
    calls_emitted: usize,
    /// Random part of generated call ids, for servers that send none.
    id_seed: Option<u64>,
    usage: Option<Usage>,
    stop_reason: Option<StopReason>,
    /// Whether any content has arrived.
    started: bool,
    /// Whether a fault was emitted; nothing follows it.
    failed: bool,
}

impl ResponseState {
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn emit_text(&mut self, text: String, each: EventSink<'_>) {
        self.started = true;
        each(Ok(ModelEvent::Text(text)));
    }

    pub(crate) fn emit_reasoning(&mut self, text: String, each: EventSink<'_>) {
        self.started = true;
        each(Ok(ModelEvent::Reasoning(text)));
    }

    pub(crate) fn emit_fault(&mut self, fault: Fault, each: EventSink<'_>) {
        if !std::mem::replace(&mut self.failed, true) {
            self.calls.clear();
            each(Err(fault));
        }
    }

    /// Returns the call at this index, inserting an empty one if there is none.
    ///
    /// # Errors
    /// When the response has too many calls.
    pub(crate) fn call_mut(&mut self, index: CallIndex) -> Result<&mut ToolCall, Fault> {
        self.started = true;
        if self.calls.len() >= CALLS_MAX && !self.calls.contains_key(&index) {
            return Err(model_fault(format!("The model made more than {CALLS_MAX} tool calls.")));
        }
        let empty_call = || ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        Ok(self.calls.entry(index).or_insert_with(empty_call))
    }

    /// Returns the last call with this server index.
    pub(crate) fn last_call(&self, index: u64) -> Option<(CallIndex, &ToolCall)> {
        let (key, call) = self.calls.range((index, 0)..=(index, u32::MAX)).next_back()?;
        Some((*key, call))
    }

    /// Indexes of the calls that are not yet emitted, in order.
    pub(crate) fn pending_call_indexes(&self) -> impl Iterator<Item = CallIndex> {
        self.calls.keys().copied()
    }

    /// Bytes of the calls that are not yet emitted.
    pub(crate) fn call_bytes(&self) -> usize {
        self.calls.values().map(|call| call.id.len() + call.name.len() + call.arguments.len()).sum()
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || self.calls_emitted > 0
    }

    /// Skips an event that is not valid JSON, as other clients do. Emits a fault if tool calls are pending, because the
    /// event may be part of one.
    pub(crate) fn handle_malformed_event(&mut self, data: &[u8], each: EventSink<'_>) {
        tracing::debug!(bytes = data.len(), "malformed event in the model's response");
        if !self.calls.is_empty() {
            self.emit_fault(malformed_call_fault(), each);
        }
    }

    /// Parses a field that may contain parts of tool calls: strictly if tool calls are pending, else leniently.
    ///
    /// # Errors
    /// When it is malformed and tool calls are pending.
    pub(crate) fn parse_field_strict_if_calls<'a, T: Deserialize<'a>>(
        &self,
        raw: RawField<'a>,
    ) -> Result<Option<T>, Fault> {
        if self.calls.is_empty() { Ok(parse_field(raw)) } else { parse_field_strict(raw) }
    }

    /// Replaces the reported token usage. Caps the parts, such as cached tokens, at the total they belong to.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(Usage {
            cached: usage.cached.min(usage.input),
            cache_written: usage.cache_written.min(usage.input),
            reasoning: usage.reasoning.min(usage.output),
            ..usage
        });
    }

    pub(crate) fn set_stop_reason(&mut self, reason: StopReason) {
        // A refusal within the content takes precedence over the finish reason.
        if self.stop_reason != Some(StopReason::Filtered) {
            self.stop_reason = Some(reason);
        }
    }

    /// Emits all tool calls or none: a token limit may have truncated one of them.
    pub(crate) fn emit_calls(&mut self, each: EventSink<'_>) {
        let calls = std::mem::take(&mut self.calls);
        let cut_short = matches!(self.stop_reason, Some(StopReason::Length | StopReason::Filtered));
        if cut_short && !calls.values().all(|call| is_json_object(&call.arguments)) {
            let text = "The model's answer was cut off in the middle of a tool call.";
            return self.emit_fault(model_fault(text.to_owned()), each);
        }
        for mut call in calls.into_values() {
            if call.id.is_empty() {
                // Ids must be unique in the whole conversation, not only in this response.
                let seed = self.id_seed.get_or_insert_with(|| fastrand::u64(..));
                call.id = format!("call_{seed:016x}{}", self.calls_emitted);
            }
            self.calls_emitted += 1;
            each(Ok(ModelEvent::ToolCall(call)));
        }
    }

    /// Emits the last events at the end of the body.
    pub(crate) fn finish(&mut self, end: EndMarker, each: EventSink<'_>) {
        if self.failed {
            return;
        }
        if end == EndMarker::Missing {
            let fault = self.interrupted_fault();
            return self.emit_fault(fault, each);
        }
        if let Some(usage) = self.usage.take() {
            each(Ok(ModelEvent::Usage(usage)));
        }
        if let Some(reason) = self.stop_reason {
            // Many servers report "stop" for a response with tool calls.
            let calls = reason == StopReason::Finished && self.calls_emitted > 0;
            each(Ok(ModelEvent::Stopped(if calls { StopReason::ToolCalls } else { reason })));
        }
        each(Ok(ModelEvent::Done));
    }

    fn interrupted_fault(&self) -> Fault {
        let text = if self.started {
            "Streaming response was interrupted before completion: the connection was cut. \
             Partial output may have been displayed; retry the request."
        } else {
            "Streaming response failed before any data was received: the response was empty."
        };
        model_fault(text.to_owned()).caused_by("the stream ended without the API's end marker")
    }
}

/// Whether the API's end marker was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMarker {
    Seen,
    Missing,
}

impl From<bool> for EndMarker {
    fn from(is_seen: bool) -> Self {
        if is_seen { Self::Seen } else { Self::Missing }
    }
}

/// Appends to the name and the arguments of a call.
///
/// # Errors
/// When the call exceeds the size limit.
pub(crate) fn append_to_call(call: &mut ToolCall, name: &str, arguments: &str) -> Result<(), Fault> {
    let bytes = [call.name.len(), call.arguments.len(), name.len(), arguments.len()];
    if bytes.into_iter().sum::<usize>() > CALL_BYTES_MAX {
        let text = format!("The model made a tool call of more than {CALL_BYTES_MAX} bytes.");
        return Err(model_fault(text));
    }
    call.name.push_str(name);
    call.arguments.push_str(arguments);
    Ok(())
}
