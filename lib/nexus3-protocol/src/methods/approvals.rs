//! Parameter and result types of the methods about approvals, and approval rules as they are shown.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Parameters of `list_approvals`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListApprovalsParams {
    /// Only requests of this agent and its descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// Result of `list_approvals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListApprovalsOutput {
    /// The tool calls that wait for an approval, oldest first.
    pub approvals: Vec<ApprovalView>,
}

/// A tool call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalView {
    /// Id for `answer_approval`.
    pub approval_id: String,
    /// The asking agent.
    pub agent_id: String,
    /// Ancestors of the asking agent, nearest first.
    pub ancestors: Vec<String>,
    /// The tool.
    pub tool: String,
    /// The arguments of the call: an object, or a text if they are not valid JSON.
    pub arguments: Value,
    /// The effects that need an approval.
    pub effects: Vec<String>,
    /// Why they need one.
    pub reason: String,
    /// When the agent asked: UTC, RFC 3339 with microseconds.
    pub asked_at: String,
    /// When the default answer applies: UTC, RFC 3339 with microseconds.
    pub expires_at: String,
}

/// An answer to an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// The call runs.
    Allow,
    /// The call is denied.
    Deny,
}

/// The agents and calls that an answer applies to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// This call.
    #[default]
    Once,
    /// Also later calls of the agent that the rule matches.
    Agent,
    /// Also those of its descendants.
    Subtree,
}

/// Parameters of `answer_approval`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerApprovalParams {
    /// The request.
    pub approval_id: String,
    /// The answer.
    pub answer: ApprovalDecision,
    /// What the answer applies to. Default: `once`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApprovalScope>,
    /// The rule for later calls, with scope `agent` or `subtree`: a tool's name, `run:PROGRAM [ARGUMENT…] [in /DIRECTORY]`,
    /// `unsandboxed:PROGRAM …`, `host:NAME`, `read:/PATH` or `write:/PATH`. Default: exactly this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A note that the model reads when the call is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Result of `answer_approval`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AnswerApprovalOutput {
    /// The request.
    pub approval_id: String,
    /// The answer.
    pub answer: ApprovalDecision,
    /// The rule that was added to the asking agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleView>,
}

/// An approval rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleView {
    /// What happens to the calls that it matches: `ask`, `allow` or `deny`.
    pub action: String,
    /// The rule.
    pub rule: String,
    /// Whether it also applies to descendants: `agent` or `subtree`.
    pub scope: String,
    /// The authority behind it, which limits what it allows: `admin`, `creator`, or `serial:` and the serial number of an
    /// agent.
    pub granted_by: String,
}
