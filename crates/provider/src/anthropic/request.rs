//! Encoder of Messages API requests. Consecutive messages of one role become one message, which stays unclosed until
//! the role changes, so that the encoded prefix never changes when messages are appended.

use std::borrow::Cow;
use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{Ending, Fault, Message, Role, ToolSpec};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::dialect::ModelOptions;
use crate::encode::{
    add_extra, encode_fault, encode_json, image_base64, is_identifier_byte, parse_output_schema, push_json,
    raw_json, unclosed_object, valid_arguments, valid_call_id, valid_function_name,
    without_unsupported_images,
};
use crate::prefix_cache::{Prefix, PrefixCache, PrefixKey};

/// Fields that `extra` cannot override.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "system", "stream", "tools"];

/// Default limit of response tokens, which the API requires. Few responses are longer, and the limit is deducted from
/// the context window.
const ANSWER_TOKENS_DEFAULT: u64 = 32_000;

/// Default limit of response tokens for an unknown model: every current model supports it.
const ANSWER_TOKENS_DEFAULT_UNKNOWN: u64 = 8192;

/// Number of cache breakpoints after user messages. With those of the tools and the system prompt there are four, the
/// API's maximum.
const CACHE_BREAKPOINT_MESSAGES: usize = 2;

/// Cache breakpoint, inserted into the last block of a cacheable prefix.
const CACHE_CONTROL: &[u8] = b",\"cache_control\":{\"type\":\"ephemeral\"}";

/// Length of the end of a block; a breakpoint is inserted before it.
const BLOCK_END_BYTES: usize = "}".len();

/// Length of the end of a list of blocks or tools.
const LIST_END_BYTES: usize = "}]".len();

#[derive(Serialize)]
struct ToolDefinition<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ImageSource<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: String,
}

pub(super) fn encode(
    model: &ModelOptions,
    request: &ModelRequest,
    cache: &PrefixCache,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, "anthropic", model);
    let mut prefix = cache.take(&key);
    let mut body = vec![Bytes::from(unclosed_object(&request_options(model, request)?)?)];
    if !request.tools.is_empty() {
        body.push(Bytes::from_static(b",\"tools\":"));
        push_with_cache_control(model, &prefix.tools(&request.tools, encode_tools)?, &mut body);
    }
    if let Some(system) = request.system.as_ref().filter(|text| !is_blank(text)) {
        body.push(Bytes::from_static(b",\"system\":"));
        push_with_cache_control(
            model,
            &prefix.system(system, |text| encode_json(&[Block::Text { text }]))?,
            &mut body,
        );
    }
    body.push(Bytes::from_static(b",\"messages\":["));
    prefix.update(request, &|before, message, out| encode_message(model, before, message, out))?;
    prefix.push_pieces(&cache_breakpoints(model, &request.messages, &prefix), &mut body);
    body.push(encode_end(request)?);
    cache.put(key, prefix);
    Ok(body)
}

/// Builds the small fields of the body.
fn request_options(model: &ModelOptions, request: &ModelRequest) -> Result<Map<String, Value>, Fault> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.name));
    body.insert("stream".to_owned(), json!(true));
    body.insert(
        "max_tokens".to_owned(),
        json!(model.answer_tokens_max.unwrap_or_else(|| default_answer_tokens(model))),
    );
    if let Some(mut schema) = parse_output_schema(request)? {
        close_objects(&mut schema);
        body.insert(
            "output_config".to_owned(),
            json!({ "format": { "type": "json_schema", "schema": schema } }),
        );
    }
    add_extra(&mut body, model, RESERVED_FIELDS)?;
    if let Some(answer_tokens) = request.answer_tokens_max {
        body.insert("max_tokens".to_owned(), json!(answer_tokens));
        // Thinking counts towards these tokens, and the API rejects a thinking budget that is not below the limit.
        body.remove("thinking");
    }
    Ok(body)
}

/// Returns the default limit of response tokens. Thinking counts towards it, so its budget is added; the API rejects a
/// limit above the model's own.
fn default_answer_tokens(model: &ModelOptions) -> u64 {
    let reasoning = model.extra.get("thinking").and_then(|thinking| thinking.get("budget_tokens")?.as_u64());
    let with_reasoning = |tokens: u64| tokens.saturating_add(reasoning.unwrap_or(0));
    match model.supported_answer_tokens_max {
        Some(known) => with_reasoning(ANSWER_TOKENS_DEFAULT).min(known),
        None => with_reasoning(ANSWER_TOKENS_DEFAULT_UNKNOWN),
    }
}

/// Adds `additionalProperties: false` to all objects, as the API requires. Output that fits the narrower schema also
/// fits the original.
fn close_objects(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close_objects);
            if members.get("type").and_then(Value::as_str) == Some("object") {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(close_objects),
        _ => {}
    }
}

fn encode_tools(tools: &[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault> {
    let definition = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        let input_schema = raw_json(&tool.input_schema)?;
        encode_json(&ToolDefinition { name: &tool.model_name, description: &tool.description, input_schema })
    };
    let definitions = tools.iter().map(definition).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &definitions.join(&b','), b"]"].concat())
}

