//! Encoder of chat-completions requests.

use std::borrow::Cow;
use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{Fault, Message, Role, ToolCall, ToolSpec};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Chat;
use super::reasoning::StoredReasoning;
use crate::catalog::CallIdFormat;
use crate::dialect::ModelOptions;
use crate::encode::{
    SCHEMA_NAME, add_extra, encode_json, image_data_url, is_strict, json_string_suffix, nine_char_call_id,
    parse_output_schema, push_json, raw_json, unclosed_object, valid_arguments, valid_call_id,
    valid_function_name, without_unsupported_images,
};
use crate::prefix_cache::{PrefixCache, PrefixKey};

/// Fields that `extra` cannot override.
const RESERVED_FIELDS: &[&str] = &["model", "messages", "stream", "tools"];

/// Both names of the field that limits the response tokens.
const MAX_TOKENS_FIELDS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Length of the end of a message, `"}` after a string and `]}` after a list of parts.
const MESSAGE_END_BYTES: usize = "\"}".len();

/// Definition of a tool.
#[derive(Serialize)]
struct ToolDefinition<'a> {
    r#type: &'static str,
    function: FunctionDefinition<'a>,
}

#[derive(Serialize)]
struct FunctionDefinition<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

/// A message. The content is the last field, so that the volatile suffix can be inserted at its end.
#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

pub(super) fn encode(
    chat: Chat,
    model: &ModelOptions,
    request: &ModelRequest,
    cache: &PrefixCache,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, chat.variant_name(), model);
    let mut prefix = cache.take(&key);
    let mut head = unclosed_object(&request_options(chat.max_tokens_field, model, request)?)?;
    let mut body = Vec::new();
    if !request.tools.is_empty() {
        head.extend_from_slice(b",\"tools\":");
        body.extend([Bytes::from(std::mem::take(&mut head)), prefix.tools(&request.tools, encode_tools)?]);
    }
    head.extend_from_slice(b",\"messages\":[");
    if let Some(system) = &request.system {
        let system = prefix.system(system, |text| encode_json(&text_message("system", text)))?;
        body.extend([Bytes::from(std::mem::take(&mut head)), system]);
        if !request.messages.is_empty() {
            head.push(b',');
        }
    }
    body.push(Bytes::from(head));
    prefix.update(request, &|before, message, out| encode_message(chat, model, before, message, out))?;
    let (insert, end) = encode_volatile_suffix(model, request)?;
    let offset = prefix.len_bytes().saturating_sub(MESSAGE_END_BYTES);
    let inserts: Vec<_> = insert.map(|bytes| (offset, bytes)).into_iter().collect();
    prefix.push_pieces(&inserts, &mut body);
    body.push(end);
    cache.put(key, prefix);
    Ok(body)
}

/// Builds the small fields of the body.
fn request_options(
    max_tokens_field: &'static str,
    model: &ModelOptions,
    request: &ModelRequest,
) -> Result<Map<String, Value>, Fault> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.name));
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    if let Some(schema) = parse_output_schema(request)? {
        let strict = is_strict(&schema);
        let format = json!({ "name": SCHEMA_NAME, "strict": strict, "schema": schema });
        body.insert("response_format".to_owned(), json!({ "type": "json_schema", "json_schema": format }));
    }
    add_extra(&mut body, model, RESERVED_FIELDS)?;
    let user_field = MAX_TOKENS_FIELDS.into_iter().find(|name| body.contains_key(*name));
    // The field that the user set in `extra` is the one the server accepts. Only the request's own limit overrides it.
    let answer_tokens =
        request.answer_tokens_max.or(model.answer_tokens_max.filter(|_| user_field.is_none()));
    if let Some(answer_tokens) = answer_tokens {
        body.insert(user_field.unwrap_or(max_tokens_field).to_owned(), json!(answer_tokens));
    }
    Ok(body)
}

