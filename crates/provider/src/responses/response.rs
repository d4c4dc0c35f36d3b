//! Decoder of Responses API responses. The last event contains the complete response again: parts that the server did
//! not stream are taken from it.

use agent::outside::StopReason;
use agent::{Fault, Usage};
use serde::Deserialize;

use crate::decode::{
    EndMarker, EventSink, RawField, ResponseState, append_to_call, fault_from_error, parse_arguments,
    parse_field, parse_field_strict, parse_text, parse_token_count,
};
use crate::dialect::ResponseDecoder;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawField<'a>,
    #[serde(borrow)]
    delta: RawField<'a>,
    #[serde(borrow)]
    output_index: RawField<'a>,
    #[serde(borrow)]
    summary_index: RawField<'a>,
    #[serde(borrow)]
    arguments: RawField<'a>,
    #[serde(borrow)]
    item: RawField<'a>,
    #[serde(borrow)]
    response: RawField<'a>,
    #[serde(borrow)]
    error: RawField<'a>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawField<'a>,
    #[serde(borrow)]
    call_id: RawField<'a>,
    #[serde(borrow)]
    name: RawField<'a>,
    #[serde(borrow)]
    arguments: RawField<'a>,
    #[serde(borrow)]
    content: RawField<'a>,
}

/// One part of a message's content.
#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow)]
    text: RawField<'a>,
    #[serde(borrow)]
    refusal: RawField<'a>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    output: RawField<'a>,
    #[serde(borrow)]
    usage: RawField<'a>,
    #[serde(borrow)]
    error: RawField<'a>,
    #[serde(borrow)]
    incomplete_details: RawField<'a>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: RawField<'a>,
}

#[derive(Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    input_tokens: RawField<'a>,
    #[serde(borrow)]
    output_tokens: RawField<'a>,
    #[serde(borrow)]
    input_tokens_details: RawField<'a>,
    #[serde(borrow)]
    output_tokens_details: RawField<'a>,
}

#[derive(Deserialize)]
struct UsageDetails<'a> {
    #[serde(borrow)]
    cached_tokens: RawField<'a>,
    #[serde(borrow)]
    reasoning_tokens: RawField<'a>,
}

/// Decoder of one Responses API response.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    state: ResponseState,
    has_text: bool,
    /// Whether the server streams the text as deltas.
    has_deltas: bool,
    /// Whether the last event has arrived.
    complete: bool,
}

impl ResponseDecoder for ResponsesDecoder {
    /// Decodes one event. Unknown events are ignored: there are many, and the API adds new ones.
    fn decode(&mut self, data: &[u8], each: EventSink<'_>) {
        if self.is_complete() {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            return self.state.handle_malformed_event(data, each);
        };
        let Some(kind) = parse_text(event.kind) else {
            // Servers that fail before the response starts send an error without a type.
            if event.error.is_some() {
                self.state.emit_fault(fault_from_error(event.error), each);
            }
            return;
        };
        let result = match kind.as_str() {
            // The error is either the event itself or a field of it.
            "error" => Err(fault_from_error(event.error.or_else(|| parse_field(Some(raw_event(data)?))))),
            kind => self.decode_event(kind, &event, each),
        };
        if let Err(fault) = result {
            self.state.emit_fault(fault, each);
        }
    }

    fn is_complete(&self) -> bool {
        self.complete || self.state.has_failed()
    }

    fn finish(&mut self, each: EventSink<'_>) {
        self.state.finish(EndMarker::from(self.complete), each);
    }

    fn has_started(&self) -> bool {
        self.state.has_started()
    }

    fn buffered_bytes(&self) -> usize {
        self.state.call_bytes()
    }
}

fn raw_event(data: &[u8]) -> Option<&serde_json::value::RawValue> {
    serde_json::from_slice(data).ok()
}

