//! Reads the events of a chat-completions answer: text and thoughts as they come, tool calls when they are whole.

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
    /// Three spellings of what the model thinks; some servers send two of them, with the same text.
    #[serde(borrow)]
    reasoning_content: RawField<'a>,
    #[serde(borrow)]
    reasoning: RawField<'a>,
    #[serde(borrow)]
    reasoning_text: RawField<'a>,
    /// OpenRouter's, which are wanted back.
    #[serde(borrow)]
    reasoning_details: RawField<'a>,
    #[serde(borrow)]
    tool_calls: RawField<'a>,
}

/// A piece of a content that is a list.
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
    /// Gemini's, which is wanted back.
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
    /// DeepSeek's word for what was cached.
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

/// Collects one answer.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    state: ResponseState,
    reasoning: ReasoningCollector,
    /// A chunk of an answer has come, whatever was in it.
    has_chunks: bool,
    /// A finish reason has come, or `[DONE]`.
    finished: bool,
    /// `[DONE]` has come: what follows is no part of the answer.
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
            return self.state.skip_malformed_event(data, each);
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
}

impl ChatDecoder {
    pub(super) fn new(wanted: ReasoningEcho, maker: ModelDigest) -> Self {
        let thoughts = ReasoningCollector::new(wanted, maker);
        Self {
            state: ResponseState::default(),
            reasoning: thoughts,
            has_chunks: false,
            finished: false,
            complete: false,
        }
    }

    /// Hands the calls on, and before them what has to be kept with them.
    fn emit_calls(&mut self, each: EventSink<'_>) {
        match self.reasoning.stored_with_calls(self.state.pending_call_indexes()) {
            Ok(Some(thoughts)) => each(Ok(ModelEvent::ReasoningBlock(thoughts))),
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
        for choice in self.state.parse_field::<Vec<RawField<'_>>>(chunk.choices)?.into_iter().flatten() {
            self.decode_choice(choice, each)?;
        }
        Ok(())
    }

    fn decode_choice(&mut self, choice: RawField<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let Some(choice) = self.state.parse_field::<Choice<'_>>(choice)? else { return Ok(()) };
        if let Some(delta) = self.state.parse_field::<Delta<'_>>(choice.delta)? {
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
        let thoughts = [delta.reasoning_content, delta.reasoning, delta.reasoning_text];
        if let Some(thought) = thoughts.into_iter().find_map(parse_text) {
            self.state.emit_reasoning(thought, each);
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

    /// A text, or as Mistral has it a list of texts and thoughts.
    fn decode_content(&mut self, content: RawField<'_>, each: EventSink<'_>) {
        if let Some(text) = parse_text(content) {
            return self.state.emit_text(text, each);
        }
        for piece in parse_field::<Vec<RawField<'_>>>(content).into_iter().flatten() {
            let Some(piece) = parse_field::<ContentPart<'_>>(piece) else { continue };
            for thought in parse_field::<Vec<RawField<'_>>>(piece.thinking).into_iter().flatten() {
                if let Some(thought) =
                    parse_field::<ContentPart<'_>>(thought).and_then(|thought| parse_text(thought.text))
                {
                    self.state.emit_reasoning(thought, each);
                }
            }
            if let Some(text) = parse_text(piece.text) {
                self.state.emit_text(text, each);
            }
        }
    }

    fn decode_call(&mut self, more: &CallDelta<'_>) -> Result<(), Fault> {
        let function = parse_field_strict::<FunctionDelta<'_>>(more.function)?;
        let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let (name, arguments) =
            (parse_field_strict::<String>(name)?.unwrap_or_default(), parse_arguments(arguments)?);
        let id = parse_text(more.id);
        let place = self.call_index(parse_field(more.index).unwrap_or(0), id.as_deref(), &name);
        self.reasoning.push_call_extra(place, more.extra_content);
        let call = self.state.call_mut(place)?;
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            call.id = id;
        }
        // Some servers say the name again with every piece.
        let name = if name == call.name { "" } else { &name };
        append_to_call(call, name, &arguments)
    }

    /// Some servers give every call the index 0: then a name with a new id is a new call, and without ids a name behind
    /// whole arguments is. Others give every piece of a call an id of its own; such a piece has no name.
    fn call_index(&self, index: u64, id: Option<&str>, name: &str) -> CallIndex {
        let Some((place, call)) = self.state.last_call(index) else { return (index, 0) };
        let is_new = match id {
            _ if name.is_empty() => false,
            Some(id) => !call.id.is_empty() && call.id != id,
            None => is_json_object(&call.arguments),
        };
        (index, place.1.saturating_add(u32::from(is_new)))
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
    }
}
