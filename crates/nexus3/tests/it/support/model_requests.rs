//! The requests that the model received, and whether a strict model API would accept them.

use serde_json::Value;
use testkit::{RecordedRequest, ScriptedModel};

/// The messages of the last request, as role and content, without the system prompt.
pub(crate) fn last_conversation(model: &ScriptedModel) -> Vec<(String, String)> {
    let last = model.requests().pop().expect("the model got a request");
    conversation(&last)
        .iter()
        .map(|message| (role(message).to_owned(), without_volatile_suffix(content(message)).to_owned()))
        .collect()
}

/// A message without the volatile suffix, such as the time.
pub(crate) fn without_volatile_suffix(text: &str) -> &str {
    text.split_once("<session-context>").map_or(text, |(before, _)| before.trim_end_matches('\n'))
}

/// Checks every request so far against the rules of strict model APIs.
pub(crate) fn assert_all_valid(model: &ScriptedModel) {
    for request in model.requests() {
        if let Err(fault) = validate(&conversation(&request)) {
            panic!("{fault} in {:#}", request.body["messages"]);
        }
    }
}

/// Checks that user and assistant messages alternate, results follow their tool calls, no assistant message is empty,
/// and the last message is not the assistant's.
fn validate(messages: &[Value]) -> Result<(), String> {
    let mut expected = "user";
    let mut open_calls: Vec<&str> = Vec::new();
    for message in messages {
        let role = role(message);
        if let Some(call) = open_calls.first() {
            if role != "tool" || message["tool_call_id"] != **call {
                return Err(format!("{role} instead of the result of {call}"));
            }
            open_calls.remove(0);
            continue;
        }
        if role != expected {
            return Err(format!("{role} instead of {expected}"));
        }
        if role == "assistant" {
            let calls = message["tool_calls"].as_array();
            open_calls = calls.into_iter().flatten().filter_map(|call| call["id"].as_str()).collect();
            if open_calls.is_empty() && content(message).is_empty() {
                return Err("an empty assistant message".to_owned());
            }
        }
        expected = if role == "user" || !open_calls.is_empty() { "assistant" } else { "user" };
    }
    if !open_calls.is_empty() {
        return Err("a tool call without its result".to_owned());
    }
    if expected == "user" { Err("the last message is the assistant's".to_owned()) } else { Ok(()) }
}

fn conversation(request: &RecordedRequest) -> Vec<Value> {
    let messages = request.body["messages"].as_array().expect("a request has messages");
    let start = usize::from(role(&messages[0]) == "system");
    messages[start..].to_vec()
}

fn role(message: &Value) -> &str {
    message["role"].as_str().expect("a message has a role")
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

mod tests {
    use serde_json::json;

    use super::*;

    fn messages(parts: &[(&str, &str)]) -> Vec<Value> {
        parts.iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
    }

    #[test]
    fn validate_rejects_broken_conversations() {
        let calls = json!([{ "id": "c1" }, { "id": "c2" }]);
        let with_calls = [
            json!({ "role": "user", "content": "go" }),
            json!({ "role": "assistant", "content": "", "tool_calls": calls }),
            json!({ "role": "tool", "content": "one", "tool_call_id": "c1" }),
            json!({ "role": "tool", "content": "two", "tool_call_id": "c2" }),
        ];
        assert_eq!(validate(&messages(&[("user", "a"), ("assistant", "b"), ("user", "")])), Ok(()));
        assert_eq!(validate(&with_calls), Ok(()));
        for broken in [
            messages(&[]),
            messages(&[("assistant", "a")]),
            messages(&[("user", "a"), ("user", "b")]),
            messages(&[("user", "a"), ("assistant", "b")]),
            messages(&[("user", "a"), ("assistant", ""), ("user", "b")]),
            messages(&[("user", "a"), ("tool", "b")]),
            with_calls[..3].to_vec(),
            [&with_calls[..3], &messages(&[("assistant", "b")])].concat(),
        ] {
            assert!(validate(&broken).is_err(), "{broken:?}");
        }
    }
}
