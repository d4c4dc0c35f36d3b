//! What an agent's methods take and answer.

use serde::{Deserialize, Serialize};

use super::{Count, PageOffset, PageSize, RequestIdParam};

/// What `send` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SendParams {
    /// The message.
    pub content: String,
    /// Names this send, for `cancel` and for repeating it: the agent works on a name only once. With other content it
    /// is refused. Made up when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestIdParam>,
    /// Where the message comes from, kept with it. `rpc` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which agent the message comes from, kept with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<RequestIdParam>,
    /// Pictures that the model is to look at: PNG, JPEG, GIF or WebP, at most 20, each at most 5 MiB. Refused when the
    /// model takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageParam>>,
}

/// A picture: `data` or `path`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImageParam {
    /// Its bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A file that the agent may read, absolute or relative to its working directory. It is read when the send comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What it is, such as `image/png`. Found out from the bytes; when given, it has to be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// A picture of a message, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageView {
    /// What it is, such as `image/png`.
    pub media_type: String,
    /// How many bytes it has.
    pub bytes: Count,
}

/// What `send` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SendOutput {
    /// Present and true when the send was cancelled; `content` is then what had been said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// All that the agent said in this turn.
    pub content: String,
    /// The send's name.
    pub request_id: RequestIdParam,
    /// Whether the turn stopped at the limit of tool rounds; the next send goes on.
    #[serde(default)]
    pub halted_at_iteration_limit: bool,
    /// Why the turn stopped before its end, when it did: `iteration_limit`, or `budget`, which can go on when more is
    /// granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// What the model reported to have used in this turn, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOutput>,
}

/// Tokens as a model reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageOutput {
    /// Tokens read, cached ones among them.
    pub input_tokens: Count,
    /// Tokens written.
    pub output_tokens: Count,
    /// Tokens read from the model's cache.
    pub cached_tokens: Count,
}

/// What `cancel` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelParams {
    /// The send to end.
    pub request_id: RequestIdParam,
}

/// What `cancel` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelOutput {
    /// Whether a send was ended.
    pub cancelled: bool,
    /// The name that was asked for.
    pub request_id: RequestIdParam,
    /// Why nothing was ended: `not_found_or_completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `steer` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SteerParams {
    /// The word to add.
    pub content: String,
    /// Where it comes from, kept with it. `rpc` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which agent it comes from, kept with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent_id: Option<RequestIdParam>,
}

/// What `steer` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SteerOutput {
    /// Whether a running turn took the word.
    pub steered: bool,
    /// The send it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestIdParam>,
    /// Why it was not taken: `no_running_turn_or_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `compact` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CompactParams {
    /// Whether to compact also when the context is not full; true when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// What `compact` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactOutput {
    /// Whether the context is shorter now.
    pub compacted: bool,
    /// What the messages were counted as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<Count>,
    /// What they are counted as now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<Count>,
    /// The difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_saved: Option<Count>,
    /// Why nothing was done: `nothing_to_compact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `shutdown` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownOutput {
    /// Always true.
    pub success: bool,
}

/// What `get_tokens` answers. The counts are estimates of what the next request would send; `used` is what models
/// reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokensOutput {
    /// The system prompt.
    pub system: Count,
    /// What is added anew to each request.
    pub dynamic: Count,
    /// The tool definitions.
    pub tools: Count,
    /// The messages.
    pub messages: Count,
    /// All of these, corrected by what the model has reported for earlier requests.
    pub total: Count,
    /// What the model can take.
    pub budget: Count,
    /// The budget less what is kept for the answer.
    pub available: Count,
    /// What is still free.
    pub remaining: Count,
    /// What models reported to have used, over the agent's life.
    pub used: UsedTokens,
    /// What the agent and all below it have cost, in dollars, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_cost_usd: Option<f64>,
}

/// What models reported to have used, over an agent's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsedTokens {
    /// Requests that reported anything.
    pub requests: Count,
    /// Tokens read, cached ones among them.
    pub input_tokens: Count,
    /// Tokens written.
    pub output_tokens: Count,
    /// Tokens read from the model's cache.
    pub cached_tokens: Count,
    /// Tokens the models thought before they answered, among those written; left out when none reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<Count>,
    /// What that cost, in dollars, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// What `get_context` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextOutput {
    /// Messages in the context.
    pub message_count: Count,
    /// Whether there is a system prompt.
    pub system_prompt: bool,
    /// Whether the last turn stopped at the limit of tool rounds.
    pub halted_at_iteration_limit: bool,
    /// How often the last turn asked the model.
    pub last_iteration_count: Count,
    /// How often a turn may ask the model.
    pub max_tool_iterations: Count,
}

/// What `get_messages` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessagesParams {
    /// The first message to read; 0 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// How many to read at the most, 1 to 2000; 200 when it is left out. A page ends earlier after 16 MiB of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// What `get_messages` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessagesOutput {
    /// The agent's name.
    pub agent_id: String,
    /// Messages in the context.
    pub total: Count,
    /// The first message of this page.
    pub offset: Count,
    /// The page's size as asked.
    pub limit: Count,
    /// The page.
    pub messages: Vec<MessageView>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageView {
    /// Its place in the context, from 0.
    pub index: Count,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// The pictures a user's message shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageView>,
    /// The tool calls an assistant's message made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallView>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Where it came from and how it ended: `source`, `source_agent_id`, `cancelled`, `failed`, `denied`, `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A tool call a model made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCallView {
    /// The call's id, as the model gave it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
}
