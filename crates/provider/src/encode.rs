//! What writing a question has in common, whatever API it is for: names and arguments that servers take, images, the
//! user's own fields, schemas. Where each of them stands is left to the dialects.

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

/// The longest name that servers take.
const NAME_CHARS_MAX: usize = 64;

/// The longest id of a call that servers take: OpenAI's chat completions take no more.
const ID_CHARS_MAX: usize = 40;

/// What an answer that has to fit a schema is called, where it has to have a name.
pub(crate) const SCHEMA_NAME: &str = "answer";

/// Something as JSON.
pub(crate) fn encode_json(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    push_json(value, &mut out)?;
    Ok(out)
}

/// Writes something as JSON behind what there is.
pub(crate) fn push_json(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), Fault> {
    serde_json::to_writer(out, value).map_err(encode_fault)
}

pub(crate) fn encode_fault(fault: serde_json::Error) -> Fault {
    Fault::new(FaultKind::Internal, "the request could not be written").caused_by(fault)
}

/// A text as the inside of a JSON string, to be put behind what the string holds already.
pub(crate) fn json_string_suffix(text: &str) -> Result<Vec<u8>, Fault> {
    let mut quoted = encode_json(&format!("\n\n{text}"))?;
    quoted.pop();
    quoted.remove(0);
    Ok(quoted)
}

/// A name that no server takes would have every later question refused; its result has told the model already.
pub(crate) fn valid_function_name(name: &str) -> Cow<'_, str> {
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_identifier_byte) {
        return Cow::Borrowed(name);
    }
    let fitted = |letter: char| if u8::try_from(letter).is_ok_and(is_identifier_byte) { letter } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(fitted).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

/// A call's id for a server that takes such signs; the same for the call and for its result. Ids of other providers may be
/// longer or have other signs: those get a short form, which differs where they differ.
pub(crate) fn valid_call_id(id: &str, is_taken: fn(u8) -> bool) -> Cow<'_, str> {
    if (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(is_taken) {
        return Cow::Borrowed(id);
    }
    let digest = fnv1a_hex(id.as_bytes());
    let start = id.chars().filter(|letter| u8::try_from(*letter).is_ok_and(is_identifier_byte));
    let start: String = start.take(ID_CHARS_MAX - digest.len() - "_".len()).collect();
    Cow::Owned(format!("{start}_{digest}"))
}

/// A call's id for a server that takes nine letters and digits.
pub(crate) fn nine_char_call_id(id: &str) -> Cow<'_, str> {
    const CHARS: usize = 9;
    if id.len() == CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut digest = fnv1a_hex(id.as_bytes());
    digest.truncate(CHARS);
    Cow::Owned(digest)
}

/// What names are made of, and ids where a server is strict: letters, digits, `_` and `-`.
pub(crate) fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

/// Many servers read the arguments again; what is no object would have every later question refused.
pub(crate) fn valid_arguments(text: &str) -> &str {
    if crate::decode::is_json_object(text) { text } else { "{}" }
}

/// A schema that is put in as it stands.
pub(crate) fn raw_json(text: &str) -> Result<&RawValue, Fault> {
    serde_json::from_str(text).map_err(encode_fault)
}

/// The schema of the answer, taken apart.
///
/// # Errors
/// When it is not JSON.
pub(crate) fn parse_output_schema(request: &ModelRequest) -> Result<Option<Value>, Fault> {
    let Some(text) = request.output_schema.as_deref() else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|fault| {
        Fault::new(FaultKind::Invalid, format!("the schema of the answer is not JSON: {fault}"))
    })
}

/// Whether a schema says of every object that it has all its members and no others: what OpenAI asks for before it
/// promises that the answer fits. Others are sent too, without the promise.
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
            Value::Object(_) => is_strict_member(value),
            Value::Array(elements) => elements.iter().all(is_strict),
            _ => true,
        })
}

/// The members of `properties` and `$defs` are schemas, and they themselves are none.
fn is_strict_member(value: &Value) -> bool {
    let Some(members) = value.as_object() else { return true };
    if members.contains_key("type") || members.contains_key("properties") {
        return is_strict(value);
    }
    members.values().all(is_strict)
}

/// An image as the base64 of its bytes.
pub(crate) fn image_base64(image: &Image) -> String {
    STANDARD.encode(&image.data)
}

/// An image as a URL that holds it.
pub(crate) fn image_data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image_base64(image))
}

/// A message as this model can take it. Pictures are refused when they are sent to a model that takes none; those that
/// another model has seen before are left out here, and the model is told so.
pub(crate) fn without_unsupported_images<'a>(model: &ModelOptions, message: &'a Message) -> Cow<'a, Message> {
    if message.images.is_empty() || model.takes_images {
        return Cow::Borrowed(message);
    }
    let mut seen = Message { images: Vec::new(), ..message.clone() };
    let gap = if seen.text.is_empty() { "" } else { "\n" };
    let many = Image::count_label(message.images.len());
    seen.text.push_str(&format!("{gap}[{many} left out: this model takes none]"));
    Cow::Owned(seen)
}

/// Puts the user's own fields into a body. An object is added to the one that is there, everything else replaces it.
///
/// # Errors
/// When a field is one that only the daemon can write.
pub(crate) fn add_extra(
    body: &mut Map<String, Value>,
    model: &ModelOptions,
    reserved: &[&str],
) -> Result<(), Fault> {
    for (name, value) in &model.extra {
        if reserved.contains(&name.as_str()) {
            let text = format!(
                "the field {name:?} of the model {} is written by the daemon: leave it out of `extra`",
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

/// The start of a body: its small fields, open for more.
pub(crate) fn unclosed_object(body: &Map<String, Value>) -> Result<Vec<u8>, Fault> {
    let mut out = encode_json(body)?;
    out.pop();
    Ok(out)
}
