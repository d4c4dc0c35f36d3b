//! Parameter and result types of the methods that list, fork, roll back, rename, export and import agents, and the
//! session document.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::scalars::deserialize_count;
use super::{BudgetParams, Count, DamagedAgentSummary, MayGrantParams, OnRestart, PageOffset, PageSize};

/// Parameters of `list_sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListSessionsParams {
    /// Index of the first session to return. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<PageOffset>,
    /// Maximum number of sessions to return, 1 to 2000. Default: 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// Result of `list_sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListSessionsOutput {
    /// The sessions of this page, oldest first.
    pub sessions: Vec<SessionSummary>,
    /// Number of sessions on all pages.
    pub total: Count,
    /// Sessions of this page whose stored data is damaged; omitted if there are none. `nexus3 check` says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedAgentSummary>,
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionSummary {
    /// The agent's id.
    pub agent_id: String,
    /// `live`: in memory. `asleep`: only stored; the next call wakes it.
    pub state: String,
    /// Creation time: local time, ISO 8601 with microseconds.
    pub created_at: String,
    /// Time of its last activity: local time, ISO 8601 with microseconds.
    pub modified_at: String,
    /// Number of messages in its context.
    pub message_count: Count,
    /// The agent that created it.
    pub parent_agent_id: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its preset.
    pub preset: String,
    /// Policy for a turn that a crash of the daemon interrupts.
    pub on_restart: OnRestart,
    /// The agent or session document it was created from, as text.
    pub origin: Option<String>,
}

/// Parameters of `fork_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkAgentParams {
    /// The agent to fork.
    pub agent_id: String,
    /// Id of the new agent. Default: eight random hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_agent_id: Option<String>,
    /// Number of messages to copy, from the first on. Default: all. Must not separate a tool call from its results.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub messages: Option<Count>,
}

/// Result of `fork_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkAgentOutput {
    /// Id of the new agent.
    pub agent_id: String,
    /// URL path of the agent's methods.
    pub url: String,
    /// The agent's capability token. Returned only once.
    pub token: String,
    /// Number of messages in its context.
    pub message_count: Count,
}

/// Parameters of `rollback_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RollbackAgentParams {
    /// The agent.
    pub agent_id: String,
    /// Number of messages that stay, from the first on. Must not separate a tool call from its results.
    #[serde(deserialize_with = "deserialize_required_count")]
    pub messages: Count,
}

/// Result of `rollback_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RollbackAgentOutput {
    /// The agent.
    pub agent_id: String,
    /// Number of messages in its context after the rollback.
    pub message_count: Count,
    /// Number of removed messages.
    pub removed: Count,
}

/// Parameters of `undo_turn`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UndoTurnParams {
    /// The agent.
    pub agent_id: String,
    /// Turn number; by default the latest turn that changed files.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_count")]
    pub turn: Option<Count>,
}

/// Result of `undo_turn`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UndoTurnOutput {
    /// The agent.
    pub agent_id: String,
    /// The turn.
    pub turn: Count,
    /// The restored paths. Those that already were as before the turn are not among them.
    pub restored: Vec<String>,
}

/// Parameters of `rename_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenameAgentParams {
    /// The agent's current id.
    pub agent_id: String,
    /// Its new id.
    pub new_agent_id: String,
}

/// Result of `rename_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenameAgentOutput {
    /// The agent's new id.
    pub agent_id: String,
    /// New URL path of the agent's methods.
    pub url: String,
}

/// Parameters of `export_agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportAgentParams {
    /// The agent.
    pub agent_id: String,
}

/// Result of `export_agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportAgentOutput {
    /// The session document.
    #[serde(rename = "session")]
    pub snapshot: SnapshotDocument,
}

/// Parameters of `import_agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportAgentParams {
    /// The session document.
    #[serde(rename = "session")]
    pub snapshot: SnapshotDocument,
    /// Id of the new agent. Default: the id in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// Result of `import_agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportAgentOutput {
    /// The agent's id.
    pub agent_id: String,
    /// URL path of the agent's methods.
    pub url: String,
    /// The agent's capability token. Returned only once.
    pub token: String,
    /// Number of messages in its context.
    pub message_count: Count,
    /// Differences from the document, one sentence each: reduced permissions, omitted content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A session document: the session file format of the original NEXUS3, with additional data under `nexus3`. Unknown
