//! Strict JSON parser for untrusted input: RFC 8259 only, bounded depth, duplicate keys reported, numbers as their
//! original text. Serializing is left to `serde_json`.

mod de;
mod parser;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use de::{ParamFault, from_json, from_members};
pub use parser::{Document, Member, Root, SyntaxFault, parse, parse_members};

/// Maximum nesting depth of arrays and objects.
pub const DEPTH_MAX: usize = 64;

/// A JSON value that borrows from the parsed text.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as its original text.
    Number(&'a str),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object, members in their original order.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl Json<'_> {
    /// Name of the value's type in error texts: that of the original server, which was written in Python.
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

    /// Short rendering for error texts, in the original server's notation: the first 64 characters, control characters
    /// escaped.
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
    let mut preview = String::from("'");
    for character in text.chars().take(PREVIEW_CHARS_MAX) {
        match character {
            '\'' | '\\' => preview.extend(['\\', character]),
            control if control.is_control() => preview.extend(control.escape_default()),
            plain => preview.push(plain),
        }
    }
    if text.chars().nth(PREVIEW_CHARS_MAX).is_some() {
        preview.push_str("...");
    }
    preview.push('\'');
    preview
}

/// Whether a number has neither fraction nor exponent.
pub(crate) fn is_integer(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}
