//! `git.blame`: the commit that each line of a file comes from.

use agent::ToolClass;
use agent::outside::CallSite;
use git::GitOperation;
use schemars::JsonSchema;
use serde::Deserialize;

use super::request;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::RepositoryRead;
use crate::fs::ReadableRepository;

pub(crate) struct Blame;

/// Shows for each line of a file the commit that it comes from, with author and date, like `git blame`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// The first line. Default: 1.
    start_line: Option<u32>,
    /// The last line. Default: the end; at most 500 lines are shown.
    end_line: Option<u32>,
    /// The revision of the file. Default: as it is in the working tree.
    rev: Option<String>,
}

impl ToolDefinition for Blame {
    type Input = Input;
    type Effects = RepositoryRead;
    const NAME: &'static str = "git.blame";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = request::TIME_MS_MAX;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<RepositoryRead, String> {
        RepositoryRead::new(Some(&input.path), site)
    }

    async fn run(input: Input, repository: ReadableRepository, call: Invocation) -> ToolResult {
        let Input { start_line, end_line, rev, .. } = input;
        let operation = GitOperation::Blame { rev, start_line, end_line };
        request::run(repository, operation, call).await
    }
}
