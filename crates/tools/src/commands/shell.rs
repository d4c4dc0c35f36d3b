//! `shell.exec`: runs a line in a shell.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{PermittedCommand, TIMEOUT_SECS_MAX, result};
use crate::definition::{Invocation, ToolDefinition, ToolResult};
use crate::effects::CommandRun;

pub(crate) struct Shell;

/// Runs a command line in a shell (sh), in a sandbox without network. Returns its exit code and output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The command line, with pipes, redirections and variables.
    command: String,
    /// The directory to run in; your working directory by default.
    cwd: Option<String>,
    /// Run it outside the sandbox, with the network and all files of the user. Only if it fails otherwise: a person is asked
    /// first.
    unsandboxed: Option<bool>,
    /// The command is killed after this time: 30 by default, at most 300.
    #[schemars(extend("default" = 30))]
    timeout_secs: Option<u64>,
}

/// The shell, and the name by which it has to be allowed.
const SHELL: &str = "sh";

impl Input {
    fn arguments(&self) -> Vec<String> {
        vec!["-c".to_owned(), self.command.clone()]
    }
}

impl ToolDefinition for Shell {
    type Input = Input;
    type Effects = CommandRun;
    const NAME: &'static str = "shell.exec";
    const ALIASES: &'static [&'static str] = &["shell"];
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const TIME_MS_MAX: u64 = (TIMEOUT_SECS_MAX + 15) * 1000;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<CommandRun, String> {
        let command = CommandRun::new(SHELL, &input.arguments(), input.cwd.as_deref(), site)?;
        Ok(command.unsandboxed_if(input.unsandboxed))
    }

    async fn run(input: Input, command: PermittedCommand, call: Invocation) -> ToolResult {
        let timeout = result::timeout(input.timeout_secs);
        let arguments = input.arguments();
        let started = command.start(&call.dependencies.commands, arguments, false).await?;
        result::format(&started.finish(timeout, &*call.output).await, timeout)
    }
}
