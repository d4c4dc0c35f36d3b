//! A part of a long result: the lines from an offset on, with a note on how to read on. And paths and lines as git
//! writes them.

use gix::bstr::{BStr, ByteSlice};

/// Maximum number of lines in one result.
const LINES_MAX: usize = 2_000;

/// Maximum length of one result.
pub(crate) const TEXT_BYTES_MAX: usize = 256 << 10;

/// Maximum length of a line.
const LINE_CHARS_MAX: usize = 2_000;

/// Maximum number of lines that are counted.
const COUNTED_LINES_MAX: usize = 1_000_000;

/// Collects the lines of a page and counts all.
pub(crate) struct Page {
    offset: usize,
    text: String,
    shown: usize,
    total: usize,
}

impl Page {
    pub(crate) fn new(offset: usize) -> Self {
        Self { offset, text: String::new(), shown: 0, total: 0 }
    }

    /// Adds a line without its newline, if it is on the page.
    pub(crate) fn push(&mut self, line: &str) {
        self.push_bytes(line.as_bytes());
    }

    /// The same with bytes; those that are not UTF-8 are replaced.
    pub(crate) fn push_bytes(&mut self, line: &[u8]) {
        self.total += 1;
        let is_full = self.shown == LINES_MAX || self.text.len() > TEXT_BYTES_MAX;
        if self.total > self.offset && !is_full {
            self.text.push_str(&display_line(line));
            self.text.push('\n');
            self.shown += 1;
        }
    }

    /// Adds the lines of a text.
    pub(crate) fn push_lines(&mut self, text: &str) {
        text.lines().for_each(|line| self.push(line));
    }

    /// Whether no further line is needed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.total > COUNTED_LINES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The lines, and how to read on.
    pub(crate) fn into_text(mut self) -> Result<String, String> {
        let more = if self.is_exhausted() { "more than " } else { "" };
        if self.shown == 0 && self.total > 0 {
            return Err(format!(
                "offset {} is beyond the end: there are {more}{} lines",
                self.offset, self.total
            ));
        }
        let end = self.offset + self.shown;
        if end < self.total {
            let (first, total) = (self.offset + 1, self.total);
            let note = format!("[lines {first} to {end} of {more}{total}; continue with offset {end}]\n");
            self.text.push_str(&note);
        }
        self.text.pop();
        Ok(self.text)
    }
}

/// A line as text, of bounded length.
pub(crate) fn display_line(line: &[u8]) -> String {
    let text = line[..line.len().min(LINE_CHARS_MAX * 4)].to_str_lossy();
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((cut, _)) => format!("{}… [{} bytes]", &text[..cut], line.len()),
        None => text.into_owned(),
    }
}

/// A path as git writes it with `core.quotePath=false`: quoted if it has control characters, quotes or backslashes.
pub(crate) fn quote(path: &BStr) -> String {
    let text = path.to_str_lossy();
    if !text.contains(|character: char| character.is_control() || matches!(character, '"' | '\\')) {
        return text.into_owned();
    }
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            control if control.is_control() => quoted.push_str(&format!("\\{:03o}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A path as `quote`, in the status: quoted also if it has a space.
pub(crate) fn quote_spaces(path: &BStr) -> String {
    let quoted = quote(path);
    if quoted.contains(' ') && !quoted.starts_with('"') { format!("\"{quoted}\"") } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_says_how_to_read_on_and_ends_without_a_note() {
        let page = |offset| {
            let mut page = Page::new(offset);
            (1..=LINES_MAX + 3).for_each(|line| page.push(&line.to_string()));
            page.into_text()
        };
        let first = page(0).unwrap();
        assert!(first.ends_with("\n2000\n[lines 1 to 2000 of 2003; continue with offset 2000]"), "{first}");
        assert_eq!(page(2000).unwrap(), "2001\n2002\n2003");
        assert_eq!(page(2003).unwrap_err(), "offset 2003 is beyond the end: there are 2003 lines");
        assert_eq!(Page::new(5).into_text().unwrap(), "");
    }

    #[test]
    fn special_characters_in_paths_are_quoted() {
        for (path, expected) in
            [("a b", "a b"), ("ü", "ü"), ("a\"b", r#""a\"b""#), ("a\nb\u{1}", r#""a\nb\001""#)]
        {
            assert_eq!(quote(path.into()), expected);
        }
        assert_eq!(quote_spaces("a b".into()), "\"a b\"");
    }

    #[test]
    fn long_line_is_cut() {
        let line = display_line("ä".repeat(5_000).as_bytes());
        assert!(line.ends_with("ä… [10000 bytes]") && line.chars().count() < 2_020, "{line}");
    }
}
