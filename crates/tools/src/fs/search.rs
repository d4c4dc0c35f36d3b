//! `fs.search`: searches the lines of files with a regular expression.

use std::ops::ControlFlow;

use agent::outside::CallSite;
use agent::{ToolClass, ToolOutcome};
use globset::GlobMatcher;
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::{EntryKind, ReadableTree, WalkEntry, WalkOptions, is_binary};
use super::glob::compile_glob;
use super::page::{Page, skipped_note};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, invalid_input};
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

/// Maximum length of the part of a line that is searched: the search of one line cannot be cancelled, and takes at most
/// a minute with these limits.
const LINE_BYTES_MAX: usize = 256 << 10;

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
    let mut searcher = LineSearcher {
        regex: compile(&input.pattern, input.ignore_case.unwrap_or(false))?,
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

fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, ToolOutcome> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid_input(format!("field `pattern`: longer than {PATTERN_BYTES_MAX} bytes")));
    }
    let regex =
        RegexBuilder::new(pattern).case_insensitive(ignore_case).size_limit(COMPILED_BYTES_MAX).build();
    regex.map_err(|fault| match fault {
        regex::Error::CompiledTooBig(_) => {
            invalid_input("field `pattern`: too large; (?-u:\\w) is smaller than \\w")
        }
        fault => invalid_input(format!("field `pattern`: {}", crate::regex::error_summary(&fault))),
    })
}

struct LineSearcher<'a> {
    regex: Regex,
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

impl LineSearcher<'_> {
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
        let path = self.tree.display_path(entry.relative);
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            stop.check()?;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if self.regex.is_match(&line[..line.len().min(LINE_BYTES_MAX)]) {
                self.page.push(|| format!("{path}:{}: {}", index + 1, display_line(line)));
            }
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        let is_counted = self.page.is_full() && self.page.total() > LINES_MAX + FURTHER_LINES_MAX;
        self.is_exhausted = self.bytes_left == 0 || is_counted;
        Ok(if self.is_exhausted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
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

fn display_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(LINE_CHARS_MAX * 4)]);
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((cut, _)) => format!("{}… [{} bytes]", &text[..cut], line.len()),
        None => text.into_owned(),
    }
}
