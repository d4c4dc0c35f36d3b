//! Reads the arguments of a call as a model wrote them. What is wrong is told so that the model can mend it.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

/// The longest complaint: a bad value is repeated in it, and that may be long.
const ERROR_CHARS_MAX: usize = 400;

/// Reads arguments. No text, or `null`, is an object without members.
pub(crate) fn parse<I: DeserializeOwned>(text: &str, bytes_max: usize) -> Result<I, String> {
    if text.len() > bytes_max {
        return Err(format!("Invalid input: the arguments are longer than {bytes_max} bytes"));
    }
    let text = match text.trim_ascii() {
        "" | "null" => "{}",
        _ => text,
    };
    parse_object(text).map_err(|complaint| format!("Invalid input: {}", truncate_error(&complaint)))
}

fn parse_object<I: DeserializeOwned>(text: &str) -> Result<I, String> {
    // A list would do for a struct, member by member; no schema says so.
    if !text.trim_ascii_start().starts_with('{') {
        let value = serde_json::from_str::<Value>(text).map_err(|fault| malformed_json(&fault))?;
        return Err(format!("expected an object, found {}", json_type_name(&value)));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let input = serde_path_to_error::deserialize(&mut reader).map_err(|fault| {
        let place = fault.path().to_string();
        describe_error(&place, fault.inner())
    })?;
    reader.end().map_err(|fault| malformed_json(&fault))?;
    Ok(input)
}

fn describe_error(place: &str, fault: &serde_json::Error) -> String {
    if fault.classify() != Category::Data {
        return malformed_json(fault);
    }
    let whole = fault.to_string();
    // Line and column help where the text is broken; where a value is wrong, its name says more.
    let words = whole.rfind(" at line ").map_or(whole.as_str(), |end| &whole[..end]);
    // What our own types say of a value is a sentence and names it; what serde says is a part of one.
    let is_sentence = words.starts_with(|first: char| first.is_uppercase());
    let is_named = place == "." || is_sentence || words.contains(&format!("field `{place}`"));
    if is_named { words.to_owned() } else { format!("field `{place}`: {words}") }
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
        // What was expected stands at the end: it is the part that helps.
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
