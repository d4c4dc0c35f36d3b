//! Decoding loop of one response: free text, text that may turn into tool calls, or text constrained by a grammar.
//! `generation` decides which.

use std::ops::ControlFlow;

use llguidance::Matcher;
use serde_json::Value;

use super::call_detector::{CallDetector, DetectorOutput};
use super::prompt_cache::Conversation;
use super::sampler::Sampler;
use super::text_decoder::{DecoderOutput, TextDecoder};
use super::{ChatTool, ChatToolCall, FinishReason, GenerationEvent, GenerationFault};
use crate::chat::template::{CALL_END_TAG, CALL_START_TAG, python_json};
use crate::chat::vocabulary::Vocabulary;

/// Most calls of one response; a small model may not stop by itself.
pub(crate) const RESPONSE_CALLS_MAX: usize = 8;
/// Number of remaining tokens at which constrained decoding starts to close open JSON.
const CLOSING_TOKENS: usize = 40;
/// Repetitions after which a response counts as a loop.
const REPETITIONS_MIN: usize = 6;
/// Loop detection under a grammar, where long repetitions are never intended.
const CONSTRAINED_REPETITION: RepetitionRule = RepetitionRule { period_max: 16, tokens_min: 48 };
/// Loop detection in free text, which may contain tables and horizontal rules.
const FREE_REPETITION: RepetitionRule = RepetitionRule { period_max: 64, tokens_min: 256 };

/// Why a generation stops early.
#[derive(Debug)]
pub(crate) enum EarlyExit {
    Cancelled,
    Length,
    Fault(GenerationFault),
}

/// State of one generation.
pub(crate) struct GenerationRun<'a> {
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) conversation: Conversation<'a>,
    pub(crate) on_event: &'a mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    pub(crate) sampler: Sampler,
    pub(crate) window_tokens: usize,
    /// Remaining token budget of the response.
    pub(crate) tokens_left: usize,
    pub(crate) answer_tokens: usize,
    pub(crate) calls: Vec<ChatToolCall>,
    /// Part of the call ids, so that they differ between responses.
    pub(crate) prompt_hash: u64,
    pub(crate) logits: Vec<f32>,
}