fn encode_tools(tools: &[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault> {
    let definition = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        let parameters = raw_json(&tool.input_schema)?;
        let function =
            FunctionDefinition { name: &tool.model_name, description: &tool.description, parameters };
        encode_json(&ToolDefinition { r#type: "function", function })
    };
    let definitions = tools.iter().map(definition).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &definitions.join(&b','), b"]"].concat())
}

fn text_message<'a>(role: &'a str, content: &'a str) -> WireMessage<'a> {
    WireMessage {
        role,
        tool_call_id: None,
        reasoning_content: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
        content: Content::Text(content),
    }
}

fn encode_message(
    chat: Chat,
    model: &ModelOptions,
    before: &[Arc<Message>],
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let message = &*without_unsupported_images(model, message);
    if !before.is_empty() {
        out.push(b',');
    }
    let StoredReasoning { reasoning_content, reasoning_details, extra_content, .. } =
        StoredReasoning::from_message(message, chat.reasoning_echo, chat.model_digest);
    let extras = extra_content.into_iter().chain(std::iter::repeat(None));
    let wire_message = WireMessage {
        tool_call_id: message.tool_call_id.as_deref().map(|own| wire_call_id(own, chat.call_id_format)),
        reasoning_content,
        reasoning_details,
        tool_calls: message
            .tool_calls
            .iter()
            .zip(extras)
            .map(|(call, extra)| wire_call(call, extra, chat))
            .collect(),
        content: content(message),
        ..text_message(message.role.as_str(), "")
    };
    push_json(&wire_message, out)
}

/// Encodes the content as a string where possible: not every server accepts a list of parts.
fn content(message: &Message) -> Content<'_> {
    if message.images.is_empty() {
        return Content::Text(&message.text);
    }
    let text = Some(message.text.as_str()).filter(|text| !text.is_empty()).map(|text| Part::Text { text });
    let image = |image| Part::ImageUrl { image_url: ImageUrl { url: image_data_url(image) } };
    Content::Parts(text.into_iter().chain(message.images.iter().map(image)).collect())
}

fn wire_call<'a>(call: &'a ToolCall, extra_content: Option<&'a RawValue>, chat: Chat) -> Call<'a> {
    Call {
        id: wire_call_id(&call.id, chat.call_id_format),
        r#type: "function",
        function: Function {
            name: valid_function_name(&call.name),
            arguments: valid_arguments(&call.arguments),
        },
        extra_content,
    }
}

/// Returns the call id in the server's format. Printable ids stay unchanged, because some models expect their own back,
/// such as `functions.read:0`.
fn wire_call_id(id: &str, format: CallIdFormat) -> Cow<'_, str> {
    match format {
        CallIdFormat::Printable => valid_call_id(id, |byte| byte.is_ascii_graphic()),
        CallIdFormat::NineAlphanumeric => nine_char_call_id(id),
    }
}

/// Encodes the volatile suffix: the bytes to insert into the last message, and the end of the body. A tool result takes
/// the suffix too, because some servers reject a user message after it.
fn encode_volatile_suffix(
    model: &ModelOptions,
    request: &ModelRequest,
) -> Result<(Option<Bytes>, Bytes), Fault> {
    const END: &[u8] = b"]}";
    let Some(suffix) = request.volatile_suffix.as_deref() else { return Ok((None, Bytes::from_static(END))) };
    let last = request.messages.last().filter(|message| message.role != Role::Assistant);
    let Some(last) = last else {
        let is_first = request.messages.is_empty() && request.system.is_none();
        let comma: &[u8] = if is_first { b"" } else { b"," };
        let end = [comma, &encode_json(&text_message("user", suffix))?, END].concat();
        return Ok((None, Bytes::from(end)));
    };
    let insert = if without_unsupported_images(model, last).images.is_empty() {
        json_string_suffix(suffix)?
    } else {
        [b",".as_slice(), &encode_json(&Part::Text { text: suffix })?].concat()
    };
    Ok((Some(Bytes::from(insert)), Bytes::from_static(END)))
}
