//! Reads the answer's events: text and thoughts as they come, tool calls only when they are whole, usage, and the end.

use std::collections::BTreeMap;

use agent::outside::ModelEvent;
use agent::{Fault, FaultKind, ToolCall, Usage};
use serde::Deserialize;

/// Every member may be left out or null: servers differ, and a chunk that cannot be read is text that is lost.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Report>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    /// Two spellings of what the model thinks; some servers send both, with the same text. Of any shape, so that an
    /// odd one costs no answer.
    reasoning_content: Option<serde_json::Value>,
    reasoning: Option<serde_json::Value>,
    tool_calls: Option<Vec<CallPiece>>,
}

impl Delta {
    fn thought(&self) -> Option<&str> {
        let spellings = [&self.reasoning_content, &self.reasoning].into_iter().flatten();
        spellings.filter_map(serde_json::Value::as_str).find(|text| !text.is_empty())
    }
}

#[derive(Deserialize)]
struct CallPiece {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Report {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// The most calls one answer may make; a model that makes more is told so by a failed turn.
const CALLS_MAX: usize = 256;

/// Collects one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    /// By index, and by their order among those of one index.
    calls: BTreeMap<(u32, u32), ToolCall>,
    usage: Option<Usage>,
    finished: bool,
    /// The model had more to say and was not allowed to.
    cut_short: bool,
    /// `[DONE]` has come: what follows is no part of the answer.
    whole: bool,
    seen_any: bool,
}

impl AnswerReader {
    /// Takes one event's data. What is not a chunk of an answer is passed over, as other clients do.
    pub(super) fn take(&mut self, data: &[u8], mut emit: impl FnMut(Result<ModelEvent, Fault>)) {
        if self.whole {
            return;
        }
        if data == b"[DONE]" {
            (self.finished, self.whole) = (true, true);
            self.hand_on_calls(emit);
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else {
            tracing::debug!(bytes = data.len(), "the model sent an event that is not a chunk");
            return;
        };
        self.seen_any |= chunk.error.is_none();
        if let Some(error) = chunk.error {
            let text = error.get("message").and_then(|text| text.as_str()).unwrap_or("no reason given");
            emit(Err(model_fault(format!("API request failed: {text}"))));
            return;
        }
        if let Some(report) = chunk.usage {
            self.usage = Some(usage(&report));
        }
        for choice in chunk.choices.into_iter().flatten() {
            self.take_choice(choice, &mut emit);
        }
        if self.calls.len() > CALLS_MAX {
            emit(Err(model_fault(format!("The model made more than {CALLS_MAX} tool calls."))));
        } else if self.finished {
            self.hand_on_calls(emit);
        }
    }

    fn take_choice(&mut self, choice: Choice, emit: &mut impl FnMut(Result<ModelEvent, Fault>)) {
        if let Some(delta) = choice.delta {
            if let Some(thought) = delta.thought() {
                emit(Ok(ModelEvent::Reasoning(thought.to_owned())));
            }
            if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
                emit(Ok(ModelEvent::Text(text)));
            }
            delta.tool_calls.into_iter().flatten().for_each(|piece| self.add_piece(piece));
        }
        if let Some(reason) = choice.finish_reason {
            self.finished = true;
            self.cut_short |= matches!(reason.as_str(), "length" | "content_filter");
        }
    }

    /// A limit that strikes in the middle of a call leaves half of it, with a finish reason like any other.
    fn hand_on_calls(&mut self, mut emit: impl FnMut(Result<ModelEvent, Fault>)) {
        let calls = std::mem::take(&mut self.calls);
        if self.cut_short && !calls.values().all(|call| is_json(&call.arguments)) {
            emit(Err(model_fault("The model's answer was cut off in the middle of a tool call.".to_owned())));
            return;
        }
        for call in calls.into_values() {
            emit(Ok(ModelEvent::ToolCall(call)));
        }
    }

    fn add_piece(&mut self, piece: CallPiece) {
        let nothing = || ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        let index = piece.index.unwrap_or(0);
        // Some servers give every call the index 0; a new id is a new call.
        let is_new = |call: &ToolCall| {
            let id = piece.id.as_deref().unwrap_or_default();
            !id.is_empty() && !call.id.is_empty() && call.id != id
        };
        let last = self.calls.range((index, 0)..=(index, u32::MAX)).next_back();
        let place = last.map_or((index, 0), |((_, turn), call)| (index, turn + u32::from(is_new(call))));
        let call = self.calls.entry(place).or_insert_with(nothing);
        if let Some(id) = piece.id {
            call.id = id;
        }
        if let Some(function) = piece.function {
            call.name.push_str(&function.name.unwrap_or_default());
            call.arguments.push_str(&function.arguments.unwrap_or_default());
        }
    }

    /// Whether the last event of the answer has come.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The body has ended: whole, or cut?
    pub(super) fn finish(&mut self) -> Result<ModelEvent, Fault> {
        if self.finished && self.seen_any {
            return Ok(ModelEvent::Done);
        }
        Err(self.interrupted(&"the stream ended without a finish reason"))
    }

