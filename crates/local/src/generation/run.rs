//! One answer from its first token to its last: free text, text that may turn into calls, or text that
//! follows a grammar. The plan of an answer is `generation`'s.

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

/// Calls of one answer: a small model would go on for ever.
const RESPONSE_CALLS_MAX: usize = 8;
/// With so few tokens left a grammar is brought to its end instead of being followed at leisure.
const CLOSING_TOKENS: usize = 40;
/// An answer that has repeated itself this often goes nowhere.
const REPETITIONS_MIN: usize = 6;
/// What goes in circles under a grammar, where nothing long repeats itself for a reason.
const CONSTRAINED_REPETITION: RepetitionRule = RepetitionRule { period_max: 16, tokens_min: 48 };
/// And in free text, where there are tables and rulers.
const FREE_REPETITION: RepetitionRule = RepetitionRule { period_max: 64, tokens_min: 256 };

/// Why an answer stops before its end.
#[derive(Debug)]
pub(crate) enum EarlyExit {
    Cancelled,
    Length,
    Fault(GenerationFault),
}

/// What one answer needs.
pub(crate) struct GenerationRun<'a> {
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) conversation: Conversation<'a>,
    pub(crate) on_event: &'a mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    pub(crate) sampler: Sampler,
    pub(crate) window_tokens: usize,
    /// Answer tokens that may still come.
    pub(crate) tokens_left: usize,
    pub(crate) answer_tokens: usize,
    pub(crate) calls: Vec<ChatToolCall>,
    /// Makes the ids of calls differ between answers.
    pub(crate) prompt_hash: u64,
    pub(crate) logits: Vec<f32>,
}

