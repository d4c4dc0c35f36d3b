//! Tests: free answers of an engine that says what a script wants, token by token. What a grammar forbids it cannot say,
//! and where no script goes on, it ends.

use super::tests::{assert_valid, chat, generate, model, tools};
use super::*;
use crate::engine::Engine;
use crate::engine::fixture;
use crate::generation::prompt_cache::PromptCache;
use crate::generation::{Chat, LoadedModel};

/// Goes on with the first of its answers that begins as the one it is giving.
#[derive(Debug)]
struct ScriptedEngine {
    answers: Vec<&'static str>,
    /// The bytes of every token.
    token_bytes: Vec<Vec<u8>>,
    sequences: Vec<Vec<u32>>,
}

impl ScriptedEngine {
    fn next(&self, tokens: &[u32]) -> u32 {
        let control = |name: &str| fixture::token_names().iter().position(|other| other == name).unwrap();
        let end = u32::try_from(control("<|im_end|>")).unwrap();
        let begin = u32::try_from(control("<|im_start|>")).unwrap();
        let answer_at = tokens.iter().rposition(|token| *token == begin).unwrap() + 1;
        let words = tokens[answer_at..].iter().flat_map(|token| self.token_bytes[*token as usize].clone());
        let said = String::from_utf8(words.collect()).unwrap();
        let said = said.strip_prefix("assistant\n").unwrap();
        let rest = self.answers.iter().find_map(|answer| answer.strip_prefix(said));
        let first = rest.and_then(|rest| rest.as_bytes().first());
        let token = first.and_then(|byte| self.token_bytes.iter().position(|word| word == &[*byte]));
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

    fn eval(&mut self, sequence: usize, tokens: &[u32], scores: Option<&mut Vec<f32>>) -> Result<(), String> {
        self.sequences[sequence].extend_from_slice(tokens);
        if let Some(scores) = scores {
            scores.clear();
            scores.resize(self.token_bytes.len(), 0.0);
            scores[self.next(&self.sequences[sequence]) as usize] = 9.0;
        }
        Ok(())
    }
}

fn scripted_model(answers: &[&'static str]) -> LoadedModel {
    let mut model = model();
    let words = (0..fixture::token_names().len())
        .zip(0u32..)
        .map(|(_, token)| model.vocabulary.token_bytes(token).to_vec());
    let engine = ScriptedEngine {
        answers: answers.to_vec(),
        token_bytes: words.collect(),
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

/// What is said, and the calls as name and arguments.
fn generate_scripted(answers: &[&'static str]) -> (String, Vec<(String, String)>) {
    let (answered, text, calls) = generate(&mut scripted_model(answers), &free_chat());
    assert_eq!(answered.finish_reason == FinishReason::ToolCalls, !calls.is_empty());
    calls.iter().for_each(assert_valid);
    (text, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
}

const TAGGED_CALL: &str =
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>";

fn read_notes_call() -> Vec<(String, String)> {
    vec![("read".to_owned(), "{\"path\": \"notes.txt\"}".to_owned())]
}

#[test]
fn a_call_in_a_fence_or_bare_becomes_a_call() {
    for begun in [
        "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n```",
        "```\n{\"name\": \"read\", \"parameters\": {}}\n```",
        "{\"name\": \"read\", \"arguments\": {}}",
        "```xml\n<tool_call>\n{\"name\": \"read\"}",
        TAGGED_CALL,
    ] {
        assert_eq!(generate_scripted(&[begun, TAGGED_CALL]), (String::new(), read_notes_call()), "{begun}");
    }
}

#[test]
fn a_made_up_tool_cannot_be_called() {
    let (text, calls) = generate_scripted(&[
        "```json\n{\"name\": \"fly\", \"arguments\": {\"to\": \"the moon\"}}\n```",
        "<tool_call>\n{\"name\": \"fly\", \"arguments\": {}}",
    ]);
    assert_eq!((text.as_str(), calls.len()), ("", 1));
    assert!(["read", "count"].contains(&calls[0].0.as_str()), "{calls:?}");
}

#[test]
fn words_before_a_call_are_said_and_the_call_is_not() {
    let (text, calls) = generate_scripted(&[
        "I look.\n```json\n{\"name\": \"read\", \"arguments\": {}}",
        "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>",
    ]);
    assert_eq!((text.as_str(), calls), ("I look.\n", read_notes_call()));
}

#[test]
fn a_second_call_may_follow() {
    let both = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\": 1, \"how\": \"up\"}}\n</tool_call>";
    let (text, calls) = generate_scripted(&["```json\n[{\"name\": \"read\",", both]);
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((text.as_str(), names), ("", vec!["read", "count"]));
}

#[test]
fn what_is_no_call_is_said_as_it_comes() {
    for text in [
        "Plain words.",
        "```rust\nfn main() {}\n```\nThat is all.",
        "```json\n{\"name\": \"my-app\", \"version\": \"1.0\"}\n```",
        "{\"name\": \"Ann\", \"age\": 7}",
        "{\"name",
    ] {
        let (mut pieces, mut held_most, mut told) = (String::new(), 0, 0);
        let answered = scripted_model(&[text]).generate(&free_chat(), &mut |piece| {
            if let GenerationEvent::Text(part) = piece {
                pieces.push_str(part);
                told += 1;
                held_most = held_most.max(told.min(text.len()) - pieces.len().min(told));
            }
            ControlFlow::Continue(())
        });
        assert_eq!((answered.unwrap().finish_reason, pieces.as_str()), (FinishReason::Stop, text));
        assert!(held_most <= "```json\n{\"name\": \"my-app\",_\"arguments".len(), "{held_most} of {text}");
    }
}

#[test]
fn after_a_call_the_conversation_is_what_was_said_and_made() {
    let mut model = scripted_model(&["```json\n{\"name\": \"read\", \"arguments\": {}}", TAGGED_CALL]);
    let (first, ..) = generate(&mut model, &free_chat());
    let (second, _, calls) = generate(&mut model, &free_chat());
    assert_eq!(second.cached_tokens, first.prompt_tokens - 1);
    assert_eq!(calls.len(), 1);
}

#[test]
fn a_free_answer_that_goes_in_circles_is_ended() {
    let ruler: &'static str = Box::leak("-".repeat(1_000).into_boxed_str());
    let line: &'static str = Box::leak("I am sorry. ".repeat(100).into_boxed_str());
    let table: &'static str = Box::leak("| - ".repeat(40).into_boxed_str());
    for (whole, most) in [(ruler, Some(260)), (line, Some(260)), (table, None)] {
        let mut model = scripted_model(&[whole]);
        let (answered, text, _) = generate(&mut model, &free_chat());
        let ended = if most.is_some() { FinishReason::Length } else { FinishReason::Stop };
        assert_eq!(answered.finish_reason, ended, "{text}");
        assert!(
            whole.starts_with(&text) && text.len() <= most.unwrap_or(whole.len()),
            "{} letters",
            text.len()
        );
    }
}
