//! `process.start`: starts a program in the background.

use agent::outside::CallSite;
use agent::permission::CommandEffect;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::background::CommandLine;
use crate::commands::PermittedCommand;
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::CommandRun;

pub(crate) struct Start;

/// Starts a program in the background, without a shell, in a sandbox without network. Returns its id for `process.read`,
/// `process.write` and `process.stop`. It runs on after this turn, until it ends, is stopped or the daemon stops.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The program: a name such as `cargo`, or a path.
    command: String,
    /// Its arguments.
    #[serde(default)]
    #[schemars(extend("default" = []))]
    args: Vec<String>,
    /// The directory to run in; your working directory by default.
    cwd: Option<String>,
}

/// Length of a command line in lists.
const SUMMARY_CHARS_MAX: usize = 200;

impl ToolDefinition for Start {
    type Input = Input;
    type Effects = CommandRun;
    const NAME: &'static str = "process.start";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<CommandRun, String> {
        CommandRun::new(&input.command, &input.args, input.cwd.as_deref(), site)
    }

    async fn run(input: Input, command: PermittedCommand, call: Invocation) -> ToolResult {
        let runner = &call.dependencies.commands;
        let words = std::iter::once(&input.command).chain(&input.args).map(String::as_str);
        let summary = words.collect::<Vec<_>>().join(" ").chars().take(SUMMARY_CHARS_MAX).collect();
        let command_effect = CommandEffect::sandboxed(input.command, input.args.clone(), command.cwd());
        let line = CommandLine { command: command_effect, summary };
        let entry = runner.processes().reserve(call.agent, line, &*call.dependencies.entropy)?;
        let started = command.start(runner, input.args, true).await?;
        Ok(json!({ "id": entry.start(started), "state": "running" }).to_string())
    }
}
