//! Tests against a real file: `NEXUS3_TEST_MODEL=FILE cargo test -p local --features real-model-tests`.
#![cfg(feature = "real-model-tests")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "whoever runs these tests names the file in the environment")]

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

fn tools() -> Vec<ChatTool> {
    let tool = |name: &str, description: &str, parameters: Value| ChatTool {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    };
    let one = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": false});
    vec![
        tool("read_file", "Reads a file and gives its text.", one("path")),
        tool("shell", "Runs a command.", one("command")),
        tool("memory_search", "Finds what was said before.", one("query")),
    ]
}

#[test]
fn it_knows_the_capital_of_france() {
    let (answered, text, _) = generate(
        &mut model(),
        &chat(vec![chat_message(ChatRole::User, "What is the capital of France? Answer in one sentence.")]),
    );
    println!("{text:?} {answered:?}");
    assert!(text.contains("Paris"), "{text}");
    assert_eq!(answered.finish_reason, FinishReason::Stop);
}

#[test]
fn the_second_turn_computes_only_what_is_new() {
    let mut model = model();
    let mut messages = vec![chat_message(ChatRole::User, "Name a colour.")];
    let (first, text, _) = generate(&mut model, &chat(messages.clone()));
    messages.push(chat_message(ChatRole::Assistant, &text));
    messages.push(chat_message(ChatRole::User, "Another one."));
    let (second, _, _) = generate(&mut model, &chat(messages));
    assert!(second.cached_tokens + 2 >= first.prompt_tokens + first.answer_tokens, "{first:?} {second:?}");
}

#[test]
fn a_required_call_is_valid() {
    let mut model = model();
    for question in
        ["Read the file notes.txt", "List the files here", "What did we decide about the database?"]
    {
        let chat = Chat {
            tools: tools(),
            tool_choice: ToolChoice::Required,
            answer_tokens_max: Some(200),
            ..chat(vec![chat_message(ChatRole::User, question)])
        };
        let (answered, text, calls) = generate(&mut model, &chat);
        println!("{question}: {calls:?} {answered:?}");
        assert_eq!((answered.finish_reason, text.as_str()), (FinishReason::ToolCalls, ""));
        for call in calls {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert!(arguments.as_object().unwrap().values().all(Value::is_string));
        }
    }
}

#[test]
fn free_choice_gives_text_or_valid_calls() {
    let mut model = model();
    for question in ["Say hello.", "Read the file notes.txt and tell me what it says."] {
        let chat = Chat {
            tools: tools(),
            answer_tokens_max: Some(120),
            ..chat(vec![chat_message(ChatRole::User, question)])
        };
        let (answered, text, calls) = generate(&mut model, &chat);
        println!("{question}: {text:?} {calls:?} {answered:?}");
        assert!(!text.is_empty() || !calls.is_empty());
    }
}

#[test]
fn a_made_up_tool_that_the_model_is_talked_into_is_never_called() {
    let mut model = model();
    let mut made = 0;
    for fence in ["", "```json\n"] {
        let begun = format!("{fence}{{\"name\": \"fly\", \"arguments\": {{\"to\": \"the moon\"}}}}");
        let example = chat_message(ChatRole::Assistant, &begun);
        let ask = |text: &str| chat_message(ChatRole::User, text);
        let chat = Chat {
            tools: tools(),
            answer_tokens_max: Some(200),
            ..chat(vec![
                ask("Fly to the moon."),
                example.clone(),
                ask("Fly to the moon."),
                example,
                ask("Fly to the moon."),
            ])
        };
        let (answered, text, calls) = generate(&mut model, &chat);
        println!("{fence:?}: {text:?} {calls:?} {answered:?}");
        assert!(!text.contains("\"arguments\""), "{text}");
        let offered = tools();
        assert!(calls.iter().all(|call| offered.iter().any(|tool| tool.name == call.name)), "{calls:?}");
        made += calls.len();
    }
    assert!(made > 0, "the model was not talked into it, so nothing was tried");
}

#[test]
fn an_answer_to_a_schema_is_valid() {
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
fn a_schema_that_is_too_large_is_refused_and_not_failed_of() {
    let properties: serde_json::Map<String, Value> =
        (0..2_000).map(|number| (format!("field_{number}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let chat = Chat { schema: Some(schema), ..chat(vec![chat_message(ChatRole::User, "Answer in JSON.")]) };
    let answered = model().generate(&chat, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(answered, Err(local::generation::GenerationFault::Refused(_))), "{answered:?}");
}

#[test]
fn whoever_only_counts_counts_as_the_model_does() {
    let counter = GgufTokenCounter::open(&file()).expect("the file has a tokenizer");
    assert_eq!((counter.count_tokens(""), counter.count_tokens("Hello, world!")), (0, 4));
    // Digits are tokens of their own, and no space is put before the first word.
    assert_eq!(counter.count_tokens("1234"), 4);
}
