//! Runs built-ins of the sandbox helper: functions of our own that read directories and can do nothing else.

use std::sync::Arc;
use std::time::Duration;

use agent::ToolOutcome;
use agent::outside::{ToolOutputSink, ToolOutputStream};
use agent::permission::FilePath;
use sandbox::{BuiltInLaunch, CommandExit, GrantedDirectory, ResourceLimits};

use super::{CommandRunner, StartedCommand, hidden_paths};
use crate::definition::{ToolResult, execution_failed};
use crate::fs::DirectoryHandle;

/// The limits of a built-in: it writes nothing. The allocator reserves the first half of the memory at once. The kernel
/// counts all processes of the user, so that their number is that of commands.
const LIMITS: ResourceLimits = ResourceLimits {
    file_bytes_max: 0,
    memory_bytes_max: 2 << 30,
    open_files_max: 1_024,
    processes_max: 4_096,
};

/// A built-in to run.
pub(crate) struct BuiltInCall {
    pub(crate) name: &'static str,
    /// Its input.
    pub(crate) input: String,
    /// The directories that it may read.
    pub(crate) directories: Vec<DirectoryHandle>,
    /// Files and directories that it shall not see.
    pub(crate) blocked: Vec<FilePath>,
    pub(crate) timeout: Duration,
    /// What may have taken long, and what to do.
    pub(crate) timeout_hint: &'static str,
}

impl CommandRunner {
    /// Runs a built-in; its result is a text.
    pub(crate) async fn run_built_in(self: &Arc<Self>, call: BuiltInCall) -> ToolResult {
        let launcher = self.launcher().await?;
        let runtime = tokio::runtime::Handle::current();
        let BuiltInCall { name, input, directories, blocked, timeout, timeout_hint } = call;
        let started = tokio::task::spawn_blocking(move || {
            let _runtime = runtime.enter();
            let granted = |directory: DirectoryHandle| GrantedDirectory {
                path: directory.path.to_string(),
                handle: Arc::new(directory.handle),
                is_writable: false,
            };
            let roots: Vec<GrantedDirectory> = directories.into_iter().map(granted).collect();
            let hidden = hidden_paths(&blocked, &roots, launcher.tier())?;
            let launch = BuiltInLaunch { name: name.to_owned(), roots, hidden, limits: LIMITS };
            launcher.start_built_in(launch).map_err(execution_failed)
        });
        let running = started
            .await
            .unwrap_or_else(|_| Err(execution_failed(format!("{name} could not be started"))))?;
        let mut started = StartedCommand { running, _temporary: None };
        started.feed(input);
        let finished = started.finish(timeout, &NoSink).await;
        match finished.exit {
            Some(CommandExit::Exited(0)) => Ok(finished.stdout),
            Some(CommandExit::Exited(1)) => Err(execution_failed(finished.stderr)),
            Some(CommandExit::NotStarted(why) | CommandExit::Stopped(why)) => Err(execution_failed(why)),
            Some(exit) => Err(execution_failed(format!(
                "{name} ended without a result ({exit:?}): it needed more than 2 GiB of memory, or has a bug"
            ))),
            None => {
                let seconds = timeout.as_secs();
                Err(ToolOutcome::Failed(format!("Timeout after {seconds} seconds: {timeout_hint}")))
            }
        }
    }
}

/// A built-in shows no output while it runs.
struct NoSink;

impl ToolOutputSink for NoSink {
    fn push(&self, _stream: ToolOutputStream, _bytes: &[u8]) {}
}
