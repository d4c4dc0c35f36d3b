//! `git.diff`: changes between commits, index and working tree.

use agent::ToolClass;
use agent::outside::CallSite;
use git::GitOperation;
use schemars::JsonSchema;
use serde::Deserialize;

use super::request;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::RepositoryRead;
use crate::fs::ReadableRepository;

pub(crate) struct Diff;

/// Shows changes as a patch, like `git diff`: of the working tree against the index; with `staged` of the index against
/// the last commit; with `from` of the working tree against a commit; with `from` and `to` between two commits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Only this file or directory, relative to your working directory or absolute. Default: the whole repository.
    path: Option<String>,
    /// The revision to compare from: a branch, tag, commit id, `HEAD~2`.
    from: Option<String>,
    /// The revision to compare to. Default: the working tree.
    to: Option<String>,
    /// Whether to compare the index instead of the working tree.
    #[schemars(extend("default" = false))]
    staged: Option<bool>,
    /// How many lines to skip, to continue a long result.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

impl ToolDefinition for Diff {
    type Input = Input;
    type Effects = RepositoryRead;
    const NAME: &'static str = "git.diff";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = request::TIME_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<RepositoryRead, String> {
        RepositoryRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, repository: ReadableRepository, call: Invocation) -> ToolResult {
        let operation = GitOperation::Diff {
            from: input.from,
            to: input.to,
            staged: input.staged.unwrap_or(false),
            offset: input.offset.unwrap_or(0),
        };
        request::run(repository, operation, call).await
    }
}
