//! What differs from server to server: the ids of calls, and what a model thought before them.

use std::sync::Arc;

use agent::outside::{Asker, ModelEvent, ModelRequest};
use agent::{Message, Source, ToolCall, ToolOutcome};
use serde_json::{Map, Value, json};

use super::*;
use crate::anthropic::Anthropic;

/// The message that comes of an answer of these pieces and a call.
fn answered(chat: Chat, deltas: &[Value]) -> Message {
    let mut reader = chat.reader();
    let (mut calls, mut thoughts) = (Vec::new(), None);
    let mut each = |event| match event {
        Ok(ModelEvent::ToolCall(call)) => calls.push(call),
        Ok(ModelEvent::Thoughts(text)) => thoughts = Some(text),
        Ok(_) => {}
        Err(fault) => panic!("{fault}"),
    };
    for delta in deltas {
        reader.take(json!({ "choices": [{ "delta": delta }] }).to_string().as_bytes(), &mut each);
    }
    reader.take(br#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, &mut each);
    reader.take(b"[DONE]", &mut each);
    reader.finish(&mut each);
    Message { thoughts, ..Message::assistant("", calls) }
}

/// What is written of a conversation in which that was answered.
fn written(dialect: &dyn Dialect, extra: Map<String, Value>, answer: &Message) -> Value {
    let results =
        answer.tool_calls.iter().map(|call| Message::result(&call.id, &ToolOutcome::Done("x".into())));
    let messages = [Message::user("go", Source::default()), answer.clone()].into_iter().chain(results);
    let request = ModelRequest {
        messages: Arc::new(messages.map(Arc::new).collect()),
        asker: Asker { agent: Some(agent::AgentId::main()), ..Asker::default() },
        ..ModelRequest::default()
    };
    let model = ModelOptions { name: "m".into(), extra, ..ModelOptions::default() };
    let body = dialect.write(&model, &request, &PrefixShelf::default()).expect("it can be written");
    serde_json::from_slice(&body.concat()).expect("it is JSON")
}

fn call(index: u64, extra_content: Value) -> Value {
    let function = json!({ "name": "clock", "arguments": "{}" });
    let mut call = json!({ "index": index, "id": format!("c{index}"), "function": function });
    if !extra_content.is_null() {
        call["extra_content"] = extra_content;
    }
    json!({ "tool_calls": [call] })
}

/// The names of the members that hold thoughts.
fn members(body: &Value) -> Vec<&str> {
    let answer = &body["messages"][1];
    let own = ["reasoning_content", "reasoning_details"].into_iter().filter(|name| !answer[name].is_null());
    let calls = answer["tool_calls"].as_array().into_iter().flatten();
    own.chain(calls.filter(|call| !call["extra_content"].is_null()).map(|_| "extra_content")).collect()
}

#[test]
fn what_a_model_thought_goes_back_to_servers_that_want_it_and_to_no_others() {
    let [deepseek, openrouter, gemini, other] = [
        Chat::compatible("deepseek", "deepseek-reasoner"),
        Chat::compatible("openrouter", "google/gemini-3-pro"),
        Chat::compatible("gemini", "gemini-3-pro"),
        Chat::compatible("groq", "llama-3.3-70b-versatile"),
    ];
    let signed = json!({ "google": { "thought_signature": "s1" } });
    let detail = |text: &str, signature: Value| json!([{ "type": "reasoning.text", "index": 0, "text": text, "signature": signature }]);
    let deltas = [
        json!({ "reasoning_content": "One ", "reasoning_details": detail("One ", Value::Null) }),
        json!({ "reasoning_content": "two.", "reasoning_details": detail("two.", json!("s0")) }),
        call(0, signed.clone()),
        call(1, Value::Null),
    ];
    for (chat, expected) in [
        (deepseek, &["reasoning_content"][..]),
        (openrouter, &["reasoning_details"]),
        (gemini, &["extra_content"]),
        (other, &[]),
        (Chat::OPENAI, &[]),
    ] {
        let answer = answered(chat, &deltas);
        assert_eq!(answer.tool_calls.len(), 2, "{chat:?}");
        let body = written(&chat, Map::new(), &answer);
        assert_eq!(members(&body), expected, "{chat:?}: {body:#}");
        for elsewhere in
            [deepseek, openrouter, gemini, other].into_iter().filter(|other| other.key() != chat.key())
        {
            let body = written(&elsewhere, Map::new(), &answer);
            assert!(members(&body).is_empty(), "{elsewhere:?} takes none of {chat:?}: {body:#}");
        }
        let thinking =
            Map::from_iter([("thinking".to_owned(), json!({ "type": "enabled", "budget_tokens": 1024 }))]);
        let body = written(&Anthropic, thinking, &answer);
        assert!(!body.to_string().contains("two."), "{body:#}");
    }
    let thought = |chat| written(&chat, Map::new(), &answered(chat, &deltas))["messages"][1].clone();
    assert_eq!(thought(deepseek)["reasoning_content"], "One two.");
    assert_eq!(thought(openrouter)["reasoning_details"], detail("One two.", json!("s0")));
    let calls = thought(gemini)["tool_calls"].clone();
    assert_eq!((&calls[0]["extra_content"], &calls[1]["extra_content"]), (&signed, &Value::Null));
}

#[test]
fn thoughts_before_an_answer_without_calls_are_not_kept() {
    let deepseek = Chat::compatible("deepseek", "deepseek-reasoner");
    let answer = answered(deepseek, &[json!({ "reasoning_content": "Hm." }), json!({ "content": "Yes." })]);
    assert_eq!(answer.thoughts, None);
}

#[test]
fn mistral_gets_ids_of_nine_letters_and_digits() {
    let ids = ["aB3dE6gH9", "call_abcdefghijklmnop", "call_abcdefghijklmnoq", "toolu_1", "a-b-c-d-e"];
    let call = |id: &str| ToolCall { id: id.to_owned(), name: "clock".into(), arguments: "{}".into() };
    let answer = Message::assistant("", ids.map(call).to_vec());
    let body = written(&Chat::compatible("mistral", "mistral-large-latest"), Map::new(), &answer);
    let messages = body["messages"].as_array().expect("messages");
    let asked: Vec<_> =
        messages[1]["tool_calls"].as_array().expect("calls").iter().map(|call| &call["id"]).collect();
    let told: Vec<_> = messages[2..].iter().map(|result| &result["tool_call_id"]).collect();
    assert_eq!(asked, told);
    assert_eq!(asked[0], "aB3dE6gH9");
    let is_taken = |id: &&Value| {
        id.as_str().is_some_and(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    assert!(asked.iter().all(is_taken), "{asked:?}");
    assert!((1..asked.len()).all(|place| !asked[..place].contains(&asked[place])), "{asked:?}");
}
