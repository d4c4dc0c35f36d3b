//! Log streams (three per agent, one audit trail for the daemon) and how each renders an event.

use std::sync::Arc;

use serde_json::value::RawValue;
use tracing::Event;

use super::text::{FieldLine, FieldMap, FieldPair, file_timestamp, json_line, push_escaped, push_transcript};

/// Maximum length of a file name on common file systems.
const NAME_BYTES_MAX: usize = 255;

/// A log stream; each is one file with its rotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LogStream {
    Context,
    Verbose,
    Raw,
    /// Audit trail of denials and permission changes: one file for the whole daemon.
    Audit,
}

impl LogStream {
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Context => "context.md",
            Self::Verbose => "verbose.md",
            Self::Raw => "raw.jsonl",
            Self::Audit => "audit.jsonl",
        }
    }

    /// Renders an event in this stream's format.
    pub(crate) fn render(self, event: &Event<'_>) -> String {
        match self {
            Self::Context => render_context(event),
            Self::Verbose => render_verbose(event),
            Self::Raw => render_raw(event),
            Self::Audit => render_audit(event),
        }
    }

    /// Renders the marker for dropped records.
    pub(crate) fn render_gap(self, dropped: u64) -> String {
        let time = file_timestamp();
        let why = "the log queue was full";
        match self {
            Self::Context => format!("> {dropped} entries dropped before {time}: {why}\n\n"),
            Self::Verbose => format!("{time} ERROR {dropped} lines dropped: {why}\n"),
            Self::Raw | Self::Audit => format!("{{\"time\":\"{time}\",\"missing\":{dropped}}}\n"),
        }
    }
}

/// An agent's id, validated as a single directory name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AgentDirectory(Arc<str>);

impl AgentDirectory {
    pub(crate) fn new(id: &str) -> Option<Self> {
        let is_special = matches!(id, "" | "." | "..");
        let has_invalid_char = id.chars().any(|char| char == '/' || char.is_control());
        (!is_special && !has_invalid_char && id.len() <= NAME_BYTES_MAX).then(|| Self(id.into()))
    }

    /// The daemon's own directory: no agent id starts with an underscore.
    pub(crate) fn daemon() -> Self {
        Self("_daemon".into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the agent is temporary, which has no transcript: its name begins with a dot.
    pub(crate) fn is_temporary(&self) -> bool {
        self.0.starts_with('.')
    }
}

/// Identifies one log file: agent and stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub(crate) agent: AgentDirectory,
    pub(crate) stream: LogStream,
}

fn render_context(event: &Event<'_>) -> String {
    let mut pair = FieldPair::new("role", "text");
    event.record(&mut pair);
    let [role, text] = pair.into_values();
    let mut record = "## ".to_owned();
    push_escaped(&mut record, role.as_deref().unwrap_or("unknown"));
    record.push_str(" · ");
    record.push_str(&file_timestamp());
    record.push_str("\n\n");
    push_transcript(&mut record, text.as_deref().unwrap_or_default());
    record.push_str("\n\n");
    record
}

fn render_verbose(event: &Event<'_>) -> String {
    let mut line = FieldLine::default();
    event.record(&mut line);
    format!("{} {:5} {}\n", file_timestamp(), event.metadata().level().as_str(), line.into_text())
}

fn render_raw(event: &Event<'_>) -> String {
    let mut pair = FieldPair::new("direction", "body");
    event.record(&mut pair);
    let [direction, body] = pair.into_values();
    let line = RawLine {
        time: file_timestamp(),
        direction: direction.as_deref().unwrap_or("unknown"),
        body: body.as_deref().map(embed_json),
    };
    // Serializing strings and validated JSON cannot fail.
    json_line(&serde_json::to_string(&line).unwrap_or_default())
}

/// Renders one line of the audit trail: every field of the event under its own name.
fn render_audit(event: &Event<'_>) -> String {
    let mut fields = FieldMap::default();
    event.record(&mut fields);
    let mut line = serde_json::Map::from_iter([("time".to_owned(), file_timestamp().into())]);
    line.extend(fields.into_fields());
    json_line(&serde_json::Value::Object(line).to_string())
}

/// One line of a raw log.
#[derive(serde::Serialize)]
struct RawLine<'a> {
    time: String,
    direction: &'a str,
    body: Option<Box<RawValue>>,
}

/// Embeds a body: JSON as JSON on one line, anything else as a string.
fn embed_json(body: &str) -> Box<RawValue> {
    // In valid JSON, these occur only outside strings, as whitespace.
    let on_one_line = body.replace(['\n', '\r', '\t'], " ");
    let is_json = serde_json::from_str::<&RawValue>(body).is_ok();
    let json =
        if is_json { RawValue::from_string(on_one_line) } else { serde_json::value::to_raw_value(body) };
    json.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
