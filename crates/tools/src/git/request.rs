//! Runs a request of a git tool in the helper process.

use std::time::Duration;

use git::{GitOperation, GitRequest};

use super::GIT;
use crate::commands::BuiltInCall;
use crate::definition::{Invocation, ToolResult, compact_json, execution_failed};
use crate::fs::{ReadableRepository, RepositoryDirectories};

/// The time of a call. Beyond it the helper is killed.
const TIME_MAX: Duration = Duration::from_secs(30);

const TIMEOUT_HINT: &str =
    "choose a path further down; a named pipe in the place of a file such as .gitignore has this effect too";

/// The limit of the tools: more than the helper has, so that its own text is the result.
pub(super) const TIME_MS_MAX: u64 = 45_000;

/// Finds the repository and runs the operation on it in the helper.
pub(super) async fn run(
    repository: ReadableRepository,
    operation: GitOperation,
    call: Invocation,
) -> ToolResult {
    let opened = tokio::task::spawn_blocking(move || repository.open()).await;
    let RepositoryDirectories { directories, path, blocked } =
        opened.unwrap_or_else(|_| Err(execution_failed("the repository could not be opened")))?;
    let roots: Vec<String> = directories.iter().map(|directory| directory.path.to_string()).collect();
    let request = GitRequest {
        worktree: roots.first().cloned().unwrap_or_default(),
        roots,
        path,
        blocked: blocked.iter().map(ToString::to_string).collect(),
        operation,
    };
    let input = compact_json(&request)?;
    let built_in =
        BuiltInCall { name: GIT, input, directories, blocked, timeout: TIME_MAX, timeout_hint: TIMEOUT_HINT };
    call.dependencies.commands.run_built_in(built_in).await
}
