//! Decoder of chat-completions responses: emits text and reasoning as they arrive, tool calls when they are complete.

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, Usage};
use serde::Deserialize;

use super::reasoning::{ModelDigest, ReasoningCollector};
use crate::catalog::ReasoningEcho;
use crate::decode::{
    CallIndex, EndMarker, EventSink, RawField, ResponseState, append_to_call, fault_from_error,
    is_json_object, model_fault, parse_arguments, parse_field, parse_field_strict, parse_text,
    parse_token_count,
};
use crate::dialect::ResponseDecoder;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: RawField<'a>,
    #[serde(borrow)]
    usage: RawField<'a>,
    #[serde(borrow)]
    error: RawField<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: RawField<'a>,
    #[serde(borrow)]
    finish_reason: RawField<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: RawField<'a>,
    #[serde(borrow)]
    refusal: RawField<'a>,
    /// One of three spellings of the reasoning; some servers send two of them with the same text.
    #[serde(borrow)]
    reasoning_content: RawField<'a>,
    #[serde(borrow)]
    reasoning: RawField<'a>,
    #[serde(borrow)]
    reasoning_text: RawField<'a>,
    /// OpenRouter's reasoning, which must be sent back.
    #[serde(borrow)]
    reasoning_details: RawField<'a>,
    #[serde(borrow)]
    tool_calls: RawField<'a>,
}

/// One element of a content list.
#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow)]
    text: RawField<'a>,
    #[serde(borrow)]
    thinking: RawField<'a>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(borrow)]
    index: RawField<'a>,
    #[serde(borrow)]
    id: RawField<'a>,
    #[serde(borrow)]
    function: RawField<'a>,
    /// Gemini's signature, which must be sent back.
    #[serde(borrow)]
    extra_content: RawField<'a>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: RawField<'a>,
    #[serde(borrow)]
    arguments: RawField<'a>,
}

#[derive(Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: RawField<'a>,
    #[serde(borrow)]
    completion_tokens: RawField<'a>,
    #[serde(borrow)]
    prompt_tokens_details: RawField<'a>,
    #[serde(borrow)]
    completion_tokens_details: RawField<'a>,
    /// DeepSeek's name for cached tokens.
    #[serde(borrow)]
    prompt_cache_hit_tokens: RawField<'a>,
}

#[derive(Deserialize)]
struct UsageDetails<'a> {
    #[serde(borrow)]
    cached_tokens: RawField<'a>,
    #[serde(borrow)]
    cache_write_tokens: RawField<'a>,
    #[serde(borrow)]
    reasoning_tokens: RawField<'a>,
}

/// Decoder of one chat-completions response.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    state: ResponseState,
    reasoning: ReasoningCollector,
    /// Whether any chunk has arrived.
    has_chunks: bool,
    /// Whether a finish reason or `[DONE]` has arrived.
    finished: bool,
    /// Whether `[DONE]` has arrived; later events are ignored.
    complete: bool,
}

impl ResponseDecoder for ChatDecoder {
    fn decode(&mut self, data: &[u8], each: EventSink<'_>) {
        if self.is_complete() {
            return;
        }
        if data == b"[DONE]" {
            (self.finished, self.complete) = (true, true);
            self.emit_calls(each);
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else {
            return self.state.handle_malformed_event(data, each);
        };
        self.has_chunks = true;
        match self.decode_chunk(&chunk, each) {
            Err(fault) => self.state.emit_fault(fault, each),
            Ok(()) if self.finished => self.emit_calls(each),
            Ok(()) => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.complete || self.state.has_failed()
    }

    fn finish(&mut self, each: EventSink<'_>) {
        self.state.finish(EndMarker::from(self.finished && self.has_chunks), each);
    }

    fn has_started(&self) -> bool {
        self.state.has_started()
    }

    fn buffered_bytes(&self) -> usize {
        self.state.call_bytes() + self.reasoning.bytes
    }
}

impl ChatDecoder {
    pub(super) fn new(echo: ReasoningEcho, model_digest: ModelDigest) -> Self {
        let reasoning = ReasoningCollector::new(echo, model_digest);
        Self {
            state: ResponseState::default(),
            reasoning,
            has_chunks: false,
            finished: false,
            complete: false,
        }
    }

    /// Emits the tool calls, preceded by the reasoning that must be stored with them.
    fn emit_calls(&mut self, each: EventSink<'_>) {
        match self.reasoning.encode_with_calls(self.state.pending_call_indexes()) {
            Ok(Some(reasoning)) => each(Ok(ModelEvent::ReasoningBlock(reasoning))),
            Ok(None) => {}
            Err(fault) => return self.state.emit_fault(fault, each),
        }
        self.state.emit_calls(each);
    }

    fn decode_chunk(&mut self, chunk: &Chunk<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        if chunk.error.is_some() {
            return Err(fault_from_error(chunk.error));
        }
        if let Some(report) = parse_field(chunk.usage) {
            self.state.set_usage(usage(&report));
        }
        for choice in
            self.state.parse_field_strict_if_calls::<Vec<RawField<'_>>>(chunk.choices)?.into_iter().flatten()
        {
            self.decode_choice(choice, each)?;
        }
        Ok(())
    }

    fn decode_choice(&mut self, choice: RawField<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let Some(choice) = self.state.parse_field_strict_if_calls::<Choice<'_>>(choice)? else {
            return Ok(());
        };
        if let Some(delta) = self.state.parse_field_strict_if_calls::<Delta<'_>>(choice.delta)? {
            self.decode_delta(&delta, each)?;
        }
        let Some(reason) = parse_text(choice.finish_reason) else { return Ok(()) };
        self.finished = true;
        self.state.set_stop_reason(match reason.as_str() {
            "tool_calls" | "function_call" => StopReason::ToolCalls,
            "length" => StopReason::Length,
            "content_filter" => StopReason::Filtered,
            "error" | "insufficient_system_resource" => {
                return Err(model_fault(format!("API request failed: the model gave up ({reason})")));
            }
            _ => StopReason::Finished,
        });
        Ok(())
    }

