//! Writes Markdown: collapses white space, indents lists and quotes, and bounds the length.

use url::Url;

/// Writes one page.
pub(super) struct Writer {
    out: String,
    base: Option<Url>,
    title: String,
    is_in_title: bool,
    /// The element whose content is skipped, and how deep it is nested in itself.
    skipped: Option<(String, usize)>,
    pending: Separator,
    /// The next number of each open list; none of a list with bullets.
    lists: Vec<Option<usize>>,
    quotes: usize,
    is_in_code_block: bool,
    /// Where the text of the open link begins, and its URL.
    link: Option<(usize, String)>,
    row: Option<Row>,
    has_header_row: bool,
}

/// White space that is written before the next text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Separator {
    None,
    Space,
    Line,
    Paragraph,
}

struct Row {
    cells: usize,
}

/// The length of the longest page. The URL of each link is written in full, so that a page can be longer than its HTML.
const MARKDOWN_BYTES_MAX: usize = 4 << 20;

const TITLE_BYTES_MAX: usize = 300;

/// Deeper nesting is not indented further.
const NESTING_MAX: usize = 12;

const CELLS_MAX: usize = 64;

impl Writer {
    pub(super) fn new(base: Option<Url>) -> Self {
        Self {
            out: String::new(),
            base,
            title: String::new(),
            is_in_title: false,
            skipped: None,
            pending: Separator::None,
            lists: Vec::new(),
            quotes: 0,
            is_in_code_block: false,
            link: None,
            row: None,
            has_header_row: false,
        }
    }

