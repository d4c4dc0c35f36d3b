//! Reads the events of a Messages answer: blocks that open, grow and close; the calls among them are handed on when the
//! answer ends.

use std::collections::{BTreeMap, BTreeSet};

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, TokenCount, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dialect::AnswerReader;
use crate::reading::{
    Each, End, Progress, Raw, grow, is_object, model_fault, part, piece, text, tokens, told_fault,
};
use crate::writing::unwritten;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    index: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow)]
    content_block: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// A block as it begins, or more of one.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    signature: Raw<'a>,
    #[serde(borrow)]
    data: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    partial_json: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    usage: Raw<'a>,
}

#[derive(Deserialize)]
struct Report<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_read_input_tokens: Raw<'a>,
}

/// What was counted so far; each report may tell a part of it, and later ones tell more.
#[derive(Debug, Default)]
struct Counted {
    fresh: TokenCount,
    output: TokenCount,
    written: TokenCount,
    cached: TokenCount,
}

/// A block that has to come back as it was with the calls behind it: the API refuses their results without it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thought {
    Thinking { thinking: String, signature: String },
    RedactedThinking { data: String },
}

impl Thought {
    fn is_signed(&self) -> bool {
        match self {
            Self::Thinking { signature, .. } => !signature.is_empty(),
            Self::RedactedThinking { .. } => true,
        }
    }
}

/// Collects one answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicReader {
    progress: Progress,
    counted: Counted,
    /// What it thought, by the index of the block.
    thoughts: BTreeMap<u64, Thought>,
    /// The calls whose block is still open, by its index.
    open_calls: BTreeSet<u64>,
    /// `message_stop` has come.
    whole: bool,
}

impl AnswerReader for AnthropicReader {
    /// Events that are not known are passed over, as the API's versioning asks for.
    fn take(&mut self, data: &[u8], each: Each<'_>) {
        if self.is_whole() {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            return self.progress.pass_over(data, each);
        };
        if let Err(fault) = self.take_event(&event, each) {
            self.progress.fail(fault, each);
        }
    }

    fn is_whole(&self) -> bool {
        self.whole || self.progress.has_failed()
    }

    fn finish(&mut self, each: Each<'_>) {
        self.progress.finish(End::from(self.whole), each);
    }

    fn has_begun(&self) -> bool {
        self.progress.has_begun()
    }
}

impl AnthropicReader {
    fn take_event(&mut self, event: &Event<'_>, each: Each<'_>) -> Result<(), Fault> {
        let kind = text(event.kind).unwrap_or_default();
        match kind.as_str() {
            "message_start" => {
                self.count(part::<Message<'_>>(event.message).and_then(|message| message.usage));
            }
            "content_block_start" => self.open_block(event, each)?,
            "content_block_delta" => self.grow_block(event, each)?,
            "content_block_stop" => self.close_block(event)?,
            "message_delta" => {
                self.count(event.usage);
                let reason = part::<Block<'_>>(event.delta).and_then(|delta| text(delta.stop_reason));
                if let Some(reason) = reason {
                    self.progress.stopped(stop_reason(&reason));
                }
            }
            "message_stop" => {
                self.check_open_calls()?;
                self.whole = true;
                self.hand_on_thoughts(each)?;
                self.progress.hand_on_calls(each);
            }
            _ if event.error.is_some() => return Err(told_fault(event.error)),
            _ => {}
        }
        Ok(())
    }

    fn open_block(&mut self, event: &Event<'_>, each: Each<'_>) -> Result<(), Fault> {
        let Some(block) = piece::<Block<'_>>(event.content_block)? else { return Ok(()) };
        let (index, kind) = (index(event), text(block.kind).unwrap_or_default());
        if kind != "tool_use" {
            self.begin_thought(index, &kind, &block);
            self.speak(index, &block, each);
            return Ok(());
        }
        let call = self.progress.call((index, 0))?;
        call.id = text(block.id).unwrap_or_default();
        call.name.clear();
        call.arguments.clear();
        grow(call, &piece::<String>(block.name)?.unwrap_or_default(), "")?;
        // Empty where the input follows in pieces; servers that do not stream it have all of it here.
        if let Some(input) = block.input.map(|input| input.get()).filter(|input| !is_empty(input)) {
            grow(call, "", input)?;
        }
        self.open_calls.insert(index);
        Ok(())
    }

    fn grow_block(&mut self, event: &Event<'_>, each: Each<'_>) -> Result<(), Fault> {
        let index = index(event);
        // Blocks of the provider's own tools grow by the same pieces, and are none of ours.
        if self.open_calls.contains(&index) {
            let delta = piece::<Block<'_>>(event.delta)?;
            let more = piece::<String>(delta.and_then(|delta| delta.partial_json))?;
            return grow(self.progress.call((index, 0))?, "", &more.unwrap_or_default());
        }
        if let Some(delta) = part::<Block<'_>>(event.delta) {
            self.speak(index, &delta, each);
        }
        Ok(())
    }

