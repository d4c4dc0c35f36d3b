//! Escaping and timestamps for logs: one event stays on one line, so that its content cannot forge another entry.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::field::{Field, Visit};

thread_local! {
    /// The last formatted second of this thread: consecutive records mostly share it.
    static TIMESTAMP_CACHE: RefCell<TimestampCache> = RefCell::default();
}

#[derive(Default)]
struct TimestampCache {
    /// Unix time in seconds; `None` before the first use.
    epoch_second: Option<i64>,
    text: String,
    offset: String,
}

impl TimestampCache {
    fn format(&mut self, now: Timestamp, zone: impl FnOnce() -> TimeZone) -> String {
        let epoch_second = Some(now.as_second());
        if self.epoch_second != epoch_second {
            let local = now.to_zoned(zone());
            let (text, offset) = (local.strftime("%Y-%m-%dT%H:%M:%S"), local.strftime("%:z"));
            *self = Self { epoch_second, text: text.to_string(), offset: offset.to_string() };
        }
        format!("{}.{:03}{}", self.text, now.subsec_millisecond(), self.offset)
    }
}

/// Local time with UTC offset, for log files.
pub(crate) fn file_timestamp() -> String {
    let now = Timestamp::now();
    let formatted = TIMESTAMP_CACHE.try_with(|cache| cache.borrow_mut().format(now, TimeZone::system));
    // A thread that is ending has already destroyed its cache.
    formatted.unwrap_or_else(|_| TimestampCache::default().format(now, TimeZone::system))
}

/// Local time without offset, for standard error.
pub(crate) fn stderr_timestamp() -> String {
    Zoned::now().strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// Visitor that formats an event's message and fields, escaped, on one line.
#[derive(Debug, Default)]
pub(crate) struct FieldLine {
    message: String,
    fields: String,
}

impl FieldLine {
    pub(crate) fn into_text(mut self) -> String {
        if !self.message.is_empty() && !self.fields.is_empty() {
            self.message.push(' ');
        }
        self.message.push_str(&self.fields);
        self.message
    }

    fn add(&mut self, field: &Field, text: &str) {
        if field.name() == "message" {
            return push_escaped(&mut self.message, text);
        }
        if !self.fields.is_empty() {
            self.fields.push(' ');
        }
        self.fields.push_str(field.name().trim_start_matches("r#"));
        self.fields.push('=');
        push_value(&mut self.fields, text);
    }
}

impl Visit for FieldLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

/// Visitor that collects two fields of an event by name.
pub(crate) struct FieldPair {
    names: [&'static str; 2],
    values: [Option<String>; 2],
}

impl FieldPair {
    pub(crate) fn new(first: &'static str, second: &'static str) -> Self {
        Self { names: [first, second], values: [None, None] }
    }

    pub(crate) fn into_values(self) -> [Option<String>; 2] {
        self.values
    }
}

impl Visit for FieldPair {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(index) = self.names.iter().position(|name| *name == field.name()) {
            self.values[index] = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.names.contains(&field.name()) {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

/// Visitor that collects all fields of an event by name; the message becomes `text`.
#[derive(Default)]
pub(crate) struct FieldMap {
    fields: serde_json::Map<String, serde_json::Value>,
}

impl FieldMap {
    pub(crate) fn into_fields(self) -> serde_json::Map<String, serde_json::Value> {
        self.fields
    }
}

impl Visit for FieldMap {
    fn record_str(&mut self, field: &Field, value: &str) {
        let name = if field.name() == "message" { "text" } else { field.name() };
        self.fields.insert(name.to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Appends a text with line breaks and terminal control characters escaped.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for char in text.chars() {
        push_char(out, char);
    }
}

/// Appends a message to a transcript. Line breaks stay, but no line can pass for a heading of the transcript.
pub(crate) fn push_transcript(out: &mut String, text: &str) {
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if line.trim_start().starts_with("## ") && line.contains(" · ") {
            out.push('\\');
        }
        for char in line.chars() {
            if char == '\t' { out.push(char) } else { push_char(out, char) }
        }
    }
}

/// Appends a field's value, quoted when it contains separators.
fn push_value(out: &mut String, text: &str) {
    let is_plain = |char: char| !char.is_whitespace() && !matches!(char, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return push_escaped(out, text);
    }
    out.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            out.push('\\');
        }
        push_char(out, char);
    }
    out.push('"');
}

/// Ends a JSON text as one line. JSON allows line separators and terminal control characters in strings, and nowhere
/// else, so that each can be written as an escape sequence.
pub(crate) fn json_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len() + 1);
    for char in json.chars() {
        if is_unprintable(char) {
            // Writing to a String cannot fail. All these characters have four digits.
            let _ = write!(line, "\\u{:04x}", u32::from(char));
        } else {
            line.push(char);
        }
    }
    line.push('\n');
    line
}

fn push_char(out: &mut String, char: char) {
    match char {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ if is_unprintable(char) => push_unicode_escape(out, char),
        _ => out.push(char),
    }
}

/// Whether a character controls a terminal, separates lines, or reorders the displayed text.
fn is_unprintable(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') || char.is_control()
}

fn push_unicode_escape(out: &mut String, char: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_timestamp_equals_local_time() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone with daylight saving time");
        let mut cache = TimestampCache::default();
        for second in [1_700_000_000, 1_700_000_000, 1_700_000_001, 1_750_000_000, 1_700_000_000] {
            for nanosecond in [0, 999_999, 7_000_000, 999_999_999] {
                let now = Timestamp::new(second, nanosecond).expect("a valid timestamp");
                let expected = now.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
                assert_eq!(cache.format(now, || zone.clone()), expected);
            }
        }
    }
}
