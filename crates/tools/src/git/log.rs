//! `git.log`: the history of a git repository, or of a path in it.

use agent::ToolClass;
use agent::outside::CallSite;
use git::GitOperation;
use schemars::JsonSchema;
use serde::Deserialize;

use super::request;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::RepositoryRead;
use crate::fs::ReadableRepository;

pub(crate) struct Log;

/// Shows commits, newest first, like `git log`: of the whole repository, or those that changed a path.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Only commits that changed this file or directory, relative to your working directory or absolute.
    path: Option<String>,
    /// The revision to begin with: a branch, tag or commit id.
    #[schemars(extend("default" = "HEAD"))]
    rev: Option<String>,
    /// How many commits to show, at most 200.
    #[schemars(extend("default" = 20))]
    count: Option<usize>,
    /// How many commits to skip, to continue a long history.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

/// Commits in a result by default.
const COUNT_DEFAULT: usize = 20;

impl ToolDefinition for Log {
    type Input = Input;
    type Effects = RepositoryRead;
    const NAME: &'static str = "git.log";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = request::TIME_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<RepositoryRead, String> {
        RepositoryRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, repository: ReadableRepository, call: Invocation) -> ToolResult {
        let count = input.count.unwrap_or(COUNT_DEFAULT);
        let operation = GitOperation::Log { rev: input.rev, count, offset: input.offset.unwrap_or(0) };
        request::run(repository, operation, call).await
    }
}
