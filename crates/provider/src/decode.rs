//! What reading an answer has in common, whatever API it comes from: members of any shape, calls that are put together,
//! limits, and how an answer ends. Which events there are is left to the dialects.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, FaultKind, TokenCount, ToolCall, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most calls one answer may make; a model that makes more is told so by a failed turn.
const CALLS_MAX: usize = 128;

/// The most bytes of one call.
const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// More tokens than this are no count but a slip: no number that passed through JavaScript is exact beyond it.
const TOKENS_MAX: TokenCount = 1 << 53;

/// The most of a server's own words about an error that are passed on.
const REASON_CHARS_MAX: usize = 2_000;

/// Where what was read goes.
pub(crate) type EventSink<'a> = &'a mut dyn FnMut(Result<ModelEvent, Fault>);

/// A member of any shape: servers differ, and an odd one must cost nothing but itself.
pub(crate) type RawField<'a> = Option<&'a RawValue>;

/// A member as something, if it is that.
pub(crate) fn parse_field<'a, T: Deserialize<'a>>(raw: RawField<'a>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A member as a text that says something.
pub(crate) fn parse_text(raw: RawField<'_>) -> Option<String> {
    parse_field::<String>(raw).filter(|text| !text.is_empty())
}

/// A piece of a call, if there is one. What cannot be read is not passed over here: the rest of the call would run.
///
/// # Errors
/// When it is something else.
pub(crate) fn parse_field_strict<'a, T: Deserialize<'a>>(raw: RawField<'a>) -> Result<Option<T>, Fault> {
    match raw {
        Some(_) => parse_field(raw).map(Some).ok_or_else(malformed_call_fault),
        None => Ok(None),
    }
}

/// More of a call's arguments. Some servers send them as what they are, not as the text of it.
///
/// # Errors
/// When it is a text that cannot be read.
pub(crate) fn parse_arguments(raw: RawField<'_>) -> Result<String, Fault> {
    match raw {
        Some(object) if !object.get().starts_with('"') => Ok(object.get().to_owned()),
        text => Ok(parse_field_strict(text)?.unwrap_or_default()),
    }
}

fn malformed_call_fault() -> Fault {
    model_fault("The model sent a piece of a tool call that cannot be read.".to_owned())
}

/// A member as a count of tokens. What is negative, broken or absurd was not counted.
pub(crate) fn parse_token_count(raw: RawField<'_>) -> Option<TokenCount> {
    parse_field::<TokenCount>(raw).filter(|count| *count <= TOKENS_MAX)
}

/// The fault for an error that the server tells inside of the stream. Its code and its type are the cause: what can be
/// done about it is told by them as well as by the text.
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
    let told = parse_field::<ErrorFields<'_>>(error);
    let reason = told.as_ref().and_then(|told| parse_text(told.message)).or_else(|| parse_text(error));
    let mut reason = reason.unwrap_or_else(|| "no reason given".to_owned());
    reason.truncate(reason.char_indices().nth(REASON_CHARS_MAX).map_or(reason.len(), |(end, _)| end));
    let fault = model_fault(format!("API request failed: {reason}"));
    let names = told.map_or([None, None], |told| [told.code, told.kind]);
    let names: Vec<_> = names.into_iter().flatten().map(|name| name.get()).collect();
    if names.is_empty() {
        return fault;
    }
    fault.caused_by(names.join(" ").chars().take(REASON_CHARS_MAX).collect::<String>())
}

pub(crate) fn model_fault(text: String) -> Fault {
    Fault::new(FaultKind::Model, text)
}

/// Whether a text is a JSON object to its end, and every text in it can be read.
pub(crate) fn is_json_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Where a call stands among the others: by the place the server gave it, and its turn among those of one place.
pub(crate) type CallIndex = (u64, u32);

/// How far an answer has come.
#[derive(Debug, Default)]
pub(crate) struct ResponseState {
    calls: BTreeMap<CallIndex, ToolCall>,
    calls_emitted: usize,
    /// In the ids of calls that came without one.
    id_seed: Option<u64>,
    usage: Option<Usage>,
    stop_reason: Option<StopReason>,
    /// Something of the answer has come.
    started: bool,
    /// A fault was told: nothing comes after it.
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

