//! Parameter and result types of the methods that send to an agent or read its context.

use serde::{Deserialize, Serialize};

use super::{Count, PageOffset, PageSize, RequestIdParam};
use crate::events::MessageEvent;

/// Parameters of `send`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SendParams {
    /// The message.
    pub content: String,
    /// Idempotency key of this send, also used by `cancel`: the agent runs a request id only once. Reusing it with
    /// other content is rejected. Default: a random id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestIdParam>,
    /// Origin of the message, stored with it. Default: `rpc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Agent the message comes from, stored with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<RequestIdParam>,
    /// Images for the model: PNG, JPEG, GIF or WebP, at most 20, each at most 5 MiB. Rejected when the model does not
    /// accept images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageParam>>,
}

/// An image: either `data` or `path`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImageParam {
    /// Content in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// File that the agent may read, absolute or relative to its working directory. The daemon reads it when the send
    /// arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Media type, such as `image/png`. Detected from the content; if given, it must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// An image of a message, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageView {
    /// Media type, such as `image/png`.
    pub media_type: String,
    /// Size in bytes.
    pub bytes: Count,
}

/// Result of `send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SendOutput {
    /// Present and true when the send was cancelled; `content` is then partial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// All text the agent produced in this turn.
    pub content: String,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// Whether the turn stopped at the limit of tool rounds; the next send continues the work.
    #[serde(default)]
    pub halted_at_iteration_limit: bool,
    /// Why the turn stopped early, if it did: `iteration_limit`, or `budget` (it can continue when the budget is
    /// raised).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// Tokens of this turn, if the model reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOutput>,
}

/// Token usage of a turn, as reported by the model or counted by nexus3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageOutput {
    /// Input tokens, including cached ones.
    pub input_tokens: Count,
    /// Output tokens.
    pub output_tokens: Count,
    /// Input tokens read from the model's prompt cache.
    pub cached_tokens: Count,
    /// The part of the input and output tokens that nexus3 counted itself, because the model reported none or an absurd
    /// number; omitted when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<Count>,
}

/// Parameters of `cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelParams {
    /// Request id of the send to cancel.
    pub request_id: RequestIdParam,
}

/// Result of `cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelOutput {
    /// Whether a send was cancelled.
    pub cancelled: bool,
    /// The request id of the call.
    pub request_id: RequestIdParam,
    /// Why nothing was cancelled: `not_found_or_completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of `steer`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SteerParams {
    /// The instruction.
    pub content: String,
    /// Origin of the instruction, stored with it. Default: `rpc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Agent the instruction comes from, stored with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<RequestIdParam>,
}

/// Result of `steer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SteerOutput {
    /// Whether a running turn accepted the instruction.
    pub steered: bool,
    /// Request id of that turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestIdParam>,
    /// Why it was not accepted: `no_running_turn_or_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of `compact`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CompactParams {
    /// Whether to compact even when the context is not full. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// Result of `compact`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactOutput {
    /// Whether the context is shorter now.
    pub compacted: bool,
    /// Token count of the messages before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<Count>,
    /// Token count of the messages after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<Count>,
    /// `tokens_before` minus `tokens_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_saved: Option<Count>,
    /// Why the context was not compacted: `nothing_to_compact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of `shutdown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownOutput {
    /// Always true.
    pub success: bool,
}

/// Result of `get_tokens`. The counts estimate the next request to the model; `used` is what models reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokensOutput {
    /// Estimated tokens of the system prompt.
    pub system: Count,
    /// Estimated tokens of the content that is generated anew for each request.
    pub dynamic: Count,
    /// Estimated tokens of the tool definitions.
    pub tools: Count,
    /// Estimated tokens of the messages.
    pub messages: Count,
    /// Sum of these, calibrated by what the model reported for earlier requests.
    pub total: Count,
    /// Size of the model's context window in tokens.
    pub budget: Count,
    /// The budget minus the tokens reserved for the response.
    pub available: Count,
    /// Free tokens: `available` minus `total`.
    pub remaining: Count,
    /// Usage over the agent's lifetime.
    pub used: UsedTokens,
    /// Cost of the agent and its descendants in US dollars, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_cost_usd: Option<f64>,
}

/// Token usage over an agent's lifetime, as reported by its models or counted by nexus3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsedTokens {
    /// Number of requests that a model answered at least in part.
    pub requests: Count,
    /// Input tokens, including cached ones.
    pub input_tokens: Count,
    /// Output tokens.
    pub output_tokens: Count,
    /// Input tokens read from the model's prompt cache.
    pub cached_tokens: Count,
    /// Reasoning tokens, part of the output tokens; omitted when no model reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<Count>,
    /// The part of the input and output tokens that nexus3 counted itself, because the model reported none or an absurd
    /// number; omitted when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<Count>,
    /// Cost in US dollars, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Result of `get_context`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextOutput {
    /// Number of messages in the context.
    pub message_count: Count,
    /// Whether there is a system prompt.
    pub system_prompt: bool,
    /// Whether the last turn stopped at the limit of tool rounds.
    pub halted_at_iteration_limit: bool,
    /// Number of model calls in the last turn.
    pub last_iteration_count: Count,
    /// Maximum number of model calls per turn.
    pub max_tool_iterations: Count,
    /// The agent's plan, which its model keeps with the tool `todo`; omitted when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todo: Vec<TodoEntry>,
}

/// One step of an agent's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TodoEntry {
    /// What to do.
    pub text: String,
    /// `pending`, `in_progress` or `done`.
    pub status: String,
}

/// Parameters of `get_messages`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessagesParams {
    /// Index of the first message to return. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// Maximum number of messages to return, 1 to 2000. Default: 200. A page ends earlier after 16 MiB of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// Result of `get_messages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessagesOutput {
    /// The agent's id.
    pub agent_id: String,
    /// Number of messages in the context.
    pub total: Count,
    /// Index of the first message of this page.
    pub offset: Count,
    /// Requested page size.
    pub limit: Count,
    /// Messages of this page, oldest first.
    pub messages: Vec<MessageView>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageView {
    /// Index in the context, from 0.
    pub index: Count,
    /// The message.
    #[serde(flatten)]
    pub message: MessageEvent,
}

/// A tool call by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCallView {
    /// Call id, as the model gave it.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments, as the model wrote them.
    pub arguments: String,
}
