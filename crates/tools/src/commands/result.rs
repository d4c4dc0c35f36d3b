//! The result of a command for models: its exit code and output as JSON.

use std::time::Duration;

use agent::ToolOutcome;
use sandbox::CommandExit;
use serde::Serialize;

use super::runner::FinishedCommand;
use super::{TIMEOUT_SECS_DEFAULT, TIMEOUT_SECS_MAX};
use crate::definition::{ToolResult, compact_json, execution_failed};

/// The exit code of a command that a signal killed.
const KILLED_EXIT_CODE: i32 = -1;

/// In alphabetical order: clients of the original parse the text.
#[derive(Serialize)]
struct Output<'a> {
    exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    stderr: &'a str,
    stdout: &'a str,
    success: bool,
}

/// The timeout of a call in seconds, within its bounds.
pub(super) fn timeout(requested: Option<u64>) -> Duration {
    Duration::from_secs(requested.unwrap_or(TIMEOUT_SECS_DEFAULT).clamp(1, TIMEOUT_SECS_MAX))
}

/// Formats the result. A command that fails is a failed call with the same text.
pub(super) fn format(finished: &FinishedCommand, timeout: Duration) -> ToolResult {
    let (exit_code, signal) = exit_code(finished, timeout)?;
    let (stdout, stderr) = (finished.stdout.as_str(), finished.stderr.as_str());
    let text = compact_json(&Output { exit_code, signal, stderr, stdout, success: exit_code == 0 })?;
    if exit_code == 0 { Ok(text) } else { Err(ToolOutcome::Failed(text)) }
}

/// The exit code of a command, and the signal that killed it; an error if it did not end by itself.
pub(super) fn exit_code(
    finished: &FinishedCommand,
    timeout: Duration,
) -> Result<(i32, Option<i32>), ToolOutcome> {
    match &finished.exit {
        Some(CommandExit::Exited(code)) => Ok((*code, None)),
        Some(CommandExit::Killed(signal)) => Ok((KILLED_EXIT_CODE, Some(*signal))),
        Some(CommandExit::NotStarted(why) | CommandExit::Stopped(why)) => Err(execution_failed(why)),
        Some(CommandExit::HelperLost) => {
            Err(execution_failed("the command was lost: its supervisor was killed"))
        }
        None => Err(timed_out(finished, timeout)),
    }
}

fn timed_out(finished: &FinishedCommand, timeout: Duration) -> ToolOutcome {
    let mut text = format!("Timeout after {} seconds", timeout.as_secs());
    for (stream, output) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
        if !output.is_empty() {
            text.push_str(&format!("\n{stream} until then:\n{output}"));
        }
    }
    ToolOutcome::Failed(text)
}
