//! Converts byte offsets of a text to line and column numbers for messages.

/// Characters of a source line that a message shows.
const DISPLAY_CHARS_MAX: usize = 100;

/// A text with the offsets of its lines. Each lookup is a binary search, so that a file with many problems stays cheap.
pub(crate) struct LineIndex<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { text, line_starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// Line of a byte offset, counted from 1.
    pub(crate) fn line_number(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).max(1)
    }

    /// Column of a byte offset in characters, counted from 1.
    pub(crate) fn column(&self, offset: usize) -> usize {
        let before = self.text.get(self.line_start(self.line_number(offset))..offset).unwrap_or_default();
        // Editors do not count a byte order mark as a column.
        before.trim_start_matches('\u{feff}').chars().count() + 1
    }

    /// Returns a line for a message: truncated, control characters replaced.
    pub(crate) fn display_line(&self, line: usize) -> String {
        let source = self.text[self.line_start(line)..].lines().next().unwrap_or_default();
        let shown = |char: char| if char.is_control() && char != '\t' { '\u{fffd}' } else { char };
        source.chars().take(DISPLAY_CHARS_MAX).map(shown).collect()
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    fn line_start(&self, line: usize) -> usize {
        self.line_starts.get(line - 1).copied().unwrap_or(self.text.len())
    }
}
