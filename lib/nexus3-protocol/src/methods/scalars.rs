//! Scalar parameter types that several methods share: each validates its value and has its own error text.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A count of tokens, messages or rounds.
pub type Count = u64;

/// Request id of a `send`: a non-empty string or an integer. `"5"` and `5` are different ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RequestIdParam {
    /// A non-empty string.
    Text(String),
    /// An integer.
    Number(i64),
}

/// Maximum length of a textual request id.
const REQUEST_ID_BYTES_MAX: usize = 256;

impl fmt::Display for RequestIdParam {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestIdParam::Text(text) => out.write_str(text),
            RequestIdParam::Number(number) => write!(out, "{number}"),
        }
    }
}

impl<'de> Deserialize<'de> for RequestIdParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RequestIdVisitor;
        impl Visitor<'_> for RequestIdVisitor {
            type Value = RequestIdParam;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("string or integer")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RequestIdParam, E> {
                match text.len() {
                    0 => Err(E::custom("cannot be empty")),
                    1..=REQUEST_ID_BYTES_MAX => Ok(RequestIdParam::Text(text.to_owned())),
                    _ => Err(E::custom(format!("must be at most {REQUEST_ID_BYTES_MAX} bytes"))),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<RequestIdParam, E> {
                Ok(RequestIdParam::Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<RequestIdParam, E> {
                i64::try_from(number)
                    .map(RequestIdParam::Number)
                    .map_err(|_| E::custom("must be an integer of at most 63 bits"))
            }
        }
        deserializer.deserialize_any(RequestIdVisitor)
    }
}

/// Parses an optional count. Its error text describes the expected value instead of naming a Rust type.
pub(super) fn deserialize_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Count>, D::Error> {
    Option::<PageOffset>::deserialize(deserializer).map(|count| count.map(|count| count.0))
}

/// Policy for a turn that a crash of the daemon interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// The turn continues. A tool call that must not run twice is not repeated; its result tells the model that the
    /// outcome is unknown.
    #[default]
    Resume,
    /// The turn ends as interrupted; repeating its `send` continues it.
    Mark,
}

/// Index of the first item of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PageOffset(pub u64);

impl<'de> Deserialize<'de> for PageOffset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_integer_in(deserializer, 0..=u64::MAX, "must be a non-negative integer").map(Self)
    }
}

/// Maximum number of items of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PageSize(#[cfg_attr(feature = "schema", schemars(range(min = 1, max = 2000)))] pub u64);

impl PageSize {
    /// Largest accepted page size.
    pub const MAX: u64 = 2000;
}

impl Default for PageSize {
    fn default() -> Self {
        Self(200)
    }
}

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_integer_in(deserializer, 1..=Self::MAX, "must be an integer between 1 and 2000").map(Self)
    }
}

/// Parses an integer in a range; `rule` is the error text for any other value.
fn deserialize_integer_in<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<u64>,
    rule: &'static str,
) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer).ok().filter(|number| range.contains(number));
    number.ok_or_else(|| D::Error::custom(rule))
}
