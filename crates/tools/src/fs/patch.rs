//! `fs.patch`: applies a unified diff to one or several files, all or nothing.

mod apply;
mod parse;

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass, ToolOutcome};
use schemars::JsonSchema;
use serde::Deserialize;

use self::parse::{FilePatch, PatchKind};
use super::CONTENT_BYTES_MAX;
use super::beneath_root::{Content, FileVersion, LockedTarget, WritableFile};
use super::diff::unified_diff;
use super::write::WRITE_ARGUMENT_BYTES_MAX;
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
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
        run_blocking(move |stop| {
            let patches = parse_input(&input).map_err(ToolOutcome::Failed)?;
            // First without locks: locking creates missing directories.
            let plans = plan_all(&patches, &files)?;
            if input.dry_run.unwrap_or(false) {
                return Ok(format!("dry run: the patch applies; no file was changed\n{}", diffs(&plans)));
            }
            drop(plans);
            let targets = WritableFile::lock_all(files.iter().map(|file| &file.writable))?;
            let plans = plan_all(&patches, &files)?;
            write_all(&plans, &targets, &call, stop)?;
            Ok(format!("{} files changed\n{}", plans.len(), diffs(&plans)))
        })
        .await
    }
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

/// Prepares all new files, then renames them. If a rename fails, the files before it get their old content again.
fn write_all(
    plans: &[Plan],
    targets: &[LockedTarget<'_>],
    call: &Invocation,
    stop: &CancelFlag,
) -> Result<(), ToolOutcome> {
    let entropy = &*call.dependencies.entropy;
    let mut prepared = Vec::new();
    for (plan, target) in plans.iter().zip(targets) {
        let content = plan.new.as_deref().map(|text| Content { text, is_appended: false });
        let temporary = content.map(|content| target.prepare(&content, entropy, stop)).transpose()?;
        target.check_version(plan.old.as_ref().map(|(_, version)| version))?;
        prepared.push(temporary);
    }
    stop.check()?;
    for (index, temporary) in prepared.into_iter().enumerate() {
        let version = plans[index].old.as_ref().map(|(_, version)| version);
        let written = match temporary {
            Some(temporary) => temporary.persist_over(version),
            None => targets[index].remove_version(version),
        };
        if let Err(outcome) = written {
            for (plan, target) in plans[..index].iter().zip(targets) {
                let restored = match &plan.old {
                    Some((text, _)) => {
                        target.replace(&Content { text, is_appended: false }, entropy, &CancelFlag::new())
                    }
                    None => target.remove_current(),
                };
                restored.map_err(|_| {
                    execution_failed(format!("{}; a part of the patch was applied", outcome.text()))
                })?;
            }
            return Err(outcome);
        }
    }
    Ok(())
}

fn diffs(plans: &[Plan]) -> String {
    plans.iter().map(|plan| plan.diff.as_str()).collect::<Vec<_>>().join("\n")
}
