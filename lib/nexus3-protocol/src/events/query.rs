//! What a reader of an event stream asks for: where to begin and which kinds. The words of the query, in both
//! directions.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::EventKind;

/// The query of `GET /events` and `GET /agent/{agent_id}/events`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Only what is behind this sequence; none is from now on. A `Last-Event-ID` header counts before it.
    pub after: Option<u64>,
    /// Which kinds.
    pub filter: EventKindFilter,
}

/// Which events a reader wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventKindFilter {
    /// These kinds; all when there is nothing.
    pub kinds: Option<BTreeSet<EventKind>>,
    /// Whether it wants what the model says and thinks while it does.
    pub deltas: bool,
}

impl Default for EventKindFilter {
    fn default() -> Self {
        Self { kinds: None, deltas: true }
    }
}

impl EventKindFilter {
    /// Whether the reader wants this kind. What tells it that something is missing is always wanted.
    #[must_use]
    pub fn matches(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Gap | EventKind::Lagged => true,
            EventKind::TextDelta | EventKind::ReasoningDelta if !self.deltas => false,
            kind => self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind)),
        }
    }
}

/// What is wrong with a query. Its text is for whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryFault {
    /// No sequence.
    #[error("{name} must be a sequence number, got: '{got}'")]
    Cursor {
        /// Where it stood.
        name: &'static str,
        /// What was there.
        got: String,
    },
    /// No kind of event.
    #[error("kind must be one of {choices}, got: '{got}'")]
    Kind {
        /// All kinds.
        choices: String,
        /// What was there.
        got: String,
    },
    /// Neither yes nor no.
    #[error("deltas must be true or false, got: '{0}'")]
    Deltas(String),
    /// Said more than once.
    #[error("{0} is given twice")]
    Duplicate(&'static str),
    /// Nothing that is known here.
    #[error("unknown query parameter '{0}': use after, kind and deltas")]
    Unknown(String),
}

/// What is shown of a text that does not fit.
const ECHO_CHARS_MAX: usize = 64;

impl EventQuery {
    /// Reads the part of a target behind its question mark.
    ///
    /// # Errors
    /// When something in it is not known or does not fit.
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

    /// The same as text, with its question mark; nothing when there is nothing to say.
    #[must_use]
    pub fn to_query_string(&self) -> String {
        let mut text = String::new();
        let mut add = |name: &str, value: &str| {
            let mark = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{mark}{name}={value}");
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

/// Reads a cursor: digits and nothing else. `name` is where it stood.
///
/// # Errors
/// When it is none.
pub fn parse_cursor(name: &'static str, text: &str) -> Result<u64, QueryFault> {
    // Digits only: the standard library would take a sign too.
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

/// Percent signs resolved: many libraries write a comma as `%2C`. What is no such sign stays as it is.
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
