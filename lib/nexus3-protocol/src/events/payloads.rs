//! Payloads of the events: their members beside kind and sequence.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::methods::{
    ApprovalDecision, BudgetParams, Count, ImageView, MayGrantParams, OnRestart, RequestIdParam, RuleView,
    ToolCallView, UsageOutput,
};

/// An agent was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentCreated {
    /// Creator: `admin` or `agent:` and an agent id.
    pub by: String,
    /// Serial number, unique forever, even when an agent id is reused.
    pub serial: Count,
    /// Serial number of its parent.
    pub parent_serial: Option<Count>,
    /// Creation time: UTC, RFC 3339 with microseconds. Earlier than the event for an imported agent.
    pub created_at: String,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// Requested model; null: the daemon's default model.
    pub model: Option<String>,
    /// Policy for a turn that a crash of the daemon interrupts.
    pub on_restart: OnRestart,
    /// The agent or session document it was created from, as text.
    pub origin: Option<String>,
    /// Its permissions.
    pub permissions: PermissionsView,
}

/// An agent's permissions were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsChanged {
    /// Initiator: `admin` or `agent:` and an agent id.
    pub by: String,
    /// The new permissions.
    pub permissions: PermissionsView,
}

/// Permissions set for an agent. In effect they are limited by the ceiling of all its ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsView {
    /// Its preset.
    pub preset: String,
    /// Permission level of the preset: `YOLO`, `TRUSTED` or `SANDBOXED`.
    pub permission_level: String,
    /// The only tools it may call; null: those of the preset.
    pub tools: Option<Vec<String>>,
    /// Tools it may not call.
    pub disable_tools: Vec<String>,
    /// Directories it may write to; null: those of the preset.
    pub allowed_write_paths: Option<Vec<String>>,
    /// Programs it may run; null: those of the preset.
    pub allowed_commands: Option<Vec<String>>,
    /// Hosts it may connect to; null: those of the preset.
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts it may not connect to.
    pub denied_hosts: Vec<String>,
    /// Presets its children may have; null: those of the preset.
    pub may_create: Option<Vec<String>>,
    /// What it may grant to its children; null: what it may do itself.
    pub may_grant: Option<MayGrantParams>,
    /// Its approval rules beside those of the preset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleView>,
    /// Its limits.
    pub budget: BudgetParams,
}

/// An agent's id was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRenamed {
    /// Initiator: `admin` or `agent:` and an agent id.
    pub by: String,
    /// The new id.
    pub new_agent_id: String,
}

/// An agent was marked as finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentFinished {
    /// Initiator: `admin` or `agent:` and an agent id.
    pub by: String,
}

/// An agent was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDestroyed {
    /// Initiator: `admin`, `agent:` and an agent id, or `restart` for a temporary agent that is left after a restart of the daemon.
    pub by: String,
}

/// A message was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnAccepted {
    /// Turn number over the agent's lifetime, from 1.
    pub turn: Count,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// The message.
    pub message: MessageEvent,
}

/// A turn started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnBegun {
    /// Turn number.
    pub turn: Count,
}

/// A message as in `get_messages`, without its index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageEvent {
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// Text.
    pub content: String,
    /// Images of a user message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageView>,
    /// Tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallView>,
    /// Id of the tool call that a tool message answers.
    pub tool_call_id: Option<String>,
    /// Origin and outcome: `source`, `source_agent_id`, `cancelled`, `failed`, `denied`, `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Map<String, serde_json::Value>>,
}

/// An instruction was added to a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steered {
    /// Turn number.
    pub turn: Count,
    /// The instruction.
    pub message: MessageEvent,
}

/// A tool call is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolBegun {
    /// Turn number.
    pub turn: Count,
    /// Index of the call in the model's response, from 0.
    #[serde(rename = "place")]
    pub index: Count,
    /// Call id, as the model gave it.
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Recovery class: after a crash `pure` and `keyed` calls run again, a `once` call never does.
    pub class: String,
}

/// A tool call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDone {
    /// Turn number.
    pub turn: Count,
    /// Index of the call in the model's response, from 0.
    #[serde(rename = "place")]
    pub index: Count,
    /// `done`, `failed` or `denied`.
    pub outcome: String,
    /// Result text for the model.
    pub text: String,
}

/// A tool call waits for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalRequested {
    /// Id for `answer_approval`.
    pub approval_id: String,
    /// Turn number.
    pub turn: Count,
    /// Id of the call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments of the call: an object, or a text if they are not valid JSON.
    pub arguments: serde_json::Value,
    /// The effects that need an approval.
    pub effects: Vec<String>,
    /// Why they need one.
    pub reason: String,
    /// When the default answer applies: UTC, RFC 3339 with microseconds.
    pub expires_at: String,
}