impl GenerationRun<'_> {
    /// Reads what the conversation does not hold of `prompt`, in chunks.
    pub(crate) fn prefill(&mut self, prompt: &[u32]) -> Result<(), EarlyExit> {
        let mut rest = &prompt[self.conversation.len()..];
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(self.conversation.chunk_tokens()));
            let scores = behind.is_empty().then_some(&mut self.logits);
            self.conversation.eval(chunk, scores).map_err(engine_failure)?;
            self.emit(GenerationEvent::PromptProgress {
                tokens: self.conversation.len(),
                total_tokens: prompt.len(),
            })?;
            rest = behind;
        }
        Ok(())
    }

    /// Text until the model is done or says one of `stops`; with `tools` it may turn into calls, made by
    /// what `grammar` makes.
    pub(crate) fn generate_text(
        &mut self,
        stops: &[String],
        tools: &[ChatTool],
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<FinishReason, EarlyExit> {
        let marker: &[&str] = if tools.is_empty() { &[] } else { &[CALL_START_TAG] };
        let mut outflow = TextDecoder::new(marker.iter().copied().chain(stops.iter().map(String::as_str)));
        let mut opening = CallDetector::new(tools);
        let mut said = GeneratedText {
            start_position: self.conversation.len(),
            bytes: Vec::new(),
            token_ends: Vec::new(),
        };
        let mut tokens = Vec::new();
        loop {
            let picked = if FREE_REPETITION.detects(&tokens) {
                Err(EarlyExit::Length)
            } else {
                self.sample_token(None)
            };
            let Ok(Some(token)) = picked else {
                self.emit_text(&(opening.drain_pending() + &outflow.flush()))?;
                return picked.map(|_| FinishReason::Stop);
            };
            tokens.push(token);
            said.push(self.vocabulary.token_bytes(token));
            let (text, met) = match outflow.push(self.vocabulary.token_bytes(token)) {
                DecoderOutput::Text(text) => (text, None),
                DecoderOutput::Matched(text, watched) => (text, Some(watched)),
            };
            let opened = opening.push(&text);
            match (opened, met) {
                (DetectorOutput::Call(text, back), _) => {
                    self.emit_text(&text)?;
                    let behind =
                        outflow.flush().len() + met.map_or(0, |watched| outflow.pattern_bytes(watched));
                    return self.switch_to_calls(&said, behind + back, grammar);
                }
                (DetectorOutput::Text(text), Some(0)) if !tools.is_empty() => {
                    self.emit_text(&text)?;
                    // A fence that was opened for the call goes with it.
                    let back = outflow.flush().len() + CALL_START_TAG.len() + opening.drain_pending().len();
                    return self.switch_to_calls(&said, back, grammar);
                }
                (DetectorOutput::Text(text), Some(_)) => {
                    self.emit_text(&(text + &opening.drain_pending()))?;
                    return Ok(FinishReason::Stop);
                }
                (DetectorOutput::Text(text), None) => self.emit_text(&text)?,
            }
            self.eval_token(token)?;
        }
    }

    /// Goes `back` bytes of what was said and makes calls from there.
    fn switch_to_calls(
        &mut self,
        said: &GeneratedText,
        back: usize,
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<FinishReason, EarlyExit> {
        let at = said.bytes.len().saturating_sub(back);
        let whole = said.token_ends.iter().take_while(|end| **end <= at).count();
        let kept = if whole == 0 { 0 } else { said.token_ends[whole - 1] };
        self.conversation.truncate(said.start_position + whole).map_err(engine_failure)?;
        let between = String::from_utf8_lossy(&said.bytes[kept..at]).into_owned();
        self.eval_tokens(&self.vocabulary.encode_plain(&between))?;
        self.eval_tokens(&self.vocabulary.encode_rendered(&format!("{CALL_START_TAG}\n")))?;
        self.generate_calls(grammar, RESPONSE_CALLS_MAX)
    }

    /// Makes calls, at most `most`; the prompt ends where the first one begins.
    pub(crate) fn generate_calls(
        &mut self,
        grammar: &dyn Fn() -> Result<Matcher, String>,
        most: usize,
    ) -> Result<FinishReason, EarlyExit> {
        loop {
            let mut matcher = grammar().map_err(|why| EarlyExit::Fault(GenerationFault::Refused(why)))?;
            let written = self.decode_constrained(&mut matcher, Emission::Buffered)?;
            let Some(call) = self.parse_call(&written) else {
                return Err(engine_failure("its call is cut".to_owned()));
            };
            let again =
                self.calls.iter().any(|made| made.name == call.name && made.arguments == call.arguments);
            if !again {
                self.emit(GenerationEvent::ToolCall(&call))?;
                self.calls.push(call);
            }
            if again || self.calls.len() >= most || !self.wants_another_call()? {
                return Ok(FinishReason::ToolCalls);
            }
        }
    }

    /// Whether the model, after a call, begins another one.
    fn wants_another_call(&mut self) -> Result<bool, EarlyExit> {
        self.eval_tokens(&self.vocabulary.encode_rendered(&format!("\n{CALL_END_TAG}")))?;
        let mut text = Vec::new();
        loop {
            let Some(token) = self.sample_token(None)? else { return Ok(false) };
            text.extend_from_slice(self.vocabulary.token_bytes(token));
            let begun = text.trim_ascii_start();
            let whole = begun.len() >= CALL_START_TAG.len();
            if whole && begun.trim_ascii_end() == CALL_START_TAG.as_bytes() {
                self.eval_token(token)?;
                return Ok(true);
            }
            if whole || !CALL_START_TAG.as_bytes().starts_with(begun) || text.len() > 64 {
                return Ok(false);
            }
            self.eval_token(token)?;
        }
    }

    /// An answer that `matcher` holds, said as it comes.
    pub(crate) fn generate_constrained(&mut self, matcher: &mut Matcher) -> Result<FinishReason, EarlyExit> {
        self.decode_constrained(matcher, Emission::Streamed).map(|_| FinishReason::Stop)
    }

    /// An answer that is either a call of one of `tools` or what the schema wants.
    pub(crate) fn generate_constrained_or_call(
        &mut self,
        matcher: &mut Matcher,
        tools: &[ChatTool],
    ) -> Result<FinishReason, EarlyExit> {
        let written = self.decode_constrained(matcher, Emission::Buffered)?;
        if let Some(call) =
            self.parse_call(&written).filter(|call| tools.iter().any(|tool| tool.name == call.name))
        {
            self.emit(GenerationEvent::ToolCall(&call))?;
            self.calls.push(call);
            return Ok(FinishReason::ToolCalls);
        }
        self.emit_text(&written)?;
        Ok(FinishReason::Stop)
    }

    fn parse_call(&self, written: &str) -> Option<ChatToolCall> {
        let value: Value = serde_json::from_str(written).ok()?;
        let object = value.as_object().filter(|object| object.len() == 2)?;
        let name = object.get("name")?.as_str()?.to_owned();
        let arguments = object.get("arguments").filter(|arguments| arguments.is_object())?;
        let id = format!("call_{:016x}{}", self.prompt_hash, self.calls.len());
        Some(ChatToolCall { id, name, arguments: python_json(arguments).ok()? })
    }

    /// Follows a grammar to its end; gives what was written.
    fn decode_constrained(&mut self, matcher: &mut Matcher, aloud: Emission) -> Result<String, EarlyExit> {
        // What it says is for whoever knows the grammar's inside: to others the schema is too much.
        let broken = |fault: &dyn std::fmt::Display| {
            tracing::warn!("a schema cannot be followed: {fault}");
            let text = "the schema is too large or too open to be followed; make it smaller";
            EarlyExit::Fault(GenerationFault::Refused(text.to_owned()))
        };
        let (mut outflow, mut written, mut tokens) = (TextDecoder::new([]), Vec::<u8>::new(), Vec::new());
        let mut closing = false;
        while !matcher.is_stopped() {
            closing =
                closing || self.tokens_left <= CLOSING_TOKENS || CONSTRAINED_REPETITION.detects(&tokens);
            let mask = matcher.compute_mask().map_err(|fault| broken(&fault))?;
            let close =
                closing.then(|| self.closing_token(&written, &|token| mask.is_allowed(token))).flatten();
            mask.iter_unset_entries(|token| mask_token(&mut self.logits, token));
            let Some(token) = self.sample_token(close)? else { break };
            matcher.consume_token(token).map_err(|fault| broken(&fault))?;
            let bytes = self.vocabulary.token_bytes(token);
            written.extend_from_slice(bytes);
            tokens.push(token);
            match (outflow.push(bytes), aloud) {
                (DecoderOutput::Text(text) | DecoderOutput::Matched(text, _), Emission::Streamed) => {
                    self.emit_text(&text)?
                }
                _ => self.emit_text("")?,
            }
            self.eval_token(token)?;
        }
        if let Emission::Streamed = aloud {
            self.emit_text(&outflow.flush())?;
        }
        Ok(String::from_utf8_lossy(&written).into_owned())
    }

    /// The allowed token that ends what is open soonest. Inside a text a brace would only be more text,
    /// so the quotation mark comes first, but for an object or a list that was just begun.
    fn closing_token(&self, written: &[u8], allowed: &dyn Fn(u32) -> bool) -> Option<u32> {
        let order = match written.last() {
            Some(b'{') => ["}", "\"", "]", ","],
            Some(b'[') => ["]", "\"", "}", ","],
            _ => ["\"", "}", "]", ","],
        };
        let single = |text: &str| self.vocabulary.encode_plain(text).first().copied();
        order.into_iter().filter_map(single).find(|token| allowed(*token))
    }

    /// The next token: `fixed`, or as the sampler draws; none when the answer is over.
    fn sample_token(&mut self, fixed: Option<u32>) -> Result<Option<u32>, EarlyExit> {
        if self.tokens_left == 0 || self.conversation.len() >= self.window_tokens {
            return Err(EarlyExit::Length);
        }
        let drawn = fixed.or_else(|| self.sampler.sample(&self.logits));
        let token = drawn.ok_or_else(|| {
            engine_failure("its numbers are not finite: the file may be damaged".to_owned())
        })?;
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

    /// Says `text`, which may be empty: each token asks whether to go on.
    fn emit_text(&mut self, text: &str) -> Result<(), EarlyExit> {
        self.emit(GenerationEvent::Text(text))
    }

    fn emit(&mut self, piece: GenerationEvent<'_>) -> Result<(), EarlyExit> {
        match (self.on_event)(piece) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EarlyExit::Cancelled),
        }
    }
}

fn engine_failure(why: String) -> EarlyExit {
    EarlyExit::Fault(GenerationFault::Failed(why))
}

fn mask_token(scores: &mut [f32], token: usize) {
    if let Some(score) = scores.get_mut(token) {
        *score = f32::NEG_INFINITY;
    }
}

/// Whether text under a grammar is said as it comes.
#[derive(Clone, Copy)]
enum Emission {
    Streamed,
    Buffered,
}

/// What a free answer said so far, and where each of its tokens ends.
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

/// Going in circles: the last tokens are a few of them over and over.
struct RepetitionRule {
    /// The most that are repeated.
    period_max: usize,
    /// The least that all repetitions are together.
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
