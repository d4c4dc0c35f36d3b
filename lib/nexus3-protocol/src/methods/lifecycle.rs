//! What the methods about kept sessions take and answer, and the document a session is written down as.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::scalars::deserialize_count;
use super::{BudgetParams, Count, MayGrantParams, OnRestart, PageOffset, PageSize};

/// What `list_sessions` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListSessionsParams {
    /// The first session to list; 0 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// How many to list at the most, 1 to 2000; 200 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// What `list_sessions` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListSessionsOutput {
    /// The sessions of this page, oldest first.
    pub sessions: Vec<SessionSummary>,
    /// How many sessions there are to list.
    pub total: Count,
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionSummary {
    /// The agent's name.
    pub agent_id: String,
    /// `live`: it is in memory. `asleep`: the next call to it wakes it.
    pub state: String,
    /// When it was created: local time, ISO 8601 with microseconds.
    pub created_at: String,
    /// When it last did something: local time, ISO 8601 with microseconds.
    pub modified_at: String,
    /// Messages in its context.
    pub message_count: Count,
    /// The agent that created it.
    pub parent_agent_id: Option<String>,
    /// The model that answers it.
    pub model: Option<String>,
    /// Its preset.
    pub preset: String,
    /// What becomes of a turn that a crash cuts off.
    pub on_restart: OnRestart,
    /// The agent or the session it came from, in words.
    pub origin: Option<String>,
}

/// What `fork_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkAgentParams {
    /// The agent to fork.
    pub agent_id: String,
    /// The name of the new one. Eight hex digits are made up when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_agent_id: Option<String>,
    /// How many of its messages the new one knows; all when it is left out. A tool call and its results are not torn
    /// apart.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub messages: Option<Count>,
}

/// What `fork_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkAgentOutput {
    /// The new agent's name.
    pub agent_id: String,
    /// The path its methods are called at.
    pub url: String,
    /// Its capability token, told once.
    pub token: String,
    /// Messages in its context.
    pub message_count: Count,
}

/// What `rollback_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RollbackAgentParams {
    /// The agent.
    pub agent_id: String,
    /// How many messages stay, counted from the first. A tool call and its results are not torn apart.
    #[serde(deserialize_with = "deserialize_required_count")]
    pub messages: Count,
}

/// What `rollback_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RollbackAgentOutput {
    /// The agent.
    pub agent_id: String,
    /// Messages in its context now.
    pub message_count: Count,
    /// Messages that were taken away.
    pub removed: Count,
}

/// What `rename_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenameAgentParams {
    /// The agent.
    pub agent_id: String,
    /// Its new name.
    pub new_agent_id: String,
}

/// What `rename_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenameAgentOutput {
    /// The agent's name now.
    pub agent_id: String,
    /// The path its methods are called at now.
    pub url: String,
}

/// What `export_agent` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportAgentParams {
    /// The agent.
    pub agent_id: String,
}

/// What `export_agent` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportAgentOutput {
    /// The session.
    #[serde(rename = "session")]
    pub snapshot: SnapshotDocument,
}

/// What `import_agent` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportAgentParams {
    /// The session.
    #[serde(rename = "session")]
    pub snapshot: SnapshotDocument,
    /// The agent's name; the session's when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// What `import_agent` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportAgentOutput {
    /// The agent's name.
    pub agent_id: String,
    /// The path its methods are called at.
    pub url: String,
    /// Its capability token, told once.
    pub token: String,
    /// Messages in its context.
    pub message_count: Count,
    /// What is not as the session says, one sentence each: rights that became smaller, things that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A session as the original NEXUS3 writes it into a file, and what it lacks under `nexus3`. Members that are not known
