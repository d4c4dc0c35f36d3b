//! Tests: whole answers of a made-up model. It talks nonsense, so what holds here holds for every model.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::generation::{
    Chat, ChatMessage, ChatRole, GenerationSummary, LoadOptions, LoadedModel, ToolChoice,
};
use serde_json::json;

pub(super) fn model() -> LoadedModel {
    let file = fixture::write(&ModelFixture::default());
    LoadedModel::open(&file.path, &LoadOptions { threads: 1, sequences: 2, ..LoadOptions::default() })
        .unwrap()
}

pub(super) fn chat(text: &str) -> Chat {
    Chat {
        messages: vec![ChatMessage {
            role: ChatRole::User,
            text: text.to_owned(),
            tool_calls: Vec::new(),
            tool_call_id: None,
        }],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        schema: None,
        answer_tokens_max: Some(40),
        temperature: 0.8,
        top_p: 1.0,
        seed: 3,
        stop: Vec::new(),
    }
}

pub(super) fn tools() -> Vec<ChatTool> {
    let tool =
        |name: &str, parameters| ChatTool { name: name.to_owned(), description: String::new(), parameters };
    vec![
        tool(
            "read",
            json!({"type": "object", "properties": {"path": {"$ref": "#/$defs/p"}}, "required": ["path"], "additionalProperties": false, "$defs": {"p": {"type": "string"}}}),
        ),
        tool(
            "count",
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "how": {"enum": ["up", "down"]}}, "required": ["n", "how"], "additionalProperties": false}),
        ),
    ]
}

pub(super) fn generate(
    model: &mut LoadedModel,
    chat: &Chat,
) -> (GenerationSummary, String, Vec<ChatToolCall>) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let answered = model
        .generate(chat, &mut |piece| {
            match piece {
                GenerationEvent::Text(part) => text.push_str(part),
                GenerationEvent::ToolCall(call) => calls.push(call.clone()),
                GenerationEvent::PromptProgress { .. } => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (answered, text, calls)
}

pub(super) fn assert_valid(call: &ChatToolCall) {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
    match call.name.as_str() {
        "read" => assert!(arguments["path"].is_string()),
        "count" => {
            assert!(
                arguments["n"].is_number() && ["up", "down"].contains(&arguments["how"].as_str().unwrap())
            );
        }
        other => panic!("{other} was not offered"),
    }
}

#[test]
fn an_answer_repeats_with_its_seed_and_reuses_its_prefix() {
    let mut model = model();
    let (first, text, _) = generate(&mut model, &chat("hello"));
    let (second, again, _) = generate(&mut model, &chat("hello"));
    assert_eq!(text, again);
    assert_eq!(first.cached_tokens, 0);
    assert_eq!(second.cached_tokens, second.prompt_tokens - 1);
    assert_eq!(second.prompt_tokens, first.prompt_tokens);
}

#[test]
fn a_model_that_talks_nonsense_calls_validly_when_it_has_to() {
    let mut model = model();
    for seed in 0..6 {
        for (choice, most) in [(ToolChoice::Required, 8), (ToolChoice::Named("count".to_owned()), 1)] {
            let answer_tokens_max = Some(150);
            let chat = Chat {
                tools: tools(),
                tool_choice: choice.clone(),
                seed,
                answer_tokens_max,
                ..chat("hello")
            };
            let (answered, text, calls) = generate(&mut model, &chat);
            assert_eq!((answered.finish_reason, text.as_str()), (FinishReason::ToolCalls, ""));
            assert!((1..=most).contains(&calls.len()));
            calls.iter().for_each(assert_valid);
            assert!(choice == ToolChoice::Required || calls[0].name == "count");
        }
    }
}

#[test]
fn schema_output_is_valid_json_of_the_schema() {
    let mut model = model();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}, "why": {"type": "string"}}, "required": ["ok", "why"], "additionalProperties": false});
    for seed in 0..4 {
        let chat = Chat { schema: Some(schema.clone()), seed, answer_tokens_max: Some(120), ..chat("hello") };
        let (answered, text, _) = generate(&mut model, &chat);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["ok"].is_boolean() && value["why"].is_string());
        assert_eq!(answered.finish_reason, FinishReason::Stop);
    }
}

#[test]
fn with_a_schema_and_tools_the_answer_is_one_or_the_other() {
    let mut model = model();
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false});
    for seed in 0..6 {
        let chat = Chat {
            schema: Some(schema.clone()),
            tools: tools(),
            seed,
            answer_tokens_max: Some(120),
            ..chat("hello")
        };
        let (answered, text, calls) = generate(&mut model, &chat);
        match answered.finish_reason {
            FinishReason::ToolCalls => assert_valid(&calls[0]),
            _ => assert!(serde_json::from_str::<Value>(&text).unwrap()["x"].is_number()),
        }
    }
}

#[test]
fn a_cancel_is_heard_at_the_next_token_and_between_chunks_of_the_prompt() {
    let mut model = model();
    let mut asked = 0;
    let answered = model.generate(&chat("hello"), &mut |piece| {
        asked += usize::from(matches!(piece, GenerationEvent::Text(_)));
        if asked == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let answered = answered.unwrap();
    assert_eq!((answered.finish_reason, answered.answer_tokens), (FinishReason::Cancelled, 3));
    let mut reads = 0;
    let answered = model.generate(&chat(&"x".repeat(200)), &mut |_| {
        reads += 1;
        ControlFlow::Break(())
    });
    assert_eq!((answered.unwrap().finish_reason, reads), (FinishReason::Cancelled, 1));
}

#[test]
fn a_prompt_beyond_the_window_is_told_its_numbers() {
    let fault = model().generate(&chat(&"x".repeat(600)), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(fault, GenerationFault::PromptTooLong { prompt_tokens, window_tokens: 512 } if prompt_tokens > 600)
    );
}

#[test]
fn an_answer_ends_where_the_window_does() {
    let chat = Chat { answer_tokens_max: None, ..chat(&"x".repeat(480)) };
    let (answered, ..) = generate(&mut model(), &chat);
    assert!(answered.prompt_tokens + answered.answer_tokens <= 512);
}

#[test]
fn a_tool_that_is_not_offered_cannot_be_demanded() {
    let demanded = Chat { tool_choice: ToolChoice::Named("fly".to_owned()), tools: tools(), ..chat("hello") };
    let fault = model().generate(&demanded, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(fault.to_string().contains("fly"));
    let required = Chat { tool_choice: ToolChoice::Required, ..chat("hello") };
    model().generate(&required, &mut |_| ControlFlow::Continue(())).unwrap_err();
}

#[test]
fn circles_are_seen_and_lists_are_not() {
    assert!(CONSTRAINED_REPETITION.detects(&[7; 60]) && !FREE_REPETITION.detects(&[7; 60]));
    assert!(CONSTRAINED_REPETITION.detects(&[1, 2, 3].repeat(20)));
    assert!(!CONSTRAINED_REPETITION.detects(&[1, 2, 3].repeat(4)));
    assert!(!CONSTRAINED_REPETITION.detects(&(0..200).collect::<Vec<_>>()));
    let line: Vec<u32> = (0..50).collect();
    assert!(FREE_REPETITION.detects(&line.repeat(6)) && !FREE_REPETITION.detects(&line.repeat(5)));
}
