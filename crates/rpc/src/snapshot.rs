//! Export and import of an agent as one JSON document. Import validates strictly, reports what it skips or changes, and
//! never grants more permissions than the document states.

mod history;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use agent::journal::{AgentRecord, StoredPermissions};
use agent::permission::{Budget, Level, Presets, RuleAction};
use agent::{AgentId, Fault, Message, UsageTotals};
use jiff::tz::TimeZone;
use nexus3_protocol::methods::{ImportAgentParams, SnapshotDocument, SnapshotExtras};
use runtime::{AgentSpec, AgentStatus, Import, NameSpec, PermissionSpec};
use serde_json::{Map, Value};

use crate::events::{budget_params, host_texts, may_grant_params, write_paths};
use crate::local_time::{format_local, parse_time};
use crate::methods::agents::{
    self, invalid, parse_budget, parse_granted_tools, parse_id, parse_tool_names, restart_policy_from_wire,
    restart_policy_to_wire,
};
use crate::methods::approvals::parse_rules;

/// The only supported version.
const SCHEMA_VERSION: u64 = 1;

/// Preset for documents whose preset is unknown or exceeds their level.
const PRESET_FALLBACK: &str = Presets::DEFAULT;

const PRESET_YOLO: &str = "yolo";
const PRESET_TRUSTED: &str = "trusted";

/// Provenance of an agent without a parent.
const PROVENANCE_USER: &str = "user";

/// The state of an agent to export.
pub(crate) struct Snapshot<'a> {
    pub(crate) record: &'a AgentRecord,
    pub(crate) status: &'a AgentStatus,
    pub(crate) used: UsageTotals,
    pub(crate) messages: &'a [Arc<Message>],
}

impl Snapshot<'_> {
    /// Builds the document. It contains no token and no digest of one.
    pub(crate) fn to_document(&self, zone: &TimeZone) -> SnapshotDocument {
        let (record, permissions) = (self.record, &self.record.permissions);
        let extras = SnapshotExtras {
            tools: permissions.may.tools.clone(),
            allowed_write_paths: write_paths(&permissions.may),
            allowed_commands: permissions.may.commands.clone(),
            allowed_hosts: permissions.may.hosts.as_deref().map(host_texts),
            denied_hosts: Some(host_texts(&permissions.may.denied_hosts)).filter(|hosts| !hosts.is_empty()),
            may_create: permissions.may.may_create.clone(),
            may_grant: may_grant_params(permissions),
            ask: rule_texts(permissions, RuleAction::Ask),
            deny: rule_texts(permissions, RuleAction::Deny),
            budget: Some(budget_params(&permissions.budget)),
            on_restart: Some(restart_policy_to_wire(record.on_restart)),
            origin: record.origin.clone(),
        };
        let modified_at = self.status.last_action_at.unwrap_or(record.created_at);
        SnapshotDocument {
            schema_version: SCHEMA_VERSION,
            agent_id: record.id.to_string(),
            created_at: format_local(record.created_at, zone),
            modified_at: format_local(modified_at, zone),
            messages: self.messages.iter().map(|message| history::encode_message(message)).collect(),
            system_prompt: record.system_prompt.clone().unwrap_or_default(),
            system_prompt_path: None,
            working_directory: record.cwd.to_string(),
            permission_level: permissions.level.name().to_ascii_lowercase(),
            permission_preset: Some(permissions.preset.clone()),
            disabled_tools: permissions.may.disable_tools.clone(),
            session_allowances: Map::new(),
            model_alias: record.model.clone(),
            clipboard_agent_entries: Vec::new(),
            token_usage: token_usage(self.used),
            provenance: self
                .status
                .parent
                .as_ref()
                .map_or_else(|| PROVENANCE_USER.to_owned(), ToString::to_string),
            extras: Some(extras),
        }
    }
}

fn token_usage(used: UsageTotals) -> Map<String, Value> {
    let numbers = [
        ("cached_tokens", used.usage.cached),
        ("input_tokens", used.usage.input),
        ("output_tokens", used.usage.output),
        ("requests", used.requests),
    ];
    numbers.into_iter().map(|(name, number)| (name.to_owned(), Value::from(number))).collect()
}

/// What an import is validated against.
pub(crate) struct ImportContext<'a> {
    pub(crate) zone: &'a TimeZone,
    pub(crate) presets: &'a Presets,
    pub(crate) knows_model: &'a dyn Fn(&str) -> bool,
}

/// A validated document: the agent to create, and notes on what was skipped or changed.
#[derive(Debug)]
pub(crate) struct ParsedSnapshot {
    pub(crate) import: Import,
    pub(crate) notes: Vec<String>,
}

