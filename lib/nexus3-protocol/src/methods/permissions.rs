//! Parameter and result types of the methods about an agent's position in the tree, its permissions and its budget.

use serde::{Deserialize, Serialize};

use super::{AgentSummary, BudgetParams, Count, DamagedAgentSummary, MayGrantParams, RuleView};

/// Result of `get_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentOutput {
    /// The agent as in `list_agents`.
    pub agent: AgentSummary,
    /// Depth in the tree, from 0 to 5.
    pub depth: Count,
    /// Its ancestors, nearest first. A destroyed ancestor still limits its permissions.
    pub ancestors: Vec<String>,
    /// Its children, oldest first.
    pub children: Vec<String>,
    /// Names of the tools its model can call.
    pub tools: Vec<String>,
    /// Whether a turn is running.
    pub working: bool,
    /// Number of queued turns.
    pub queued: Count,
    /// Why its last turn stopped early: `iteration_limit` or `budget`.
    pub halted: Option<String>,
    /// Its resource usage.
    pub budget: Vec<ResourceUsageView>,
}

/// Result of `list_children`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChildrenOutput {
    /// The agent.
    pub agent_id: String,
    /// Its children, oldest first.
    pub children: Vec<AgentSummary>,
    /// Children whose stored data is damaged; omitted if there are none. `nexus3 check` says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedAgentSummary>,
}

/// Parameters of `set_permissions`. An omitted parameter leaves its setting unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPermissionsParams {
    /// New preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The only tools it may call; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools it may not call; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_tools: Option<Vec<String>>,
    /// Directories it may write to; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Programs it may run, `["*"]` for all; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_commands: Option<Vec<String>>,
    /// Hosts it may connect to, as in `create_agent`; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts it may not connect to; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_hosts: Option<Vec<String>>,
    /// Presets its children may have; replaces the list. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_create: Option<Vec<String>>,
    /// What it may grant to its children. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_grant: Option<MayGrantParams>,
    /// Approval rules: calls that are asked for, such as `fs.delete`, `run:git push`, `unsandboxed:*` or `host:*`. Replaces
    /// the list; those of the preset stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Vec<String>>,
    /// Approval rules: calls that are not asked for, within what the parent may grant. Replaces
    /// the list, also what answers have added. Admin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Approval rules: calls that are denied, also to descendants; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
    /// New limits over the agent's lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetParams>,
    /// Limits to remove: `turns`, `tool_calls`, `tokens`, `wall_ms`, `children`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlimited: Option<Vec<String>>,
}

/// Result of `get_permissions` and `set_permissions`: the permissions in effect, below the ceiling of all ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsOutput {
    /// The agent.
    pub agent_id: String,
    /// Its preset.
    pub preset: String,
    /// Permission level: `YOLO`, `TRUSTED` or `SANDBOXED`.
    pub permission_level: String,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<String>,
    /// Approval rules, of its preset and its own. Rules of its ancestors with scope `subtree` apply too.
    #[serde(default)]
    pub rules: Vec<RuleView>,
    /// What it may do.
    pub may: GrantView,
    /// What it may grant to its children.
    pub may_grant: GrantView,
    /// Limits on what it may do, the topmost ancestor's first.
    pub limits: Vec<LimitView>,
    /// Limits on what it may grant, the topmost ancestor's first.
    pub grant_limits: Vec<LimitView>,
    /// Its resource usage.
    pub budget: Vec<ResourceUsageView>,
}

/// A set of allowed things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantView {
    /// Tools that may be called.
    pub tools: NameSetView,
    /// Directories that may be read.
    pub read: Vec<String>,
    /// Directories that may be written.
    pub write: Vec<String>,
    /// Directories that are never accessible, whatever else is allowed.
    pub blocked: Vec<String>,
    /// Programs that may be run.
    pub commands: NameSetView,
    /// Whether commands may run outside the sandbox.
    #[serde(default)]
    pub unsandboxed: bool,
    /// Hosts that may be connected to.
    pub hosts: HostSetView,
    /// Presets that children may be created from.
    pub create: NameSetView,
    /// Agents that may be called, as text.
    pub targets: String,
}

/// A set of names: exactly one member is present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameSetView {
    /// Only these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// All names except these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_but: Option<Vec<String>>,
}

/// A set of hosts: `only` or `all_but` is present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostSetView {
    /// Only hosts of these patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// All hosts, also those of the local network, except these patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_but: Option<Vec<String>>,
    /// With `only`: patterns that are denied nevertheless; omitted if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

/// One limit on permissions or resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// What is limited, such as `tools`, `read` or `tokens`.
    pub limit: String,
    /// What remains allowed, as text.
    pub allows: String,
    /// Agent that set it: the agent itself or one of its ancestors.
    pub set_by: String,
    /// Origin, such as a preset or a parameter.
    pub reason: String,
}

/// Usage of one resource by an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceUsageView {
    /// `turns`, `tool_calls`, `tokens`, `wall_ms` or `children`.
    pub resource: String,
    /// The agent's own limit; null: none.
    pub limit: Option<Count>,
    /// Amount used, including the usage of children without a limit of their own.
    pub used: Count,
    /// Amount reserved for children.
    pub reserved: Count,
    /// Amount that can still be used under the limits of the agent and its ancestors; null: no limit.
    pub left: Option<Count>,
}
