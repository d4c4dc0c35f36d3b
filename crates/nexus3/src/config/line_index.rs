//! Byte offsets of a text as people count: lines and columns.

/// A source line in a message is cut here.
const DISPLAY_CHARS_MAX: usize = 100;

/// A text with the starts of its lines, so that a file full of mistakes is still told about at once.
pub(crate) struct LineIndex<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { text, line_starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// The line of a byte, from 1.
    pub(crate) fn line_number(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).max(1)
    }

    /// The column of a byte, from 1, in characters.
    pub(crate) fn column(&self, offset: usize) -> usize {
        let before = self.text.get(self.line_start(self.line_number(offset))..offset).unwrap_or_default();
        // A byte order mark is no character that anyone sees.
        before.trim_start_matches('\u{feff}').chars().count() + 1
    }

    /// A line as a message can show it.
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
