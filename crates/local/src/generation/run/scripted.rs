//! Tests: free responses of an engine that follows a script token by token. A grammar may mask the scripted token;
//! where no script continues, the engine ends its turn.

use super::tests::{assert_valid, chat, generate, model, tools};
use super::*;
use crate::engine::Engine;
use crate::engine::fixture;
use crate::generation::prompt_cache::PromptCache;
use crate::generation::{Chat, LoadedModel};

/// An engine that continues with the first scripted response that starts with the text generated so far.
#[derive(Debug)]
struct ScriptedEngine {
    responses: Vec<&'static str>,
    /// Bytes of each token.
    token_bytes: Vec<Vec<u8>>,
    sequences: Vec<Vec<u32>>,
}

impl ScriptedEngine {
    fn next(&self, tokens: &[u32]) -> u32 {
        let control = |name: &str| fixture::token_names().iter().position(|other| other == name).unwrap();
        let end = u32::try_from(control("<|im_end|>")).unwrap();
        let start = u32::try_from(control("<|im_start|>")).unwrap();
        let response_at = tokens.iter().rposition(|token| *token == start).unwrap() + 1;
        let bytes = tokens[response_at..].iter().flat_map(|token| self.token_bytes[*token as usize].clone());
        let generated = String::from_utf8(bytes.collect()).unwrap();
        let generated = generated.strip_prefix("assistant\n").unwrap();
        let rest = self.responses.iter().find_map(|response| response.strip_prefix(generated));
        let first = rest.and_then(|rest| rest.as_bytes().first());
        let token = first.and_then(|byte| self.token_bytes.iter().position(|bytes| bytes == &[*byte]));
        token.map_or(end, |token| u32::try_from(token).unwrap())
    }
}

impl Engine for ScriptedEngine {
    fn window_tokens(&self) -> usize {
        2_000
    }

    fn sequences(&self) -> usize {
        self.sequences.len()
    }

    fn chunk_tokens(&self) -> usize {
        64
    }

    fn cached_tokens(&self, sequence: usize) -> usize {
        self.sequences[sequence].len()
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        self.sequences[sequence].truncate(length);
    }

    fn copy_prefix(&mut self, from: usize, into: usize, length: usize) {
        self.sequences[into] = self.sequences[from][..length].to_vec();
    }

    fn eval(&mut self, sequence: usize, tokens: &[u32], logits: Option<&mut Vec<f32>>) -> Result<(), String> {
        self.sequences[sequence].extend_from_slice(tokens);
        if let Some(logits) = logits {
            logits.clear();
            logits.resize(self.token_bytes.len(), 0.0);
            logits[self.next(&self.sequences[sequence]) as usize] = 9.0;
        }
        Ok(())
    }
}