    /// The call at this place, which is made if there is none.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn call_mut(&mut self, place: CallIndex) -> Result<&mut ToolCall, Fault> {
        self.started = true;
        if self.calls.len() >= CALLS_MAX && !self.calls.contains_key(&place) {
            return Err(model_fault(format!("The model made more than {CALLS_MAX} tool calls.")));
        }
        let nothing = || ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        Ok(self.calls.entry(place).or_insert_with(nothing))
    }

    /// The last call that was given this place.
    pub(crate) fn last_call(&self, place: u64) -> Option<(CallIndex, &ToolCall)> {
        let (key, call) = self.calls.range((place, 0)..=(place, u32::MAX)).next_back()?;
        Some((*key, call))
    }

    /// The places of the calls that are not handed on yet, in their order.
    pub(crate) fn pending_call_indexes(&self) -> impl Iterator<Item = CallIndex> {
        self.calls.keys().copied()
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || self.calls_emitted > 0
    }

    /// An event that cannot be read is passed over, as other clients do; but once there are calls, it may be a piece of
    /// one.
    pub(crate) fn skip_malformed_event(&mut self, data: &[u8], each: EventSink<'_>) {
        tracing::debug!(bytes = data.len(), "the model sent an event that cannot be read");
        if !self.calls.is_empty() {
            self.emit_fault(malformed_call_fault(), each);
        }
    }

    /// A member that may hold pieces of calls.
    ///
    /// # Errors
    /// When it cannot be read and there are calls.
    pub(crate) fn parse_field<'a, T: Deserialize<'a>>(&self, raw: RawField<'a>) -> Result<Option<T>, Fault> {
        if self.calls.is_empty() { Ok(parse_field(raw)) } else { parse_field_strict(raw) }
    }

    /// Takes a new report of what was used.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(Usage {
            cached: usage.cached.min(usage.input),
            cache_written: usage.cache_written.min(usage.input),
            reasoning: usage.reasoning.min(usage.output),
            ..usage
        });
    }

    pub(crate) fn set_stop_reason(&mut self, reason: StopReason) {
        // A refusal inside of the answer says more than the way it ended.
        if self.stop_reason != Some(StopReason::Filtered) {
            self.stop_reason = Some(reason);
        }
    }

    /// Hands the calls on, all or none: a limit that strikes in the middle of a call leaves half of it.
    pub(crate) fn emit_calls(&mut self, each: EventSink<'_>) {
        let calls = std::mem::take(&mut self.calls);
        let cut_short = matches!(self.stop_reason, Some(StopReason::Length | StopReason::Filtered));
        if cut_short && !calls.values().all(|call| is_json_object(&call.arguments)) {
            let text = "The model's answer was cut off in the middle of a tool call.";
            return self.emit_fault(model_fault(text.to_owned()), each);
        }
        for mut call in calls.into_values() {
            if call.id.is_empty() {
                // No other answer of a conversation may have the same.
                let mark = self.id_seed.get_or_insert_with(|| fastrand::u64(..));
                call.id = format!("call_{mark:016x}{}", self.calls_emitted);
            }
            self.calls_emitted += 1;
            each(Ok(ModelEvent::ToolCall(call)));
        }
    }

    /// The body has ended, with the API's own end of an answer or without.
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
            // Many servers say of an answer with calls that it is simply finished.
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
            "Streaming response failed before any data was received: no answer was in it."
        };
        model_fault(text.to_owned()).caused_by("the stream ended without the end of an answer")
    }
}

/// Whether the API's own end of an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMarker {
    Seen,
    Missing,
}

impl From<bool> for EndMarker {
    fn from(has_come: bool) -> Self {
        if has_come { Self::Seen } else { Self::Missing }
    }
}

/// Makes a call's text longer.
///
/// # Errors
/// When the call becomes too long.
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
