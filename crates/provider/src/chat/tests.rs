//! Tests of the server-specific parts: call ids, and the reasoning sent back with tool calls.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, Requester};
use agent::{Message, MessageSource, ToolCall, ToolOutcome};
use serde_json::{Map, Value, json};

use super::*;
use crate::anthropic::Anthropic;
use crate::catalog::known_provider;

/// Returns the dialect for a provider and model.
fn chat_for(provider: &str, model: &str) -> Chat {
    Chat::COMPATIBLE.for_model(known_provider(provider).expect("a known provider"), model)
}

/// Decodes a response of these deltas to a message.
fn decoded_message(chat: Chat, deltas: &[Value]) -> Message {
    let mut decoder = chat.decoder();
    let (mut calls, mut reasoning_block) = (Vec::new(), None);
    let mut each = |event| match event {
        Ok(ModelEvent::ToolCall(call)) => calls.push(call),
        Ok(ModelEvent::ReasoningBlock(text)) => reasoning_block = Some(text),
        Ok(_) => {}
        Err(fault) => panic!("{fault}"),
    };
    for delta in deltas {
        decoder.decode(json!({ "choices": [{ "delta": delta }] }).to_string().as_bytes(), &mut each);
    }
    decoder.decode(br#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, &mut each);
    decoder.decode(b"[DONE]", &mut each);
    decoder.finish(&mut each);
    Message { reasoning_block, ..Message::assistant("", calls) }
}

/// Encodes a conversation that contains this message and results of its calls.
fn encoded_body(dialect: &dyn Dialect, extra: Map<String, Value>, message: &Message) -> Value {
    let results =
        message.tool_calls.iter().map(|call| Message::tool_result(&call.id, &ToolOutcome::Done("x".into())));
    let messages =
        [Message::user("go", MessageSource::default()), message.clone()].into_iter().chain(results);
    let request = ModelRequest {
        messages: Arc::new(messages.map(Arc::new).collect()),
        requester: Requester { agent: Some(agent::AgentId::main()), ..Requester::default() },
        ..ModelRequest::default()
    };
    let model = ModelOptions { name: "m".into(), extra, ..ModelOptions::default() };
    let body = dialect.encode(&model, &request, &PrefixCache::default()).expect("the request is valid");
    serde_json::from_slice(&body.concat()).expect("the body is JSON")
}

fn call(index: u64, extra_content: Value) -> Value {
    let function = json!({ "name": "clock", "arguments": "{}" });
    let mut call = json!({ "index": index, "id": format!("c{index}"), "function": function });
    if !extra_content.is_null() {
        call["extra_content"] = extra_content;
    }
    json!({ "tool_calls": [call] })
}

/// Returns the names of the fields with reasoning.
fn reasoning_fields(body: &Value) -> Vec<&str> {
    let message = &body["messages"][1];
    let is_present = |name: &&str| message[*name] != Value::Null && message[*name] != "";
    let own = ["reasoning_content", "reasoning_details"].into_iter().filter(is_present);
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    own.chain(calls.filter(|call| !call["extra_content"].is_null()).map(|_| "extra_content")).collect()
}

fn detail(kind: &str, text: &str, signature: &Value) -> Value {
    let field = if kind == "text" { "text" } else { "data" };
    json!({ "type": format!("reasoning.{kind}"), "index": 0, field: text, "signature": signature })
}

#[test]
fn reasoning_is_sent_back_to_the_same_model_only() {
    let [deepseek, openrouter, gemini, groq] = [
        chat_for("deepseek", "deepseek-reasoner"),
        chat_for("openrouter", "google/gemini-3-pro"),
        chat_for("gemini", "gemini-3-pro"),
        chat_for("groq", "llama-3.3-70b-versatile"),
    ];
    let other_models = [
        chat_for("deepseek", "deepseek-chat"),
        chat_for("openrouter", "anthropic/claude-sonnet-4.5"),
        chat_for("gemini", "gemini-2.5-flash"),
        groq,
        Chat::OPENAI,
    ];
    let signed = json!({ "google": { "thought_signature": "s1" } });
    let details = |details: &[Value]| json!({ "reasoning_details": details });
    let deltas = [
        json!({ "reasoning_content": "One " }),
        json!({ "reasoning_content": "two." }),
        details(&[detail("text", "One ", &Value::Null)]),
        details(&[detail("text", "two.", &json!("s0")), detail("encrypted", "xyz", &Value::Null)]),
        details(&[detail("encrypted", "uvw", &Value::Null)]),
        call(0, signed.clone()),
        call(1, Value::Null),
    ];
    for (chat, expected) in [
        (deepseek, &["reasoning_content"][..]),
        (openrouter, &["reasoning_details"]),
        (gemini, &["extra_content"]),
        (groq, &[]),
        (Chat::OPENAI, &[]),
    ] {
        let message = decoded_message(chat, &deltas);
        assert_eq!(message.tool_calls.len(), 2, "{chat:?}");
        let body = encoded_body(&chat, Map::new(), &message);
        assert_eq!(reasoning_fields(&body), expected, "{chat:?}: {body:#}");
        for other_model in other_models {
            let body = encoded_body(&other_model, Map::new(), &message);
            assert!(reasoning_fields(&body).is_empty(), "{other_model:?} takes none of {chat:?}: {body:#}");
        }
        let thinking = json!({ "type": "enabled", "budget_tokens": 1024 });
        let body = encoded_body(&Anthropic, Map::from_iter([("thinking".to_owned(), thinking)]), &message);
        assert!(!body.to_string().contains("two."), "{body:#}");
    }
    let encoded_message =
        |chat| encoded_body(&chat, Map::new(), &decoded_message(chat, &deltas))["messages"][1].clone();
    assert_eq!(encoded_message(deepseek)["reasoning_content"], "One two.");
    let details_expected = [
        ("text", "One two.", json!("s0")),
        ("encrypted", "xyz", Value::Null),
        ("encrypted", "uvw", Value::Null),
    ];
    let details_expected = details_expected.map(|(kind, text, signature)| detail(kind, text, &signature));
    assert_eq!(encoded_message(openrouter)["reasoning_details"], Value::from(details_expected.to_vec()));
    let calls = encoded_message(gemini)["tool_calls"].clone();
    assert_eq!((&calls[0]["extra_content"], &calls[1]["extra_content"]), (&signed, &Value::Null));
}

#[test]
fn missing_or_foreign_reasoning_is_sent_as_empty_text() {
    let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: "{}".into() };
    let anthropic = r#"[{"type":"thinking","thinking":"Hm.","signature":"s"}]"#.to_owned();
    let messages = [
        Message::assistant("", vec![call.clone()]),
        Message { reasoning_block: Some(anthropic), ..Message::assistant("", vec![call]) },
        Message::assistant("Yes.", Vec::new()),
    ];
    for message in messages {
        let body = encoded_body(&chat_for("deepseek", "deepseek-reasoner"), Map::new(), &message);
        assert_eq!(body["messages"][1]["reasoning_content"], "", "{body:#}");
        assert!(
            body["messages"][0].get("reasoning_content").is_none(),
            "only assistant messages have reasoning: {body:#}"
        );
        let body = encoded_body(&chat_for("groq", "moonshotai/kimi-k2-instruct"), Map::new(), &message);
        assert!(body["messages"][1].get("reasoning_content").is_none(), "{body:#}");
    }
}