fn scripted_model(responses: &[&'static str]) -> LoadedModel {
    let mut model = model();
    let token_bytes = (0..fixture::token_names().len())
        .zip(0u32..)
        .map(|(_, token)| model.vocabulary.token_bytes(token).to_vec());
    let engine = ScriptedEngine {
        responses: responses.to_vec(),
        token_bytes: token_bytes.collect(),
        sequences: vec![Vec::new(); 2],
    };
    model.window_tokens = engine.window_tokens();
    model.prompt_cache = PromptCache::new(&engine);
    model.engine = Box::new(engine);
    model
}

fn free_chat() -> Chat {
    Chat { tools: tools(), temperature: 0.0, answer_tokens_max: Some(400), ..chat("hello") }
}

/// Generates a response; returns its text, and its calls as name and arguments.
fn generate_scripted(responses: &[&'static str]) -> (String, Vec<(String, String)>) {
    let (summary, text, calls) = generate(&mut scripted_model(responses), &free_chat());
    assert_eq!(summary.finish_reason == FinishReason::ToolCalls, !calls.is_empty());
    calls.iter().for_each(assert_valid);
    (text, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
}

const TAGGED_CALL: &str =
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>";

fn read_notes_call() -> Vec<(String, String)> {
    vec![("read".to_owned(), "{\"path\": \"notes.txt\"}".to_owned())]
}

#[test]
fn bare_fenced_and_tagged_calls_become_calls() {
    for start in [
        "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n```",
        "```\n{\"name\": \"read\", \"parameters\": {}}\n```",
        "{\"name\": \"read\", \"arguments\": {}}",
        "```xml\n<tool_call>\n{\"name\": \"read\"}",
        TAGGED_CALL,
    ] {
        assert_eq!(generate_scripted(&[start, TAGGED_CALL]), (String::new(), read_notes_call()), "{start}");
    }
}

#[test]
fn unknown_tool_cannot_be_called() {
    let (text, calls) = generate_scripted(&[
        "```json\n{\"name\": \"fly\", \"arguments\": {\"to\": \"the moon\"}}\n```",
        "<tool_call>\n{\"name\": \"fly\", \"arguments\": {}}",
    ]);
    assert_eq!((text.as_str(), calls.len()), ("", 1));
    assert!(["read", "count"].contains(&calls[0].0.as_str()), "{calls:?}");
}

#[test]
fn text_before_a_call_is_emitted_without_the_call() {
    let (text, calls) = generate_scripted(&[
        "I look.\n```json\n{\"name\": \"read\", \"arguments\": {}}",
        "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>",
    ]);
    assert_eq!((text.as_str(), calls), ("I look.\n", read_notes_call()));
}

#[test]
fn second_call_can_follow_the_first() {
    let both = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\": 1, \"how\": \"up\"}}\n</tool_call>";
    let (text, calls) = generate_scripted(&["```json\n[{\"name\": \"read\",", both]);
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((text.as_str(), names), ("", vec!["read", "count"]));
}

#[test]
fn text_without_a_call_is_streamed() {
    for text in [
        "Plain words.",
        "```rust\nfn main() {}\n```\nThat is all.",
        "```json\n{\"name\": \"my-app\", \"version\": \"1.0\"}\n```",
        "{\"name\": \"Ann\", \"age\": 7}",
        "{\"name",
    ] {
        let (mut emitted, mut held_back_max, mut events) = (String::new(), 0, 0);
        let summary = scripted_model(&[text]).generate(&free_chat(), &mut |event| {
            if let GenerationEvent::Text(part) = event {
                emitted.push_str(part);
                events += 1;
                held_back_max = held_back_max.max(events.min(text.len()) - emitted.len().min(events));
            }
            ControlFlow::Continue(())
        });
        assert_eq!((summary.unwrap().finish_reason, emitted.as_str()), (FinishReason::Stop, text));
        let allowed = "```json\n{\"name\": \"my-app\",_\"arguments".len();
        assert!(held_back_max <= allowed, "{held_back_max} of {text}");
    }
}

#[test]
fn prompt_stays_cached_after_a_detected_call() {
    let mut model = scripted_model(&["```json\n{\"name\": \"read\", \"arguments\": {}}", TAGGED_CALL]);
    let (first, ..) = generate(&mut model, &free_chat());
    let (second, _, calls) = generate(&mut model, &free_chat());
    assert_eq!(second.cached_tokens, first.prompt_tokens - 1);
    assert_eq!(calls.len(), 1);
}

#[test]
fn free_response_in_a_loop_is_ended() {
    let horizontal_rule: &'static str = Box::leak("-".repeat(1_000).into_boxed_str());
    let line: &'static str = Box::leak("I am sorry. ".repeat(100).into_boxed_str());
    let table: &'static str = Box::leak("| - ".repeat(40).into_boxed_str());
    for (script, bytes_max) in [(horizontal_rule, Some(260)), (line, Some(260)), (table, None)] {
        let mut model = scripted_model(&[script]);
        let (summary, text, _) = generate(&mut model, &free_chat());
        let expected = if bytes_max.is_some() { FinishReason::Length } else { FinishReason::Stop };
        assert_eq!(summary.finish_reason, expected, "{text}");
        assert!(
            script.starts_with(&text) && text.len() <= bytes_max.unwrap_or(script.len()),
            "{} bytes",
            text.len()
        );
    }
}
