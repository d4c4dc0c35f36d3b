//! Parses the JSON arguments of a tool call. Error messages are written so that the model can correct its call.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

/// Maximum length of an error message: it quotes the invalid value, which may be long.
const ERROR_CHARS_MAX: usize = 400;

/// Parses arguments. Empty text and `null` count as an empty object.
pub(crate) fn parse<I: DeserializeOwned>(text: &str, bytes_max: usize) -> Result<I, String> {
    if text.len() > bytes_max {
        return Err(format!("Invalid input: the arguments are longer than {bytes_max} bytes"));
    }
    let text = match text.trim_ascii() {
        "" | "null" => "{}",
        _ => text,
    };
    parse_object(text).map_err(|error| format!("Invalid input: {}", truncate_error(&error)))
}

fn parse_object<I: DeserializeOwned>(text: &str) -> Result<I, String> {
    // Serde would also accept an array for a struct; the schema does not allow it.
    if !text.trim_ascii_start().starts_with('{') {
        let value = serde_json::from_str::<Value>(text).map_err(|fault| malformed_json(&fault))?;
        return Err(format!("expected an object, found {}", json_type_name(&value)));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let input = serde_path_to_error::deserialize(&mut reader).map_err(|fault| {
        let path = fault.path().to_string();
        describe_error(&path, fault.inner())
    })?;
    reader.end().map_err(|fault| malformed_json(&fault))?;
    Ok(input)
}

fn describe_error(path: &str, fault: &serde_json::Error) -> String {
    if fault.classify() != Category::Data {
        return malformed_json(fault);
    }
    let text = fault.to_string();
    // Line and column help with malformed JSON; for an invalid value the field name is more useful.
    let message = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    // Messages of our own types are complete sentences that name the value; those of serde are fragments.
    let is_sentence = message.starts_with(|first: char| first.is_uppercase());
    let is_named = path == "." || is_sentence || message.contains(&format!("field `{path}`"));
    if is_named { message.to_owned() } else { format!("field `{path}`: {message}") }
}

fn malformed_json(fault: &serde_json::Error) -> String {
    format!("malformed JSON: {fault}")
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn truncate_error(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        // The end of the message says what was expected, which is the useful part.
        Some((cut, _)) => match text.rfind(", expected ") {
            Some(end) if end > cut && text.len() - end < ERROR_CHARS_MAX => {
                format!("{}…{}", &text[..cut], &text[end..])
            }
            _ => format!("{}…", &text[..cut]),
        },
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
