//! Writes a question in the words of the Responses API: a list of items, in which calls and their results stand beside
//! what was said.

use std::borrow::Cow;
use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{Fault, Message, Role, ToolSpec};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::dialect::ModelOptions;
use crate::prefix::{PrefixKey, PrefixShelf};
use crate::writing::{
    SCHEMA_NAME, add_extra, arguments, call_id, function_name, image_url, is_plain, is_strict, json, opened,
    output_schema, push_json, schema, seen,
};

/// The fields that nobody else can write.
const RESERVED: &[&str] = &["model", "input", "instructions", "stream", "tools"];

/// The end of a user's item, behind its last part.
const ITEM_END_BYTES: usize = "]}".len();

/// A tool the model may call. Schemas are taken as strict where nothing is said, and most are not.
#[derive(Serialize)]
struct Offer<'a> {
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

pub(super) fn write(
    model: &ModelOptions,
    request: &ModelRequest,
    shelf: &PrefixShelf,
) -> Result<Vec<Bytes>, Fault> {
    let key = PrefixKey::new(&request.requester, "responses", model);
    let mut prefix = shelf.take(&key);
    let mut head = opened(&options(model, request)?)?;
    let mut body = Vec::new();
    if !request.tools.is_empty() {
        head.extend_from_slice(b",\"tools\":");
        body.extend([Bytes::from(std::mem::take(&mut head)), prefix.tools(&request.tools, offers)?]);
    }
    if let Some(system) = &request.system {
        head.extend_from_slice(b",\"instructions\":");
        let system = prefix.system(system, |text| json(&text))?;
        body.extend([Bytes::from(std::mem::take(&mut head)), system]);
    }
    head.extend_from_slice(b",\"input\":[");
    body.push(Bytes::from(head));
    prefix.follow(request, &|before, message, out| spoken(model, before, message, out))?;
    let (insert, end) = tail(request)?;
    let place = prefix.bytes().saturating_sub(ITEM_END_BYTES);
    let inserts: Vec<_> = insert.map(|bytes| (place, bytes)).into_iter().collect();
    prefix.pieces(&inserts, &mut body);
    body.push(end);
    shelf.put(key, prefix);
    Ok(body)
}

/// Everything that is small.
fn options(model: &ModelOptions, request: &ModelRequest) -> Result<Map<String, Value>, Fault> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.name));
    body.insert("stream".to_owned(), json!(true));
    body.insert("store".to_owned(), json!(false));
    if let Some(schema) = output_schema(request)? {
        let strict = is_strict(&schema);
        let format =
            json!({ "type": "json_schema", "name": SCHEMA_NAME, "strict": strict, "schema": schema });
        body.insert("text".to_owned(), json!({ "format": format }));
    }
    if let Some(most) = model.answer_tokens_max {
        body.insert("max_output_tokens".to_owned(), json!(most));
    }
    add_extra(&mut body, model, RESERVED)?;
    if let Some(most) = request.answer_tokens_max {
        body.insert("max_output_tokens".to_owned(), json!(most));
    }
    Ok(body)
}

fn offers(tools: &[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault> {
    let offer = |tool: &'_ Arc<ToolSpec>| -> Result<Vec<u8>, Fault> {
        json(&Offer {
            r#type: "function",
            name: &tool.model_name,
            description: &tool.description,
            parameters: schema(&tool.input_schema)?,
            strict: false,
        })
    };
    let offers = tools.iter().map(offer).collect::<Result<Vec<_>, _>>()?;
    Ok([b"[".as_slice(), &offers.join(&b','), b"]"].concat())
}

fn spoken(
    model: &ModelOptions,
    before: &[Arc<Message>],
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let message = &*seen(model, message);
    let mut is_first = before.iter().all(|message| is_silent(message));
    for item in items(message) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        push_json(&item, out)?;
    }
    Ok(())
}

/// Whether the model said nothing and called nothing.
fn is_silent(message: &Message) -> bool {
    message.role == Role::Assistant && message.text.is_empty() && message.tool_calls.is_empty()
}

/// What a message is here; nothing where it is silent.
fn items(message: &Message) -> Vec<Item<'_>> {
    match message.role {
        Role::User => vec![Item::User { role: "user", content: parts(message) }],
        Role::Tool => {
            let call_id = call_id(message.tool_call_id.as_deref().unwrap_or_default(), is_plain);
            vec![Item::Result { r#type: "function_call_output", call_id, output: &message.text }]
        }
        Role::Assistant => {
            let text = Some(message.text.as_str()).filter(|text| !text.is_empty());
            let said = text.map(|content| Item::Assistant { role: "assistant", content });
            let calls = message.tool_calls.iter().map(|call| Item::Call {
                r#type: "function_call",
                call_id: call_id(&call.id, is_plain),
                name: function_name(&call.name),
                arguments: arguments(&call.arguments),
            });
            said.into_iter().chain(calls).collect()
        }
    }
}

fn parts(message: &Message) -> Vec<Part<'_>> {
    let text = Some(message.text.as_str()).filter(|text| !text.is_empty() || message.images.is_empty());
    let images = message.images.iter().map(|image| Part::InputImage { image_url: image_url(image) });
    text.map(|text| Part::InputText { text }).into_iter().chain(images).collect()
}

/// What rides behind the last message: what goes into it, and the end of the body.
fn tail(request: &ModelRequest) -> Result<(Option<Bytes>, Bytes), Fault> {
    const END: &[u8] = b"]}";
    let Some(text) = request.tail.as_deref() else { return Ok((None, Bytes::from_static(END))) };
    let part = Part::InputText { text };
    if request.messages.last().is_some_and(|message| message.role == Role::User) {
        let insert = [b",".as_slice(), &json(&part)?].concat();
        return Ok((Some(Bytes::from(insert)), Bytes::from_static(END)));
    }
    let is_first = request.messages.iter().all(|message| is_silent(message));
    let comma: &[u8] = if is_first { b"" } else { b"," };
    let end = [comma, &json(&Item::User { role: "user", content: vec![part] })?, END].concat();
    Ok((None, Bytes::from(end)))
}
