//! Decoder of Messages API responses: content blocks that start, grow and stop. Tool calls are emitted at the end of
//! the response.

use std::collections::{BTreeMap, BTreeSet};

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, TokenCount, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::decode::{
    EndMarker, EventSink, RawField, ResponseState, append_to_call, fault_from_error, is_json_object,
    model_fault, parse_field, parse_field_strict, parse_text, parse_token_count,
};
use crate::dialect::ResponseDecoder;
use crate::encode::encode_fault;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawField<'a>,
    #[serde(borrow)]
    index: RawField<'a>,
    #[serde(borrow)]
    message: RawField<'a>,
    #[serde(borrow)]
    content_block: RawField<'a>,
    #[serde(borrow)]
    delta: RawField<'a>,
    #[serde(borrow)]
    usage: RawField<'a>,
    #[serde(borrow)]
    error: RawField<'a>,
}

/// A content block or a delta of one.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawField<'a>,
    #[serde(borrow)]
    text: RawField<'a>,
    #[serde(borrow)]
    thinking: RawField<'a>,
    #[serde(borrow)]
    signature: RawField<'a>,
    #[serde(borrow)]
    data: RawField<'a>,
    #[serde(borrow)]
    id: RawField<'a>,
    #[serde(borrow)]
    name: RawField<'a>,
    #[serde(borrow)]
    input: RawField<'a>,
    #[serde(borrow)]
    partial_json: RawField<'a>,
    #[serde(borrow)]
    stop_reason: RawField<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    usage: RawField<'a>,
}

#[derive(Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    input_tokens: RawField<'a>,
    #[serde(borrow)]
    output_tokens: RawField<'a>,
    #[serde(borrow)]
    cache_creation_input_tokens: RawField<'a>,
    #[serde(borrow)]
    cache_read_input_tokens: RawField<'a>,
}

/// Usage so far; each report may contain a part of it, and later reports are higher.
#[derive(Debug, Default)]
struct UsageTotals {
    uncached_input: TokenCount,
    output: TokenCount,
    cache_written: TokenCount,
    cached: TokenCount,
}

/// A thinking block that must be sent back unchanged with the tool calls after it; the API rejects their results
/// otherwise.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingBlock {
    Thinking { thinking: String, signature: String },
    RedactedThinking { data: String },
}

impl ThinkingBlock {
    fn is_signed(&self) -> bool {
        match self {
            Self::Thinking { signature, .. } => !signature.is_empty(),
            Self::RedactedThinking { .. } => true,
        }
    }
}

/// Memory of a thinking block beside its texts.
const BLOCK_BYTES: usize = 96;

/// Decoder of one Messages API response.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    state: ResponseState,
    usage_totals: UsageTotals,
    /// Thinking blocks by block index.
    reasoning: BTreeMap<u64, ThinkingBlock>,
    reasoning_bytes: usize,
    /// Block indexes of incomplete tool calls.
    open_calls: BTreeSet<u64>,
    /// Whether `message_stop` has arrived.
    complete: bool,
}

impl ResponseDecoder for AnthropicDecoder {
    /// Decodes one event. Unknown events are ignored, as the API's versioning policy requires.
    fn decode(&mut self, data: &[u8], each: EventSink<'_>) {
        if self.is_complete() {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            return self.state.handle_malformed_event(data, each);
        };
        if let Err(fault) = self.decode_event(&event, each) {
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
        self.state.call_bytes() + self.reasoning_bytes
    }
}

impl AnthropicDecoder {
    fn decode_event(&mut self, event: &Event<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let kind = parse_text(event.kind).unwrap_or_default();
        match kind.as_str() {
            "message_start" => {
                self.update_usage(
                    parse_field::<Message<'_>>(event.message).and_then(|message| message.usage),
                );
            }
            "content_block_start" => self.open_block(event, each)?,
            "content_block_delta" => self.append_to_block(event, each)?,
            "content_block_stop" => self.close_block(event)?,
            "message_delta" => {
                self.update_usage(event.usage);
                let reason =
                    parse_field::<Block<'_>>(event.delta).and_then(|delta| parse_text(delta.stop_reason));
                if let Some(reason) = reason {
                    self.state.set_stop_reason(stop_reason(&reason));
                }
            }
            "message_stop" => {
                self.check_open_calls()?;
                self.complete = true;
                self.emit_stored_reasoning(each)?;
                self.state.emit_calls(each);
            }
            _ if event.error.is_some() => return Err(fault_from_error(event.error)),
            _ => {}
        }
        Ok(())
    }

    fn open_block(&mut self, event: &Event<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let Some(block) = parse_field_strict::<Block<'_>>(event.content_block)? else { return Ok(()) };
        let (index, kind) = (block_index(event), parse_text(block.kind).unwrap_or_default());
        if kind != "tool_use" {
            self.start_reasoning(index, &kind, &block);
            self.emit_block(index, &block, each);
            return Ok(());
        }
        let call = self.state.call_mut((index, 0))?;
        call.id = parse_text(block.id).unwrap_or_default();
        call.name.clear();
        call.arguments.clear();
        append_to_call(call, &parse_field_strict::<String>(block.name)?.unwrap_or_default(), "")?;
        // Empty if the input follows as deltas; servers that do not stream it send all of it here.
        if let Some(input) = block.input.map(|input| input.get()).filter(|input| !is_empty_input(input)) {
            append_to_call(call, "", input)?;
        }
        self.open_calls.insert(index);
        Ok(())
    }

