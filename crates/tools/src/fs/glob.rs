//! `fs.glob`: finds files by the pattern of their path.

use std::ops::ControlFlow;

use agent::ToolClass;
use agent::outside::CallSite;
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::{EntryKind, ReadableTree, WalkOptions};
use super::page::{Page, skipped_note};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::TreeRead;

pub(crate) struct Glob;

/// Finds files and directories by a glob pattern, sorted by path. Files that .gitignore excludes are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The pattern, relative to `path`: `*.rs` in the directory itself, `**/*.rs` at any depth, `{a,b}` for alternatives.
    pattern: String,
    /// The directory to search, relative to your working directory or absolute. Default: your working directory.
    path: Option<String>,
    /// Whether to include files that .gitignore excludes, and .git.
    #[schemars(extend("default" = false))]
    include_ignored: Option<bool>,
    /// How many results to skip, to continue a long list.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

/// Maximum number of paths in one result.
const PATHS_MAX: usize = 1_000;

/// Maximum length of a pattern.
pub(super) const PATTERN_BYTES_MAX: usize = 1_024;

impl ToolDefinition for Glob {
    type Input = Input;
    type Effects = TreeRead;
    const NAME: &'static str = "fs.glob";
    const ALIASES: &'static [&'static str] = &["glob"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<TreeRead, String> {
        compile_glob("pattern", &input.pattern)?;
        TreeRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, tree: ReadableTree, _call: Invocation) -> ToolResult {
        run_blocking(move |stop| find(&input, &tree, stop)).await
    }
}

fn find(input: &Input, tree: &ReadableTree, stop: &CancelFlag) -> ToolResult {
    let glob = compile_glob("pattern", &input.pattern).map_err(agent::ToolOutcome::Failed)?;
    let mut page = Page::new(input.offset.unwrap_or(0), PATHS_MAX);
    let options =
        WalkOptions { depth_max: usize::MAX, include_ignored: input.include_ignored.unwrap_or(false) };
    let report = tree.walk(options, stop, &mut |entry| {
        if glob.is_match(entry.relative) {
            let suffix = if entry.stat.kind == EntryKind::Directory { "/" } else { "" };
            page.push(|| format!("{}{suffix}", tree.display_path(entry.relative)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if page.total() == 0 {
        return Ok(format!("no file matches {}{}", input.pattern, skipped_note(&report)));
    }
    page.into_text("paths", &report)
}

/// Compiles the glob in a field of the arguments. The error is the complete message for the model.
pub(super) fn compile_glob(field: &str, pattern: &str) -> Result<GlobMatcher, String> {
    let invalid = |why: &str| format!("Invalid input: field `{field}`: {why}");
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(&format!("longer than {PATTERN_BYTES_MAX} bytes")));
    }
    if pattern.is_empty() || pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(invalid("the pattern is relative to `path`; pass the directory as `path`"));
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|fault| invalid(&fault.kind().to_string()))
}
