//! Text fit for a log: one event on one line that cannot pass for two, and the time in front of it.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::field::{Field, Visit};

thread_local! {
    /// The second that was written last on this thread: most records share theirs with the one before.
    static TIMESTAMP_CACHE: RefCell<TimestampCache> = RefCell::default();
}

#[derive(Default)]
struct TimestampCache {
    /// Counted from 1970; none before the first.
    epoch_second: Option<i64>,
    text: String,
    offset: String,
}

impl TimestampCache {
    fn format(&mut self, now: Timestamp, zone: impl FnOnce() -> TimeZone) -> String {
        let number = Some(now.as_second());
        if self.epoch_second != number {
            let local = now.to_zoned(zone());
            let (text, offset) = (local.strftime("%Y-%m-%dT%H:%M:%S"), local.strftime("%:z"));
            *self = Self { epoch_second: number, text: text.to_string(), offset: offset.to_string() };
        }
        format!("{}.{:03}{}", self.text, now.subsec_millisecond(), self.offset)
    }
}

/// Local time with its offset, for files that are read long after.
pub(crate) fn file_timestamp() -> String {
    let now = Timestamp::now();
    let kept = TIMESTAMP_CACHE.try_with(|second| second.borrow_mut().format(now, TimeZone::system));
    // A thread that is about to end has nothing kept any more.
    kept.unwrap_or_else(|_| TimestampCache::default().format(now, TimeZone::system))
}

/// Local time for someone who watches.
pub(crate) fn stderr_timestamp() -> String {
    Zoned::now().strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// The message of an event and its other fields, escaped, in one line.
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

/// Picks two fields of an event by name.
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

/// All fields of an event by name; the message is `text`.
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

/// A text with everything escaped that could end a line or steer a terminal.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for char in text.chars() {
        push_char(out, char);
    }
}

/// The text of a transcript: lines stay lines, but none can pass for a heading of ours.
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

/// A value, in quotes when it would not be told apart from what follows.
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

fn push_char(out: &mut String, char: char) {
    match char {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Separators that some readers take for a line's end, and marks that turn the order of what is shown.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => push_unicode_escape(out, char),
        _ if char.is_control() => push_unicode_escape(out, char),
        _ => out.push(char),
    }
}

fn push_unicode_escape(out: &mut String, char: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_local_time_whichever_was_written_before() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone with summer time");
        let mut kept = TimestampCache::default();
        for second in [1_700_000_000, 1_700_000_000, 1_700_000_001, 1_750_000_000, 1_700_000_000] {
            for nanosecond in [0, 999_999, 7_000_000, 999_999_999] {
                let now = Timestamp::new(second, nanosecond).expect("a time");
                let whole = now.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
                assert_eq!(kept.format(now, || zone.clone()), whole);
            }
        }
    }
}
