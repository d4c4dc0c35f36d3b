//! `fs.list`: the entries of a directory.

use std::ops::ControlFlow;

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::Deserialize;

use super::beneath_root::{EntryKind, ReadableTree, WalkEntry, WalkOptions};
use super::page::{Page, skipped_note};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::TreeRead;

pub(crate) struct List;

/// Lists a directory: directories end with `/`, links with `@`, files are followed by their size in bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The directory, relative to your working directory or absolute. Default: your working directory.
    path: Option<String>,
    /// How many entries to skip, to continue a long listing.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

/// Maximum number of entries in one result.
const ENTRIES_MAX: usize = 1_000;

impl ToolDefinition for List {
    type Input = Input;
    type Effects = TreeRead;
    const NAME: &'static str = "fs.list";
    const ALIASES: &'static [&'static str] = &["list_directory"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<TreeRead, String> {
        TreeRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, tree: ReadableTree, _call: Invocation) -> ToolResult {
        run_blocking(move |stop| list(&tree, input.offset.unwrap_or(0), stop)).await
    }
}

fn list(tree: &ReadableTree, offset: usize, stop: &CancelFlag) -> ToolResult {
    let mut page = Page::new(offset, ENTRIES_MAX);
    let options = WalkOptions { depth_max: 1, include_ignored: true };
    let report = tree.walk(options, stop, &mut |entry| {
        if entry.relative.is_empty() {
            let requested = tree.requested_path();
            return Err(execution_failed(format!("{requested} is a file; read it with fs.read_file")));
        }
        page.push(|| describe(entry));
        Ok(ControlFlow::Continue(()))
    })?;
    if page.total() == 0 {
        return Ok(format!("{} is empty{}", tree.requested_path(), skipped_note(&report)));
    }
    page.into_text("entries", &report)
}

fn describe(entry: &WalkEntry<'_>) -> String {
    let name = entry.relative;
    match entry.stat.kind {
        EntryKind::Directory => format!("{name}/"),
        EntryKind::Link => format!("{name}@"),
        EntryKind::File => format!("{name} {}", entry.stat.bytes),
        other => format!("{name} ({})", other.description()),
    }
}
