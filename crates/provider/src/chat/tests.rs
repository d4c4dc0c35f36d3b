//! What differs from server to server: the ids of calls, and what a model thought before them.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, Requester};
use agent::{Message, MessageSource, ToolCall, ToolOutcome};
use serde_json::{Map, Value, json};

use super::*;
use crate::anthropic::Anthropic;
use crate::catalog::known_provider;

/// The dialect as the provider of that name speaks it.
fn chat_for(provider: &str, model: &str) -> Chat {
    Chat::COMPATIBLE.for_model(known_provider(provider).expect("it is in the list"), model)
}

/// The message that comes of an answer of these pieces and a call.
fn decoded_message(chat: Chat, deltas: &[Value]) -> Message {
    let mut reader = chat.decoder();
    let (mut calls, mut thoughts) = (Vec::new(), None);
    let mut each = |event| match event {
        Ok(ModelEvent::ToolCall(call)) => calls.push(call),
        Ok(ModelEvent::ReasoningBlock(text)) => thoughts = Some(text),
        Ok(_) => {}
        Err(fault) => panic!("{fault}"),
    };
    for delta in deltas {
        reader.decode(json!({ "choices": [{ "delta": delta }] }).to_string().as_bytes(), &mut each);
    }
    reader.decode(br#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, &mut each);
    reader.decode(b"[DONE]", &mut each);
    reader.finish(&mut each);
    Message { reasoning_block: thoughts, ..Message::assistant("", calls) }
}

/// What is written of a conversation in which that was answered.
fn encoded_body(dialect: &dyn Dialect, extra: Map<String, Value>, answer: &Message) -> Value {
    let results =
        answer.tool_calls.iter().map(|call| Message::tool_result(&call.id, &ToolOutcome::Done("x".into())));
    let messages = [Message::user("go", MessageSource::default()), answer.clone()].into_iter().chain(results);
    let request = ModelRequest {
        messages: Arc::new(messages.map(Arc::new).collect()),
        requester: Requester { agent: Some(agent::AgentId::main()), ..Requester::default() },
        ..ModelRequest::default()
    };
    let model = ModelOptions { name: "m".into(), extra, ..ModelOptions::default() };
    let body = dialect.encode(&model, &request, &PrefixCache::default()).expect("it can be written");
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
fn reasoning_fields(body: &Value) -> Vec<&str> {
    let answer = &body["messages"][1];
    let is_said = |name: &&str| answer[*name] != Value::Null && answer[*name] != "";
    let own = ["reasoning_content", "reasoning_details"].into_iter().filter(is_said);
    let calls = answer["tool_calls"].as_array().into_iter().flatten();
    own.chain(calls.filter(|call| !call["extra_content"].is_null()).map(|_| "extra_content")).collect()
}

fn detail(kind: &str, text: &str, signature: &Value) -> Value {
    let member = if kind == "text" { "text" } else { "data" };
    json!({ "type": format!("reasoning.{kind}"), "index": 0, member: text, "signature": signature })
}

#[test]
fn what_a_model_thought_goes_back_to_it_where_that_is_wanted_and_to_no_other() {
    let [deepseek, openrouter, gemini, other] = [
        chat_for("deepseek", "deepseek-reasoner"),
        chat_for("openrouter", "google/gemini-3-pro"),
        chat_for("gemini", "gemini-3-pro"),
        chat_for("groq", "llama-3.3-70b-versatile"),
    ];
    let others = [
        chat_for("deepseek", "deepseek-chat"),
        chat_for("openrouter", "anthropic/claude-sonnet-4.5"),
        chat_for("gemini", "gemini-2.5-flash"),
        other,
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
        (other, &[]),
        (Chat::OPENAI, &[]),
    ] {
        let answer = decoded_message(chat, &deltas);
        assert_eq!(answer.tool_calls.len(), 2, "{chat:?}");
        let body = encoded_body(&chat, Map::new(), &answer);
        assert_eq!(reasoning_fields(&body), expected, "{chat:?}: {body:#}");
        for elsewhere in others {
            let body = encoded_body(&elsewhere, Map::new(), &answer);
            assert!(reasoning_fields(&body).is_empty(), "{elsewhere:?} takes none of {chat:?}: {body:#}");
        }
        let thinking = json!({ "type": "enabled", "budget_tokens": 1024 });
        let body = encoded_body(&Anthropic, Map::from_iter([("thinking".to_owned(), thinking)]), &answer);
        assert!(!body.to_string().contains("two."), "{body:#}");
    }
    let thought =
        |chat| encoded_body(&chat, Map::new(), &decoded_message(chat, &deltas))["messages"][1].clone();
    assert_eq!(thought(deepseek)["reasoning_content"], "One two.");
    let kept = [
        ("text", "One two.", json!("s0")),
        ("encrypted", "xyz", Value::Null),
        ("encrypted", "uvw", Value::Null),
    ];
    let kept = kept.map(|(kind, text, signature)| detail(kind, text, &signature));
    assert_eq!(thought(openrouter)["reasoning_details"], Value::from(kept.to_vec()));
    let calls = thought(gemini)["tool_calls"].clone();
    assert_eq!((&calls[0]["extra_content"], &calls[1]["extra_content"]), (&signed, &Value::Null));
}

#[test]
fn an_answer_without_thoughts_or_of_another_api_says_so_where_the_text_is_wanted() {
    let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: "{}".into() };
    let anthropic = r#"[{"type":"thinking","thinking":"Hm.","signature":"s"}]"#.to_owned();
    let answers = [
        Message::assistant("", vec![call.clone()]),
        Message { reasoning_block: Some(anthropic), ..Message::assistant("", vec![call]) },
        Message::assistant("Yes.", Vec::new()),
    ];
    for answer in answers {
        let body = encoded_body(&chat_for("deepseek", "deepseek-reasoner"), Map::new(), &answer);
        assert_eq!(body["messages"][1]["reasoning_content"], "", "{body:#}");
        assert!(body["messages"][0].get("reasoning_content").is_none(), "nobody else thinks: {body:#}");
        let body = encoded_body(&chat_for("groq", "moonshotai/kimi-k2-instruct"), Map::new(), &answer);
        assert!(body["messages"][1].get("reasoning_content").is_none(), "{body:#}");
    }
}

#[test]
fn who_wants_what_is_told_by_the_provider_and_behind_another_address_by_the_model() {
    for (provider, model, wanted) in [
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
        assert_eq!(chat_for(provider, model).reasoning_echo, wanted, "{provider}/{model}");
    }
}

#[test]
fn an_answer_that_ends_after_each_call_keeps_what_belongs_to_each() {
    let gemini = chat_for("gemini", "gemini-3-pro");
    let mut reader = gemini.decoder();
    let (mut calls, mut thoughts) = (Vec::new(), None);
    // As Gemini has it, without an index.
    for signature in [json!({ "google": "s0" }), Value::Null, json!({ "google": "s2" })] {
        let mut delta = call(calls.len() as u64, signature);
        delta["tool_calls"][0].as_object_mut().expect("a call").remove("index");
        let choice = json!({ "delta": delta, "finish_reason": "tool_calls" });
        reader.decode(json!({ "choices": [choice] }).to_string().as_bytes(), &mut |event| match event {
            Ok(ModelEvent::ReasoningBlock(text)) => thoughts = Some(text),
            Ok(ModelEvent::ToolCall(call)) => calls.push(call),
            _ => {}
        });
    }
    let body = encoded_body(
        &gemini,
        Map::new(),
        &Message { reasoning_block: thoughts, ..Message::assistant("", calls) },
    );
    let extra = |place: usize| body["messages"][1]["tool_calls"][place]["extra_content"].clone();
    assert_eq!(
        [extra(0), extra(1), extra(2)],
        [json!({ "google": "s0" }), Value::Null, json!({ "google": "s2" })]
    );
}

#[test]
fn thoughts_before_an_answer_without_calls_are_not_kept() {
    let deepseek = chat_for("deepseek", "deepseek-reasoner");
    let answer =
        decoded_message(deepseek, &[json!({ "reasoning_content": "Hm." }), json!({ "content": "Yes." })]);
    assert_eq!(answer.reasoning_block, None);
}

#[test]
fn mistral_gets_ids_of_nine_letters_and_digits() {
    let ids = ["aB3dE6gH9", "call_abcdefghijklmnop", "call_abcdefghijklmnoq", "toolu_1", "a-b-c-d-e"];
    let call = |id: &str| ToolCall { id: id.to_owned(), name: "clock".into(), arguments: "{}".into() };
    let answer = Message::assistant("", ids.map(call).to_vec());
    let body = encoded_body(&chat_for("mistral", "mistral-large-latest"), Map::new(), &answer);
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
