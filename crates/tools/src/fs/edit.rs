//! `fs.edit`: replaces exact texts in a file, all or nothing.

use std::ops::Range;

use agent::outside::{CallSite, Entropy};
use agent::{Concurrency, ToolClass, ToolOutcome};
use schemars::JsonSchema;
use serde::Deserialize;

use super::CONTENT_BYTES_MAX;
use super::beneath_root::Content;
use super::diff::{Splice, splice, unified_diff};
use super::newlines::NewlineStyle;
use super::write::WRITE_ARGUMENT_BYTES_MAX;
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::{EditableFile, FileEdits};

pub(crate) struct Edit;

/// Replaces exact text in a file and returns a diff. Pass `old` and `new`, or several replacements as `edits`: all are
/// made, or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// The text to replace, exactly as in the file, with enough lines around it to occur once.
    old: Option<String>,
    /// The new text.
    new: Option<String>,
    /// Whether to replace all occurrences of `old`.
    #[schemars(extend("default" = false))]
    all: Option<bool>,
    /// Several replacements. Each `old` is searched in the file as it was before; they may not overlap.
    edits: Option<Vec<Replacement>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replacement {
    /// The text to replace.
    old: String,
    /// The new text.
    new: String,
    /// Whether to replace all occurrences.
    all: Option<bool>,
}

/// Maximum number of replacements in one call.
const EDITS_MAX: usize = 100;

/// Maximum number of lines that an error lists.
const LISTED_LINES_MAX: usize = 5;

impl ToolDefinition for Edit {
    type Input = Input;
    type Effects = FileEdits;
    const NAME: &'static str = "fs.edit";
    const ALIASES: &'static [&'static str] = &["edit_file"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const ARGUMENT_BYTES_MAX: usize = WRITE_ARGUMENT_BYTES_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileEdits, String> {
        check_input(input).map_err(|why| format!("Invalid input: {why}"))?;
        FileEdits::new([input.path.as_str()], site)
    }

    async fn run(input: Input, files: Vec<EditableFile>, call: Invocation) -> ToolResult {
        run_blocking(move |stop| {
            let file = files.first().ok_or_else(|| execution_failed("no file"))?;
            edit(input, file, &*call.dependencies.entropy, stop)
        })
        .await
    }
}

fn check_input(input: &Input) -> Result<(), String> {
    let is_single = input.old.is_some() || input.new.is_some();
    let edits = match (&input.edits, is_single) {
        (Some(_), true) => return Err("pass `old` and `new`, or `edits`, not both".to_owned()),
        (Some(_), _) if input.all == Some(true) => {
            return Err("field `all`: belongs in each of `edits`".to_owned());
        }
        (None, _) if input.old.is_none() || input.new.is_none() => {
            return Err("pass `old` and `new`, or `edits`".to_owned());
        }
        (edits, _) => edits.as_deref().unwrap_or_default(),
    };
    if edits.len() > EDITS_MAX {
        return Err(format!("field `edits`: more than {EDITS_MAX}"));
    }
    if input.edits.is_some() && edits.is_empty() {
        return Err("field `edits`: there is no edit".to_owned());
    }
    let single = input.old.as_deref().zip(input.new.as_deref());
    let all = edits.iter().map(|edit| (edit.old.as_str(), edit.new.as_str())).chain(single);
    for (old, new) in all {
        if old.is_empty() {
            return Err("field `old`: is empty; to create or replace a file use fs.write_file".to_owned());
        }
        if old == new {
            return Err("`old` and `new` are equal".to_owned());
        }
    }
    Ok(())
}

pub(super) fn edit(
    input: Input,
    file: &EditableFile,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> ToolResult {
    let single = input.old.zip(input.new).map(|(old, new)| Replacement { old, new, all: input.all });
    let edits: Vec<_> = input.edits.unwrap_or_default().into_iter().chain(single).collect();
    // First: locking creates missing directories.
    file.readable.open()?;
    let target = file.writable.lock()?;
    let (old, version) =
        file.readable.read_version(CONTENT_BYTES_MAX)?.ok_or_else(|| file.readable.not_found())?;
    let style = NewlineStyle::of(&old);
    let edits: Vec<_> = edits
        .into_iter()
        .map(|edit| Replacement { old: style.apply(edit.old), new: style.apply(edit.new), all: edit.all })
        .collect();
    let splices = locate_all(&old, &edits, &input.path)?;
    let growth: usize = splices.iter().map(|(_, new)| new.len()).sum();
    let bytes = old.len() - splices.iter().map(|(range, _)| range.len()).sum::<usize>() + growth;
    if bytes > CONTENT_BYTES_MAX {
        return Err(execution_failed(format!(
            "{} would be longer than {CONTENT_BYTES_MAX} bytes",
            input.path
        )));
    }
    let (new, changes) = splice(&old, &splices);
    let content = Content { text: &new, is_appended: false };
    let temporary = target.prepare(&content, entropy, stop)?;
    temporary.record()?;
    stop.check()?;
    temporary.persist_over(Some(&version))?;
    let count = splices.len();
    let plural = if count == 1 { "" } else { "s" };
    let diff = unified_diff(file.readable.requested_path(), &old, &new, &changes);
    Ok(format!("{count} replacement{plural}\n{diff}"))
}

/// The places of all edits in the text, sorted.
fn locate_all<'a>(text: &str, edits: &'a [Replacement], path: &str) -> Result<Vec<Splice<'a>>, ToolOutcome> {
    let mut places: Vec<(Range<usize>, usize)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let label = if edits.len() == 1 { String::new() } else { format!("edit {}: ", index + 1) };
        let found = locate(text, edit, path).map_err(|why| execution_failed(format!("{label}{why}")))?;
        places.extend(found.into_iter().map(|range| (range, index)));
    }
    places.sort_by_key(|(range, _)| range.start);
    for pair in places.windows(2) {
        if pair[0].0.end > pair[1].0.start {
            let (first, second) = (pair[0].1.min(pair[1].1) + 1, pair[0].1.max(pair[1].1) + 1);
            let text =
                format!("edits {first} and {second} overlap; nothing was changed: combine them to one edit");
            return Err(execution_failed(text));
        }
    }
    Ok(places.into_iter().map(|(range, index)| (range, edits[index].new.as_str())).collect())
}

fn locate(text: &str, edit: &Replacement, path: &str) -> Result<Vec<Range<usize>>, String> {
    let found: Vec<_> =
        text.match_indices(&*edit.old).map(|(start, part)| start..start + part.len()).collect();
    match found.len() {
        0 => Err(format!(
            "the text to replace is not in {path}; nothing was changed: read the file and copy the text exactly, \
             with its whitespace"
        )),
        count if count > 1 && !edit.all.unwrap_or(false) => {
            let line = |range: &Range<usize>| text[..range.start].matches('\n').count() + 1;
            let lines: Vec<_> =
                found.iter().take(LISTED_LINES_MAX).map(|range| line(range).to_string()).collect();
            let more = if count > LISTED_LINES_MAX { ", …" } else { "" };
            Err(format!(
                "the text to replace is {count} times in {path} (lines {}{more}); nothing was changed: add lines \
                 around it, or set `all`",
                lines.join(", ")
            ))
        }
        _ => Ok(found),
    }
}
