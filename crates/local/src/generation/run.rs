//! One answer from its first token to its last: free text, text that may turn into calls, or text that
//! follows a grammar. The plan of an answer is `generation`'s.

use std::ops::ControlFlow;

use llguidance::Matcher;
use serde_json::Value;

use super::opening::{Opened, Opening};
use super::outflow::{Flow, Outflow};
use super::sampler::Sampler;
use super::shelf::Conversation;
use super::{AnswerFault, EndedBy, MadeCall, OfferedTool, Piece};
use crate::chat::template::{CALL_BEGINS, CALL_ENDS, spaced_json};
use crate::chat::tokens::Vocabulary;

/// Calls of one answer: a small model would go on for ever.
const CALLS_MAX: usize = 8;
/// With so few tokens left a grammar is brought to its end instead of being followed at leisure.
const CLOSING_TOKENS: usize = 40;
/// An answer that has repeated itself this often goes nowhere.
const LOOP_TIMES: usize = 6;
/// What goes in circles under a grammar, where nothing long repeats itself for a reason.
const HELD_LOOP: Loop = Loop { period_max: 16, tokens_min: 48 };
/// And in free text, where there are tables and rulers.
const FREE_LOOP: Loop = Loop { period_max: 64, tokens_min: 256 };

/// Why an answer stops before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    Cancelled,
    Length,
    Fault(AnswerFault),
}

/// What one answer needs.
pub(crate) struct Run<'a> {
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) conversation: Conversation<'a>,
    pub(crate) each: &'a mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    pub(crate) sampler: Sampler,
    pub(crate) window: usize,
    /// Answer tokens that may still come.
    pub(crate) left: usize,
    pub(crate) answer_tokens: usize,
    pub(crate) calls: Vec<MadeCall>,
    /// Makes the ids of calls differ between answers.
    pub(crate) mark: u64,
    pub(crate) scores: Vec<f32>,
}

