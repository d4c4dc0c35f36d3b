//! Parser of `config.toml`: TOML text to validated values, every problem with its line and column. Does no I/O.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::line_index::LineIndex;
use super::named_tables::{self, NamedTable, TableKind};
use super::presets::{self, PresetLayer};
use super::settings::{SETTINGS, TABLES, setting_index};
use super::suggest;
use super::value_kind::{SettingValue, describe_type, quote};

/// The TOML parser's message for a key or table that occurs twice.
const DUPLICATE: &str = "duplicate key";

/// The parsed file: its settings and tables, and its problems in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct FileLayer {
    pub(crate) entries: Vec<FileEntry>,
    pub(crate) presets: PresetLayer,
    pub(crate) named_tables: Vec<NamedTable>,
    pub(crate) problems: Vec<String>,
}

/// One setting in the file.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Index into `SETTINGS`.
    pub(crate) setting_index: usize,
    pub(crate) value: SettingValue,
    pub(crate) line: usize,
}

/// Parses the text of a `config.toml`; `~` in a path stands for `user_home`.
pub(crate) fn parse(text: &str, user_home: Option<&str>) -> FileLayer {
    let (document, faults) = DeTable::parse_recoverable(text);
    let mut reader = FileReader {
        lines: LineIndex::new(text),
        user_home,
        entries: Vec::new(),
        presets: PresetLayer::default(),
        named_tables: Vec::new(),
        problems: Vec::new(),
    };
    let mut reported_lines = BTreeSet::new();
    for fault in &faults {
        // One mistake often causes several syntax errors in the same line.
        let line = reader.lines.line_number(fault.span().unwrap_or_default().start);
        if reported_lines.insert(line) {
            reader.report_syntax_error(fault, line);
        }
    }
    let unreliable = UnreliableLines::from_reader(&reader);
    reader.read_document(document.get_ref());
    reader.finish(&unreliable)
}

/// Lines that the parser recovered by guessing. Semantic problems there are suppressed: they would only confuse.
struct UnreliableLines {
    lines: BTreeSet<usize>,
    /// Line of the first broken table header: from there on, the table of a key is unknown. `usize::MAX` without one.
    from_broken_header: usize,
}

impl UnreliableLines {
    fn from_reader(reader: &FileReader<'_>) -> Self {
        let is_header = |line: &usize| reader.lines.display_line(*line).trim_start().starts_with('[');
        let syntax_errors = reader.problems.iter().filter(|problem| problem.kind == ProblemKind::Syntax);
        let lines: BTreeSet<usize> = syntax_errors.map(|problem| problem.line).collect();
        let from_header = lines.iter().copied().filter(is_header).min().unwrap_or(usize::MAX);
        Self { lines, from_broken_header: from_header }
    }

    fn covers(&self, line: usize) -> bool {
        line >= self.from_broken_header || self.lines.contains(&line)
    }
}

struct FileReader<'t> {
    lines: LineIndex<'t>,
    user_home: Option<&'t str>,
    entries: Vec<FileEntry>,
    presets: PresetLayer,
    named_tables: Vec<NamedTable>,
    problems: Vec<Problem>,
}

struct Problem {
    offset: usize,
    line: usize,
    text: String,
    kind: ProblemKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProblemKind {
    /// Invalid TOML.
    Syntax,
    /// A key or table that occurs twice; the rest of the line is reliable.
    Duplicate,
    /// Valid TOML with an unknown key or an invalid value.
    Semantic,
}

pub(crate) type Key<'i> = Spanned<DeString<'i>>;

impl FileReader<'_> {
    fn report_syntax_error(&mut self, fault: &toml::de::Error, line: usize) {
        let span = fault.span().unwrap_or_default();
        let message = simplify_message(fault.message(), self.lines.text(), &span);
        let source = self.lines.display_line(line);
        let kind = if fault.message() == DUPLICATE { ProblemKind::Duplicate } else { ProblemKind::Syntax };
        self.add_problem(kind, span.start, &format!("{message}\n    {line} | {source}"));
    }

