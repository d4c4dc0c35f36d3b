//! Reads the events of a chat-completions answer: text and thoughts as they come, tool calls when they are whole.

use agent::outside::{ModelEvent, StopReason};
use agent::{Fault, Usage};
use serde::Deserialize;

use super::thoughts::{Collector, Maker};
use crate::catalog::Thinking;
use crate::dialect::AnswerReader;
use crate::reading::{
    CallPlace, Each, End, Progress, Raw, grow, is_object, model_fault, more_arguments, part, piece, text,
    tokens, told_fault,
};

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    finish_reason: Raw<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    refusal: Raw<'a>,
    /// Three spellings of what the model thinks; some servers send two of them, with the same text.
    #[serde(borrow)]
    reasoning_content: Raw<'a>,
    #[serde(borrow)]
    reasoning: Raw<'a>,
    #[serde(borrow)]
    reasoning_text: Raw<'a>,
    /// OpenRouter's, which are wanted back.
    #[serde(borrow)]
    reasoning_details: Raw<'a>,
    #[serde(borrow)]
    tool_calls: Raw<'a>,
}

/// A piece of a content that is a list.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    #[serde(borrow)]
    index: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    function: Raw<'a>,
    /// Gemini's, which is wanted back.
    #[serde(borrow)]
    extra_content: Raw<'a>,
}

#[derive(Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct Report<'a> {
    #[serde(borrow)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow)]
    completion_tokens: Raw<'a>,
    #[serde(borrow)]
    prompt_tokens_details: Raw<'a>,
    #[serde(borrow)]
    completion_tokens_details: Raw<'a>,
    /// DeepSeek's word for what was cached.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_write_tokens: Raw<'a>,
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
}

/// Collects one answer.
#[derive(Debug)]
pub(super) struct ChatReader {
    progress: Progress,
    thoughts: Collector,
    /// A chunk of an answer has come, whatever was in it.
    seen_any: bool,
    /// A finish reason has come, or `[DONE]`.
    finished: bool,
    /// `[DONE]` has come: what follows is no part of the answer.
    whole: bool,
}

impl AnswerReader for ChatReader {
    fn take(&mut self, data: &[u8], each: Each<'_>) {
        if self.is_whole() {
            return;
        }
        if data == b"[DONE]" {
            (self.finished, self.whole) = (true, true);
            self.hand_on_calls(each);
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else {
            return self.progress.pass_over(data, each);
        };
        self.seen_any = true;
        match self.take_chunk(&chunk, each) {
            Err(fault) => self.progress.fail(fault, each),
            Ok(()) if self.finished => self.hand_on_calls(each),
            Ok(()) => {}
        }
    }

    fn is_whole(&self) -> bool {
        self.whole || self.progress.has_failed()
    }

    fn finish(&mut self, each: Each<'_>) {
        self.progress.finish(End::from(self.finished && self.seen_any), each);
    }

    fn has_begun(&self) -> bool {
        self.progress.has_begun()
    }
}

impl ChatReader {
    pub(super) fn new(wanted: Thinking, maker: Maker) -> Self {
        let thoughts = Collector::new(wanted, maker);
        Self { progress: Progress::default(), thoughts, seen_any: false, finished: false, whole: false }
    }

    /// Hands the calls on, and before them what has to be kept with them.
    fn hand_on_calls(&mut self, each: Each<'_>) {
        match self.thoughts.hand_on(self.progress.places()) {
            Ok(Some(thoughts)) => each(Ok(ModelEvent::ReasoningBlock(thoughts))),
            Ok(None) => {}
            Err(fault) => return self.progress.fail(fault, each),
        }
        self.progress.hand_on_calls(each);
    }

    fn take_chunk(&mut self, chunk: &Chunk<'_>, each: Each<'_>) -> Result<(), Fault> {
        if chunk.error.is_some() {
            return Err(told_fault(chunk.error));
        }
        if let Some(report) = part(chunk.usage) {
            self.progress.used(usage(&report));
        }
        for choice in self.progress.part::<Vec<Raw<'_>>>(chunk.choices)?.into_iter().flatten() {
            self.take_choice(choice, each)?;
        }
        Ok(())
    }

