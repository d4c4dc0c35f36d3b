//! `git.status`: the branch and the changed files of a git repository.

use agent::ToolClass;
use agent::outside::CallSite;
use git::GitOperation;
use schemars::JsonSchema;
use serde::Deserialize;

use super::request;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::RepositoryRead;
use crate::fs::ReadableRepository;

pub(crate) struct Status;

/// Shows the branch and the changed and untracked files of a git repository, like `git status --short --branch`. Changes
/// in submodules are not shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Only this file or directory, relative to your working directory or absolute. Default: the whole repository.
    path: Option<String>,
    /// How many lines to skip, to continue a long result.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

impl ToolDefinition for Status {
    type Input = Input;
    type Effects = RepositoryRead;
    const NAME: &'static str = "git.status";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = request::TIME_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<RepositoryRead, String> {
        RepositoryRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, repository: ReadableRepository, call: Invocation) -> ToolResult {
        let operation = GitOperation::Status { offset: input.offset.unwrap_or(0) };
        request::run(repository, operation, call).await
    }
}
