//! What the methods about one agent's place and permissions take and answer.

use serde::{Deserialize, Serialize};

use super::{AgentSummary, BudgetParams, Count, MayGrantParams};

/// What `get_agent` answers: one agent in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentOutput {
    /// The agent as `list_agents` shows it.
    pub agent: AgentSummary,
    /// How far it is from the top of its tree, from 0 to 5.
    pub depth: Count,
    /// Its ancestors, nearest first. One that was destroyed stays a ceiling.
    pub ancestors: Vec<String>,
    /// Its children, oldest first.
    pub children: Vec<String>,
    /// The tools its model is shown, by name.
    pub tools: Vec<String>,
    /// Whether a turn is running.
    pub working: bool,
    /// Turns that wait.
    pub queued: Count,
    /// Why its last turn stopped before its end: `iteration_limit` or `budget`.
    pub halted: Option<String>,
    /// What it has used up.
    pub budget: Vec<ResourceUsageView>,
}

/// What `list_children` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChildrenOutput {
    /// The agent.
    pub agent_id: String,
    /// Its children, oldest first.
    pub children: Vec<AgentSummary>,
}

/// What `set_permissions` takes. What is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPermissionsParams {
    /// Another preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The tools it may not call, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// The folders it may write to, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// The presets its children may have, all of them. Only for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
    /// What it may grant to children. Only for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_grant: Option<MayGrantParams>,
    /// Other limits, over the agent's whole life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetParams>,
    /// Limits to lift: `turns`, `tool_calls`, `tokens`, `wall_ms`, `children`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlimited: Option<Vec<String>>,
}

/// What `get_permissions` and `set_permissions` answer: what counts now, below the ceiling of all ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsOutput {
    /// The agent.
    pub agent_id: String,
    /// Its preset.
    pub preset: String,
    /// What it may do, in one word.
    pub permission_level: String,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<String>,
    /// What it may do.
    pub may: GrantView,
    /// What it may grant to children.
    pub may_grant: GrantView,
    /// Every limit on what it may do, the oldest ancestor's first.
    pub limits: Vec<LimitView>,
    /// Every limit on what it may grant, the oldest ancestor's first.
    pub grant_limits: Vec<LimitView>,
    /// What it has used up.
    pub budget: Vec<ResourceUsageView>,
}

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantView {
    /// Tools that may be called.
    pub tools: NameSetView,
    /// Folders that may be read.
    pub read: Vec<String>,
    /// Folders that may be written.
    pub write: Vec<String>,
    /// Folders that are closed whatever else is allowed.
    pub blocked: Vec<String>,
    /// Programs that may be run.
    pub commands: NameSetView,
    /// Hosts that may be talked to.
    pub hosts: NameSetView,
    /// Presets that children may be created from.
    pub create: NameSetView,
    /// Agents that may be reached, in words.
    pub targets: String,
}

/// A set of names: one of the two is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameSetView {
    /// These and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// All but these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_but: Option<Vec<String>>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// What is limited, such as `tools`, `read` or `tokens`.
    pub limit: String,
    /// What is left of it, in words.
    pub allows: String,
    /// Who set it: the agent itself or one of its ancestors.
    pub set_by: String,
    /// Where it comes from, such as a preset or a parameter.
    pub reason: String,
}

/// How much of something an agent has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceUsageView {
    /// `turns`, `tool_calls`, `tokens`, `wall_ms` or `children`.
    pub resource: String,
    /// The agent's own limit; null is none.
    pub limit: Option<Count>,
    /// What was used, with what children used that have no share of their own.
    pub used: Count,
    /// What is set aside for children.
    pub reserved: Count,
    /// What can still be used, by the limits of the agent and of its ancestors; null is no limit.
    pub left: Option<Count>,
}