    /// Whether anything of the answer has come.
    pub(super) fn has_begun(&self) -> bool {
        self.seen_any
    }

    /// What to hand on before the end.
    pub(super) fn take_usage(&mut self) -> Option<Usage> {
        self.usage.take()
    }

    /// The body broke off.
    pub(super) fn interrupted(&self, cause: &dyn std::fmt::Display) -> Fault {
        let text = if self.seen_any {
            "Streaming response was interrupted before completion: the connection was cut. \
             Partial output may have been displayed; retry the request."
        } else {
            "Streaming response failed before any data was received: no answer was in it."
        };
        Fault::new(FaultKind::Model, text).caused_by(cause)
    }
}

fn model_fault(text: String) -> Fault {
    Fault::new(FaultKind::Model, text)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn usage(report: &Report) -> Usage {
    let cached = report.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
    Usage {
        input: report.prompt_tokens.unwrap_or(0),
        output: report.completion_tokens.unwrap_or(0),
        cached: cached.unwrap_or(0),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &[&str]) -> (Vec<Result<ModelEvent, Fault>>, AnswerReader) {
        let mut reader = AnswerReader::default();
        let mut out = Vec::new();
        for event in events {
            reader.take(event.as_bytes(), |event| out.push(event));
        }
        (out, reader)
    }

    fn text(text: &str) -> Result<ModelEvent, Fault> {
        Ok(ModelEvent::Text(text.to_owned()))
    }

    #[test]
    fn text_comes_as_it_is_sent() {
        let (out, mut reader) = read(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hel"}}]}"#,
            r#"{"choices":[{"delta":{"content":"lo"},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            "[DONE]",
        ]);
        assert_eq!(out, [text("Hel"), text("lo")]);
        assert_eq!(reader.take_usage(), Some(Usage { input: 5, output: 2, cached: 4, ..Usage::default() }));
        assert_eq!(reader.finish(), Ok(ModelEvent::Done));
    }

    #[test]
    fn thoughts_come_in_either_spelling_and_once() {
        let thought = |text: &str| Ok(ModelEvent::Reasoning(text.to_owned()));
        let (out, mut reader) = read(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":"","reasoning_content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"Let"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":" me"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":" see","reasoning":" see"}}]}"#,
            r#"{"choices":[{"delta":{"content":"4","reasoning":"."}}]}"#,
            r#"{"choices":[{"delta":{"content":"2","reasoning":{"effort":1},"reasoning_content":7}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        ]);
        let thoughts = ["Let", " me", " see", "."].map(thought);
        assert_eq!(out[..4], thoughts);
        assert_eq!(out[4..], [text("4"), text("2")]);
        assert_eq!(reader.finish(), Ok(ModelEvent::Done));
    }

    #[test]
    fn a_call_in_pieces_is_handed_on_only_when_it_is_whole() {
        let pieces = [
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"echo","arguments":"{\"a\""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
        ];
        let (out, mut reader) = read(&pieces);
        assert_eq!(out, [], "half a call must not run");
        assert!(reader.finish().is_err(), "a cut stream must not run it either");
        let (out, _) =
            read(&[pieces[0], pieces[1], r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#]);
        let call = ToolCall { id: "c1".into(), name: "echo".into(), arguments: "{\"a\":1}".into() };
        assert_eq!(out, [Ok(ModelEvent::ToolCall(call))]);
    }

    #[test]
    fn calls_that_share_an_index_are_told_apart_by_their_ids() {
        let (out, _) = read(&[
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"c1","function":{"name":"one","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c2","function":{"name":"two","arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
        ]);
        let call = |id: &str, name: &str| {
            Ok(ModelEvent::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments: "{}".into() }))
        };
        assert_eq!(out, [call("c1", "one"), call("c2", "two")]);
    }

    #[test]
    fn a_cut_stream_is_a_fault_that_says_whether_anything_came() {
        let (_, mut reader) = read(&[]);
        assert!(reader.finish().unwrap_err().public.starts_with("Streaming response failed before any data"));
        let (_, mut reader) = read(&[r#"{"choices":[{"delta":{"content":"Hel"}}]}"#]);
        assert!(reader.finish().unwrap_err().public.starts_with("Streaming response was interrupted"));
    }

    #[test]
    fn an_error_inside_the_stream_is_a_fault() {
        let (out, _) = read(&[r#"{"error":{"message":"overloaded"}}"#]);
        assert_eq!(out, [Err(Fault::new(FaultKind::Model, "API request failed: overloaded"))]);
    }

    #[test]
    fn what_is_not_a_chunk_is_passed_over() {
        let (out, _) = read(&["{", "[]", "42", r#"{"choices":"no"}"#, r#"{"object":"ping"}"#]);
        assert_eq!(out, []);
    }
}
