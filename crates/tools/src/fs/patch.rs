//! `fs.patch`: applies a unified diff to one or several files, all or nothing.

mod apply;
mod parse;

use agent::outside::{CallSite, Entropy};
use agent::{Concurrency, ToolClass, ToolOutcome};
use schemars::JsonSchema;
use serde::Deserialize;

use self::parse::{FilePatch, PatchKind};
use super::CONTENT_BYTES_MAX;
use super::beneath_root::{
    Content, FileVersion, LockedTarget, PublishedChange, TemporaryFile, WritableFile, record_all,
};
use super::diff::unified_diff;
use super::write::WRITE_ARGUMENT_BYTES_MAX;
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed, failure_reason};
use crate::effects::{EditableFile, FileEdits};

pub(crate) struct Patch;

/// Applies a unified diff to one or several files and returns the diff as it was applied. Line numbers may be off.
/// `/dev/null` as the old or new name creates or deletes a file. All files are changed, or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The unified diff. Paths are relative to your working directory; the prefixes `a/` and `b/` are removed.
    patch: String,
    /// The file, if the diff has no `---` and `+++` lines.
    path: Option<String>,
    /// Whether to check the patch without changing files.
    #[schemars(extend("default" = false))]
    dry_run: Option<bool>,
}

/// Maximum number of files in one patch.
const FILES_MAX: usize = 50;

impl ToolDefinition for Patch {
    type Input = Input;
    type Effects = FileEdits;
    const NAME: &'static str = "fs.patch";
    const ALIASES: &'static [&'static str] = &["patch"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const ARGUMENT_BYTES_MAX: usize = WRITE_ARGUMENT_BYTES_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileEdits, String> {
        let files = parse_input(input)?;
        FileEdits::new(files.iter().map(|file| file.path.as_str()), site)
    }

    async fn run(input: Input, files: Vec<EditableFile>, call: Invocation) -> ToolResult {
        run_blocking(move |stop| patch(&input, &files, &*call.dependencies.entropy, stop)).await
    }
}

/// Applies the patch to its files, which are in its order.
pub(super) fn patch(
    input: &Input,
    files: &[EditableFile],
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> ToolResult {
    let patches = parse_input(input).map_err(ToolOutcome::Failed)?;
    // First without locks: locking creates missing directories.
    let plans = plan_all(&patches, files)?;
    if input.dry_run.unwrap_or(false) {
        return Ok(format!("dry run: the patch applies; no file was changed\n{}", diffs(&plans)));
    }
    drop(plans);
    let targets = WritableFile::lock_all(files.iter().map(|file| &file.writable))?;
    let plans = plan_all(&patches, files)?;
    write_all(&plans, &targets, entropy, stop)?;
    Ok(format!("{} files changed\n{}", plans.len(), diffs(&plans)))
}

fn parse_input(input: &Input) -> Result<Vec<FilePatch>, String> {
    let files = parse::parse(&input.patch, input.path.as_deref())
        .map_err(|why| format!("Invalid input: field `patch`: {why}"))?;
    if files.len() > FILES_MAX {
        return Err(format!("Invalid input: field `patch`: more than {FILES_MAX} files"));
    }
    Ok(files)
}

/// The change of one file.
struct Plan {
    old: Option<(String, FileVersion)>,
    /// None to delete it.
    new: Option<String>,
    diff: String,
}

impl Plan {
    /// The version of the file that was read; none if there is no file.
    fn version(&self) -> Option<&FileVersion> {
        self.old.as_ref().map(|(_, version)| version)
    }
}

fn plan_all(patches: &[FilePatch], files: &[EditableFile]) -> Result<Vec<Plan>, ToolOutcome> {
    patches.iter().zip(files).map(|(patch, file)| plan(patch, file)).collect()
}

fn plan(patch: &FilePatch, file: &EditableFile) -> Result<Plan, ToolOutcome> {
    let path = &patch.path;
    let failed = |why: &str| execution_failed(format!("{path}: {why}; no file was changed"));
    let old = file.readable.read_version(CONTENT_BYTES_MAX)?;
    match (patch.kind, &old) {
        (PatchKind::Create, Some(_)) => return Err(failed("exists already")),
        (PatchKind::Change | PatchKind::Delete, None) => return Err(file.readable.not_found()),
        _ => {}
    }
    let text = old.as_ref().map_or("", |(text, _)| text.as_str());
    let (new, changes) = apply::apply(text, &patch.hunks).map_err(|why| failed(&why))?;
    if new.len() > CONTENT_BYTES_MAX {
        return Err(failed(&format!("would be longer than {CONTENT_BYTES_MAX} bytes")));
    }
    if patch.kind == PatchKind::Delete && !new.is_empty() {
        return Err(failed("the patch deletes the file, but does not remove all of its lines"));
    }
    let diff = unified_diff(path, text, &new, &changes);
    Ok(Plan { old, new: (patch.kind != PatchKind::Delete).then_some(new), diff })
}

/// Prepares all new files, then renames them. If that fails, the files before it are put back.
fn write_all(
    plans: &[Plan],
    targets: &[LockedTarget<'_>],
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let mut prepared = Vec::new();
    for (plan, target) in plans.iter().zip(targets) {
        let content = plan.new.as_deref().map(|text| Content { text, is_appended: false });
        let temporary = content.map(|content| target.prepare(&content, entropy, stop)).transpose()?;
        target.check_version(plan.version())?;
        prepared.push(temporary);
    }
    record_all(targets, &prepared)?;
    stop.check()?;
    let mut changes = Vec::new();
    match publish_all(plans, targets, prepared, &mut changes, entropy) {
        Ok(()) => {
            changes.into_iter().for_each(PublishedChange::complete);
            Ok(())
        }
        Err(outcome) => {
            let undone: Vec<bool> = changes.into_iter().rev().map(PublishedChange::undo).collect();
            if undone.contains(&false) {
                let why = failure_reason(&outcome);
                return Err(execution_failed(format!("{why}; a part of the patch was applied")));
            }
            Err(outcome)
        }
    }
}

/// Renames and removes files, and collects the changes.
fn publish_all<'a>(
    plans: &[Plan],
    targets: &'a [LockedTarget<'a>],
    prepared: Vec<Option<TemporaryFile<'a>>>,
    changes: &mut Vec<PublishedChange<'a>>,
    entropy: &dyn Entropy,
) -> Result<(), ToolOutcome> {
    for ((plan, target), temporary) in plans.iter().zip(targets).zip(prepared) {
        changes.push(match temporary {
            Some(temporary) => temporary.publish(plan.version(), entropy)?,
            None => target.remove_version(plan.version(), entropy)?,
        });
    }
    changes.iter().try_for_each(PublishedChange::sync)
}

fn diffs(plans: &[Plan]) -> String {
    plans.iter().map(|plan| plan.diff.as_str()).collect::<Vec<_>>().join("\n")
}