    fn begin_thought(&mut self, index: u64, kind: &str, block: &Block<'_>) {
        let thought = match kind {
            "thinking" => Thought::Thinking { thinking: String::new(), signature: String::new() },
            "redacted_thinking" => Thought::RedactedThinking { data: text(block.data).unwrap_or_default() },
            _ => return,
        };
        self.thoughts.insert(index, thought);
    }

    fn speak(&mut self, index: u64, block: &Block<'_>, each: Each<'_>) {
        if let Some(Thought::Thinking { thinking, signature }) = self.thoughts.get_mut(&index) {
            thinking.push_str(&text(block.thinking).unwrap_or_default());
            signature.push_str(&text(block.signature).unwrap_or_default());
        }
        if let Some(thought) = text(block.thinking) {
            self.progress.think(thought, each);
        }
        if let Some(text) = text(block.text) {
            self.progress.say(text, each);
        }
    }

    fn close_block(&mut self, event: &Event<'_>) -> Result<(), Fault> {
        let index = index(event);
        if !self.open_calls.contains(&index) {
            return Ok(());
        }
        let call = self.progress.call((index, 0))?;
        if call.arguments.trim().is_empty() {
            "{}".clone_into(&mut call.arguments);
        }
        // What is no object yet was cut by a limit, or is broken: the reason comes behind it.
        if is_object(&call.arguments) {
            self.open_calls.remove(&index);
        }
        Ok(())
    }

    /// A call that never became whole must not run, and the others of its answer not without it.
    fn check_open_calls(&self) -> Result<(), Fault> {
        if self.open_calls.is_empty() {
            return Ok(());
        }
        Err(model_fault("The model's answer was cut off in the middle of a tool call.".to_owned()))
    }

    /// Only calls make them needed again. One without a signature would be refused; servers that give none want none.
    fn hand_on_thoughts(&mut self, each: Each<'_>) -> Result<(), Fault> {
        let thoughts: Vec<_> = self.thoughts.values().filter(|thought| thought.is_signed()).collect();
        if thoughts.is_empty() || !self.progress.has_calls() {
            return Ok(());
        }
        let written = serde_json::to_string(&thoughts);
        each(Ok(ModelEvent::ReasoningBlock(written.map_err(unwritten)?)));
        Ok(())
    }

    fn count(&mut self, report: Raw<'_>) {
        let Some(report) = part::<Report<'_>>(report) else { return };
        let latest = |known: &mut TokenCount, raw| *known = (*known).max(tokens(raw).unwrap_or(0));
        let counted = &mut self.counted;
        latest(&mut counted.fresh, report.input_tokens);
        latest(&mut counted.output, report.output_tokens);
        latest(&mut counted.written, report.cache_creation_input_tokens);
        latest(&mut counted.cached, report.cache_read_input_tokens);
        self.progress.used(Usage {
            input: counted.fresh.saturating_add(counted.written).saturating_add(counted.cached),
            output: counted.output,
            cached: counted.cached,
            cache_written: counted.written,
            reasoning: 0,
        });
    }
}

fn index(event: &Event<'_>) -> u64 {
    part(event.index).unwrap_or(0)
}

fn is_empty(input: &str) -> bool {
    input == "\"\"" || serde_json::from_str(input).is_ok_and(|members: Map<String, Value>| members.is_empty())
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolCalls,
        // Behind a pause the model wants to go on, as behind a limit.
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => StopReason::Length,
        "refusal" => StopReason::Filtered,
        _ => StopReason::Finished,
    }
}