impl Run<'_> {
    /// Reads what the conversation does not hold of `prompt`, in chunks.
    pub(crate) fn read_prompt(&mut self, prompt: &[u32]) -> Result<(), Halt> {
        let mut rest = &prompt[self.conversation.len()..];
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(self.conversation.chunk()));
            let scores = behind.is_empty().then_some(&mut self.scores);
            self.conversation.read(chunk, scores).map_err(failed)?;
            self.tell(Piece::Read { tokens: self.conversation.len(), of: prompt.len() })?;
            rest = behind;
        }
        Ok(())
    }

    /// Text until the model is done or says one of `stops`; with `tools` it may turn into calls, made by
    /// what `grammar` makes.
    pub(crate) fn text(
        &mut self,
        stops: &[String],
        tools: &[OfferedTool],
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<EndedBy, Halt> {
        let marker: &[&str] = if tools.is_empty() { &[] } else { &[CALL_BEGINS] };
        let mut outflow = Outflow::new(marker.iter().copied().chain(stops.iter().map(String::as_str)));
        let mut opening = Opening::new(tools);
        let mut said = Said { first: self.conversation.len(), bytes: Vec::new(), ends: Vec::new() };
        let mut tokens = Vec::new();
        loop {
            let picked = if FREE_LOOP.is_in(&tokens) { Err(Halt::Length) } else { self.pick(None) };
            let Ok(Some(token)) = picked else {
                self.say(&(opening.rest() + &outflow.rest()))?;
                return picked.map(|_| EndedBy::Finished);
            };
            tokens.push(token);
            said.push(self.vocabulary.bytes(token));
            let (text, met) = match outflow.push(self.vocabulary.bytes(token)) {
                Flow::Text(text) => (text, None),
                Flow::Met(text, watched) => (text, Some(watched)),
            };
            let opened = opening.take(&text);
            match (opened, met) {
                (Opened::Call(text, back), _) => {
                    self.say(&text)?;
                    let behind = outflow.rest().len() + met.map_or(0, |watched| outflow.length_of(watched));
                    return self.turn_into_call(&said, behind + back, grammar);
                }
                (Opened::Text(text), Some(0)) if !tools.is_empty() => {
                    self.say(&text)?;
                    // A fence that was opened for the call goes with it.
                    let back = outflow.rest().len() + CALL_BEGINS.len() + opening.rest().len();
                    return self.turn_into_call(&said, back, grammar);
                }
                (Opened::Text(text), Some(_)) => {
                    self.say(&(text + &opening.rest()))?;
                    return Ok(EndedBy::Finished);
                }
                (Opened::Text(text), None) => self.say(&text)?,
            }
            self.step(token)?;
        }
    }

    /// Goes `back` bytes of what was said and makes calls from there.
    fn turn_into_call(
        &mut self,
        said: &Said,
        back: usize,
        grammar: &dyn Fn() -> Result<Matcher, String>,
    ) -> Result<EndedBy, Halt> {
        let at = said.bytes.len().saturating_sub(back);
        let whole = said.ends.iter().take_while(|end| **end <= at).count();
        let kept = if whole == 0 { 0 } else { said.ends[whole - 1] };
        self.conversation.truncate(said.first + whole).map_err(failed)?;
        let between = String::from_utf8_lossy(&said.bytes[kept..at]).into_owned();
        self.feed(&self.vocabulary.plain(&between))?;
        self.feed(&self.vocabulary.rendered(&format!("{CALL_BEGINS}\n")))?;
        self.calls(grammar, CALLS_MAX)
    }

    /// Makes calls, at most `most`; the prompt ends where the first one begins.
    pub(crate) fn calls(
        &mut self,
        grammar: &dyn Fn() -> Result<Matcher, String>,
        most: usize,
    ) -> Result<EndedBy, Halt> {
        loop {
            let mut matcher = grammar().map_err(|why| Halt::Fault(AnswerFault::Refused(why)))?;
            let written = self.follow(&mut matcher, Aloud::No)?;
            let Some(call) = self.made(&written) else {
                return Err(failed("its call is cut".to_owned()));
            };
            let again =
                self.calls.iter().any(|made| made.name == call.name && made.arguments == call.arguments);
            if !again {
                self.tell(Piece::Call(&call))?;
                self.calls.push(call);
            }
            if again || self.calls.len() >= most || !self.wants_another()? {
                return Ok(EndedBy::Calls);
            }
        }
    }

    /// Whether the model, after a call, begins another one.
    fn wants_another(&mut self) -> Result<bool, Halt> {
        self.feed(&self.vocabulary.rendered(&format!("\n{CALL_ENDS}")))?;
        let mut text = Vec::new();
        loop {
            let Some(token) = self.pick(None)? else { return Ok(false) };
            text.extend_from_slice(self.vocabulary.bytes(token));
            let begun = text.trim_ascii_start();
            let whole = begun.len() >= CALL_BEGINS.len();
            if whole && begun.trim_ascii_end() == CALL_BEGINS.as_bytes() {
                self.step(token)?;
                return Ok(true);
            }
            if whole || !CALL_BEGINS.as_bytes().starts_with(begun) || text.len() > 64 {
                return Ok(false);
            }
            self.step(token)?;
        }
    }

    /// An answer that `matcher` holds, said as it comes.
    pub(crate) fn held(&mut self, matcher: &mut Matcher) -> Result<EndedBy, Halt> {
        self.follow(matcher, Aloud::Yes).map(|_| EndedBy::Finished)
    }

    /// An answer that is either a call of one of `tools` or what the schema wants.
    pub(crate) fn held_or_call(
        &mut self,
        matcher: &mut Matcher,
        tools: &[OfferedTool],
    ) -> Result<EndedBy, Halt> {
        let written = self.follow(matcher, Aloud::No)?;
        if let Some(call) = self.made(&written).filter(|call| tools.iter().any(|tool| tool.name == call.name))
        {
            self.tell(Piece::Call(&call))?;
            self.calls.push(call);
            return Ok(EndedBy::Calls);
        }
        self.say(&written)?;
        Ok(EndedBy::Finished)
    }

    fn made(&self, written: &str) -> Option<MadeCall> {
        let value: Value = serde_json::from_str(written).ok()?;
        let object = value.as_object().filter(|object| object.len() == 2)?;
        let name = object.get("name")?.as_str()?.to_owned();
        let arguments = object.get("arguments").filter(|arguments| arguments.is_object())?;
        let id = format!("call_{:016x}{}", self.mark, self.calls.len());
        Some(MadeCall { id, name, arguments: spaced_json(arguments).ok()? })
    }

    /// Follows a grammar to its end; gives what was written.
    fn follow(&mut self, matcher: &mut Matcher, aloud: Aloud) -> Result<String, Halt> {
        // What it says is for whoever knows the grammar's inside: to others the schema is too much.
        let broken = |fault: &dyn std::fmt::Display| {
            tracing::warn!("a schema cannot be followed: {fault}");
            let text = "the schema is too large or too open to be followed; make it smaller";
            Halt::Fault(AnswerFault::Refused(text.to_owned()))
        };
        let (mut outflow, mut written, mut tokens) = (Outflow::new([]), Vec::<u8>::new(), Vec::new());
        let mut closing = false;
        while !matcher.is_stopped() {
            closing = closing || self.left <= CLOSING_TOKENS || HELD_LOOP.is_in(&tokens);
            let mask = matcher.compute_mask().map_err(|fault| broken(&fault))?;
            let close = closing.then(|| self.closer(&written, &|token| mask.is_allowed(token))).flatten();
            mask.iter_unset_entries(|token| forbid(&mut self.scores, token));
            let Some(token) = self.pick(close)? else { break };
            matcher.consume_token(token).map_err(|fault| broken(&fault))?;
            let bytes = self.vocabulary.bytes(token);
            written.extend_from_slice(bytes);
            tokens.push(token);
            match (outflow.push(bytes), aloud) {
                (Flow::Text(text) | Flow::Met(text, _), Aloud::Yes) => self.say(&text)?,
                _ => self.say("")?,
            }
            self.step(token)?;
        }
        if let Aloud::Yes = aloud {
            self.say(&outflow.rest())?;
        }
        Ok(String::from_utf8_lossy(&written).into_owned())
    }

    /// The allowed token that ends what is open soonest. Inside a text a brace would only be more text,
    /// so the quotation mark comes first, but for an object or a list that was just begun.
    fn closer(&self, written: &[u8], allowed: &dyn Fn(u32) -> bool) -> Option<u32> {
        let order = match written.last() {
            Some(b'{') => ["}", "\"", "]", ","],
            Some(b'[') => ["]", "\"", "}", ","],
            _ => ["\"", "}", "]", ","],
        };
        let single = |text: &str| self.vocabulary.plain(text).first().copied();
        order.into_iter().filter_map(single).find(|token| allowed(*token))
    }

    /// The next token: `fixed`, or as the sampler draws; none when the answer is over.
    fn pick(&mut self, fixed: Option<u32>) -> Result<Option<u32>, Halt> {
        if self.left == 0 || self.conversation.len() >= self.window {
            return Err(Halt::Length);
        }
        let drawn = fixed.or_else(|| self.sampler.next(&self.scores));
        let token =
            drawn.ok_or_else(|| failed("its numbers are not finite: the file may be damaged".to_owned()))?;
        self.left -= 1;
        self.answer_tokens += 1;
        Ok((!self.vocabulary.ends_answer(token)).then_some(token))
    }

    fn step(&mut self, token: u32) -> Result<(), Halt> {
        self.feed(&[token])
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<(), Halt> {
        if self.conversation.len() + tokens.len() > self.window {
            return Err(Halt::Length);
        }
        if tokens.is_empty() {
            return Ok(());
        }
        self.conversation.read(tokens, Some(&mut self.scores)).map_err(failed)
    }

    /// Says `text`, which may be empty: each token asks whether to go on.
    fn say(&mut self, text: &str) -> Result<(), Halt> {
        self.tell(Piece::Text(text))
    }

    fn tell(&mut self, piece: Piece<'_>) -> Result<(), Halt> {
        match (self.each)(piece) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Halt::Cancelled),
        }
    }
}

fn failed(why: String) -> Halt {
    Halt::Fault(AnswerFault::Failed(why))
}

fn forbid(scores: &mut [f32], token: usize) {
    if let Some(score) = scores.get_mut(token) {
        *score = f32::NEG_INFINITY;
    }
}

/// Whether text under a grammar is said as it comes.
#[derive(Clone, Copy)]
enum Aloud {
    Yes,
    No,
}

/// What a free answer said so far, and where each of its tokens ends.
struct Said {
    first: usize,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Said {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Going in circles: the last tokens are a few of them over and over.
struct Loop {
    /// The most that are repeated.
    period_max: usize,
    /// The least that all repetitions are together.
    tokens_min: usize,
}

impl Loop {
    fn is_in(&self, tokens: &[u32]) -> bool {
        (1..=self.period_max).any(|period| {
            let length = self.tokens_min.max(period * LOOP_TIMES);
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
