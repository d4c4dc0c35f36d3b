//! The file layer: TOML text to checked values, every problem with its line and column. Reads no file itself.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::kind::{Value, describe, quote};
use super::lines::Lines;
use super::named::{self, NamedTable, Spec};
use super::presets::{self, PresetLayer};
use super::settings::{SETTINGS, TABLES, position};
use super::suggest;

/// The parser's word for a key or table that stands there twice.
const DUPLICATE: &str = "duplicate key";

/// What a file says: the settings it has, and everything that is wrong with it in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct FileLayer {
    pub(crate) entries: Vec<FileEntry>,
    pub(crate) presets: PresetLayer,
    pub(crate) named: Vec<NamedTable>,
    pub(crate) problems: Vec<String>,
}

/// One setting of the file.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Its place in the list of settings.
    pub(crate) setting: usize,
    pub(crate) value: Value,
    pub(crate) line: usize,
}

/// Reads the text of a `config.toml`; `~` in a path stands for `user_home`.
pub(crate) fn read(text: &str, user_home: Option<&str>) -> FileLayer {
    let (document, faults) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        lines: Lines::new(text),
        user_home,
        entries: Vec::new(),
        presets: PresetLayer::default(),
        named: Vec::new(),
        problems: Vec::new(),
    };
    let mut told = BTreeSet::new();
    for fault in &faults {
        // One mistake often breaks the parser's stride several times in the same line.
        let line = reader.lines.line(fault.span().unwrap_or_default().start);
        if told.insert(line) {
            reader.syntax(fault, line);
        }
    }
    let broken = Broken::of(&reader);
    reader.top(document.get_ref());
    reader.finish(&broken)
}

/// The parts of the text of which the parser could only guess the meaning: a second complaint there would confuse.
struct Broken {
    lines: BTreeSet<usize>,
    /// Past a broken table header, nobody knows which table a key is in.
    from_header: usize,
}

impl Broken {
    fn of(reader: &Reader<'_>) -> Self {
        let is_header = |line: &usize| reader.lines.shown(*line).trim_start().starts_with('[');
        let guessed = reader.problems.iter().filter(|problem| problem.kind == ProblemKind::Syntax);
        let lines: BTreeSet<usize> = guessed.map(|problem| problem.line).collect();
        let from_header = lines.iter().copied().filter(is_header).min().unwrap_or(usize::MAX);
        Self { lines, from_header }
    }

    fn covers(&self, line: usize) -> bool {
        line >= self.from_header || self.lines.contains(&line)
    }
}

struct Reader<'t> {
    lines: Lines<'t>,
    user_home: Option<&'t str>,
    entries: Vec<FileEntry>,
    presets: PresetLayer,
    named: Vec<NamedTable>,
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
    /// The parser lost its way.
    Syntax,
    /// Said twice; the text around it is understood.
    Duplicate,
    /// Good TOML that is no configuration.
    Meaning,
}

pub(crate) type Key<'i> = Spanned<DeString<'i>>;

