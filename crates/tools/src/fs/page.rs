//! A part of a long list of lines, with a note on how to read on.

use super::beneath_root::WalkReport;
use crate::definition::{ToolResult, execution_failed};

/// Maximum length of the lines of one result.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Collects the lines from an offset on, up to a maximum, and counts all of them.
pub(super) struct Page {
    offset: usize,
    lines_max: usize,
    text: String,
    shown: usize,
    total: usize,
}

impl Page {
    pub(super) fn new(offset: usize, lines_max: usize) -> Self {
        Self { offset, lines_max, text: String::new(), shown: 0, total: 0 }
    }

    /// Adds a line, if it is on the page. A line too many is counted only.
    pub(super) fn push(&mut self, line: impl FnOnce() -> String) {
        self.total += 1;
        if self.total > self.offset && !self.is_full() {
            self.text.push_str(&line());
            self.text.push('\n');
            self.shown += 1;
        }
    }

    /// Whether further lines are counted only.
    pub(super) fn is_full(&self) -> bool {
        self.shown == self.lines_max || self.text.len() > TEXT_BYTES_MAX
    }

    /// The number of all lines so far.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The lines, then what is not shown and how to get it. `what` is the plural name of a line's content.
    pub(super) fn into_text(mut self, what: &str, report: &WalkReport) -> ToolResult {
        if self.shown == 0 && self.total > 0 {
            let (offset, total) = (self.offset, self.total);
            return Err(execution_failed(format!(
                "offset {offset} is beyond the end: there are {total} {what}"
            )));
        }
        let end = self.offset + self.shown;
        if end < self.total {
            let (first, total) = (self.offset + 1, self.total);
            self.text.push_str(&format!("[{what} {first} to {end} of {total}; continue with offset {end}]"));
        }
        let text = self.text.trim_end_matches('\n');
        Ok(format!("{text}{}", skipped_note(report)))
    }
}

/// What a walk left out, as a line.
pub(super) fn skipped_note(report: &WalkReport) -> String {
    let mut note = String::new();
    if report.is_truncated {
        note.push_str("\n[incomplete: too many files or too deep; choose a directory further down]");
    }
    if report.skipped > 0 {
        note.push_str(&format!(
            "\n[{} entries cannot be shown: closed, or their name is not UTF-8]",
            report.skipped
        ));
    }
    note
}