    /// Whether nothing more is written.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() > MARKDOWN_BYTES_MAX
    }

    /// The title and the page.
    pub(super) fn finish(mut self) -> (String, String) {
        self.end_code_block();
        self.end_link();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        self.out.truncate(self.out.floor_char_boundary(MARKDOWN_BYTES_MAX));
        (title, self.out.trim().to_owned())
    }

    pub(super) fn is_skipping(&self) -> bool {
        self.skipped.is_some()
    }

    pub(super) fn begin_skipping(&mut self, name: &str, is_closed: bool) {
        match &mut self.skipped {
            None if !is_closed => self.skipped = Some((name.to_owned(), 1)),
            Some((skipped, depth)) if skipped == name && !is_closed => *depth += 1,
            _ => {}
        }
    }

    pub(super) fn end_skipping(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped
            && skipped == name
        {
            *depth -= 1;
            if *depth == 0 {
                self.skipped = None;
            }
        }
    }

    pub(super) fn begin_title(&mut self) {
        self.is_in_title = self.title.is_empty();
    }

    pub(super) fn end_title(&mut self) {
        self.is_in_title = false;
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.is_skipping() || self.is_full() {
            return;
        }
        if self.is_in_title {
            let room = TITLE_BYTES_MAX.saturating_sub(self.title.len());
            self.title.push_str(&text[..text.floor_char_boundary(room)]);
        } else if self.is_in_code_block {
            self.code_text(text);
        } else {
            self.flowing_text(text);
        }
    }

    fn flowing_text(&mut self, text: &str) {
        for (index, word) in text.split(|char: char| char.is_whitespace()).enumerate() {
            if index > 0 {
                self.separate(Separator::Space);
            }
            if !word.is_empty() {
                self.write_pending();
                self.out.push_str(word);
            }
        }
    }

    fn code_text(&mut self, text: &str) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.out.push('\n');
                self.write_prefix();
            }
            self.out.push_str(line);
        }
    }

    fn separate(&mut self, separator: Separator) {
        if !self.is_in_code_block {
            self.pending = self.pending.max(separator);
        }
    }

    pub(super) fn break_line(&mut self) {
        self.separate(if self.row.is_some() { Separator::Space } else { Separator::Line });
    }

    pub(super) fn break_paragraph(&mut self) {
        self.separate(if self.row.is_some() { Separator::Space } else { Separator::Paragraph });
    }

    /// Writes the white space before a text. Items of a list are lines.
    fn write_pending(&mut self) {
        let pending = std::mem::replace(&mut self.pending, Separator::None);
        if self.out.is_empty() {
            return self.write_prefix();
        }
        match pending {
            Separator::None => {}
            Separator::Space => self.out.push(' '),
            Separator::Line => self.begin_line(),
            Separator::Paragraph => {
                self.out.push('\n');
                self.out.push_str("> ".repeat(self.quotes.min(NESTING_MAX)).trim_end());
                self.begin_line();
            }
        }
    }

    fn begin_line(&mut self) {
        self.out.push('\n');
        self.write_prefix();
    }

    fn write_prefix(&mut self) {
        self.out.push_str(&"> ".repeat(self.quotes.min(NESTING_MAX)));
        self.out.push_str(&"  ".repeat(self.lists.len().min(NESTING_MAX)));
    }

    pub(super) fn heading(&mut self, level: usize) {
        self.break_paragraph();
        self.write_pending();
        self.out.push_str(&"#".repeat(level));
        self.out.push(' ');
    }

    pub(super) fn rule(&mut self) {
        self.break_paragraph();
        self.write_pending();
        self.out.push_str("---");
        self.break_paragraph();
    }

    pub(super) fn begin_list(&mut self, number: Option<usize>) {
        if self.lists.is_empty() {
            self.break_paragraph();
        }
        // Deeper lists are counted, so that each end tag ends its own.
        self.lists.push(number);
    }

    pub(super) fn end_list(&mut self) {
        self.lists.pop();
        if self.lists.is_empty() {
            self.break_paragraph();
        } else {
            self.break_line();
        }
    }

    pub(super) fn item(&mut self) {
        self.separate(Separator::Line);
        let number = self.lists.pop().unwrap_or_default();
        self.write_pending();
        match number {
            None => self.out.push_str("- "),
            Some(number) => self.out.push_str(&format!("{number}. ")),
        }
        self.lists.push(number.map(|number| number.saturating_add(1)));
    }

    pub(super) fn begin_quote(&mut self) {
        self.break_paragraph();
        self.quotes += 1;
    }

    pub(super) fn end_quote(&mut self) {
        self.quotes = self.quotes.saturating_sub(1);
        self.break_paragraph();
    }

    pub(super) fn begin_code_block(&mut self) {
        if self.is_in_code_block {
            return;
        }
        self.row = None;
        self.break_paragraph();
        self.write_pending();
        self.out.push_str("```");
        self.begin_line();
        self.is_in_code_block = true;
    }

    pub(super) fn end_code_block(&mut self) {
        if std::mem::take(&mut self.is_in_code_block) {
            if !self.out.ends_with('\n') {
                self.begin_line();
            }
            self.out.push_str("```");
            self.break_paragraph();
        }
    }

    pub(super) fn code(&mut self) {
        if !self.is_in_code_block {
            self.write_pending();
            self.out.push('`');
        }
    }

    pub(super) fn begin_emphasis(&mut self, mark: &str) {
        if !self.is_in_code_block {
            self.write_pending();
            self.out.push_str(mark);
        }
    }

    /// Ends an emphasis. The mark goes before white space; an empty emphasis is removed.
    pub(super) fn end_emphasis(&mut self, mark: &str) {
        if self.is_in_code_block {
        } else if self.out.ends_with(mark) {
            self.out.truncate(self.out.len() - mark.len());
        } else {
            self.out.push_str(mark);
        }
    }

    pub(super) fn begin_link(&mut self, href: &str) {
        self.end_link();
        let Some(url) = self.resolve(href).filter(|_| !self.is_in_code_block) else { return };
        self.write_pending();
        self.out.push('[');
        self.link = Some((self.out.len(), url));
    }

    pub(super) fn end_link(&mut self) {
        let Some((start, url)) = self.link.take() else { return };
        if self.out.len() == start {
            self.out.truncate(start - 1);
        } else {
            self.out.push_str("](");
            self.out.push_str(&url);
            self.out.push(')');
        }
    }

    pub(super) fn image(&mut self, alt: &str, src: &str) {
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if alt.is_empty() || self.is_in_code_block || self.is_full() {
            return;
        }
        self.write_pending();
        match self.resolve(src) {
            Some(url) => self.out.push_str(&format!("![{alt}]({url})")),
            None => self.out.push_str(&alt),
        }
    }

    /// The complete URL of a link; none if it is not one of a web page.
    fn resolve(&self, href: &str) -> Option<String> {
        let url = match &self.base {
            Some(base) => base.join(href.trim()).ok()?,
            None => Url::parse(href.trim()).ok()?,
        };
        let is_page = ["http", "https", "mailto"].contains(&url.scheme());
        (is_page && !href.trim().is_empty() && !href.trim().starts_with('#')).then(|| url.into())
    }

    pub(super) fn begin_row(&mut self) {
        self.end_row();
        self.separate(Separator::Line);
        if self.pending == Separator::Paragraph {
            self.has_header_row = false;
        }
        self.row = Some(Row { cells: 0 });
    }

    pub(super) fn cell(&mut self) {
        let Some(row) = &mut self.row else { return self.separate(Separator::Space) };
        row.cells += 1;
        if row.cells == 1 {
            self.write_pending();
            self.out.push('|');
        } else {
            self.out.push_str(" |");
        }
        self.pending = Separator::Space;
    }

    pub(super) fn end_row(&mut self) {
        let Some(row) = self.row.take().filter(|row| row.cells > 0) else { return };
        self.out.push_str(" |");
        self.pending = Separator::Line;
        if !std::mem::replace(&mut self.has_header_row, true) {
            self.begin_line();
            self.out.push('|');
            self.out.push_str(&"---|".repeat(row.cells.min(CELLS_MAX)));
        }
    }
}