/// An approval request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAnswered {
    /// The request.
    pub approval_id: String,
    /// Turn number.
    pub turn: Count,
    /// The answer.
    pub answer: ApprovalDecision,
    /// Who answered: `admin`, `agent:` and an agent id, or `auto` after the time limit.
    pub by: String,
    /// The rule that was added to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleView>,
    /// The note for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnded {
    /// Turn number.
    pub turn: Count,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// `completed`, `cancelled`, `failed`, or `interrupted` (the daemon stopped during the turn; repeating the send
    /// continues it).
    pub outcome: String,
    /// All text the agent produced in this turn.
    pub content: String,
    /// Number of model calls.
    pub rounds: Count,
    /// Why it stopped early, if it did: `iteration_limit` or `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// Token usage, if the model reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOutput>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// The reason, if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The error of a failed turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnError {
    /// JSON-RPC error code that `send` returns.
    pub code: i64,
    /// Error message.
    pub message: String,
}

/// An interrupted turn continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnReopened {
    /// Turn number.
    pub turn: Count,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// Number of messages that stay in the context: those that the interruption had added are removed.
    pub messages: Count,
}

/// The newest messages were removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolledBack {
    /// Initiator: `admin` or `agent:` and an agent id.
    pub by: String,
    /// Number of messages that stay.
    pub messages: Count,
}

/// The file changes of a turn were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnUndone {
    /// Turn number.
    pub turn: Count,
    /// Initiator: `admin` or `agent:` and an agent id.
    pub by: String,
    /// The restored paths.
    pub paths: Vec<String>,
}

/// A context was shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextCompacted {
    /// Turn number; null when it was requested between turns.
    pub turn: Option<Count>,
    /// Initiator: `auto` when the context was full, `admin`, or `agent:` and an agent id.
    pub by: String,
    /// `summary`: a model summarized older messages. `dropped`: older outputs and messages were dropped or truncated.
    #[serde(rename = "how")]
    pub method: String,
    /// Number of messages before.
    pub messages_before: Count,
    /// Number of messages after.
    pub messages_after: Count,
    /// Token count of the messages before.
    pub tokens_before: Count,
    /// Token count of the messages after.
    pub tokens_after: Count,
    /// Text that replaces the older messages, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A call or tool call was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Denied {
    /// The caller: `admin` or `agent:` and an agent id.
    pub principal: String,
    /// The denied action: a method, a tool, or `events`.
    pub action: String,
    /// The rule that denies it.
    pub rule: String,
    /// Error text that the caller received.
    pub text: String,
}

/// The daemon started to serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonStarted {
    /// Version of the daemon.
    pub version: String,
}

/// The daemon stopped cleanly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonStopped {}

/// The constant `false`: an event with this member is not in the journal and cannot be read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NotJournalled;

impl Serialize for NotJournalled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(false)
    }
}

impl<'de> Deserialize<'de> for NotJournalled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            false => Ok(Self),
            true => Err(serde::de::Error::custom("an event of this kind is never journalled")),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for NotJournalled {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NotJournalled".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "boolean", "enum": [false] })
    }
}

/// A chunk of the model's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TextDelta {
    /// Always false.
    pub journalled: NotJournalled,
    /// The agent.
    pub agent_id: String,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// Turn number.
    pub turn: Count,
    /// The text.
    pub text: String,
}

/// A chunk of the model's reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReasoningDelta {
    /// Always false.
    pub journalled: NotJournalled,
    /// The agent.
    pub agent_id: String,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// Turn number.
    pub turn: Count,
    /// The text.
    pub text: String,
}

/// A chunk of a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolOutputDelta {
    /// Always false.
    pub journalled: NotJournalled,
    /// The agent.
    pub agent_id: String,
    /// Request id of the send.
    pub request_id: RequestIdParam,
    /// Turn number.
    pub turn: Count,
    /// Id of the tool call, as in `tool_begun`.
    pub call_id: String,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The text, without known secrets.
    pub text: String,
}

/// The cursor is not in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Always false.
    pub journalled: NotJournalled,
    /// First sequence in the journal; the stream continues here.
    pub first: Count,
    /// Last sequence in the journal.
    pub last: Count,
}

/// The reader was too slow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lagged {
    /// Always false.
    pub journalled: NotJournalled,
}
