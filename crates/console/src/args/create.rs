//! Arguments of `nexus3 rpc create`.

use std::time::Duration;

use clap::Args;
use nexus3_protocol::methods::OnRestart;

use super::parse_seconds;

/// Arguments of `create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Id of the new agent [default: random]
    #[arg(value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Permission preset, e.g. sandboxed, worker, trusted
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Parent agent; limits what the new agent may do
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Working directory [default: parent's or daemon's]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Writable directory, relative to cwd (repeatable)
    #[arg(long = "write-path", value_name = "DIR")]
    pub(crate) write_paths: Vec<String>,
    /// Program the agent may run, * for all (repeatable)
    #[arg(long = "allow-command", value_name = "NAME")]
    pub(crate) allowed_commands: Vec<String>,
    /// Host the agent may connect to (repeatable)
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(crate) allowed_hosts: Vec<String>,
    /// Host the agent may not connect to (repeatable)
    #[arg(long = "deny-host", value_name = "HOST")]
    pub(crate) denied_hosts: Vec<String>,
    /// Only tool the agent may call (repeatable)
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Tool the agent may not call (repeatable)
    #[arg(long = "disable-tool", value_name = "TOOL")]
    pub(crate) disable_tools: Vec<String>,
    /// Ask before calls of this rule (repeatable)
    #[arg(long = "ask", value_name = "RULE")]
    pub(crate) ask: Vec<String>,
    /// Do not ask for calls of this rule (repeatable)
    #[arg(long = "allow", value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Deny calls of this rule (repeatable)
    #[arg(long = "deny", value_name = "RULE")]
    pub(crate) deny: Vec<String>,
    /// Model [default: the daemon's default model]
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Turn interrupted by a crash: resume or mark
    #[arg(long, value_name = "POLICY", value_parser = parse_on_restart)]
    pub(crate) on_restart: Option<OnRestart>,
    /// Create a temporary agent with the id .1, .2, …
    #[arg(long, conflicts_with = "agent_id")]
    pub(crate) temporary: bool,
    /// First message; "-" reads it from standard input
    #[arg(short = 'M', long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Cancel the turn after this time
    #[arg(short, long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

fn parse_on_restart(text: &str) -> Result<OnRestart, String> {
    match text {
        "resume" => Ok(OnRestart::Resume),
        "mark" => Ok(OnRestart::Mark),
        _ => Err("must be resume or mark".to_owned()),
    }
}
