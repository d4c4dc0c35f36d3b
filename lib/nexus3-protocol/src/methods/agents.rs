//! What the daemon's own methods take and answer.

use serde::{Deserialize, Serialize};

use super::Count;

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
    /// The agent's system prompt. Empty means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
}

/// What `create_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateAgentOutput {
    /// The agent's name.
    pub agent_id: String,
    /// The path its methods are called at.
    pub url: String,
}

/// What `destroy_agent` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyAgentParams {
    /// The agent to destroy.
    pub agent_id: String,
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

/// What `list_agents` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListAgentsOutput {
    /// The agents, oldest first.
    pub agents: Vec<AgentSummary>,
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
    /// What it may do, in one word.
    pub permission_level: String,
    /// Its working directory.
    pub cwd: String,
    /// Where it may write; null means that no path is set.
    pub write_paths: Option<Vec<String>>,
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
