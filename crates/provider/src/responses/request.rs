//! Encoder of Responses API requests: a list of items, in which messages, tool calls and tool results are siblings.

use std::borrow::Cow;
use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{Fault, Message, Role, ToolSpec};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::dialect::ModelOptions;
use crate::encode::{
    SCHEMA_NAME, add_extra, encode_json, image_data_url, is_identifier_byte, is_strict, parse_output_schema,
    push_json, raw_json, unclosed_object, valid_arguments, valid_call_id, valid_function_name,
    without_unsupported_images,
};
use crate::prefix_cache::{PrefixCache, PrefixKey};

/// Fields that `extra` cannot override.
const RESERVED_FIELDS: &[&str] = &["model", "input", "instructions", "stream", "tools"];

/// Length of the end of a user item, after its last part.
const ITEM_END_BYTES: usize = "]}".len();

/// Definition of a tool. `strict` defaults to true in the API, and most schemas are not strict.
#[derive(Serialize)]
struct ToolDefinition<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    User { role: &'static str, content: Vec<Part<'a>> },
    Assistant { role: &'static str, content: &'a str },
    Call { r#type: &'static str, call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: &'a str },
    Result { r#type: &'static str, call_id: Cow<'a, str>, output: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    InputImage { image_url: String },
}

pub(super) fn encode(
    model: &ModelOptions,
    request: &ModelRequest,
    cache: &PrefixCache,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, "responses", model);
    let mut prefix = cache.take(&key);
    let mut head = unclosed_object(&request_options(model, request)?)?;
    let mut body = Vec::new();
    if !request.tools.is_empty() {
        head.extend_from_slice(b",\"tools\":");
        body.extend([Bytes::from(std::mem::take(&mut head)), prefix.tools(&request.tools, encode_tools)?]);
    }
    if let Some(system) = &request.system {
        head.extend_from_slice(b",\"instructions\":");
        let system = prefix.system(system, |text| encode_json(&text))?;
        body.extend([Bytes::from(std::mem::take(&mut head)), system]);
    }
    head.extend_from_slice(b",\"input\":[");
    body.push(Bytes::from(head));
    prefix.update(request, &|before, message, out| encode_message(model, before, message, out))?;
    let (insert, end) = encode_volatile_suffix(request)?;
    let offset = prefix.len_bytes().saturating_sub(ITEM_END_BYTES);
    let inserts: Vec<_> = insert.map(|bytes| (offset, bytes)).into_iter().collect();
    prefix.push_pieces(&inserts, &mut body);
    body.push(end);
    cache.put(key, prefix);
    Ok(body)
}

/// Builds the small fields of the body.
fn request_options(model: &ModelOptions, request: &ModelRequest) -> Result<Map<String, Value>, Fault> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.name));
    body.insert("stream".to_owned(), json!(true));
    body.insert("store".to_owned(), json!(false));
    if let Some(schema) = parse_output_schema(request)? {
        let strict = is_strict(&schema);
        let format =
            json!({ "type": "json_schema", "name": SCHEMA_NAME, "strict": strict, "schema": schema });
        body.insert("text".to_owned(), json!({ "format": format }));
    }
    if let Some(answer_tokens) = model.answer_tokens_max {
        body.insert("max_output_tokens".to_owned(), json!(answer_tokens));
    }
    add_extra(&mut body, model, RESERVED_FIELDS)?;
    if let Some(answer_tokens) = request.answer_tokens_max {
        body.insert("max_output_tokens".to_owned(), json!(answer_tokens));
    }
    Ok(body)
}

fn encode_tools(tools: &[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault> {
    let definition = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        encode_json(&ToolDefinition {
            r#type: "function",
            name: &tool.model_name,
            description: &tool.description,
            parameters: raw_json(&tool.input_schema)?,
            strict: false,
        })
    };
    let definitions = tools.iter().map(definition).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &definitions.join(&b','), b"]"].concat())
}

fn encode_message(
    model: &ModelOptions,
    before: &[Arc<Message>],
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let message = &*without_unsupported_images(model, message);
    let mut is_first = before.iter().all(|message| is_empty_message(message));
    for item in items(message) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        push_json(&item, out)?;
    }
    Ok(())
}

/// Whether an assistant message has neither text nor tool calls.
fn is_empty_message(message: &Message) -> bool {
    message.role == Role::Assistant && message.text.is_empty() && message.tool_calls.is_empty()
}

/// Converts a message to items; an empty one has none.
fn items(message: &Message) -> Vec<Item<'_>> {
    match message.role {
        Role::User => vec![Item::User { role: "user", content: parts(message) }],
        Role::Tool => {
            let call_id =
                valid_call_id(message.tool_call_id.as_deref().unwrap_or_default(), is_identifier_byte);
            vec![Item::Result { r#type: "function_call_output", call_id, output: &message.text }]
        }
        Role::Assistant => {
            let text = Some(message.text.as_str()).filter(|text| !text.is_empty());
            let text_item = text.map(|content| Item::Assistant { role: "assistant", content });
            let calls = message.tool_calls.iter().map(|call| Item::Call {
                r#type: "function_call",
                call_id: valid_call_id(&call.id, is_identifier_byte),
                name: valid_function_name(&call.name),
                arguments: valid_arguments(&call.arguments),
            });
            text_item.into_iter().chain(calls).collect()
        }
    }
}

fn parts(message: &Message) -> Vec<Part<'_>> {
    let text = Some(message.text.as_str()).filter(|text| !text.is_empty() || message.images.is_empty());
    let images = message.images.iter().map(|image| Part::InputImage { image_url: image_data_url(image) });
    text.map(|text| Part::InputText { text }).into_iter().chain(images).collect()
}

/// Encodes the volatile suffix: the bytes to insert into the last message, and the end of the body.
fn encode_volatile_suffix(request: &ModelRequest) -> Result<(Option<Bytes>, Bytes), Fault> {
    const END: &[u8] = b"]}";
    let Some(text) = request.volatile_suffix.as_deref() else { return Ok((None, Bytes::from_static(END))) };
    let part = Part::InputText { text };
    if request.messages.last().is_some_and(|message| message.role == Role::User) {
        let insert = [b",".as_slice(), &encode_json(&part)?].concat();
        return Ok((Some(Bytes::from(insert)), Bytes::from_static(END)));
    }
    let is_first = request.messages.iter().all(|message| is_empty_message(message));
    let comma: &[u8] = if is_first { b"" } else { b"," };
    let end = [comma, &encode_json(&Item::User { role: "user", content: vec![part] })?, END].concat();
    Ok((None, Bytes::from(end)))
}
