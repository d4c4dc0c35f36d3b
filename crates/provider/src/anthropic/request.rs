//! Writes a question in the words of the Messages API. What comes from one side stands in one message: a message is left
//! open until the other side speaks, so that everything that is written stays as it is when more comes behind it.

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

/// The fields that nobody else can write.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "system", "stream", "tools"];

/// The most tokens of an answer where the user says nothing, because the API wants a number: few answers are so long, and
/// what is asked for is taken from the window.
const ANSWER_TOKENS_DEFAULT: u64 = 32_000;

/// The same, of a model that nobody knows: every current model can answer so much.
const ANSWER_TOKENS_DEFAULT_UNKNOWN: u64 = 8192;

/// How many of the last messages of the user are marked; with the tools and the system prompt four, as many as may be.
const CACHE_BREAKPOINT_MESSAGES: usize = 2;

/// A mark, put into the last block of what the provider should remember.
const CACHE_CONTROL: &[u8] = b",\"cache_control\":{\"type\":\"ephemeral\"}";

/// The end of a block, which a mark is put before.
const BLOCK_END_BYTES: usize = "}".len();

/// The end of a list of blocks or tools.
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
    shelf: &PrefixCache,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, "anthropic", model);
    let mut prefix = shelf.take(&key);
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
    shelf.put(key, prefix);
    Ok(body)
}

/// Everything that is small.
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
    if let Some(most) = request.answer_tokens_max {
        body.insert("max_tokens".to_owned(), json!(most));
        // Thoughts count among these tokens, and the API refuses a budget for them that is not below the bound.
        body.remove("thinking");
    }
    Ok(body)
}

/// Thoughts count among the tokens of an answer: there has to be room for both. The API takes no number above the model's
/// own.
fn default_answer_tokens(model: &ModelOptions) -> u64 {
    let thoughts = model.extra.get("thinking").and_then(|thinking| thinking.get("budget_tokens")?.as_u64());
    let with_thoughts = |usual: u64| usual.saturating_add(thoughts.unwrap_or(0));
    match model.answer_tokens_limit {
        Some(known) => with_thoughts(ANSWER_TOKENS_DEFAULT).min(known),
        None => with_thoughts(ANSWER_TOKENS_DEFAULT_UNKNOWN),
    }
}

/// The API takes only objects that say they have no other members. What fits such a schema fits the wider one too.
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
    let offer = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        let input_schema = raw_json(&tool.input_schema)?;
        encode_json(&ToolDefinition { name: &tool.model_name, description: &tool.description, input_schema })
    };
    let offers = tools.iter().map(offer).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &offers.join(&b','), b"]"].concat())
}

/// A list with a mark in its last element.
fn push_with_cache_control(model: &ModelOptions, list: &Bytes, body: &mut Vec<Bytes>) {
    if !model.caches_prompt {
        return body.push(list.clone());
    }
    let at = list.len().saturating_sub(LIST_END_BYTES);
    body.extend([list.slice(..at), Bytes::from_static(CACHE_CONTROL), list.slice(at..)]);
}

/// Where the marks of the messages go: behind the last two messages of the user, the older first.
fn cache_breakpoints(
    model: &ModelOptions,
    messages: &[Arc<Message>],
    prefix: &Prefix,
) -> Vec<(usize, Bytes)> {
    if !model.caches_prompt {
        return Vec::new();
    }
    let mut marks = Vec::new();
    let mut other_side = true;
    for (place, message) in
        messages.iter().enumerate().rev().filter(|(_, message)| !is_empty_message(message))
    {
        let is_user = wire_role(message) == WireRole::User;
        if is_user && other_side {
            marks.push((
                prefix.end_offset(place).saturating_sub(BLOCK_END_BYTES),
                Bytes::from_static(CACHE_CONTROL),
            ));
        }
        other_side = !is_user;
        if marks.len() == CACHE_BREAKPOINT_MESSAGES {
            break;
        }
    }
    marks.reverse();
    marks
}

/// Whose words they are: the API knows only two sides, and results come from the user's.
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

/// The API refuses blocks without a word in them.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Whether a message has nothing that could be sent.
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
    open_message(last.map(|last| wire_role(last)), wire_role(message), out);
    for thought in stored_reasoning(model, message)? {
        push_json(&thought, out)?;
        out.push(b',');
    }
    for (place, block) in blocks(message)?.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        push_json(block, out)?;
    }
    Ok(())
}

/// What the model thought before its calls, which stand behind it. Those of earlier turns are passed over by the API
/// itself. A question without thinking needs none; the message may come from another model.
fn stored_reasoning<'a>(model: &ModelOptions, message: &'a Message) -> Result<Vec<&'a RawValue>, Fault> {
    let kind = model.extra.get("thinking").and_then(|thinking| thinking.get("type"));
    let thinks = kind.is_some_and(|kind| kind != "disabled");
    // Another API keeps them as an object.
    match message.reasoning_block.as_deref().filter(|thoughts| thinks && thoughts.starts_with('[')) {
        Some(thoughts) => serde_json::from_str(thoughts).map_err(encode_fault),
        None => Ok(Vec::new()),
    }
}

/// Goes on with the message that is open, or closes it and opens another one.
fn open_message(last: Option<WireRole>, side: WireRole, out: &mut Vec<u8>) {
    if last == Some(side) {
        return out.push(b',');
    }
    if last.is_some() {
        out.extend_from_slice(b"]},");
    }
    out.extend_from_slice(match side {
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

/// What rides behind the last message, behind every mark, and the end of the body.
fn encode_end(request: &ModelRequest) -> Result<Bytes, Fault> {
    let last =
        request.messages.iter().rev().find(|message| !is_empty_message(message)).map(|last| wire_role(last));
    let mut end = Vec::new();
    if let Some(text) = request.volatile_suffix.as_deref() {
        open_message(last, WireRole::User, &mut end);
        push_json(&Block::Text { text }, &mut end)?;
    }
    end.extend_from_slice(if end.is_empty() && last.is_none() { b"]}" } else { b"]}]}" });
    Ok(Bytes::from(end))
}