    fn read_document(&mut self, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            let is_presets = name == presets::PRESETS_TABLE;
            let kind = TableKind::from_table_name(name);
            let is_table = is_presets || kind.is_some() || TABLES.iter().any(|(known, _)| *known == name);
            match value.get_ref().as_table() {
                Some(inner) if is_presets => self.read_presets(inner),
                Some(inner) if is_table => match kind {
                    Some(kind) => self.read_named_tables(kind, inner),
                    None => self.read_table(name, inner),
                },
                None if is_table => self.report_not_a_table(key, value),
                Some(_) | None => self.read_entry("", key, value),
            }
        }
    }

    fn read_table(&mut self, table: &str, inner: &DeTable<'_>) {
        for (key, value) in inner.iter() {
            self.read_entry(table, key, value);
        }
    }

    fn read_presets(&mut self, table: &DeTable<'_>) {
        self.presets = presets::parse(table, &self.lines, self.user_home);
        for (offset, text) in std::mem::take(&mut self.presets.problems) {
            self.report(offset, &text);
        }
    }

    fn read_named_tables(&mut self, kind: TableKind, table: &DeTable<'_>) {
        let layer = named_tables::parse(kind, table, &self.lines, self.user_home);
        self.named_tables.extend(layer.tables);
        for (offset, text) in layer.problems {
            self.report(offset, &text);
        }
    }

    fn report_not_a_table(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let got = describe_type(value.get_ref());
        self.report(value_start(key, value), &format!("{} must be a table, got {got}", key.get_ref()));
    }

    fn read_entry(&mut self, table: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        let Some(setting) = setting_index(&path) else {
            return self.report_unknown_key(table, key, value);
        };
        match SETTINGS[setting].kind.parse_toml(value.get_ref()) {
            Ok(value) => {
                let line = self.lines.line_number(key.span().start);
                self.entries.push(FileEntry { setting_index: setting, value, line });
            }
            Err(invalid_values) => {
                let expected = SETTINGS[setting].kind.expected();
                for invalid in invalid_values {
                    let start = invalid.span.map_or_else(|| value_start(key, value), |span| span.start);
                    self.report(start, &format!("{path} must be {expected}, got {}", invalid.got));
                }
            }
        }
    }

    fn report_unknown_key(&mut self, table: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        let text = if value.get_ref().is_table() {
            format!("unknown table {}{}", single_quoted(&path), suggest::for_table(name))
        } else {
            format!("unknown key {}{}", single_quoted(&path), suggest::for_key(table, name))
        };
        self.report(key.span().start, &text);
    }

    fn report(&mut self, offset: usize, text: &str) {
        self.add_problem(ProblemKind::Semantic, offset, text);
    }

    fn add_problem(&mut self, kind: ProblemKind, offset: usize, text: &str) {
        let (line, column) = (self.lines.line_number(offset), self.lines.column(offset));
        let text = format!("config.toml:{line}:{column}: {text}");
        self.problems.push(Problem { offset, line, text, kind });
    }

    fn finish(mut self, unreliable: &UnreliableLines) -> FileLayer {
        self.problems
            .retain(|problem| problem.kind != ProblemKind::Semantic || !unreliable.covers(problem.line));
        self.problems.sort_by_key(|problem| problem.offset);
        let problems = self.problems.into_iter().map(|problem| problem.text).collect();
        FileLayer { entries: self.entries, presets: self.presets, named_tables: self.named_tables, problems }
    }
}

/// Replaces messages of the TOML parser that describe its internals.
fn simplify_message(message: &str, text: &str, span: &Range<usize>) -> String {
    let rest_of_line =
        text.get(span.start..).unwrap_or_default().lines().next().unwrap_or_default().trim_start();
    if message == DUPLICATE {
        let name = text.get(span.clone()).unwrap_or_default();
        format!("duplicate key {}", single_quoted(name))
    } else if !message.starts_with("string values") && !message.ends_with("expected nothing") {
        message.to_owned()
    } else if rest_of_line.is_empty() || rest_of_line.starts_with('#') {
        "a value is missing".to_owned()
    } else {
        "not a TOML value; put text in quotes".to_owned()
    }
}

/// Byte offset to report for a value; for a table, the offset of its header.
pub(crate) fn value_start(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> usize {
    if value.get_ref().is_table() { key.span().start } else { value.span().start }
}

/// Formats a name for a message: escaped, truncated, in single quotes.
pub(crate) fn single_quoted(name: &str) -> String {
    let quoted = quote(name);
    let inner = quoted.trim_start_matches('"').trim_end_matches('…').trim_end_matches('"');
    format!("'{inner}'")
}
