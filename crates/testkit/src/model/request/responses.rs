//! Parses an OpenAI Responses request: messages, tool calls and tool results are items of one list.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Api, BadRequest, Message, ParsedRequest, content_text, missing_parameter, parse_json, require_model,
    response_mode,
};

#[derive(Debug, Deserialize)]
struct Fields {
    model: Option<String>,
    #[serde(default)]
    instructions: Value,
    #[serde(default)]
    input: Value,
    stream: Option<bool>,
    #[serde(default)]
    text: Value,
}

pub(super) fn parse(body: &[u8]) -> Result<ParsedRequest, BadRequest> {
    let fields: Fields = parse_json(body)?;
    let model = require_model(fields.model)?;
    let prompt = Some(content_text(&fields.instructions)).filter(|text| !text.is_empty());
    let mut messages: Vec<_> = prompt.map(|text| Message::new("system", text)).into_iter().collect();
    let before = messages.len();
    match fields.input {
        Value::String(text) => messages.push(Message::new("user", text)),
        Value::Array(items) => items.into_iter().for_each(|item| push_item(item, &mut messages)),
        _ => {}
    }
    if messages.len() == before {
        return Err(missing_parameter("input"));
    }
    let schema = fields.text.pointer("/format/schema").cloned();
    Ok(ParsedRequest {
        api: Api::Responses,
        model,
        response_mode: response_mode(fields.stream),
        schema,
        messages,
    })
}

/// Appends an item. The text and calls of one model response are several items, but one message.
fn push_item(mut item: Value, messages: &mut Vec<Message>) {
    match (item["type"].as_str(), item["role"].as_str()) {
        (Some("function_call_output"), _) => {
            messages.push(Message::new("tool", content_text(&item["output"])));
        }
        (Some("function_call"), _) if messages.last().is_some_and(|last| last.role == "assistant") => {}
        (Some("function_call"), _) => messages.push(Message::new("assistant", "")),
        (_, Some(role)) => {
            let role = if role == "developer" { "system" } else { role }.to_owned();
            messages.push(Message { role, content: item["content"].take() });
        }
        _ => {}
    }
}
