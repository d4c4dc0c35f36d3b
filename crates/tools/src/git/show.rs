//! `git.show`: a commit with its changes, or a file as it was in a commit.

use agent::ToolClass;
use agent::outside::CallSite;
use git::GitOperation;
use schemars::JsonSchema;
use serde::Deserialize;

use super::request;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::RepositoryRead;
use crate::fs::ReadableRepository;

pub(crate) struct Show;

/// Shows a commit with its message and changes, like `git show REV`; with `path` the content of a file, or the names in a
/// directory, as they were in the commit, like `git show REV:PATH`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The revision: a branch, tag, commit id, `HEAD~2`.
    rev: String,
    /// The file or directory to show, relative to your working directory or absolute.
    path: Option<String>,
    /// How many lines to skip, to continue a long result.
    #[schemars(extend("default" = 0))]
    offset: Option<usize>,
}

impl ToolDefinition for Show {
    type Input = Input;
    type Effects = RepositoryRead;
    const NAME: &'static str = "git.show";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = request::TIME_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<RepositoryRead, String> {
        RepositoryRead::new(input.path.as_deref(), site)
    }

    async fn run(input: Input, repository: ReadableRepository, call: Invocation) -> ToolResult {
        let operation = GitOperation::Show { rev: input.rev, offset: input.offset.unwrap_or(0) };
        request::run(repository, operation, call).await
    }
}
