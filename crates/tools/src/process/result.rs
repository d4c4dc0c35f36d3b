//! The state of a background process for models, as JSON.

use sandbox::CommandExit;
use serde::Serialize;

use super::background::Progress;
use crate::definition::{ToolResult, compact_json};

/// How far a process is. In alphabetical order, as the results of other commands.
#[derive(Serialize)]
pub(super) struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    state: &'static str,
}

#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    status: Status,
    stderr: String,
    stdout: String,
}

impl Status {
    pub(super) fn of(exit: Option<&CommandExit>) -> Self {
        let status = |state| Self { error: None, exit_code: None, signal: None, state };
        match exit {
            None => status("running"),
            Some(CommandExit::Exited(code)) => Self { exit_code: Some(*code), ..status("exited") },
            Some(CommandExit::Killed(signal)) => Self { signal: Some(*signal), ..status("killed") },
            Some(CommandExit::NotStarted(why) | CommandExit::Stopped(why)) => {
                Self { error: Some(why.clone()), ..status("failed") }
            }
            Some(CommandExit::HelperLost) => {
                Self { error: Some("its supervisor was killed".to_owned()), ..status("failed") }
            }
        }
    }
}

/// Formats new output and state.
pub(super) fn format(progress: Progress) -> ToolResult {
    let Progress { stdout, stderr, exit } = progress;
    compact_json(&Output { status: Status::of(exit.as_ref()), stderr, stdout })
}