impl GenerationRun<'_> {
    /// Evaluates the uncached part of `prompt`, in chunks.
    pub(crate) fn prefill(&mut self, prompt: &[u32]) -> Result<(), EarlyExit> {
        let mut remaining = &prompt[self.conversation.len()..];
        while !remaining.is_empty() {
            let (chunk, after) = remaining.split_at(remaining.len().min(self.conversation.chunk_tokens()));
            let logits = after.is_empty().then_some(&mut self.logits);
            self.conversation.eval(chunk, logits).map_err(engine_failure)?;
            self.emit(GenerationEvent::PromptProgress {
                tokens: self.conversation.len(),
                total_tokens: prompt.len(),
            })?;
            remaining = after;
        }
        Ok(())
    }

    /// Generates text until the model ends its turn or generates one of `stops`. With `tools` the text may turn into
    /// calls, which are then constrained by a matcher from `grammar`.
    pub(crate) fn generate_text(
        &mut self,
        stops: &[String],
        tools: &[ChatTool],
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<FinishReason, EarlyExit> {
        let tag: &[&str] = if tools.is_empty() { &[] } else { &[CALL_START_TAG] };
        let mut decoder = TextDecoder::new(tag.iter().copied().chain(stops.iter().map(String::as_str)));
        let mut detector = CallDetector::new(tools);
        let mut generated = GeneratedText {
            start_position: self.conversation.len(),
            bytes: Vec::new(),
            token_ends: Vec::new(),
        };
        let mut tokens = Vec::new();
        loop {
            let sampled = if FREE_REPETITION.detects(&tokens) {
                Err(EarlyExit::Length)
            } else {
                self.sample_token(None)
            };
            let Ok(Some(token)) = sampled else {
                self.emit_text(&(detector.flush() + &decoder.flush()))?;
                return sampled.map(|_| FinishReason::Stop);
            };
            tokens.push(token);
            generated.push(self.vocabulary.token_bytes(token));
            let (text, matched) = match decoder.push(self.vocabulary.token_bytes(token)) {
                DecoderOutput::Text(text) => (text, None),
                DecoderOutput::Matched(text, pattern) => (text, Some(pattern)),
            };
            match (detector.push(&text), matched) {
                (DetectorOutput::Call(text, call_bytes), _) => {
                    self.emit_text(&text)?;
                    let after_call =
                        decoder.flush().len() + matched.map_or(0, |pattern| decoder.pattern_bytes(pattern));
                    return self.switch_to_calls(&generated, after_call + call_bytes, grammar);
                }
                (DetectorOutput::Text(text), Some(0)) if !tools.is_empty() => {
                    self.emit_text(&text)?;
                    // A code fence before the tag is held back by the detector and removed with it.
                    let discarded = decoder.flush().len() + CALL_START_TAG.len() + detector.flush().len();
                    return self.switch_to_calls(&generated, discarded, grammar);
                }
                (DetectorOutput::Text(text), Some(_)) => {
                    self.emit_text(&(text + &detector.flush()))?;
                    return Ok(FinishReason::Stop);
                }
                (DetectorOutput::Text(text), None) => self.emit_text(&text)?,
            }
            self.eval_token(token)?;
        }
    }

    /// Discards the last `discarded_bytes` of the generated text and generates tool calls from there.
    fn switch_to_calls(
        &mut self,
        generated: &GeneratedText,
        discarded_bytes: usize,
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<FinishReason, EarlyExit> {
        let end = generated.bytes.len().saturating_sub(discarded_bytes);
        let whole_tokens = generated.token_ends.iter().take_while(|token_end| **token_end <= end).count();
        let whole_bytes = if whole_tokens == 0 { 0 } else { generated.token_ends[whole_tokens - 1] };
        self.conversation.truncate(generated.start_position + whole_tokens).map_err(engine_failure)?;
        // A token may cross `end`; its bytes before `end` are encoded anew.
        let remainder = String::from_utf8_lossy(&generated.bytes[whole_bytes..end]).into_owned();
        self.eval_tokens(&self.vocabulary.encode_plain(&remainder))?;
        self.eval_tokens(&self.vocabulary.encode_rendered(&format!("{CALL_START_TAG}\n")))?;
        self.generate_calls(grammar, RESPONSE_CALLS_MAX)
    }

    /// Generates at most `calls_max` tool calls; the evaluated text ends with the first call's start tag.
    pub(crate) fn generate_calls(
        &mut self,
        grammar: &dyn Fn() -> Result<Matcher, String>,
        calls_max: usize,
    ) -> Result<FinishReason, EarlyExit> {
        loop {
            let mut matcher =
                grammar().map_err(|reason| EarlyExit::Fault(GenerationFault::Refused(reason)))?;
            let text = self.decode_constrained(&mut matcher, Emission::Buffered)?;
            let Some(call) = self.parse_call(&text) else {
                return Err(engine_failure("its tool call is truncated".to_owned()));
            };
            let is_duplicate = self
                .calls
                .iter()
                .any(|earlier| earlier.name == call.name && earlier.arguments == call.arguments);
            if !is_duplicate {
                self.emit(GenerationEvent::ToolCall(&call))?;
                self.calls.push(call);
            }
            if is_duplicate || self.calls.len() >= calls_max || !self.wants_another_call()? {
                return Ok(FinishReason::ToolCalls);
            }
        }
    }

    /// Evaluates the end tag of the current call; returns whether the model then generates another start tag.
    fn wants_another_call(&mut self) -> Result<bool, EarlyExit> {
        self.eval_tokens(&self.vocabulary.encode_rendered(&format!("\n{CALL_END_TAG}")))?;
        let mut text = Vec::new();
        loop {
            let Some(token) = self.sample_token(None)? else { return Ok(false) };
            text.extend_from_slice(self.vocabulary.token_bytes(token));
            let tag = text.trim_ascii_start();
            let is_complete = tag.len() >= CALL_START_TAG.len();
            if is_complete && tag.trim_ascii_end() == CALL_START_TAG.as_bytes() {
                self.eval_token(token)?;
                return Ok(true);
            }
            if is_complete || !CALL_START_TAG.as_bytes().starts_with(tag) || text.len() > 64 {
                return Ok(false);
            }
            self.eval_token(token)?;
        }
    }

    /// Generates and streams a response constrained by `matcher`.
    pub(crate) fn generate_constrained(&mut self, matcher: &mut Matcher) -> Result<FinishReason, EarlyExit> {
        self.decode_constrained(matcher, Emission::Streamed).map(|_| FinishReason::Stop)
    }

    /// Generates a response constrained by `matcher`: either a call of one of `tools` or JSON of the response schema.
    pub(crate) fn generate_constrained_or_call(
        &mut self,
        matcher: &mut Matcher,
        tools: &[ChatTool],
    ) -> Result<FinishReason, EarlyExit> {
        let text = self.decode_constrained(matcher, Emission::Buffered)?;
        if let Some(call) =
            self.parse_call(&text).filter(|call| tools.iter().any(|tool| tool.name == call.name))
        {
            self.emit(GenerationEvent::ToolCall(&call))?;
            self.calls.push(call);
            return Ok(FinishReason::ToolCalls);
        }
        self.emit_text(&text)?;
        Ok(FinishReason::Stop)
    }

    fn parse_call(&self, text: &str) -> Option<ChatToolCall> {
        let value: Value = serde_json::from_str(text).ok()?;
        let object = value.as_object().filter(|object| object.len() == 2)?;
        let name = object.get("name")?.as_str()?.to_owned();
        let arguments = object.get("arguments").filter(|arguments| arguments.is_object())?;
        let id = format!("call_{:016x}{}", self.prompt_hash, self.calls.len());
        Some(ChatToolCall { id, name, arguments: python_json(arguments).ok()? })
    }

    /// Decodes until the grammar is complete; returns the text.
    fn decode_constrained(&mut self, matcher: &mut Matcher, emission: Emission) -> Result<String, EarlyExit> {
        // llguidance's message is about its internals, so it is logged and the client gets a general text.
        let grammar_failure = |fault: &dyn std::fmt::Display| {
            tracing::warn!("constrained decoding failed: {fault}");
            let text = "the schema is too large or too unspecific for constrained decoding; make it smaller";
            EarlyExit::Fault(GenerationFault::Refused(text.to_owned()))
        };
        let (mut decoder, mut generated, mut tokens) = (TextDecoder::new([]), Vec::<u8>::new(), Vec::new());
        let mut closing = false;
        while !matcher.is_stopped() {
            closing =
                closing || self.tokens_left <= CLOSING_TOKENS || CONSTRAINED_REPETITION.detects(&tokens);
            let mask = matcher.compute_mask().map_err(|fault| grammar_failure(&fault))?;
            let closing_token =
                closing.then(|| self.closing_token(&generated, &|token| mask.is_allowed(token))).flatten();
            mask.iter_unset_entries(|token| mask_token(&mut self.logits, token));
            let Some(token) = self.sample_token(closing_token)? else { break };
            matcher.consume_token(token).map_err(|fault| grammar_failure(&fault))?;
            let bytes = self.vocabulary.token_bytes(token);
            generated.extend_from_slice(bytes);
            tokens.push(token);
            match (decoder.push(bytes), emission) {
                (DecoderOutput::Text(text) | DecoderOutput::Matched(text, _), Emission::Streamed) => {
                    self.emit_text(&text)?;
                }
                _ => self.emit_text("")?,
            }
            self.eval_token(token)?;
        }
        if let Emission::Streamed = emission {
            self.emit_text(&decoder.flush())?;
        }
        Ok(String::from_utf8_lossy(&generated).into_owned())
    }

    /// Returns the allowed token that closes the open JSON soonest. Inside a string a brace would only be more text, so
    /// the quotation mark comes first, except directly after an opening brace or bracket.
    fn closing_token(&self, generated: &[u8], is_allowed: &dyn Fn(u32) -> bool) -> Option<u32> {
        let order = match generated.last() {
            Some(b'{') => ["}", "\"", "]", ","],
            Some(b'[') => ["]", "\"", "}", ","],
            _ => ["\"", "}", "]", ","],
        };
        let token = |text: &str| self.vocabulary.encode_plain(text).first().copied();
        order.into_iter().filter_map(token).find(|token| is_allowed(*token))
    }

    /// Returns the next token: `forced`, or a sampled one; `None` for an end token.
    fn sample_token(&mut self, forced: Option<u32>) -> Result<Option<u32>, EarlyExit> {
        if self.tokens_left == 0 || self.conversation.len() >= self.window_tokens {
            return Err(EarlyExit::Length);
        }
        let sampled = forced.or_else(|| self.sampler.sample(&self.logits));
        let token = sampled
            .ok_or_else(|| engine_failure("no logit is finite; the model file may be damaged".to_owned()))?;
        self.tokens_left -= 1;
        self.answer_tokens += 1;
        Ok((!self.vocabulary.is_end_token(token)).then_some(token))
    }

    fn eval_token(&mut self, token: u32) -> Result<(), EarlyExit> {
        self.eval_tokens(&[token])
    }

    fn eval_tokens(&mut self, tokens: &[u32]) -> Result<(), EarlyExit> {
        if self.conversation.len() + tokens.len() > self.window_tokens {
            return Err(EarlyExit::Length);
        }
        if tokens.is_empty() {
            return Ok(());
        }
        self.conversation.eval(tokens, Some(&mut self.logits)).map_err(engine_failure)
    }

    /// Emits `text`, which may be empty: every token gives the callback a chance to cancel.
    fn emit_text(&mut self, text: &str) -> Result<(), EarlyExit> {
        self.emit(GenerationEvent::Text(text))
    }

    fn emit(&mut self, event: GenerationEvent<'_>) -> Result<(), EarlyExit> {
        match (self.on_event)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EarlyExit::Cancelled),
        }
    }
}

