//! `cmd.exec`: runs a program with arguments, without a shell.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{PermittedCommand, TIMEOUT_SECS_MAX, result};
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::CommandRun;

pub(crate) struct Exec;

/// Runs a program with arguments, without a shell, in a sandbox without network. Returns its exit code and output.
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
    /// The text on its standard input; empty by default.
    stdin: Option<String>,
    /// Run it outside the sandbox, with the network and all files of the user. Only if it fails otherwise: a person is asked
    /// first.
    unsandboxed: Option<bool>,
    /// The command is killed after this time: 30 by default, at most 300.
    #[schemars(extend("default" = 30))]
    timeout_secs: Option<u64>,
}

impl ToolDefinition for Exec {
    type Input = Input;
    type Effects = CommandRun;
    const NAME: &'static str = "cmd.exec";
    const ALIASES: &'static [&'static str] = &["exec"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const TIME_MS_MAX: u64 = (TIMEOUT_SECS_MAX + 15) * 1000;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<CommandRun, String> {
        let command = CommandRun::new(&input.command, &input.args, input.cwd.as_deref(), site)?;
        Ok(command.unsandboxed_if(input.unsandboxed))
    }

    async fn run(input: Input, command: PermittedCommand, call: Invocation) -> ToolResult {
        let timeout = result::timeout(input.timeout_secs);
        let runner = &call.dependencies.commands;
        let mut started = command.start(runner, input.args, input.stdin.is_some()).await?;
        if let Some(text) = input.stdin {
            started.feed(text);
        }
        result::format(&started.finish(timeout, &*call.output).await, timeout)
    }
}