/// members are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotDocument {
    /// Version of this format: 1.
    #[serde(default = "default_schema_version")]
    pub schema_version: Count,
    /// The agent's id.
    pub agent_id: String,
    /// Creation time: ISO 8601, local time if it has no zone.
    pub created_at: String,
    /// Time of its last activity: ISO 8601, local time if it has no zone.
    pub modified_at: String,
    /// Its messages, oldest first.
    pub messages: Vec<SnapshotMessage>,
    /// Its system prompt; empty: none.
    pub system_prompt: String,
    /// File of the system prompt in the original NEXUS3. Ignored.
    #[serde(default)]
    pub system_prompt_path: Option<String>,
    /// Its working directory, which must exist at import.
    pub working_directory: String,
    /// Permission level: `yolo`, `trusted` or `sandboxed`.
    pub permission_level: String,
    /// Its preset.
    #[serde(default)]
    pub permission_preset: Option<String>,
    /// Tools it may not call.
    #[serde(default)]
    pub disabled_tools: Vec<String>,
    /// Permissions that a user granted interactively in the original NEXUS3. Not imported.
    #[serde(default)]
    pub session_allowances: Map<String, Value>,
    /// Its model; null: the daemon's default model.
    #[serde(default)]
    pub model_alias: Option<String>,
    /// Clipboard of the original NEXUS3. Not imported.
    #[serde(default)]
    pub clipboard_agent_entries: Vec<Value>,
    /// Token usage as reported by its models.
    #[serde(default)]
    pub token_usage: Map<String, Value>,
    /// `user`, or the agent that created it.
    #[serde(default = "default_provenance")]
    pub provenance: String,
    /// Data that the original format cannot hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "nexus3")]
    pub extras: Option<SnapshotExtras>,
}

/// One message of a session document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotMessage {
    /// `user`, `assistant` or `tool`. A `system` message is skipped at import: the prompt is a member of its own.
    pub role: String,
    /// Text.
    #[serde(default)]
    pub content: String,
    /// Images of a user message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<SnapshotImage>,
    /// Tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<SnapshotToolCall>,
    /// Id of the tool call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Origin and outcome: `source`, `source_agent_id`, `cancelled`, `failed`, `denied`, `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// An image of a session document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotImage {
    /// Media type, such as `image/png`.
    pub media_type: String,
    /// Content in base64.
    pub data: String,
}

/// A tool call of a session document. The form of model APIs, `{id, type, function: {name, arguments}}`, is accepted
/// too.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotToolCall {
    /// Call id, as the model gave it.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as an object, or as a string when the model did not write an object.
    pub arguments: Value,
}

/// Data of a session document that the original format cannot hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotExtras {
    /// The only tools it may call; null: those of the preset.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// Directories it may write to; null: those of the preset.
    #[serde(default)]
    pub allowed_write_paths: Option<Vec<String>>,
    /// Programs it may run; null: those of the preset.
    #[serde(default)]
    pub allowed_commands: Option<Vec<String>>,
    /// Hosts it may connect to; null: those of the preset.
    #[serde(default)]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts it may not connect to; null: none.
    #[serde(default)]
    pub denied_hosts: Option<Vec<String>>,
    /// Presets its children may have; null: those of the preset.
    #[serde(default)]
    pub may_create: Option<Vec<String>>,
    /// What it may grant to its children; null: what it may do itself.
    #[serde(default)]
    pub may_grant: Option<MayGrantParams>,
    /// Its approval rules that ask.
    #[serde(default)]
    pub ask: Option<Vec<String>>,
    /// Its approval rules that deny. Those that allow are not exported.
    #[serde(default)]
    pub deny: Option<Vec<String>>,
    /// Its limits. The document does not record how much was used.
    #[serde(default)]
    pub budget: Option<BudgetParams>,
    /// Policy for a turn that a crash of the daemon interrupts.
    #[serde(default)]
    pub on_restart: Option<OnRestart>,
    /// The agent or session document it was created from, as text.
    #[serde(default)]
    pub origin: Option<String>,
}

fn default_schema_version() -> Count {
    1
}

fn default_provenance() -> String {
    "user".to_owned()
}

/// Parses a required count with the error text of an optional one.
fn deserialize_required_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
    let missing = || D::Error::invalid_type(Unexpected::Unit, &"a non-negative integer");
    deserialize_count(deserializer)?.ok_or_else(missing)
}

impl<'de> Deserialize<'de> for SnapshotToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Members of both forms.
        #[derive(Deserialize)]
        struct EitherForm {
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
        let EitherForm { id, name, arguments, function } = EitherForm::deserialize(deserializer)?;
        let (name, arguments) = match (name, function) {
            (Some(name), None) => (name, arguments),
            (None, Some(function)) if arguments.is_none() => (function.name, function.arguments),
            (None, None) => return Err(D::Error::missing_field("name")),
            _ => return Err(D::Error::custom("must have either name and arguments or function")),
        };
        let arguments =
            arguments.filter(|value| !value.is_null()).unwrap_or_else(|| Value::Object(Map::new()));
        if !matches!(arguments, Value::Object(_) | Value::String(_)) {
            return Err(D::Error::custom("must have an object or a string as arguments"));
        }
        Ok(Self { id, name, arguments })
    }
}