    fn take_choice(&mut self, choice: Raw<'_>, each: Each<'_>) -> Result<(), Fault> {
        let Some(choice) = self.progress.part::<Choice<'_>>(choice)? else { return Ok(()) };
        if let Some(delta) = self.progress.part::<Delta<'_>>(choice.delta)? {
            self.take_delta(&delta, each)?;
        }
        let Some(reason) = text(choice.finish_reason) else { return Ok(()) };
        self.finished = true;
        self.progress.stopped(match reason.as_str() {
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

    fn take_delta(&mut self, delta: &Delta<'_>, each: Each<'_>) -> Result<(), Fault> {
        let thoughts = [delta.reasoning_content, delta.reasoning, delta.reasoning_text];
        if let Some(thought) = thoughts.into_iter().find_map(text) {
            self.progress.think(thought, each);
        }
        self.thoughts.read(delta.reasoning_content);
        self.thoughts.read_details(delta.reasoning_details);
        self.take_content(delta.content, each);
        if let Some(refusal) = text(delta.refusal) {
            self.progress.say(refusal, each);
            self.progress.stopped(StopReason::Filtered);
        }
        for raw in piece::<Vec<Raw<'_>>>(delta.tool_calls)?.into_iter().flatten() {
            if let Some(call) = piece(raw)? {
                self.take_call(&call)?;
            }
        }
        Ok(())
    }

    /// A text, or as Mistral has it a list of texts and thoughts.
    fn take_content(&mut self, content: Raw<'_>, each: Each<'_>) {
        if let Some(text) = text(content) {
            return self.progress.say(text, each);
        }
        for piece in part::<Vec<Raw<'_>>>(content).into_iter().flatten() {
            let Some(piece) = part::<Piece<'_>>(piece) else { continue };
            for thought in part::<Vec<Raw<'_>>>(piece.thinking).into_iter().flatten() {
                if let Some(thought) = part::<Piece<'_>>(thought).and_then(|thought| text(thought.text)) {
                    self.progress.think(thought, each);
                }
            }
            if let Some(text) = text(piece.text) {
                self.progress.say(text, each);
            }
        }
    }

    fn take_call(&mut self, more: &CallPiece<'_>) -> Result<(), Fault> {
        let function = piece::<FunctionPiece<'_>>(more.function)?;
        let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let (name, arguments) = (piece::<String>(name)?.unwrap_or_default(), more_arguments(arguments)?);
        let id = text(more.id);
        let place = self.place(part(more.index).unwrap_or(0), id.as_deref(), &name);
        self.thoughts.read_call(place, more.extra_content);
        let call = self.progress.call(place)?;
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            call.id = id;
        }
        // Some servers say the name again with every piece.
        let name = if name == call.name { "" } else { &name };
        grow(call, name, &arguments)
    }

    /// Some servers give every call the index 0: then a name with a new id is a new call, and without ids a name behind
    /// whole arguments is. Others give every piece of a call an id of its own; such a piece has no name.
    fn place(&self, index: u64, id: Option<&str>, name: &str) -> CallPlace {
        let Some((place, call)) = self.progress.last_call(index) else { return (index, 0) };
        let is_new = match id {
            _ if name.is_empty() => false,
            Some(id) => !call.id.is_empty() && call.id != id,
            None => is_object(&call.arguments),
        };
        (index, place.1.saturating_add(u32::from(is_new)))
    }
}

fn usage(report: &Report<'_>) -> Usage {
    let details = |raw| part::<Details<'_>>(raw);
    let prompt = details(report.prompt_tokens_details);
    let completion = details(report.completion_tokens_details);
    let cached = prompt.as_ref().and_then(|details| tokens(details.cached_tokens));
    Usage {
        input: tokens(report.prompt_tokens).unwrap_or(0),
        output: tokens(report.completion_tokens).unwrap_or(0),
        cached: cached.or(tokens(report.prompt_cache_hit_tokens)).unwrap_or(0),
        cache_written: prompt.and_then(|details| tokens(details.cache_write_tokens)).unwrap_or(0),
        reasoning: completion.and_then(|details| tokens(details.reasoning_tokens)).unwrap_or(0),
    }
}