fn engine_failure(reason: String) -> EarlyExit {
    EarlyExit::Fault(GenerationFault::Failed(reason))
}

fn mask_token(logits: &mut [f32], token: usize) {
    if let Some(logit) = logits.get_mut(token) {
        *logit = f32::NEG_INFINITY;
    }
}

/// Whether constrained text is streamed or returned at the end.
#[derive(Clone, Copy)]
enum Emission {
    Streamed,
    Buffered,
}

/// Text of a free response so far, with the end of each token.
struct GeneratedText {
    start_position: usize,
    bytes: Vec<u8>,
    token_ends: Vec<usize>,
}

impl GeneratedText {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.token_ends.push(self.bytes.len());
    }
}

/// Loop detection: the last tokens repeat with a short period.
struct RepetitionRule {
    /// Longest period, in tokens.
    period_max: usize,
    /// Fewest tokens of all repetitions together.
    tokens_min: usize,
}

impl RepetitionRule {
    fn detects(&self, tokens: &[u32]) -> bool {
        (1..=self.period_max).any(|period| {
            let length = self.tokens_min.max(period * REPETITIONS_MIN);
            tokens.len() >= length && {
                let tail = &tokens[tokens.len() - length..];
                tail.iter().zip(&tail[period..]).all(|(a, b)| a == b)
            }
        })
    }
}

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
