//! Parameter and result types of the daemon's methods that create, destroy and list agents.

use serde::{Deserialize, Serialize};

use super::scalars::deserialize_count;
use super::{Count, OnRestart, PageOffset, PageSize, RequestIdParam, SendOutput};

/// No parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Parameters of `create_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateAgentParams {
    /// The agent's id: 1 to 63 letters, digits, dots, underscores and hyphens, starting with a letter or digit, or
    /// with one dot for a temporary agent. Default: eight random hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Creates a temporary agent whose id is the first free one of `.1`, `.2`, …. Cannot be combined with `agent_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary: Option<bool>,
    /// System prompt. Empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Permission preset: `sandboxed` (reads in its cwd), `worker` (the same, never writes), `trusted` (reads anywhere,
    /// writes in its cwd, creates agents), or a preset of the configuration. Default: the configured preset, normally
    /// `sandboxed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The only tools the agent may call, by any of their names. Default: those of its preset. `disable_tools` takes
    /// precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools the agent may not call: `fs.read_file`, `fs_read_file` and `read_file` are the same tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// The parent agent. The new agent can never do more than its parent may grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_agent_id: Option<String>,
    /// Working directory, which must exist. A relative path starts at the parent's, or the daemon's, working directory,
    /// which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Directories the agent may write to; relative paths start at its cwd. For a sandboxed agent they must lie in its
    /// cwd; without them it cannot write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Programs the agent may run, as they are called: names such as `cargo`, or paths; `["*"]` for all. Commands run in
    /// a sandbox with the agent's directories. Default: those of its preset (`sandboxed`: none, `trusted`: all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_commands: Option<Vec<String>>,
    /// Hosts the agent may connect to: `example.com`, `*.example.com` (names below it), `*` (all public hosts), IP
    /// addresses, each also with `:port`. Addresses that are not public, and names such as `localhost`, have to be listed
    /// themselves. Default: those of its preset (built-in presets: none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts the agent may not connect to, even if `allowed_hosts` contains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_hosts: Option<Vec<String>>,
    /// Model, such as `openai/gpt-4o-mini`. Default: the daemon's default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// First message. The agent receives it before any other client can send one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_message: Option<String>,
    /// Whether to wait for the turn of the first message to end before returning. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_initial_response: Option<bool>,
    /// Presets that the agent's children may have. Default: those of its preset. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
    /// What the agent may grant to its children. Default: what it may do itself. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_grant: Option<MayGrantParams>,
    /// Approval rules: calls that are asked for, such as `fs.delete`, `run:git push`, `unsandboxed:*` or `host:*`. They add
    /// to those of the preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Vec<String>>,
    /// Approval rules: calls that are not asked for, within what the parent may grant. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Approval rules: calls that are denied, also to descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
    /// Limits on what the agent may consume over its lifetime, reserved from its parent's budget. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetParams>,
    /// Policy for a turn that a crash of the daemon interrupts: `resume` continues it, `mark` ends it as interrupted.
    /// Default: the configured policy, normally `resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<OnRestart>,
}

/// What an agent may grant to its children.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MayGrantParams {
    /// Preset to start from. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The only tools the agent may grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools the agent may not grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// Directories the agent may let children write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Programs the agent may let children run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_commands: Option<Vec<String>>,
    /// Hosts the agent may let children connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts the agent may not let children connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_hosts: Option<Vec<String>>,
    /// Presets the agent may let children create agents from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
}

/// Limits on what an agent may consume over its lifetime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetParams {
    /// Turns.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub turns: Option<Count>,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub tool_calls: Option<Count>,
    /// Tokens that models report, input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub tokens: Option<Count>,
    /// Milliseconds spent in running turns.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub wall_ms: Option<Count>,
    /// Descendants that exist at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub children: Option<Count>,
}

/// Result of `create_agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateAgentOutput {
    /// The agent's id.
    pub agent_id: String,
    /// URL path of the agent's methods.
    pub url: String,
    /// Capability token: a request with this bearer token acts as this agent. Returned only once; invalid after the
    /// agent is destroyed.
    pub token: String,
    /// Request id of the first message, for `cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_request_id: Option<RequestIdParam>,
    /// `queued`: the first message was accepted and this call did not wait for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_status: Option<String>,
    /// Outcome of the first message, when `wait_for_initial_response` was true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<InitialResponse>,
}

/// Outcome of the first message: what `send` would have returned, or its error. The agent exists in both cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum InitialResponse {
    /// The turn ended.
    Answered(SendOutput),
    /// The turn failed.
    Failed {
        /// The error.
        error: InitialError,
    },
}

/// The error of a first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitialError {
    /// JSON-RPC error code that `send` would have returned.
    pub code: i64,
    /// Error message.
    pub message: String,
}

/// Parameters of `destroy_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyAgentParams {
    /// The agent to destroy.
    pub agent_id: String,
    /// Whether its children survive, under the ceiling they had. Default: false, they are destroyed too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan: Option<bool>,
}

/// Result of `destroy_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DestroyAgentOutput {
    /// Whether the agent existed.
    pub success: bool,
    /// The agent id of the request.
    pub agent_id: String,
}

/// Parameters of `list_agents`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAgentsParams {
    /// Index of the first agent to return. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// Maximum number of agents to return, 1 to 2000. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// Result of `list_agents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListAgentsOutput {
    /// The agents of this page, oldest first.
    pub agents: Vec<AgentSummary>,
    /// Number of agents on all pages.
    #[serde(default)]
    pub total: Count,
    /// Agents of this page whose stored data is damaged; omitted if there are none. `nexus3 check` says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedAgentSummary>,
}

/// An agent that is listed only by its id, because its stored data, or that of an ancestor, is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DamagedAgentSummary {
    /// The agent's id.
    pub agent_id: String,
    /// The error that a call to the agent gets.
    pub error: String,
}

/// One agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentSummary {
    /// The agent's id.
    pub agent_id: String,
    /// Whether the agent is temporary: its id starts with a dot.
    pub is_temp: bool,
    /// Creation time: local time, ISO 8601 with microseconds.
    pub created_at: String,
    /// Number of messages in its context.
    pub message_count: Count,
    /// Whether `shutdown` was called on it.
    pub should_shutdown: bool,
    /// The agent that created it.
    pub parent_agent_id: Option<String>,
    /// Number of its children that still exist.
    pub child_count: Count,
    /// Whether its last turn stopped at the limit of tool rounds.
    pub halted_at_iteration_limit: bool,
    /// Its model.
    pub model: Option<String>,
    /// Time of its last activity: local time, ISO 8601 with microseconds.
    pub last_action_at: Option<String>,
    /// Permission level: `YOLO`, `TRUSTED` or `SANDBOXED`.
    pub permission_level: String,
    /// Its working directory.
    pub cwd: String,
    /// Directories it may write to; null means anywhere.
    pub write_paths: Option<Vec<String>>,
    /// Its preset.
    #[serde(default)]
    pub preset: String,
    /// `live`: in memory. `asleep`: only stored; the next call wakes it.
    #[serde(default)]
    pub state: String,
}

/// Result of `shutdown_server`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownServerOutput {
    /// Always true.
    pub success: bool,
    /// Text for display.
    pub message: String,
}

/// Result of `rpc.discover`: an OpenRPC document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct DiscoverOutput(pub serde_json::Value);
