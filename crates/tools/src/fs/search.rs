//! `fs.search`: searches the lines of files with a regular expression, with the search engine of ripgrep. The walk opens
//! and reads the files.

use std::io;
use std::ops::ControlFlow;

use agent::outside::CallSite;
use agent::{ToolClass, ToolOutcome};
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::{EntryKind, ReadableTree, WalkEntry, WalkOptions, is_binary};
use super::glob::compile_glob;
use super::page::{Page, skipped_note};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed, invalid_input};
use crate::effects::TreeRead;

pub(crate) struct Search;

/// Searches the lines of text files with a regular expression. Returns `path:line: text`. Files that .gitignore excludes
/// and binary files are left out. Look-around and backreferences are not supported.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The regular expression. It is matched against single lines.
    pattern: String,
    /// The file or directory to search, relative to your working directory or absolute. Default: your working directory.
    path: Option<String>,
    /// Only search files that match this glob: `*.rs` at any depth, `src/**` relative to `path`.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[schemars(extend("default" = false))]
    ignore_case: Option<bool>,
    /// Whether to include files that .gitignore excludes, and .git.
    #[schemars(extend("default" = false))]
    include_ignored: Option<bool>,
    /// How many matching lines to skip, to continue a long result.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

/// Maximum number of matching lines in one result.
const LINES_MAX: usize = 200;

/// Maximum length of a line in the result.
const LINE_CHARS_MAX: usize = 400;

/// Maximum size of a file; longer ones are not searched.
const FILE_BYTES_MAX: u64 = 10 << 20;

/// Maximum number of bytes that one call reads.
const TOTAL_BYTES_MAX: usize = 512 << 20;

/// Maximum length of a pattern: a few characters can expand to a large table before the compiled size is checked.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// Maximum size of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Maximum length of the text that is searched at once, in whole lines; of a longer line only so much is searched. The
/// search can be cancelled before and after it, and takes at most a minute with these limits.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Maximum number of further matching lines that are counted behind the last one of the result.
const FURTHER_LINES_MAX: usize = 10_000;

impl ToolDefinition for Search {
    type Input = Input;
    type Effects = TreeRead;
    const NAME: &'static str = "fs.search";
    const ALIASES: &'static [&'static str] = &["search_text"];
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = 60_000;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<TreeRead, String> {
        input.glob.as_deref().map(compile_filter).transpose()?;
        TreeRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, tree: ReadableTree, _call: Invocation) -> ToolResult {
        run_blocking(move |stop| search(&input, &tree, stop)).await
    }
}

fn search(input: &Input, tree: &ReadableTree, stop: &CancelFlag) -> ToolResult {
    let filter = input.glob.as_deref().map(compile_filter).transpose().map_err(ToolOutcome::Failed)?;
    let mut searcher = FileSearcher {
        matcher: compile(&input.pattern, input.ignore_case.unwrap_or(false))?,
        searcher: SearcherBuilder::new().line_terminator(LineTerminator::crlf()).bom_sniffing(false).build(),
        page: Page::new(input.offset.unwrap_or(0), LINES_MAX),
        tree,
        bytes_left: TOTAL_BYTES_MAX,
        files: 0,
        binary: 0,
        closed: 0,
        is_exhausted: false,
    };
    let options =
        WalkOptions { depth_max: usize::MAX, include_ignored: input.include_ignored.unwrap_or(false) };
    let report = tree.walk(options, stop, &mut |entry| {
        let is_chosen = filter.as_ref().is_none_or(|filter| filter.is_match(entry.relative));
        if entry.stat.kind != EntryKind::File || !(is_chosen || entry.relative.is_empty()) {
            return Ok(ControlFlow::Continue(()));
        }
        searcher.search_file(entry, stop)
    })?;
    let notes = format!("{}{}", searcher.notes(), skipped_note(&report));
    if searcher.page.total() == 0 {
        return Ok(format!("no line matches in {} files{notes}", searcher.files));
    }
    let text = searcher.page.into_text("matching lines", &Default::default())?;
    Ok(format!("{text}{notes}"))
}

/// A filter without a slash applies to file names at any depth.
fn compile_filter(glob: &str) -> Result<GlobMatcher, String> {
    let pattern = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    compile_glob("glob", &pattern)
}

