//! JSON-RPC request id, stored as its JSON text, so that an integer beyond 64 bits is echoed digit for digit.

use std::borrow::Cow;

use crate::json::{Json, Member, is_integer};

/// A JSON-RPC request id: a string, an integer, or null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id<'a> {
    raw: Cow<'a, str>,
}

impl<'a> Id<'a> {
    /// The null id: used in the error response to a request that could not be parsed.
    pub const NULL: Id<'static> = Id { raw: Cow::Borrowed("null") };

    /// JSON text of the id, exactly as it was sent.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether this is the null id.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.raw == "null"
    }

    /// Converts the id into one that owns its text.
    #[must_use]
    pub fn into_owned(self) -> Id<'static> {
        Id { raw: Cow::Owned(self.raw.into_owned()) }
    }

    /// Parses the id of a request. Returns `None` for fractions, booleans, objects and arrays.
    pub(super) fn from_member(member: &Member<'a>) -> Option<Self> {
        let is_valid = match &member.value {
            Json::Null | Json::String(_) => true,
            Json::Number(text) => is_integer(text),
            Json::Bool(_) | Json::Array(_) | Json::Object(_) => false,
        };
        is_valid.then_some(Self { raw: Cow::Borrowed(member.raw) })
    }
}

impl From<u64> for Id<'static> {
    fn from(number: u64) -> Self {
        Id { raw: Cow::Owned(number.to_string()) }
    }
}

impl From<&str> for Id<'static> {
    fn from(text: &str) -> Self {
        Id { raw: Cow::Owned(serde_json::Value::from(text).to_string()) }
    }
}
