//! Request encoding shared by all dialects: valid function names, call ids and arguments, images, user-defined fields
//! and output schemas. The layout of the body is left to the dialects.

use std::borrow::Cow;

use agent::outside::ModelRequest;
use agent::{Fault, FaultKind, Image, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::dialect::ModelOptions;
use crate::recording::fnv1a_hex;

/// Longest function name that servers accept.
const NAME_CHARS_MAX: usize = 64;

/// Longest tool call id that servers accept; the limit is that of OpenAI's chat completions.
const ID_CHARS_MAX: usize = 40;

/// Name of the output schema, for APIs that require one.
pub(crate) const SCHEMA_NAME: &str = "answer";

/// Serializes a value as JSON.
pub(crate) fn encode_json(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    push_json(value, &mut out)?;
    Ok(out)
}

/// Appends a value as JSON.
pub(crate) fn push_json(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), Fault> {
    serde_json::to_writer(out, value).map_err(encode_fault)
}

pub(crate) fn encode_fault(fault: serde_json::Error) -> Fault {
    Fault::new(FaultKind::Internal, "cannot encode the model request").caused_by(fault)
}

/// Returns the text, preceded by a blank line and JSON-escaped without quotes, for appending to a JSON string.
pub(crate) fn json_string_suffix(text: &str) -> Result<Vec<u8>, Fault> {
    let mut quoted = encode_json(&format!("\n\n{text}"))?;
    quoted.pop();
    quoted.remove(0);
    Ok(quoted)
}

/// Returns a function name that servers accept. An invalid name in the history would have every later request rejected;
/// the tool result has already reported the invalid call to the model.
pub(crate) fn valid_function_name(name: &str) -> Cow<'_, str> {
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_identifier_byte) {
        return Cow::Borrowed(name);
    }
    let fitted = |letter: char| if u8::try_from(letter).is_ok_and(is_identifier_byte) { letter } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(fitted).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

/// Returns a tool call id of accepted bytes, the same for the call and its result. An id from another provider that is
/// too long or has other characters is shortened and hashed, so that distinct ids stay distinct.
pub(crate) fn valid_call_id(id: &str, is_accepted: fn(u8) -> bool) -> Cow<'_, str> {
    if (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(is_accepted) {
        return Cow::Borrowed(id);
    }
    let digest = fnv1a_hex(id.as_bytes());
    let start = id.chars().filter(|letter| u8::try_from(*letter).is_ok_and(is_identifier_byte));
    let start: String = start.take(ID_CHARS_MAX - digest.len() - "_".len()).collect();
    Cow::Owned(format!("{start}_{digest}"))
}

/// Returns a tool call id of exactly nine letters and digits.
pub(crate) fn nine_char_call_id(id: &str) -> Cow<'_, str> {
    const CHARS: usize = 9;
    if id.len() == CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut digest = fnv1a_hex(id.as_bytes());
    digest.truncate(CHARS);
    Cow::Owned(digest)
}

/// Whether a byte is valid in function names, and in call ids of strict servers: letters, digits, `_` and `-`.
pub(crate) fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

/// Returns the arguments, or `{}` if they are not a JSON object. Many servers parse the arguments in the history and
/// would reject every later request.
pub(crate) fn valid_arguments(text: &str) -> &str {
    if crate::decode::is_json_object(text) { text } else { "{}" }
}

/// Parses a JSON text for embedding unchanged.
pub(crate) fn raw_json(text: &str) -> Result<&RawValue, Fault> {
    serde_json::from_str(text).map_err(encode_fault)
}

/// Parses the output schema of a request.
///
/// # Errors
/// When the schema is not JSON.
pub(crate) fn parse_output_schema(request: &ModelRequest) -> Result<Option<Value>, Fault> {
    let Some(text) = request.output_schema.as_deref() else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|fault| Fault::new(FaultKind::Invalid, format!("the output schema is not JSON: {fault}")))
}

/// Whether every object of a schema requires all its properties and forbids others, as OpenAI demands for
/// `strict: true`. Other schemas are sent with `strict: false`.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return true };
    let closed = match members.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            let required = members.get("required").and_then(Value::as_array);
            let is_required = |name: &String| {
                required.is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)))
            };
            members.get("additionalProperties") == Some(&Value::Bool(false))
                && properties.keys().all(is_required)
        }
        None => members.get("type").and_then(Value::as_str) != Some("object"),
    };
    closed
        && members.values().all(|value| match value {
            Value::Object(_) => is_strict_schema_or_map(value),
            Value::Array(elements) => elements.iter().all(is_strict),
            _ => true,
        })
}

/// Whether an object inside a schema is strict: a schema itself, or a map of schemas such as `properties` or `$defs`.
fn is_strict_schema_or_map(value: &Value) -> bool {
    let Some(members) = value.as_object() else { return true };
    if members.contains_key("type") || members.contains_key("properties") {
        return is_strict(value);
    }
    members.values().all(is_strict)
}

/// Encodes the bytes of an image as base64.
pub(crate) fn image_base64(image: &Image) -> String {
    STANDARD.encode(&image.data)
}

/// Encodes an image as a `data:` URL.
pub(crate) fn image_data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image_base64(image))
}

/// Returns the message with its images replaced by a note if the model accepts none. New images for such a model are
/// rejected on submission; these come from turns of another model.
pub(crate) fn without_unsupported_images<'a>(model: &ModelOptions, message: &'a Message) -> Cow<'a, Message> {
    if message.images.is_empty() || model.accepts_images {
        return Cow::Borrowed(message);
    }
    let mut text_only = Message { images: Vec::new(), ..message.clone() };
    let separator = if text_only.text.is_empty() { "" } else { "\n" };
    let label = Image::count_label(message.images.len());
    text_only.text.push_str(&format!("{separator}[{label} left out: this model takes none]"));
    Cow::Owned(text_only)
}

/// Adds the user-defined `extra` fields to a body. Objects are merged; any other value replaces the existing one.
///
/// # Errors
/// When a field is reserved for the daemon.
pub(crate) fn add_extra(
    body: &mut Map<String, Value>,
    model: &ModelOptions,
    reserved: &[&str],
) -> Result<(), Fault> {
    for (name, value) in &model.extra {
        if reserved.contains(&name.as_str()) {
            let text = format!(
                "model {}: the daemon sets the field {name:?} itself; remove it from `extra`",
                model.name
            );
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        match (body.get_mut(name), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => {
                ours.extend(theirs.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            _ => drop(body.insert(name.clone(), value.clone())),
        }
    }
    Ok(())
}

/// Serializes an object without its closing brace, so that large fields can be appended.
pub(crate) fn unclosed_object(body: &Map<String, Value>) -> Result<Vec<u8>, Fault> {
    let mut out = encode_json(body)?;
    out.pop();
    Ok(out)
}