fn compile(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ToolOutcome> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid_input(format!("field `pattern`: longer than {PATTERN_BYTES_MAX} bytes")));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(ignore_case).multi_line(true).crlf(true).size_limit(COMPILED_BYTES_MAX);
    builder.build(pattern).map_err(|fault| match fault.kind() {
        grep_regex::ErrorKind::NotAllowed(_) => {
            invalid_input("field `pattern`: it has a line break, but lines are searched one by one")
        }
        grep_regex::ErrorKind::Regex(text) if text.starts_with("compiled regex exceeds") => {
            invalid_input("field `pattern`: too large; (?-u:\\w) is smaller than \\w")
        }
        _ => invalid_input(format!("field `pattern`: {}", crate::regex::error_summary(&fault))),
    })
}

struct FileSearcher<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    page: Page,
    tree: &'a ReadableTree,
    bytes_left: usize,
    files: usize,
    binary: usize,
    /// Files that are too long or cannot be read.
    closed: usize,
    /// Whether a limit ended the search.
    is_exhausted: bool,
}

impl FileSearcher<'_> {
    fn search_file(
        &mut self,
        entry: &WalkEntry<'_>,
        stop: &CancelFlag,
    ) -> Result<ControlFlow<()>, ToolOutcome> {
        let Some(bytes) = entry.read(FILE_BYTES_MAX) else {
            self.closed += 1;
            return Ok(ControlFlow::Continue(()));
        };
        if is_binary(&bytes) {
            self.binary += 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.files += 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        self.search_text(&self.tree.display_path(entry.relative), &bytes, stop)?;
        self.is_exhausted = self.bytes_left == 0 || is_counted(&self.page);
        Ok(if self.is_exhausted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Searches the text in chunks of whole lines.
    fn search_text(&mut self, path: &str, text: &[u8], stop: &CancelFlag) -> Result<(), ToolOutcome> {
        let (mut rest, mut lines_before) = (text, 0);
        while !rest.is_empty() && !is_counted(&self.page) {
            stop.check()?;
            let (chunk, after) = rest.split_at(chunk_length(rest));
            let searched = &chunk[..chunk.len().min(CHUNK_BYTES_MAX)];
            let mut lines = MatchingLines { page: &mut self.page, path, lines_before, chunk, stop };
            let outcome = self.searcher.search_slice(&self.matcher, searched, &mut lines);
            outcome.map_err(execution_failed)?;
            lines_before += count_lines(chunk);
            rest = after;
        }
        stop.check()
    }

    /// What was not searched.
    fn notes(&self) -> String {
        let mut notes = String::new();
        if self.binary > 0 {
            notes.push_str(&format!("\n[{} binary files were not searched]", self.binary));
        }
        if self.closed > 0 {
            notes.push_str(&format!(
                "\n[{} files were not searched: longer than {FILE_BYTES_MAX} bytes, or closed]",
                self.closed
            ));
        }
        if self.is_exhausted {
            notes.push_str(
                "\n[the search ended early: choose a directory further down, a glob or a longer pattern]",
            );
        }
        notes
    }
}

/// Whether enough further lines were counted behind the last one of the result.
fn is_counted(page: &Page) -> bool {
    page.is_full() && page.total() > LINES_MAX + FURTHER_LINES_MAX
}

/// The length of the next chunk: as many whole lines as fit, or one line that is longer.
fn chunk_length(text: &[u8]) -> usize {
    if text.len() <= CHUNK_BYTES_MAX {
        return text.len();
    }
    let (head, tail) = text.split_at(CHUNK_BYTES_MAX);
    let is_newline = |byte: &u8| *byte == b'\n';
    let end_of_long_line = || tail.iter().position(is_newline).map(|position| CHUNK_BYTES_MAX + position + 1);
    head.iter()
        .rposition(is_newline)
        .map(|position| position + 1)
        .or_else(end_of_long_line)
        .unwrap_or(text.len())
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// Takes the matching lines of a chunk.
struct MatchingLines<'a> {
    page: &'a mut Page,
    path: &'a str,
    /// The number of lines before the chunk.
    lines_before: u64,
    chunk: &'a [u8],
    stop: &'a CancelFlag,
}

impl Sink for MatchingLines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, matched: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let number = self.lines_before + matched.line_number().unwrap_or_default();
        let is_cut = self.chunk.len() > CHUNK_BYTES_MAX;
        let line = if is_cut { self.chunk } else { matched.bytes() };
        self.page.push(|| format!("{}:{number}: {}", self.path, display_line(line)));
        Ok(!is_counted(self.page) && self.stop.check().is_ok())
    }
}

fn display_line(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(&line[..line.len().min(LINE_CHARS_MAX * 4)]);
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((cut, _)) => format!("{}… [{} bytes]", &text[..cut], line.len()),
        None => text.into_owned(),
    }
}
