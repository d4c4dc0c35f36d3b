//! JSON as nexus3 accepts it from a stranger: RFC 8259 and nothing more, bounded in depth, duplicate keys seen.
//! Numbers keep the text they were sent with. Writing JSON is left to `serde_json`.

mod de;
mod parser;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use de::{ParamFault, from_json, from_members};
pub use parser::{Document, Member, Root, SyntaxFault, parse, parse_members};

/// How many arrays and objects may stand inside each other.
pub const DEPTH_MAX: usize = 64;

/// A JSON value that borrows from the text it was read from.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exactly as it was written.
    Number(&'a str),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object, members in the order they were written.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl Json<'_> {
    /// The word the original server's messages use for a value's type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "NoneType",
            Json::Bool(_) => "bool",
            Json::Number(text) if is_integer(text) => "int",
            Json::Number(_) => "float",
            Json::String(_) => "str",
            Json::Array(_) => "list",
            Json::Object(_) => "dict",
        }
    }

    /// A short rendering for error messages, in the original server's notation: of a long value its first 64
    /// characters, control characters escaped.
    #[must_use]
    pub fn preview(&self) -> String {
        match self {
            Json::Null => "None".to_owned(),
            Json::Bool(true) => "True".to_owned(),
            Json::Bool(false) => "False".to_owned(),
            Json::Number(text) => text.chars().take(PREVIEW_CHARS_MAX).collect(),
            Json::String(text) => preview_string(text),
            Json::Array(_) => "[...]".to_owned(),
            Json::Object(_) => "{...}".to_owned(),
        }
    }
}

const PREVIEW_CHARS_MAX: usize = 64;

fn preview_string(text: &str) -> String {
    let mut sketch = String::from("'");
    for letter in text.chars().take(PREVIEW_CHARS_MAX) {
        match letter {
            '\'' | '\\' => sketch.extend(['\\', letter]),
            control if control.is_control() => sketch.extend(control.escape_default()),
            plain => sketch.push(plain),
        }
    }
    if text.chars().nth(PREVIEW_CHARS_MAX).is_some() {
        sketch.push_str("...");
    }
    sketch.push('\'');
    sketch
}

/// Whether a number's text has neither fraction nor exponent.
pub(crate) fn is_integer(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}