    fn append_to_block(&mut self, event: &Event<'_>, each: EventSink<'_>) -> Result<(), Fault> {
        let index = block_index(event);
        // Blocks of server tools use the same deltas and are ignored.
        if self.open_calls.contains(&index) {
            let delta = parse_field_strict::<Block<'_>>(event.delta)?;
            let more = parse_field_strict::<String>(delta.and_then(|delta| delta.partial_json))?;
            return append_to_call(self.state.call_mut((index, 0))?, "", &more.unwrap_or_default());
        }
        if let Some(delta) = parse_field::<Block<'_>>(event.delta) {
            self.emit_block(index, &delta, each);
        }
        Ok(())
    }

    fn start_reasoning(&mut self, index: u64, kind: &str, block: &Block<'_>) {
        let block = match kind {
            "thinking" => ThinkingBlock::Thinking { thinking: String::new(), signature: String::new() },
            "redacted_thinking" => {
                ThinkingBlock::RedactedThinking { data: parse_text(block.data).unwrap_or_default() }
            }
            _ => return,
        };
        self.reasoning_bytes += BLOCK_BYTES;
        if let ThinkingBlock::RedactedThinking { data } = &block {
            self.reasoning_bytes += data.len();
        }
        self.reasoning.insert(index, block);
    }

    fn emit_block(&mut self, index: u64, block: &Block<'_>, each: EventSink<'_>) {
        if let Some(ThinkingBlock::Thinking { thinking, signature }) = self.reasoning.get_mut(&index) {
            let before = thinking.len() + signature.len();
            thinking.push_str(&parse_text(block.thinking).unwrap_or_default());
            signature.push_str(&parse_text(block.signature).unwrap_or_default());
            self.reasoning_bytes += thinking.len() + signature.len() - before;
        }
        if let Some(text) = parse_text(block.thinking) {
            self.state.emit_reasoning(text, each);
        }
        if let Some(text) = parse_text(block.text) {
            self.state.emit_text(text, each);
        }
    }

    fn close_block(&mut self, event: &Event<'_>) -> Result<(), Fault> {
        let index = block_index(event);
        if !self.open_calls.contains(&index) {
            return Ok(());
        }
        let call = self.state.call_mut((index, 0))?;
        if call.arguments.trim().is_empty() {
            "{}".clone_into(&mut call.arguments);
        }
        // Incomplete arguments were truncated by a limit or are malformed; the stop reason follows.
        if is_json_object(&call.arguments) {
            self.open_calls.remove(&index);
        }
        Ok(())
    }

    /// Fails if a tool call is incomplete: then none of the response's calls may run.
    fn check_open_calls(&self) -> Result<(), Fault> {
        if self.open_calls.is_empty() {
            return Ok(());
        }
        Err(model_fault("The model's answer was cut off in the middle of a tool call.".to_owned()))
    }

    /// Emits the signed thinking blocks if the response has tool calls; otherwise they are never sent back. The API
    /// rejects unsigned blocks, and servers that do not sign them do not need them.
    fn emit_stored_reasoning(&mut self, each: EventSink<'_>) -> Result<(), Fault> {
        let signed: Vec<_> = self.reasoning.values().filter(|block| block.is_signed()).collect();
        if signed.is_empty() || !self.state.has_calls() {
            return Ok(());
        }
        let encoded = serde_json::to_string(&signed);
        each(Ok(ModelEvent::ReasoningBlock(encoded.map_err(encode_fault)?)));
        Ok(())
    }

    fn update_usage(&mut self, report: RawField<'_>) {
        let Some(report) = parse_field::<RawUsage<'_>>(report) else { return };
        let raise = |total: &mut TokenCount, raw| *total = (*total).max(parse_token_count(raw).unwrap_or(0));
        let totals = &mut self.usage_totals;
        raise(&mut totals.uncached_input, report.input_tokens);
        raise(&mut totals.output, report.output_tokens);
        raise(&mut totals.cache_written, report.cache_creation_input_tokens);
        raise(&mut totals.cached, report.cache_read_input_tokens);
        self.state.set_usage(Usage {
            input: totals.uncached_input.saturating_add(totals.cache_written).saturating_add(totals.cached),
            output: totals.output,
            cached: totals.cached,
            cache_written: totals.cache_written,
            reasoning: 0,
            estimated: 0,
        });
    }
}

fn block_index(event: &Event<'_>) -> u64 {
    parse_field(event.index).unwrap_or(0)
}

fn is_empty_input(input: &str) -> bool {
    input == "\"\"" || serde_json::from_str(input).is_ok_and(|members: Map<String, Value>| members.is_empty())
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolCalls,
        // After a pause the model wants to continue, as after a limit.
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => StopReason::Length,
        "refusal" => StopReason::Filtered,
        _ => StopReason::Finished,
    }
}
