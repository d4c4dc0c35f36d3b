//! Tests: complete responses of the fixture model. Its weights are random, so these properties hold for any model.

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
    let summary = model
        .generate(chat, &mut |event| {
            match event {
                GenerationEvent::Text(part) => text.push_str(part),
                GenerationEvent::ToolCall(call) => calls.push(call.clone()),
                GenerationEvent::PromptProgress { .. } => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (summary, text, calls)
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
        other => panic!("{other} is not a tool of the request"),
    }
}

#[test]
fn same_seed_repeats_the_response_and_reuses_the_prefix() {
    let mut model = model();
    let (first, text, _) = generate(&mut model, &chat("hello"));
    let (second, again, _) = generate(&mut model, &chat("hello"));
    assert_eq!(text, again);
    assert_eq!(first.cached_tokens, 0);
    assert_eq!(second.cached_tokens, second.prompt_tokens - 1);
    assert_eq!(second.prompt_tokens, first.prompt_tokens);
}

#[test]
fn random_model_generates_valid_required_calls() {
    let mut model = model();
    for seed in 0..6 {
        for (choice, calls_max) in [(ToolChoice::Required, 8), (ToolChoice::Named("count".to_owned()), 1)] {
            let answer_tokens_max = Some(150);
            let chat = Chat {
                tools: tools(),
                tool_choice: choice.clone(),
                seed,
                answer_tokens_max,
                ..chat("hello")
            };
            let (summary, text, calls) = generate(&mut model, &chat);
            assert_eq!((summary.finish_reason, text.as_str()), (FinishReason::ToolCalls, ""));
            assert!((1..=calls_max).contains(&calls.len()));
            calls.iter().for_each(assert_valid);
            assert!(choice == ToolChoice::Required || calls[0].name == "count");
        }
    }
}

#[test]
fn schema_response_is_valid_json_of_the_schema() {
    let mut model = model();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}, "why": {"type": "string"}}, "required": ["ok", "why"], "additionalProperties": false});
    for seed in 0..4 {
        let chat = Chat { schema: Some(schema.clone()), seed, answer_tokens_max: Some(120), ..chat("hello") };
        let (summary, text, _) = generate(&mut model, &chat);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["ok"].is_boolean() && value["why"].is_string());
        assert_eq!(summary.finish_reason, FinishReason::Stop);
    }
}

#[test]
fn schema_with_tools_yields_json_or_a_call() {
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
        let (summary, text, calls) = generate(&mut model, &chat);
        match summary.finish_reason {
            FinishReason::ToolCalls => assert_valid(&calls[0]),
            _ => assert!(serde_json::from_str::<Value>(&text).unwrap()["x"].is_number()),
        }
    }
}

#[test]
fn cancel_takes_effect_at_the_next_token_or_prompt_chunk() {
    let mut model = model();
    let mut texts = 0;
    let summary = model.generate(&chat("hello"), &mut |event| {
        texts += usize::from(matches!(event, GenerationEvent::Text(_)));
        if texts == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let summary = summary.unwrap();
    assert_eq!((summary.finish_reason, summary.answer_tokens), (FinishReason::Cancelled, 3));
    let mut events = 0;
    let summary = model.generate(&chat(&"x".repeat(200)), &mut |_| {
        events += 1;
        ControlFlow::Break(())
    });
    assert_eq!((summary.unwrap().finish_reason, events), (FinishReason::Cancelled, 1));
}

#[test]
fn empty_prompt_is_refused_as_empty() {
    let file = fixture::write(&ModelFixture { template: Some("{{ '' }}"), ..ModelFixture::default() });
    let mut model = LoadedModel::open(&file.path, &LoadOptions::default()).unwrap();
    let fault = model.generate(&chat("hello"), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&fault, GenerationFault::Refused(why) if why.contains("is empty")), "{fault}");
}

#[test]
fn prompt_beyond_the_window_reports_both_lengths() {
    let fault = model().generate(&chat(&"x".repeat(600)), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(fault, GenerationFault::PromptTooLong { prompt_tokens, window_tokens: 512 } if prompt_tokens > 600)
    );
}

#[test]
fn response_ends_at_the_context_window() {
    let chat = Chat { answer_tokens_max: None, ..chat(&"x".repeat(480)) };
    let (summary, ..) = generate(&mut model(), &chat);
    assert!(summary.prompt_tokens + summary.answer_tokens <= 512);
}

#[test]
fn unknown_tool_cannot_be_required() {
    let named = Chat { tool_choice: ToolChoice::Named("fly".to_owned()), tools: tools(), ..chat("hello") };
    let fault = model().generate(&named, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(fault.to_string().contains("fly"));
    let required = Chat { tool_choice: ToolChoice::Required, ..chat("hello") };
    model().generate(&required, &mut |_| ControlFlow::Continue(())).unwrap_err();
}

#[test]
fn repetition_rules_detect_loops_but_not_lists() {
    assert!(CONSTRAINED_REPETITION.detects(&[7; 60]) && !FREE_REPETITION.detects(&[7; 60]));
    assert!(CONSTRAINED_REPETITION.detects(&[1, 2, 3].repeat(20)));
    assert!(!CONSTRAINED_REPETITION.detects(&[1, 2, 3].repeat(4)));
    assert!(!CONSTRAINED_REPETITION.detects(&(0..200).collect::<Vec<_>>()));
    let line: Vec<u32> = (0..50).collect();
    assert!(FREE_REPETITION.detects(&line.repeat(6)) && !FREE_REPETITION.detects(&line.repeat(5)));
}