/// are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotDocument {
    /// The version of this shape: 1.
    #[serde(default = "default_schema_version")]
    pub schema_version: Count,
    /// The agent's name.
    pub agent_id: String,
    /// When it was created: ISO 8601, local time when it names no zone.
    pub created_at: String,
    /// When it last did something: ISO 8601, local time when it names no zone.
    pub modified_at: String,
    /// Its messages, oldest first.
    pub messages: Vec<SnapshotMessage>,
    /// Its system prompt; empty is none.
    pub system_prompt: String,
    /// The file the prompt came from; nexus3 has none and does not read it.
    #[serde(default)]
    pub system_prompt_path: Option<String>,
    /// Its working directory, which must be there when the session is imported.
    pub working_directory: String,
    /// What it may do, in one word: `yolo`, `trusted` or `sandboxed`.
    pub permission_level: String,
    /// Its preset.
    #[serde(default)]
    pub permission_preset: Option<String>,
    /// Tools it may not call.
    #[serde(default)]
    pub disabled_tools: Vec<String>,
    /// Leave that somebody gave at the original's prompt. It is not taken over.
    #[serde(default)]
    pub session_allowances: Map<String, Value>,
    /// The model that answers it; null is the daemon's.
    #[serde(default)]
    pub model_alias: Option<String>,
    /// The original's clipboard. It is not taken over.
    #[serde(default)]
    pub clipboard_agent_entries: Vec<Value>,
    /// What its models reported to have used.
    #[serde(default)]
    pub token_usage: Map<String, Value>,
    /// `user`, or the agent that created it.
    #[serde(default = "default_provenance")]
    pub provenance: String,
    /// What the original's shape has no place for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "nexus3")]
    pub extras: Option<SnapshotExtras>,
}

/// One message of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotMessage {
    /// `user`, `assistant` or `tool`. A message of `system` is left out when it is imported: the prompt stands apart.
    pub role: String,
    /// Its text.
    #[serde(default)]
    pub content: String,
    /// The pictures a user's message shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<SnapshotImage>,
    /// The tool calls an assistant's message made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<SnapshotToolCall>,
    /// The call that a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Where it came from and how it ended: `source`, `source_agent_id`, `cancelled`, `failed`, `denied`, `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A picture of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotImage {
    /// What it is, such as `image/png`.
    pub media_type: String,
    /// Its bytes in base64.
    pub data: String,
}

/// A tool call of a session. The shape of model APIs, `{id, type, function: {name, arguments}}`, is read too.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotToolCall {
    /// The call's id, as the model gave it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as an object; as a text when the model did not write an object.
    pub arguments: Value,
}

/// What the original's session has no place for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotExtras {
    /// Folders it may write to; null is what the preset says.
    #[serde(default)]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Presets its children may have; null is what the preset says.
    #[serde(default)]
    pub may_create: Option<Vec<String>>,
    /// What it may grant to children; null is what it may do itself.
    #[serde(default)]
    pub may_grant: Option<MayGrantParams>,
    /// Its limits. What was used of them is not in a session.
    #[serde(default)]
    pub budget: Option<BudgetParams>,
    /// What becomes of a turn that a crash cuts off.
    #[serde(default)]
    pub on_restart: Option<OnRestart>,
    /// The agent or the session it came from, in words.
    #[serde(default)]
    pub origin: Option<String>,
}

fn default_schema_version() -> Count {
    1
}

fn default_provenance() -> String {
    "user".to_owned()
}

/// Like a count that may be left out, in the same words.
fn deserialize_required_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
    let missing = || D::Error::invalid_type(Unexpected::Unit, &"a non-negative integer");
    deserialize_count(deserializer)?.ok_or_else(missing)
}

impl<'de> Deserialize<'de> for SnapshotToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Both shapes at once.
        #[derive(Deserialize)]
        struct EitherShape {
            id: String,
            name: Option<String>,
            arguments: Option<Value>,
            function: Option<Function>,
        }
        #[derive(Deserialize)]
        struct Function {
            name: String,
            arguments: Option<Value>,
        }
        let EitherShape { id, name, arguments, function } = EitherShape::deserialize(deserializer)?;
        let (name, arguments) = match (name, function) {
            (Some(name), None) => (name, arguments),
            (None, Some(function)) if arguments.is_none() => (function.name, function.arguments),
            (None, None) => return Err(D::Error::missing_field("name")),
            _ => return Err(D::Error::custom("must hold either name and arguments or function")),
        };
        let arguments =
            arguments.filter(|value| !value.is_null()).unwrap_or_else(|| Value::Object(Map::new()));
        if !matches!(arguments, Value::Object(_) | Value::String(_)) {
            return Err(D::Error::custom("must have an object or a text as arguments"));
        }
        Ok(Self { id, name, arguments })
    }
}