impl Reader<'_> {
    fn syntax(&mut self, fault: &toml::de::Error, line: usize) {
        let span = fault.span().unwrap_or_default();
        let message = plain(fault.message(), self.lines.text(), &span);
        let source = self.lines.shown(line);
        let kind = if fault.message() == DUPLICATE { ProblemKind::Duplicate } else { ProblemKind::Syntax };
        self.add(kind, span.start, &format!("{message}\n    {line} | {source}"));
    }

    fn top(&mut self, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            let is_presets = name == presets::TABLE;
            let named = Spec::of(name);
            let is_table = is_presets || named.is_some() || TABLES.iter().any(|(known, _)| *known == name);
            match value.get_ref().as_table() {
                Some(inner) if is_presets => self.presets(inner),
                Some(inner) if is_table => match named {
                    Some(spec) => self.named(spec, inner),
                    None => self.table(name, inner),
                },
                None if is_table => self.not_a_table(key, value),
                Some(_) | None => self.entry("", key, value),
            }
        }
    }

    fn table(&mut self, table: &str, inner: &DeTable<'_>) {
        for (key, value) in inner.iter() {
            self.entry(table, key, value);
        }
    }

    fn presets(&mut self, table: &DeTable<'_>) {
        self.presets = presets::read(table, &self.lines, self.user_home);
        for (offset, text) in std::mem::take(&mut self.presets.problems) {
            self.note(offset, &text);
        }
    }

    fn named(&mut self, spec: Spec, table: &DeTable<'_>) {
        let layer = named::read(spec, table, &self.lines, self.user_home);
        self.named.extend(layer.tables);
        for (offset, text) in layer.problems {
            self.note(offset, &text);
        }
    }

    fn not_a_table(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let got = describe(value.get_ref());
        self.note(value_start(key, value), &format!("{} must be a table, got {got}", key.get_ref()));
    }

    fn entry(&mut self, table: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        let Some(setting) = position(&path) else {
            return self.unknown(table, key, value);
        };
        match SETTINGS[setting].kind.read_toml(value.get_ref()) {
            Ok(value) => {
                let line = self.lines.line(key.span().start);
                self.entries.push(FileEntry { setting, value, line });
            }
            Err(refusals) => {
                let must_be = SETTINGS[setting].kind.must_be();
                for refusal in refusals {
                    let start = refusal.span.map_or_else(|| value_start(key, value), |span| span.start);
                    self.note(start, &format!("{path} must be {must_be}, got {}", refusal.got));
                }
            }
        }
    }

    fn unknown(&mut self, table: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        let text = if value.get_ref().is_table() {
            format!("unknown table {}{}", single_quoted(&path), suggest::for_table(name))
        } else {
            format!("unknown key {}{}", single_quoted(&path), suggest::for_key(table, name))
        };
        self.note(key.span().start, &text);
    }

    fn note(&mut self, offset: usize, text: &str) {
        self.add(ProblemKind::Meaning, offset, text);
    }

    fn add(&mut self, kind: ProblemKind, offset: usize, text: &str) {
        let (line, column) = (self.lines.line(offset), self.lines.column(offset));
        let text = format!("config.toml:{line}:{column}: {text}");
        self.problems.push(Problem { offset, line, text, kind });
    }

    fn finish(mut self, broken: &Broken) -> FileLayer {
        self.problems.retain(|problem| problem.kind != ProblemKind::Meaning || !broken.covers(problem.line));
        self.problems.sort_by_key(|problem| problem.offset);
        let problems = self.problems.into_iter().map(|problem| problem.text).collect();
        FileLayer { entries: self.entries, presets: self.presets, named: self.named, problems }
    }
}

/// The parser's words, made plainer where they speak of its insides.
fn plain(message: &str, text: &str, span: &Range<usize>) -> String {
    let rest = text.get(span.start..).unwrap_or_default().lines().next().unwrap_or_default().trim_start();
    if message == DUPLICATE {
        let name = text.get(span.clone()).unwrap_or_default();
        format!("duplicate key {}", single_quoted(name))
    } else if !message.starts_with("string values") && !message.ends_with("expected nothing") {
        message.to_owned()
    } else if rest.is_empty() || rest.starts_with('#') {
        "a value is missing".to_owned()
    } else {
        "not a TOML value; a text needs quotes".to_owned()
    }
}

/// Where to point for a value; a table has no place of its own but its header's.
pub(crate) fn value_start(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> usize {
    if value.get_ref().is_table() { key.span().start } else { value.span().start }
}

/// A name as messages show it, escaped and cut, in single quotes.
pub(crate) fn single_quoted(name: &str) -> String {
    let quoted = quote(name);
    let inner = quoted.trim_start_matches('"').trim_end_matches('…').trim_end_matches('"');
    format!("'{inner}'")
}