#[test]
fn reasoning_echo_depends_on_provider_or_model_name() {
    for (provider, model, echo) in [
        ("deepseek", "deepseek-chat", ReasoningEcho::ReasoningContent),
        ("openai", "kimi-k2-thinking", ReasoningEcho::ReasoningContent),
        ("openai", "deepseek-reasoner", ReasoningEcho::ReasoningContent),
        ("openai", "gemini-3-pro", ReasoningEcho::ExtraContent),
        ("openai", "gpt-5", ReasoningEcho::Omitted),
        ("gemini", "gemini-3-pro", ReasoningEcho::ExtraContent),
        ("openrouter", "deepseek/deepseek-r1", ReasoningEcho::ReasoningDetails),
        ("groq", "deepseek-r1-distill-llama-70b", ReasoningEcho::Omitted),
        ("together", "deepseek-ai/DeepSeek-V3", ReasoningEcho::Omitted),
        ("ollama", "deepseek-r1", ReasoningEcho::Omitted),
        ("mistral", "mistral-large-latest", ReasoningEcho::Omitted),
    ] {
        assert_eq!(chat_for(provider, model).reasoning_echo, echo, "{provider}/{model}");
    }
}

#[test]
fn extra_content_of_each_call_survives_several_finish_reasons() {
    let gemini = chat_for("gemini", "gemini-3-pro");
    let mut decoder = gemini.decoder();
    let (mut calls, mut reasoning_block) = (Vec::new(), None);
    // Gemini sends no index.
    for signature in [json!({ "google": "s0" }), Value::Null, json!({ "google": "s2" })] {
        let mut delta = call(calls.len() as u64, signature);
        delta["tool_calls"][0].as_object_mut().expect("a call").remove("index");
        let choice = json!({ "delta": delta, "finish_reason": "tool_calls" });
        decoder.decode(json!({ "choices": [choice] }).to_string().as_bytes(), &mut |event| match event {
            Ok(ModelEvent::ReasoningBlock(text)) => reasoning_block = Some(text),
            Ok(ModelEvent::ToolCall(call)) => calls.push(call),
            _ => {}
        });
    }
    let body =
        encoded_body(&gemini, Map::new(), &Message { reasoning_block, ..Message::assistant("", calls) });
    let extra = |index: usize| body["messages"][1]["tool_calls"][index]["extra_content"].clone();
    assert_eq!(
        [extra(0), extra(1), extra(2)],
        [json!({ "google": "s0" }), Value::Null, json!({ "google": "s2" })]
    );
}

#[test]
fn reasoning_without_tool_calls_is_not_stored() {
    let deepseek = chat_for("deepseek", "deepseek-reasoner");
    let message =
        decoded_message(deepseek, &[json!({ "reasoning_content": "Hm." }), json!({ "content": "Yes." })]);
    assert_eq!(message.reasoning_block, None);
}

#[test]
fn mistral_call_ids_are_nine_letters_and_digits() {
    let ids = ["aB3dE6gH9", "call_abcdefghijklmnop", "call_abcdefghijklmnoq", "toolu_1", "a-b-c-d-e"];
    let call = |id: &str| ToolCall { id: id.to_owned(), name: "clock".into(), arguments: "{}".into() };
    let message = Message::assistant("", ids.map(call).to_vec());
    let body = encoded_body(&chat_for("mistral", "mistral-large-latest"), Map::new(), &message);
    let messages = body["messages"].as_array().expect("messages");
    let call_ids: Vec<_> =
        messages[1]["tool_calls"].as_array().expect("calls").iter().map(|call| &call["id"]).collect();
    let result_ids: Vec<_> = messages[2..].iter().map(|result| &result["tool_call_id"]).collect();
    assert_eq!(call_ids, result_ids);
    assert_eq!(call_ids[0], "aB3dE6gH9");
    let is_accepted = |id: &&Value| {
        id.as_str().is_some_and(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    assert!(call_ids.iter().all(is_accepted), "{call_ids:?}");
    assert!((1..call_ids.len()).all(|index| !call_ids[..index].contains(&call_ids[index])), "{call_ids:?}");
}
