//! Query string of the event streams: cursor and filter, parsed and serialized.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::EventKind;

/// The query of `GET /events` and `GET /agent/{agent_id}/events`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Cursor: only events after this sequence. `None`: only new events. A `Last-Event-ID` header takes precedence.
    pub after: Option<u64>,
    /// Kinds to deliver.
    pub filter: EventKindFilter,
}

/// Filter of an event stream by kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventKindFilter {
    /// Kinds to deliver; `None`: all.
    pub kinds: Option<BTreeSet<EventKind>>,
    /// Whether to deliver `text_delta`, `reasoning_delta` and `tool_output_delta`.
    pub deltas: bool,
}

impl Default for EventKindFilter {
    fn default() -> Self {
        Self { kinds: None, deltas: true }
    }
}

impl EventKindFilter {
    /// Whether the filter passes this kind. It always passes `gap` and `lagged`, which report missing events.
    #[must_use]
    pub fn matches(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Gap | EventKind::Lagged => true,
            EventKind::TextDelta | EventKind::ReasoningDelta | EventKind::ToolOutputDelta if !self.deltas => {
                false
            }
            kind => self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind)),
        }
    }
}

/// An invalid query string. Its text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryFault {
    /// The cursor is not a sequence number.
    #[error("{name} must be a sequence number, got: '{got}'")]
    Cursor {
        /// Parameter or header that holds it.
        name: &'static str,
        /// Escaped excerpt of the value.
        got: String,
    },
    /// Unknown kind of event.
    #[error("kind must be one of {choices}, got: '{got}'")]
    Kind {
        /// All kinds.
        choices: String,
        /// Escaped excerpt of the value.
        got: String,
    },
    /// `deltas` is neither `true` nor `false`.
    #[error("deltas must be true or false, got: '{0}'")]
    Deltas(String),
    /// Repeated parameter.
    #[error("{0} is given twice")]
    Duplicate(&'static str),
    /// Unknown parameter.
    #[error("unknown query parameter '{0}': use after, kind and deltas")]
    Unknown(String),
}

/// Maximum number of characters of an invalid value in an error text.
const ECHO_CHARS_MAX: usize = 64;

impl EventQuery {
    /// Parses a query string, without its question mark.
    ///
    /// # Errors
    /// When a parameter is unknown, repeated or invalid.
    pub fn parse(query: &str) -> Result<Self, QueryFault> {
        let (mut after, mut deltas, mut kinds) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode(value);
            match name {
                "after" if after.is_some() => return Err(QueryFault::Duplicate("after")),
                "after" => after = Some(parse_cursor("after", &value)?),
                "kind" => parse_kinds(&value, kinds.get_or_insert_with(BTreeSet::new))?,
                "deltas" if deltas.is_some() => return Err(QueryFault::Duplicate("deltas")),
                "deltas" => deltas = Some(parse_deltas(&value)?),
                other => return Err(QueryFault::Unknown(escape_excerpt(other))),
            }
        }
        Ok(Self { after, filter: EventKindFilter { kinds, deltas: deltas.unwrap_or(true) } })
    }

    /// Serializes the query with its question mark; an empty string when every value is the default.
    #[must_use]
    pub fn to_query_string(&self) -> String {
        let mut text = String::new();
        let mut add = |name: &str, value: &str| {
            let separator = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{separator}{name}={value}");
        };
        if let Some(after) = self.after {
            add("after", &after.to_string());
        }
        if let Some(kinds) = &self.filter.kinds {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            add("kind", &names.join(","));
        }
        if !self.filter.deltas {
            add("deltas", "false");
        }
        text
    }
}

/// Parses a cursor, which consists of digits only. `name` is the parameter or header that holds it.
///
/// # Errors
/// When `text` is not a sequence number.
pub fn parse_cursor(name: &'static str, text: &str) -> Result<u64, QueryFault> {
    // `u64::from_str` would accept a plus sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let cursor = is_number.then(|| text.parse().ok()).flatten();
    cursor.ok_or_else(|| QueryFault::Cursor { name, got: escape_excerpt(text) })
}

fn parse_kinds(value: &str, kinds: &mut BTreeSet<EventKind>) -> Result<(), QueryFault> {
    for name in value.split(',') {
        let unknown = || QueryFault::Kind { choices: EventKind::choices(), got: escape_excerpt(name) };
        kinds.insert(EventKind::find(name).ok_or_else(unknown)?);
    }
    Ok(())
}

fn parse_deltas(value: &str) -> Result<bool, QueryFault> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(QueryFault::Deltas(escape_excerpt(other))),
    }
}

fn escape_excerpt(text: &str) -> String {
    text.chars().take(ECHO_CHARS_MAX).flat_map(char::escape_default).collect()
}

/// Decodes percent escapes: many HTTP libraries encode a comma as `%2C`. Invalid escapes stay as they are.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = match (first, others) {
            (b'%', [high, low, ..]) => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        match digits {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
