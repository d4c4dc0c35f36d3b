//! Parses an Anthropic Messages request: tool results are inside user messages, the system prompt is a separate field.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Api, BadRequest, Message, ParsedRequest, content_text, missing_parameter, parse_json, require_model,
    response_mode,
};

#[derive(Debug, Deserialize)]
struct Fields {
    model: Option<String>,
    max_tokens: Option<u64>,
    #[serde(default)]
    system: Value,
    messages: Option<Vec<Message>>,
    stream: Option<bool>,
    #[serde(default)]
    output_config: Value,
}

pub(super) fn parse(body: &[u8]) -> Result<ParsedRequest, BadRequest> {
    let fields: Fields = parse_json(body)?;
    let model = require_model(fields.model)?;
    // Only this API requires max_tokens.
    fields.max_tokens.ok_or_else(|| missing_parameter("max_tokens"))?;
    let input = fields
        .messages
        .filter(|messages| !messages.is_empty())
        .ok_or_else(|| missing_parameter("messages"))?;
    let system = Some(content_text(&fields.system)).filter(|text| !text.is_empty());
    let mut messages: Vec<_> = system.map(|text| Message::new("system", text)).into_iter().collect();
    input.into_iter().for_each(|message| split_tool_results(message, &mut messages));
    let schema = fields.output_config.pointer("/format/schema").cloned();
    Ok(ParsedRequest {
        api: Api::Anthropic,
        model,
        response_mode: response_mode(fields.stream),
        schema,
        messages,
    })
}

/// Splits the tool results of a message into separate messages, followed by the user's text.
fn split_tool_results(message: Message, messages: &mut Vec<Message>) {
    let blocks = message.content.as_array().into_iter().flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    let before = messages.len();
    messages.extend(results.map(|block| Message::new("tool", content_text(&block["content"]))));
    if messages.len() == before || !message.text().is_empty() {
        messages.push(message);
    }
}
