//! What each event carries, beside its kind and its place in the journal.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::methods::{
    BudgetParams, Count, ImageView, MayGrantParams, OnRestart, RequestIdParam, ToolCallView, UsageOutput,
};

/// An agent was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentCreated {
    /// Who made it: `admin` or an agent.
    pub by: String,
    /// Tells agents apart for ever, also when a name is used again.
    pub serial: Count,
    /// The serial of the agent it is under.
    pub parent_serial: Option<Count>,
    /// When it was made: UTC, RFC 3339 with microseconds. Earlier than the event for an agent that was imported.
    pub created_at: String,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// The model it asked for; null is the daemon's.
    pub model: Option<String>,
    /// What becomes of a turn that a crash cuts off.
    pub on_restart: OnRestart,
    /// The agent or the session it came from, in words.
    pub origin: Option<String>,
    /// What it was given.
    #[serde(rename = "rights")]
    pub permissions: PermissionsView,
}

/// An agent was given other rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsChanged {
    /// Who did it.
    pub by: String,
    /// What it has now.
    #[serde(rename = "rights")]
    pub permissions: PermissionsView,
}

/// What an agent was given; what it may do is that, below the ceiling of all its ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionsView {
    /// Its preset.
    pub preset: String,
    /// What the preset allows, in one word: `YOLO`, `TRUSTED` or `SANDBOXED`.
    pub permission_level: String,
    /// Tools it may not call.
    pub disable_tools: Vec<String>,
    /// Folders it may write to; null is what the preset says.
    pub allowed_write_paths: Option<Vec<String>>,
    /// Presets its children may have; null is what the preset says.
    pub may_create: Option<Vec<String>>,
    /// What it may grant to children; null is what it may do itself.
    pub may_grant: Option<MayGrantParams>,
    /// Its limits.
    pub budget: BudgetParams,
}

/// An agent got another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRenamed {
    /// Who did it.
    pub by: String,
    /// The new name.
    pub new_agent_id: String,
}

/// An agent was told that it is finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentFinished {
    /// Who said so.
    pub by: String,
}

/// An agent is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDestroyed {
    /// Who did it.
    pub by: String,
}

/// A message was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnAccepted {
    /// The turn, counted over the agent's life from 1.
    pub turn: Count,
    /// The name of the send.
    pub request_id: RequestIdParam,
    /// The message.
    pub message: MessageEvent,
}

/// A turn began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnBegun {
    /// Which turn.
    pub turn: Count,
}

/// A message, as `get_messages` shows it but for its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "KeptMessage"))]
pub struct MessageEvent {
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
    /// Where it came from and how it ended: `source`, `source_agent_id`, `cancelled`, `failed`, `denied`,
    /// `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Somebody added a word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steered {
    /// Which turn.
    pub turn: Count,
    /// The word.
    pub message: MessageEvent,
}

/// A tool call is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolBegun {
    /// Which turn.
    pub turn: Count,
    /// The call's place in the answer, from 0.
    #[serde(rename = "place")]
    pub index: Count,
    /// The call's id, as the model gave it.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What a crash while it runs means: `pure` and `keyed` calls run again, a `once` call never does.
    pub class: String,
}

/// A tool call is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDone {
    /// Which turn.
    pub turn: Count,
    /// The call's place in the answer, from 0.
    #[serde(rename = "place")]
    pub index: Count,
    /// `done`, `failed` or `denied`.
    pub outcome: String,
    /// What the model reads.
    pub text: String,
}

/// A turn is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnded {
    /// Which turn.
    pub turn: Count,
    /// The name of the send.
    pub request_id: RequestIdParam,
    /// `completed`, `cancelled`, `failed`, or `interrupted`: the daemon stopped in the middle; the same send goes on.
    pub outcome: String,
    /// All that the agent said in this turn.
    pub content: String,
    /// How often the model was asked.
    pub rounds: Count,
    /// Why it stopped before its end, when it did: `iteration_limit` or `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// What the model reported to have used, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOutput>,
    /// Why it failed, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// Why it was interrupted, when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnError {
    /// The code that `send` answers with.
    pub code: i64,
    /// For people.
    pub message: String,
}

/// An interrupted turn goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnReopened {
    /// Which turn.
    pub turn: Count,
    /// The name of the send.
    pub request_id: RequestIdParam,
    /// Messages that stay in the context: what the interruption had put behind them is taken back.
    pub messages: Count,
}

/// The newest messages were taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolledBack {
    /// Who did it.
    pub by: String,
    /// Messages that stay.
    pub messages: Count,
}

/// A context was made shorter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextCompacted {
    /// The turn in which it happened; null when somebody asked for it between turns.
    pub turn: Option<Count>,
    /// Who wanted it: `auto` when the context was full, `admin`, or an agent.
    pub by: String,
    /// `summary`: a model has summed older messages up. `dropped`: older outputs and messages were dropped, or cut.
    #[serde(rename = "how")]
    pub method: String,
    /// Messages there were.
    pub messages_before: Count,
    /// Messages there are now.
    pub messages_after: Count,
    /// What the messages were counted as.
    pub tokens_before: Count,
    /// What they are counted as now.
    pub tokens_after: Count,
    /// The text that stands in the place of older messages, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Something was not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Denied {
    /// Who wanted it.
    pub principal: String,
    /// What: a method, a tool, or `events`.
    pub action: String,
    /// The rule that forbids it.
    pub rule: String,
    /// What the caller was told.
    pub text: String,
}

/// The daemon began to serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonStarted {
    /// Its version.
    pub version: String,
}

/// The daemon stopped in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonStopped {}

/// Always `false`: this event is not in the journal and cannot be read again.
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

/// The model said more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TextDelta {
    /// Always false.
    pub journalled: NotJournalled,
    /// The agent.
    pub agent_id: String,
    /// The name of the send.
    pub request_id: RequestIdParam,
    /// Which turn.
    pub turn: Count,
    /// What it said.
    pub text: String,
}

/// The model thinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReasoningDelta {
    /// Always false.
    pub journalled: NotJournalled,
    /// The agent.
    pub agent_id: String,
    /// The name of the send.
    pub request_id: RequestIdParam,
    /// Which turn.
    pub turn: Count,
    /// What it thinks.
    pub text: String,
}

/// The cursor is not in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Always false.
    pub journalled: NotJournalled,
    /// The first sequence there is; the stream goes on here.
    pub first: Count,
    /// The last sequence there is.
    pub last: Count,
}

/// The reader was too slow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lagged {
    /// Always false.
    pub journalled: NotJournalled,
}
