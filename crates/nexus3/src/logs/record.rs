//! The three streams of an agent, the daemon's audit trail, and how an event is written in each.

use std::sync::Arc;

use serde_json::value::RawValue;
use tracing::Event;

use super::text::{FieldLine, FieldMap, FieldPair, file_timestamp, push_escaped, push_transcript};

/// The longest name that file systems take.
const NAME_BYTES_MAX: usize = 255;

/// One of an agent's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LogStream {
    Context,
    Verbose,
    Raw,
    /// Who was denied what, and who changed whose rights: one file for the whole daemon.
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

    /// Writes an event as this stream keeps it.
    pub(crate) fn render(self, event: &Event<'_>) -> String {
        match self {
            Self::Context => render_context(event),
            Self::Verbose => render_verbose(event),
            Self::Raw => render_raw(event),
            Self::Audit => render_audit(event),
        }
    }

    /// What stands in a stream where records had to be left out.
    pub(crate) fn render_gap(self, lost: u64) -> String {
        let time = file_timestamp();
        let why = "the log could not keep up";
        match self {
            Self::Context => format!("> entries missing here at {time}: {lost} ({why})\n\n"),
            Self::Verbose => format!("{time} ERROR lines missing here: {lost} ({why})\n"),
            Self::Raw | Self::Audit => format!("{{\"time\":\"{time}\",\"missing\":{lost}}}\n"),
        }
    }
}

/// An agent's id, proven to be the name of one directory and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AgentDirectory(Arc<str>);

impl AgentDirectory {
    pub(crate) fn new(id: &str) -> Option<Self> {
        let is_step = matches!(id, "" | "." | "..");
        let has_bad_char = id.chars().any(|char| char == '/' || char.is_control());
        (!is_step && !has_bad_char && id.len() <= NAME_BYTES_MAX).then(|| Self(id.into()))
    }

    /// Where the daemon keeps its own: no agent's name starts so.
    pub(crate) fn daemon() -> Self {
        Self("_daemon".into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names one file: whose, and which.
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
    // Strings and checked JSON always have a spelling.
    let mut record = serde_json::to_string(&line).unwrap_or_default();
    record.push('\n');
    record
}

/// One line of the audit trail: every field of the event, under its own name.
fn render_audit(event: &Event<'_>) -> String {
    let mut fields = FieldMap::default();
    event.record(&mut fields);
    let mut line = serde_json::Map::from_iter([("time".to_owned(), file_timestamp().into())]);
    line.extend(fields.into_fields());
    format!("{}\n", serde_json::Value::Object(line))
}

/// One line of a raw log.
#[derive(serde::Serialize)]
struct RawLine<'a> {
    time: String,
    direction: &'a str,
    body: Option<Box<RawValue>>,
}

/// JSON as JSON, on one line; anything else as a string.
fn embed_json(body: &str) -> Box<RawValue> {
    // Outside of strings a line break is only space, and inside there is none.
    let on_one_line = body.replace(['\n', '\r'], " ");
    let is_json = serde_json::from_str::<&RawValue>(body).is_ok();
    let json =
        if is_json { RawValue::from_string(on_one_line) } else { serde_json::value::to_raw_value(body) };
    json.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