impl ImportContext<'_> {
    /// Parses and validates a document.
    pub(crate) fn parse(&self, params: ImportAgentParams) -> Result<ParsedSnapshot, Fault> {
        let ImportAgentParams { snapshot: document, agent_id } = params;
        if document.schema_version != SCHEMA_VERSION {
            let got = document.schema_version;
            return Err(invalid(&format!("session.schema_version must be {SCHEMA_VERSION}, got: {got}")));
        }
        let id = parse_agent_id(agent_id.as_deref(), &document.agent_id)?;
        let created_at = self.parse_time_member("created_at", &document.created_at)?;
        self.parse_time_member("modified_at", &document.modified_at)?;
        let mut notes = Vec::new();
        let permissions = self.permission_spec(&document, &mut notes)?;
        let messages = history::decode_messages(&document.messages, &mut notes)?;
        let model = document.model_alias.filter(|model| {
            let is_known = (self.knows_model)(model);
            if !is_known {
                let model = excerpt(model);
                notes.push(format!("unknown model '{model}': the agent uses the daemon's default model"));
            }
            is_known
        });
        if !document.session_allowances.is_empty() {
            notes.push("session_allowances were not imported".to_owned());
        }
        if !document.clipboard_agent_entries.is_empty() {
            notes.push("clipboard entries were not imported".to_owned());
        }
        let extras = document.extras.unwrap_or_default();
        let spec = AgentSpec {
            name: NameSpec::Given(id),
            system_prompt: Some(document.system_prompt),
            cwd: Some(document.working_directory),
            model,
            permissions,
            level_max: Some(Level::Trusted),
            on_restart: extras.on_restart.map(restart_policy_from_wire),
            ..AgentSpec::default()
        };
        let origin =
            format!("session '{}' of {}", excerpt(&document.agent_id), excerpt(&document.modified_at));
        Ok(ParsedSnapshot { import: Import { spec, messages, created_at: Some(created_at), origin }, notes })
    }

    fn parse_time_member(&self, member: &str, text: &str) -> Result<agent::outside::Timestamp, Fault> {
        parse_time(text, self.zone).ok_or_else(|| {
            invalid(&format!(
                "session.{member} must be a time such as 2026-01-31T09:00:00, got: '{}'",
                excerpt(text)
            ))
        })
    }

    /// Permissions can only shrink: the preset is the document's if it is known and does not exceed the document's
    /// level; otherwise a narrower one.
    fn permission_spec(
        &self,
        document: &SnapshotDocument,
        notes: &mut Vec<String>,
    ) -> Result<PermissionSpec, Fault> {
        let level = parse_level(&document.permission_level)?;
        let requested = match &document.permission_preset {
            Some(name) => name.to_ascii_lowercase(),
            None => level.name().to_ascii_lowercase(),
        };
        let preset = self.narrowed_preset(&requested, level);
        let is_same = preset == requested;
        if !is_same {
            notes.push(format!(
                "preset '{}' was replaced by '{preset}': an import never widens permissions",
                excerpt(&requested)
            ));
        }
        let disable_tools = parse_tool_names("session.disabled_tools", document.disabled_tools.clone())?;
        let mut extras = document.extras.clone().unwrap_or_default();
        let tools = extras.tools.take();
        // Rules restrict, whatever the preset.
        let rules = parse_rules(extras.ask.take(), None, extras.deny.take())?;
        // Without its list of commands, an agent of `trusted` would run all.
        let commands = extras.allowed_commands.take().filter(|_| is_same || preset == PRESET_TRUSTED);
        let denied_hosts = extras.denied_hosts.take().unwrap_or_default();
        // The other extras that belong to another preset may not fit this one.
        let extras = if is_same { extras } else { SnapshotExtras::default() };
        let limits = document.extras.as_ref().and_then(|extras| extras.budget.as_ref());
        Ok(PermissionSpec {
            preset: Some(preset),
            tools: tools.map(|names| parse_granted_tools("session.nexus3.tools", names)).transpose()?,
            disable_tools,
            write_paths: extras.allowed_write_paths,
            commands,
            hosts: extras.allowed_hosts,
            denied_hosts,
            may_create: extras.may_create,
            may_grant: extras.may_grant.map(agents::parse_may_grant).transpose()?,
            rules,
            budget: limits.map_or_else(Budget::unlimited, parse_budget),
        })
    }

    /// Returns the requested preset if it is known and within the level. Otherwise `yolo` becomes `trusted` if the
    /// level allows that; everything else becomes the fallback.
    fn narrowed_preset(&self, requested: &str, level: Level) -> String {
        match self.presets.find(requested) {
            Ok(preset) if preset.level <= level.min(Level::Trusted) => requested.to_owned(),
            // `trusted` is the most that can be granted over the wire.
            Ok(_) if requested == PRESET_YOLO && level >= Level::Trusted => PRESET_TRUSTED.to_owned(),
            Ok(_) | Err(_) => PRESET_FALLBACK.to_owned(),
        }
    }
}

/// The rules of one action; those that allow are not exported, because their authority is in this daemon.
fn rule_texts(permissions: &StoredPermissions, action: RuleAction) -> Option<Vec<String>> {
    let rules = permissions.rules.iter().filter(|entry| entry.action == action);
    let texts: Vec<_> = rules.map(|entry| entry.rule.to_string()).collect();
    (!texts.is_empty()).then_some(texts)
}

fn parse_agent_id(requested: Option<&str>, stored: &str) -> Result<AgentId, Fault> {
    match requested {
        Some(id) => parse_id("agent_id", id),
        None => parse_id("session.agent_id", stored),
    }
}

fn parse_level(text: &str) -> Result<Level, Fault> {
    let all = [Level::Yolo, Level::Trusted, Level::Sandboxed];
    all.into_iter().find(|level| level.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let got = excerpt(text);
        invalid(&format!("session.permission_level must be one of yolo, trusted, sandboxed, got: '{got}'"))
    })
}

/// Returns a short, escaped excerpt of untrusted text for messages.
fn excerpt(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}