    fn decode_delta(&mut self, delta: &Delta<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let reasoning = [delta.reasoning_content, delta.reasoning, delta.reasoning_text];
        if let Some(text) = reasoning.into_iter().find_map(parse_text) {
            self.state.emit_reasoning(text, each);
        }
        self.reasoning.push_text(delta.reasoning_content);
        self.reasoning.push_details(delta.reasoning_details);
        self.decode_content(delta.content, each);
        if let Some(refusal) = parse_text(delta.refusal) {
            self.state.emit_text(refusal, each);
            self.state.set_stop_reason(StopReason::Filtered);
        }
        for raw in parse_field_strict::<Vec<RawField<'_>>>(delta.tool_calls)?.into_iter().flatten() {
            if let Some(call) = parse_field_strict(raw)? {
                self.decode_call(&call)?;
            }
        }
        Ok(())
    }

    /// Decodes content that is a string or, as Mistral sends it, a list of text and thinking parts.
    fn decode_content(&mut self, content: RawField<'_>, each: EventSink<'_>) {
        if let Some(text) = parse_text(content) {
            return self.state.emit_text(text, each);
        }
        for part in parse_field::<Vec<RawField<'_>>>(content).into_iter().flatten() {
            let Some(part) = parse_field::<ContentPart<'_>>(part) else { continue };
            for thinking in parse_field::<Vec<RawField<'_>>>(part.thinking).into_iter().flatten() {
                let text = parse_field::<ContentPart<'_>>(thinking).and_then(|part| parse_text(part.text));
                if let Some(text) = text {
                    self.state.emit_reasoning(text, each);
                }
            }
            if let Some(text) = parse_text(part.text) {
                self.state.emit_text(text, each);
            }
        }
    }

    fn decode_call(&mut self, delta: &CallDelta<'_>) -> Result<(), Fault> {
        let function = parse_field_strict::<FunctionDelta<'_>>(delta.function)?;
        let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let (name, arguments) =
            (parse_field_strict::<String>(name)?.unwrap_or_default(), parse_arguments(arguments)?);
        let id = parse_text(delta.id);
        let index = self.call_index(parse_field(delta.index).unwrap_or(0), id.as_deref(), &name);
        self.reasoning.push_call_extra(index, delta.extra_content);
        let call = self.state.call_mut(index)?;
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            call.id = id;
        }
        // Some servers repeat the name in every delta.
        let name = if name == call.name { "" } else { &name };
        append_to_call(call, name, &arguments)
    }

    /// Returns the index of the call that a delta belongs to. Some servers send index 0 for every call: a name with a
    /// new id starts a new call, and without ids a name after complete arguments does. Others send a new id with every
    /// delta of one call; such deltas have no name.
    fn call_index(&self, index: u64, id: Option<&str>, name: &str) -> CallIndex {
        let Some(((_, last), call)) = self.state.last_call(index) else { return (index, 0) };
        let is_new = match id {
            _ if name.is_empty() => false,
            Some(id) => !call.id.is_empty() && call.id != id,
            None => is_json_object(&call.arguments),
        };
        (index, last.saturating_add(u32::from(is_new)))
    }
}

fn usage(report: &RawUsage<'_>) -> Usage {
    let details = |raw| parse_field::<UsageDetails<'_>>(raw);
    let prompt = details(report.prompt_tokens_details);
    let completion = details(report.completion_tokens_details);
    let cached = prompt.as_ref().and_then(|details| parse_token_count(details.cached_tokens));
    Usage {
        input: parse_token_count(report.prompt_tokens).unwrap_or(0),
        output: parse_token_count(report.completion_tokens).unwrap_or(0),
        cached: cached.or(parse_token_count(report.prompt_cache_hit_tokens)).unwrap_or(0),
        cache_written: prompt.and_then(|details| parse_token_count(details.cache_write_tokens)).unwrap_or(0),
        reasoning: completion.and_then(|details| parse_token_count(details.reasoning_tokens)).unwrap_or(0),
        estimated: 0,
    }
}