/// Appends an encoded list, with a cache breakpoint in its last element.
fn push_with_cache_control(model: &ModelOptions, list: &Bytes, body: &mut Vec<Bytes>) {
    if !model.caches_prompt {
        return body.push(list.clone());
    }
    let at = list.len().saturating_sub(LIST_END_BYTES);
    body.extend([list.slice(..at), Bytes::from_static(CACHE_CONTROL), list.slice(at..)]);
}

/// Returns the cache breakpoints at the end of the last two user messages, the older first.
fn cache_breakpoints(
    model: &ModelOptions,
    messages: &[Arc<Message>],
    prefix: &Prefix,
) -> Vec<(usize, Bytes)> {
    if !model.caches_prompt {
        return Vec::new();
    }
    let mut breakpoints = Vec::new();
    let mut role_changed = true;
    for (index, message) in
        messages.iter().enumerate().rev().filter(|(_, message)| !is_empty_message(message))
    {
        let is_user = wire_role(message) == WireRole::User;
        if is_user && role_changed {
            breakpoints.push((
                prefix.end_offset(index).saturating_sub(BLOCK_END_BYTES),
                Bytes::from_static(CACHE_CONTROL),
            ));
        }
        role_changed = !is_user;
        if breakpoints.len() == CACHE_BREAKPOINT_MESSAGES {
            break;
        }
    }
    breakpoints.reverse();
    breakpoints
}

/// Role of a message on the wire; tool results have the user role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireRole {
    User,
    Assistant,
}

fn wire_role(message: &Message) -> WireRole {
    match message.role {
        Role::User | Role::Tool => WireRole::User,
        Role::Assistant => WireRole::Assistant,
    }
}

/// Whether a text is blank; the API rejects blank text blocks.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Whether a message has no content to send.
fn is_empty_message(message: &Message) -> bool {
    message.role != Role::Tool
        && is_blank(&message.text)
        && message.images.is_empty()
        && message.tool_calls.is_empty()
}

fn encode_message(
    model: &ModelOptions,
    before: &[Arc<Message>],
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let message = &*without_unsupported_images(model, message);
    if is_empty_message(message) {
        return Ok(());
    }
    let last = before.iter().rev().find(|message| !is_empty_message(message));
    continue_or_open_message(last.map(|last| wire_role(last)), wire_role(message), out);
    for block in stored_reasoning(model, message)? {
        push_json(&block, out)?;
        out.push(b',');
    }
    for (index, block) in blocks(message)?.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_json(block, out)?;
    }
    Ok(())
}

/// Returns the thinking blocks to send back before the tool calls. The API itself ignores those of earlier turns. A
/// request without thinking needs none; the message may come from another model.
fn stored_reasoning<'a>(model: &ModelOptions, message: &'a Message) -> Result<Vec<&'a RawValue>, Fault> {
    // Chat completions store reasoning as an object, not a list.
    match message.reasoning_block.as_deref().filter(|reasoning| model.thinks() && reasoning.starts_with('['))
    {
        Some(reasoning) => serde_json::from_str(reasoning).map_err(encode_fault),
        None => Ok(Vec::new()),
    }
}

/// Continues the unclosed message, or closes it and opens a new one if the role changes.
fn continue_or_open_message(last: Option<WireRole>, role: WireRole, out: &mut Vec<u8>) {
    if last == Some(role) {
        return out.push(b',');
    }
    if last.is_some() {
        out.extend_from_slice(b"]},");
    }
    out.extend_from_slice(match role {
        WireRole::User => b"{\"role\":\"user\",\"content\":[",
        WireRole::Assistant => b"{\"role\":\"assistant\",\"content\":[",
    });
}

fn blocks(message: &Message) -> Result<Vec<Block<'_>>, Fault> {
    if message.role == Role::Tool {
        return Ok(vec![Block::ToolResult {
            tool_use_id: wire_call_id(message.tool_call_id.as_deref().unwrap_or_default()),
            content: &message.text,
            is_error: matches!(message.ending, Some(Ending::Failed | Ending::Denied)).then_some(true),
        }]);
    }
    let text = Some(message.text.as_str()).filter(|text| !is_blank(text));
    let mut blocks: Vec<_> = text.map(|text| Block::Text { text }).into_iter().collect();
    blocks.extend(message.images.iter().map(|image| Block::Image {
        source: ImageSource { r#type: "base64", media_type: &image.media_type, data: image_base64(image) },
    }));
    for call in &message.tool_calls {
        let input = raw_json(valid_arguments(&call.arguments))?;
        blocks.push(Block::ToolUse {
            id: wire_call_id(&call.id),
            name: valid_function_name(&call.name),
            input,
        });
    }
    Ok(blocks)
}

fn wire_call_id(id: &str) -> Cow<'_, str> {
    valid_call_id(id, is_identifier_byte)
}

/// Encodes the volatile suffix, after all cache breakpoints, and the end of the body.
fn encode_end(request: &ModelRequest) -> Result<Bytes, Fault> {
    let last =
        request.messages.iter().rev().find(|message| !is_empty_message(message)).map(|last| wire_role(last));
    let mut end = Vec::new();
    if let Some(text) = request.volatile_suffix.as_deref() {
        continue_or_open_message(last, WireRole::User, &mut end);
        push_json(&Block::Text { text }, &mut end)?;
    }
    end.extend_from_slice(if end.is_empty() && last.is_none() { b"]}" } else { b"]}]}" });
    Ok(Bytes::from(end))
}
