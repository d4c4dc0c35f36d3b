//! Tests of the chat model with real weights: `NEXUS3_TEST_MODEL=FILE cargo test -p local --features real-model-tests`.
#![cfg(feature = "real-model-tests")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the test's environment names the weights file")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use local::generation::{
    Chat, ChatMessage, ChatRole, ChatTool, ChatToolCall, FinishReason, GenerationEvent, GenerationSummary,
    LoadOptions, LoadedModel, ToolChoice,
};
use local::token_counter::GgufTokenCounter;
use serde_json::{Value, json};

fn file() -> PathBuf {
    let path = std::env::var_os("NEXUS3_TEST_MODEL");
    path.expect("set NEXUS3_TEST_MODEL to a GGUF file, for example SmolLM2-135M-Instruct (`nexus3 models pull smollm2-135m`)").into()
}

fn model() -> LoadedModel {
    LoadedModel::open(&file(), &LoadOptions { threads: 1, sequences: 4, ..LoadOptions::default() }).unwrap()
}

fn chat_message(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage { role, text: text.to_owned(), tool_calls: Vec::new(), tool_call_id: None }
}

fn chat(messages: Vec<ChatMessage>) -> Chat {
    Chat {
        messages,
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        schema: None,
        answer_tokens_max: Some(60),
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
        stop: Vec::new(),
    }
}

fn generate(model: &mut LoadedModel, chat: &Chat) -> (GenerationSummary, String, Vec<ChatToolCall>) {
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

fn tools() -> Vec<ChatTool> {
    let tool = |name: &str, description: &str, parameters: Value| ChatTool {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    };
    let one_string = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": false});
    vec![
        tool("read_file", "Reads a file and gives its text.", one_string("path")),
        tool("shell", "Runs a command.", one_string("command")),
        tool("memory_search", "Finds what was said before.", one_string("query")),
    ]
}

#[test]
fn model_knows_the_capital_of_france() {
    let (summary, text, _) = generate(
        &mut model(),
        &chat(vec![chat_message(ChatRole::User, "What is the capital of France? Answer in one sentence.")]),
    );
    println!("{text:?} {summary:?}");
    assert!(text.contains("Paris"), "{text}");
    assert_eq!(summary.finish_reason, FinishReason::Stop);
}

#[test]
fn second_turn_reuses_the_cached_prefix() {
    let mut model = model();
    let mut messages = vec![chat_message(ChatRole::User, "Name a colour.")];
    let (first, text, _) = generate(&mut model, &chat(messages.clone()));
    messages.push(chat_message(ChatRole::Assistant, &text));
    messages.push(chat_message(ChatRole::User, "Another one."));
    let (second, _, _) = generate(&mut model, &chat(messages));
    assert!(second.cached_tokens + 2 >= first.prompt_tokens + first.answer_tokens, "{first:?} {second:?}");
}

#[test]
fn required_call_is_valid() {
    let mut model = model();
    for prompt in ["Read the file notes.txt", "List the files here", "What did we decide about the database?"]
    {
        let chat = Chat {
            tools: tools(),
            tool_choice: ToolChoice::Required,
            answer_tokens_max: Some(200),
            ..chat(vec![chat_message(ChatRole::User, prompt)])
        };
        let (summary, text, calls) = generate(&mut model, &chat);
        println!("{prompt}: {calls:?} {summary:?}");
        assert_eq!((summary.finish_reason, text.as_str()), (FinishReason::ToolCalls, ""));
        for call in calls {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert!(arguments.as_object().unwrap().values().all(Value::is_string));
        }
    }
}

#[test]
fn auto_tool_choice_yields_text_or_valid_calls() {
    let mut model = model();
    for prompt in ["Say hello.", "Read the file notes.txt and tell me what it says."] {
        let chat = Chat {
            tools: tools(),
            answer_tokens_max: Some(120),
            ..chat(vec![chat_message(ChatRole::User, prompt)])
        };
        let (summary, text, calls) = generate(&mut model, &chat);
        println!("{prompt}: {text:?} {calls:?} {summary:?}");
        assert!(!text.is_empty() || !calls.is_empty());
    }
}

#[test]
fn unknown_tool_from_the_conversation_is_never_called() {
    let mut model = model();
    let mut call_count = 0;
    for fence in ["", "```json\n"] {
        let unknown_call = format!("{fence}{{\"name\": \"fly\", \"arguments\": {{\"to\": \"the moon\"}}}}");
        let example = chat_message(ChatRole::Assistant, &unknown_call);
        let user_message = |text: &str| chat_message(ChatRole::User, text);
        let chat = Chat {
            tools: tools(),
            answer_tokens_max: Some(200),
            ..chat(vec![
                user_message("Fly to the moon."),
                example.clone(),
                user_message("Fly to the moon."),
                example,
                user_message("Fly to the moon."),
            ])
        };
        let (summary, text, calls) = generate(&mut model, &chat);
        println!("{fence:?}: {text:?} {calls:?} {summary:?}");
        assert!(!text.contains("\"arguments\""), "{text}");
        let offered = tools();
        assert!(calls.iter().all(|call| offered.iter().any(|tool| tool.name == call.name)), "{calls:?}");
        call_count += calls.len();
    }
    assert!(call_count > 0, "the model made no call, so nothing was tested");
}

#[test]
fn schema_response_is_valid() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}}, "required": ["city", "country"], "additionalProperties": false});
    let chat = Chat {
        schema: Some(schema),
        ..chat(vec![chat_message(ChatRole::User, "Where is the Eiffel tower? Answer in JSON.")])
    };
    let (_, text, _) = generate(&mut model(), &chat);
    println!("{text}");
    assert!(serde_json::from_str::<Value>(&text).unwrap()["city"].is_string());
}

#[test]
fn oversized_schema_is_refused() {
    let properties: serde_json::Map<String, Value> =
        (0..2_000).map(|number| (format!("field_{number}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let chat = Chat { schema: Some(schema), ..chat(vec![chat_message(ChatRole::User, "Answer in JSON.")]) };
    let summary = model().generate(&chat, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(summary, Err(local::generation::GenerationFault::Refused(_))), "{summary:?}");
}

#[test]
fn token_counter_matches_the_model() {
    let counter = GgufTokenCounter::open(&file()).expect("the file has a tokenizer");
    assert_eq!((counter.count_tokens(""), counter.count_tokens("Hello, world!")), (0, 4));
    // Each digit is a token, and no space is added before the first word.
    assert_eq!(counter.count_tokens("1234"), 4);
}
