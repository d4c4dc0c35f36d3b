//! Writes a question in the words of the chat-completions API.

use std::borrow::Cow;
use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{Fault, Message, Role, ToolCall, ToolSpec};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Chat;
use super::thoughts::Thoughts;
use crate::catalog::CallIds;
use crate::dialect::ModelOptions;
use crate::prefix::{PrefixKey, PrefixShelf};
use crate::writing::{
    SCHEMA_NAME, add_extra, arguments, call_id, call_id_of_nine, function_name, image_url, is_strict, json,
    more_of_a_string, opened, output_schema, push_json, schema, seen,
};

/// The fields that nobody else can write.
const RESERVED: &[&str] = &["model", "messages", "stream", "tools"];

/// Both names of the field with the most tokens of an answer.
const LENGTH_FIELDS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// The end of a message that a string ends, and of one that a list of parts ends, which is as long.
const MESSAGE_END_BYTES: usize = "\"}".len();

/// A tool the model may call.
#[derive(Serialize)]
struct Offer<'a> {
    r#type: &'static str,
    function: Description<'a>,
}

#[derive(Serialize)]
struct Description<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

/// A message. The content is the last member of all that a tail can be put behind.
#[derive(Serialize)]
struct Line<'a> {
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

pub(super) fn write(
    chat: Chat,
    model: &ModelOptions,
    request: &ModelRequest,
    shelf: &PrefixShelf,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, chat.key(), model);
    let mut prefix = shelf.take(&key);
    let mut head = opened(&options(chat.length_field, model, request)?)?;
    let mut body = Vec::new();
    if !request.tools.is_empty() {
        head.extend_from_slice(b",\"tools\":");
        body.extend([Bytes::from(std::mem::take(&mut head)), prefix.tools(&request.tools, offers)?]);
    }
    head.extend_from_slice(b",\"messages\":[");
    if let Some(system) = &request.system {
        let system = prefix.system(system, |text| json(&line("system", text)))?;
        body.extend([Bytes::from(std::mem::take(&mut head)), system]);
        if !request.messages.is_empty() {
            head.push(b',');
        }
    }
    body.push(Bytes::from(head));
    prefix.follow(request, &|before, message, out| spoken(chat, model, before, message, out))?;
    let (insert, end) = tail(model, request)?;
    let place = prefix.bytes().saturating_sub(MESSAGE_END_BYTES);
    let inserts: Vec<_> = insert.map(|bytes| (place, bytes)).into_iter().collect();
    prefix.pieces(&inserts, &mut body);
    body.push(end);
    shelf.put(key, prefix);
    Ok(body)
}

/// Everything that is small.
fn options(
    length_field: &'static str,
    model: &ModelOptions,
    request: &ModelRequest,
) -> Result<Map<String, Value>, Fault> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.name));
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    if let Some(schema) = output_schema(request)? {
        let strict = is_strict(&schema);
        let format = json!({ "name": SCHEMA_NAME, "strict": strict, "schema": schema });
        body.insert("response_format".to_owned(), json!({ "type": "json_schema", "json_schema": format }));
    }
    add_extra(&mut body, model, RESERVED)?;
    let theirs = LENGTH_FIELDS.into_iter().find(|name| body.contains_key(*name));
    // What the user set in either name is what the server takes; only the question itself is more urgent.
    let most = request.answer_tokens_max.or(model.answer_tokens_max.filter(|_| theirs.is_none()));
    if let Some(most) = most {
        body.insert(theirs.unwrap_or(length_field).to_owned(), json!(most));
    }
    Ok(body)
}

fn offers(tools: &[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault> {
    let offer = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        let parameters = schema(&tool.input_schema)?;
        let function = Description { name: &tool.model_name, description: &tool.description, parameters };
        json(&Offer { r#type: "function", function })
    };
    let offers = tools.iter().map(offer).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &offers.join(&b','), b"]"].concat())
}

fn line<'a>(role: &'a str, content: &'a str) -> Line<'a> {
    Line {
        role,
        tool_call_id: None,
        reasoning_content: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
        content: Content::Text(content),
    }
}

fn spoken(
    chat: Chat,
    model: &ModelOptions,
    before: &[Arc<Message>],
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let message = &*seen(model, message);
    if !before.is_empty() {
        out.push(b',');
    }
    let Thoughts { reasoning_content, reasoning_details, extra_content, .. } =
        Thoughts::of(message, chat.thinking, chat.maker);
    let extras = extra_content.into_iter().chain(std::iter::repeat(None));
    let line = Line {
        tool_call_id: message.tool_call_id.as_deref().map(|own| id(own, chat.call_ids)),
        reasoning_content,
        reasoning_details,
        tool_calls: message
            .tool_calls
            .iter()
            .zip(extras)
            .map(|(made, extra)| call(made, extra, chat))
            .collect(),
        content: content(message),
        ..line(message.role.as_str(), "")
    };
    push_json(&line, out)
}

/// A text stands alone where it can: not every server reads parts.
fn content(message: &Message) -> Content<'_> {
    if message.images.is_empty() {
        return Content::Text(&message.text);
    }
    let text = Some(message.text.as_str()).filter(|text| !text.is_empty()).map(|text| Part::Text { text });
    let image = |image| Part::ImageUrl { image_url: ImageUrl { url: image_url(image) } };
    Content::Parts(text.into_iter().chain(message.images.iter().map(image)).collect())
}

fn call<'a>(call: &'a ToolCall, extra_content: Option<&'a RawValue>, chat: Chat) -> Call<'a> {
    Call {
        id: id(&call.id, chat.call_ids),
        r#type: "function",
        function: Function { name: function_name(&call.name), arguments: arguments(&call.arguments) },
        extra_content,
    }
}

/// Any sign that can be seen: some models want their own ids back as they were, such as `functions.read:0`.
fn id(id: &str, taken: CallIds) -> Cow<'_, str> {
    match taken {
        CallIds::Visible => call_id(id, |byte| byte.is_ascii_graphic()),
        CallIds::OfNine => call_id_of_nine(id),
    }
}

/// What rides behind the last message: what goes into it, and the end of the body. A tool's result takes it in too,
/// because some servers refuse a user's message behind one.
fn tail(model: &ModelOptions, request: &ModelRequest) -> Result<(Option<Bytes>, Bytes), Fault> {
    const END: &[u8] = b"]}";
    let Some(tail) = request.tail.as_deref() else { return Ok((None, Bytes::from_static(END))) };
    let last = request.messages.last().filter(|message| message.role != Role::Assistant);
    let Some(last) = last else {
        let lonely = request.messages.is_empty() && request.system.is_none();
        let comma: &[u8] = if lonely { b"" } else { b"," };
        let end = [comma, &json(&line("user", tail))?, END].concat();
        return Ok((None, Bytes::from(end)));
    };
    let insert = if seen(model, last).images.is_empty() {
        more_of_a_string(tail)?
    } else {
        [b",".as_slice(), &json(&Part::Text { text: tail })?].concat()
    };
    Ok((Some(Bytes::from(insert)), Bytes::from_static(END)))
}
