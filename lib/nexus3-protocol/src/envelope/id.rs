//! A request's id, kept as the bytes it was sent with: an integer beyond 64 bits comes back digit for digit.

use std::borrow::Cow;

use crate::json::{Json, Member, is_integer};

/// A request id: a string, an integer, or null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id<'a> {
    raw: Cow<'a, str>,
}

impl<'a> Id<'a> {
    /// The null id: that of an error whose request could not be read.
    pub const NULL: Id<'static> = Id { raw: Cow::Borrowed("null") };

    /// The id's JSON text, exactly as it was sent.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether this is the null id.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.raw == "null"
    }

    /// The same id, owning its text.
    #[must_use]
    pub fn into_owned(self) -> Id<'static> {
        Id { raw: Cow::Owned(self.raw.into_owned()) }
    }

    /// Takes an id from a member's value; refuses fractions, booleans, objects and arrays.
    pub(super) fn from_member(member: &Member<'a>) -> Option<Self> {
        let usable = match &member.value {
            Json::Null | Json::String(_) => true,
            Json::Number(text) => is_integer(text),
            Json::Bool(_) | Json::Array(_) | Json::Object(_) => false,
        };
        usable.then_some(Self { raw: Cow::Borrowed(member.raw) })
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
