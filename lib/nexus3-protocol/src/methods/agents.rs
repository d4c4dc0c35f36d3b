//! What the daemon's own methods take and answer.

use serde::{Deserialize, Serialize};

use super::scalars::deserialize_count;
use super::{Count, OnRestart, PageOffset, PageSize, RequestIdParam, SendOutput};

/// No parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// What `create_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateAgentParams {
    /// The agent's name: 1 to 63 letters, digits, dots, underscores and hyphens, starting with a letter or digit, or
    /// with one dot for a temporary agent. Eight hex digits are made up when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Makes up a temporary name, the lowest of `.1`, `.2`, … that is free. Not together with `agent_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary: Option<bool>,
    /// The agent's system prompt. Empty means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What the agent may do: `sandboxed` (reads in its cwd), `worker` (the same, never writes), `trusted` (reads
    /// anywhere, writes in its cwd, creates agents), or a preset of the configuration. The configured default, normally
    /// `sandboxed`, when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Tools the agent may not call: `fs.read_file`, `fs_read_file` and `read_file` are the same tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// The agent it is created under. It can never do more than this one may grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_agent_id: Option<String>,
    /// The working directory, which must exist. A relative path begins at the parent's, or the daemon's. The parent's, or
    /// the daemon's, when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Folders the agent may write to; relative paths begin at its cwd. For a sandboxed agent they lie in its cwd, and it
    /// cannot write without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// The model that answers it, such as `openai/gpt-4o-mini`; the daemon's when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A first message. It is given to the agent before anybody else can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_message: Option<String>,
    /// Whether to answer only when the first message has been worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_initial_response: Option<bool>,
    /// Presets that the agent's children may have, when that is not what its preset says. Only for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
    /// What the agent may grant to children, when that is not what it may do itself. Only for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_grant: Option<MayGrantParams>,
    /// How much the agent may use up over its life; a share of its parent's. No limit when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetParams>,
    /// What becomes of a turn that a crash of the daemon cuts off: `resume` goes on with it, `mark` ends it as
    /// interrupted. The configured default, normally `resume`, when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<OnRestart>,
}

/// What an agent may grant to children.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MayGrantParams {
    /// The preset it begins from; the agent's own when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Tools it may not grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// Folders it may let children write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Presets it may let children create from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
}

/// How much an agent may use up over its life.
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
    /// Tokens that models report, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub tokens: Option<Count>,
    /// Milliseconds of running turns.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub wall_ms: Option<Count>,
    /// Children alive at once, and theirs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub children: Option<Count>,
}

/// What `create_agent` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateAgentOutput {
    /// The agent's name.
    pub agent_id: String,
    /// The path its methods are called at.
    pub url: String,
    /// A capability token: whoever shows it as bearer *is* this agent. It is told once and dies with the agent.
    pub token: String,
    /// The name of the first message's send, for `cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_request_id: Option<RequestIdParam>,
    /// `queued`: the first message was accepted and nobody waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_status: Option<String>,
    /// What `send` would have answered to the first message, when it was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<InitialResponse>,
}

/// What came of a first message that was waited for. The agent exists either way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum InitialResponse {
    /// The answer.
    Answered(SendOutput),
    /// The turn failed.
    Failed {
        /// Why.
        error: InitialError,
    },
}

/// Why a first message failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitialError {
    /// The code that `send` would have answered with.
    pub code: i64,
    /// For people.
    pub message: String,
}

/// What `destroy_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyAgentParams {
    /// The agent to destroy.
    pub agent_id: String,
    /// Whether its children stay, under the ceiling they had. They go with it when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan: Option<bool>,
}

/// What `destroy_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DestroyAgentOutput {
    /// Whether there was such an agent.
    pub success: bool,
    /// The name that was asked for.
    pub agent_id: String,
}

/// What `list_agents` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAgentsParams {
    /// The first agent to list; 0 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// How many to list at the most, 1 to 2000; all of them when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// What `list_agents` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListAgentsOutput {
    /// The agents of this page, oldest first.
    pub agents: Vec<AgentSummary>,
    /// How many agents there are to list.
    #[serde(default)]
    pub total: Count,
}

/// One agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentSummary {
    /// The agent's name.
    pub agent_id: String,
    /// Whether its name starts with a dot.
    pub is_temp: bool,
    /// When it was created: local time, ISO 8601 with microseconds.
    pub created_at: String,
    /// Messages in its context.
    pub message_count: Count,
    /// Whether `shutdown` was called on it.
    pub should_shutdown: bool,
    /// The agent that created it.
    pub parent_agent_id: Option<String>,
    /// How many agents it has created that still exist.
    pub child_count: Count,
    /// Whether its last turn stopped at the limit of tool rounds.
    pub halted_at_iteration_limit: bool,
    /// The model that answers it.
    pub model: Option<String>,
    /// When it last did something: local time, ISO 8601 with microseconds.
    pub last_action_at: Option<String>,
    /// What it may do, in one word: `YOLO`, `TRUSTED` or `SANDBOXED`.
    pub permission_level: String,
    /// Its working directory.
    pub cwd: String,
    /// Where it may write; null means anywhere.
    pub write_paths: Option<Vec<String>>,
    /// Its preset.
    #[serde(default)]
    pub preset: String,
    /// `live`: it is in memory. `asleep`: the next call to it wakes it.
    #[serde(default)]
    pub state: String,
}

/// What `shutdown_server` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownServerOutput {
    /// Always true.
    pub success: bool,
    /// For people.
    pub message: String,
}

/// What `rpc.discover` answers: an OpenRPC document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct DiscoverOutput(pub serde_json::Value);