impl ResponsesDecoder {
    fn decode_event(&mut self, kind: &str, event: &Event<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        match kind {
            "response.output_text.delta" => {
                self.has_deltas = true;
                self.emit_text(event.delta, each);
            }
            "response.refusal.delta" => {
                self.has_deltas = true;
                self.emit_refusal(event.delta, each);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                if let Some(text) = parse_text(event.delta) {
                    self.state.emit_reasoning(text, each);
                }
            }
            // Each summary part is a paragraph.
            "response.reasoning_summary_part.added" if parse_field(event.summary_index) > Some(0_u64) => {
                self.state.emit_reasoning("\n\n".to_owned(), each);
            }
            "response.function_call_arguments.delta" => {
                let more = parse_arguments(event.delta)?;
                append_to_call(self.state.call_mut((output_index(event), 0))?, "", &more)?;
            }
            "response.function_call_arguments.done" => {
                self.set_arguments(output_index(event), event.arguments)?;
            }
            "response.output_item.added" => self.decode_call(output_index(event), event.item)?,
            "response.output_item.done" => {
                self.decode_call(output_index(event), event.item)?;
                // Some servers send only complete items.
                if !self.has_deltas {
                    self.decode_message(event.item, each);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.decode_end(kind, event.response, each);
            }
            _ => {}
        }
        Ok(())
    }

    fn emit_text(&mut self, delta: RawField<'_>, each: EventSink<'_>) {
        if let Some(text) = parse_text(delta) {
            self.has_text = true;
            self.state.emit_text(text, each);
        }
    }

    fn emit_refusal(&mut self, delta: RawField<'_>, each: EventSink<'_>) {
        if parse_text(delta).is_some() {
            self.emit_text(delta, each);
            self.state.set_stop_reason(StopReason::Filtered);
        }
    }

    /// Decodes a complete or partial function call item; the last values win.
    fn decode_call(&mut self, index: u64, item: RawField<'_>) -> Result<(), Fault> {
        let Some(item) = parse_field_strict::<Item<'_>>(item)? else { return Ok(()) };
        if parse_text(item.kind).as_deref() != Some("function_call") {
            return Ok(());
        }
        let call = self.state.call_mut((index, 0))?;
        if let Some(id) = parse_text(item.call_id) {
            call.id = id;
        }
        if let Some(name) = parse_field_strict::<String>(item.name)?.filter(|name| !name.is_empty()) {
            call.name.clear();
            append_to_call(call, &name, "")?;
        }
        self.set_arguments(index, item.arguments)
    }

    fn set_arguments(&mut self, index: u64, arguments: RawField<'_>) -> Result<(), Fault> {
        let arguments = parse_arguments(arguments)?;
        if arguments.is_empty() {
            return Ok(());
        }
        let call = self.state.call_mut((index, 0))?;
        call.arguments.clear();
        append_to_call(call, "", &arguments)
    }

    fn decode_end(&mut self, kind: &str, response: RawField<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let response = parse_field::<Response<'_>>(response);
        if kind == "response.failed" {
            return Err(fault_from_error(response.and_then(|response| response.error)));
        }
        self.state.set_stop_reason(StopReason::Finished);
        if let Some(response) = response {
            if let Some(report) = parse_field(response.usage) {
                self.state.set_usage(usage(&report));
            }
            self.decode_missing_items(response.output, each)?;
            if kind == "response.incomplete" {
                self.state.set_stop_reason(incomplete_reason(response.incomplete_details));
            }
        } else if kind == "response.incomplete" {
            self.state.set_stop_reason(StopReason::Length);
        }
        self.complete = true;
        self.state.emit_calls(each);
        Ok(())
    }

    /// Emits the text and the calls that no earlier event contained.
    fn decode_missing_items(&mut self, output: RawField<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let (had_text, had_calls) = (self.has_text, self.state.has_calls());
        let items = parse_field::<Vec<RawField<'_>>>(output).into_iter().flatten();
        for (item, index) in items.zip(0_u64..) {
            if !had_calls {
                self.decode_call(index, item)?;
            }
            if !had_text {
                self.decode_message(item, each);
            }
        }
        Ok(())
    }

    /// Emits the content of a complete message item.
    fn decode_message(&mut self, item: RawField<'_>, each: EventSink<'_>) {
        let message =
            parse_field::<Item<'_>>(item).filter(|item| parse_text(item.kind).as_deref() == Some("message"));
        let content = message.and_then(|item| item.content);
        for part in parse_field::<Vec<RawField<'_>>>(content).into_iter().flatten() {
            if let Some(part) = parse_field::<ContentPart<'_>>(part) {
                self.emit_text(part.text, each);
                self.emit_refusal(part.refusal, each);
            }
        }
    }
}

fn output_index(event: &Event<'_>) -> u64 {
    parse_field(event.output_index).unwrap_or(0)
}

fn incomplete_reason(details: RawField<'_>) -> StopReason {
    let reason = parse_field::<Incomplete<'_>>(details).and_then(|details| parse_text(details.reason));
    if reason.as_deref() == Some("content_filter") { StopReason::Filtered } else { StopReason::Length }
}

fn usage(report: &RawUsage<'_>) -> Usage {
    let details = |raw| parse_field::<UsageDetails<'_>>(raw);
    let cached =
        details(report.input_tokens_details).and_then(|details| parse_token_count(details.cached_tokens));
    let reasoning =
        details(report.output_tokens_details).and_then(|details| parse_token_count(details.reasoning_tokens));
    Usage {
        input: parse_token_count(report.input_tokens).unwrap_or(0),
        output: parse_token_count(report.output_tokens).unwrap_or(0),
        cached: cached.unwrap_or(0),
        cache_written: 0,
        reasoning: reasoning.unwrap_or(0),
        estimated: 0,
    }
}
