//! Custom presets: the tables `[presets.NAME]` of `config.toml`. Each narrows the preset it extends; a table that would
//! allow more is rejected at start-up. `agent::permission` defines what a preset means.

mod keys;
mod reader;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use agent::outside::{ToolSet, Workspace};
use agent::permission::{
    Budget, FilePath, HostPattern, Level, NameSet, Narrowing, PresetFault, Presets, Resource, Rule,
    RuleAction, RuleEntry, Targets,
};

use self::keys::EXTENDS;
pub(crate) use self::keys::{NAME_RULE, PRESET_KEYS, is_table_name};
pub(crate) use self::reader::{PresetLayer, parse};
use super::ConfigFault;
use super::settings::Config;
use super::value_kind::SettingValue;

/// Name of the table that contains the presets.
pub(crate) const PRESETS_TABLE: &str = "presets";

/// One `[presets.NAME]` of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CustomPreset {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Its entries, in the order of `PRESET_KEYS`.
    pub(crate) entries: Vec<PresetEntry>,
}

/// One key of a preset with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PresetEntry {
    /// Index into `PRESET_KEYS`.
    pub(crate) key_index: usize,
    pub(crate) value: SettingValue,
    pub(crate) line: usize,
}

impl Config {
    /// Builds the built-in and custom presets; all of them block the paths in `blocked`. Symbolic links in paths are
    /// resolved, since grants hold resolved paths, and tool aliases become the names that grants use.
    pub(crate) fn presets(
        &self,
        blocked: &[FilePath],
        workspace: &dyn Workspace,
        tools: &ToolSet,
    ) -> Result<Presets, ConfigFault> {
        let mut presets = Presets::builtin(blocked);
        let mut problems = Vec::new();
        let mut narrowings = Vec::new();
        for custom in &self.custom_presets {
            match custom.resolved_narrowing(workspace, tools) {
                Ok(narrowing) => narrowings.push((custom, narrowing)),
                Err(why) => problems.push(format!("{}: {why}", custom.location())),
            }
        }
        let added = add_all(&mut presets, narrowings);
        let faults = added.faults.iter().map(|(custom, fault)| format!("{}: {fault}", custom.location()));
        problems.extend(faults);
        if problems.is_empty() { Ok(presets) } else { Err(ConfigFault { problems }) }
    }

    /// Returns what is wrong with the default preset's name. A preset in `rejected` already has a problem of its own.
    pub(super) fn default_preset_problem(&self, rejected: &[String]) -> Option<String> {
        let mut presets = Presets::builtin(&[]);
        let narrowings = self.custom_presets.iter().map(|custom| (custom, custom.unresolved_narrowing()));
        add_all(&mut presets, narrowings.collect());
        let name = self.default_preset.as_str();
        match presets.find(name) {
            Ok(preset) if preset.level == Level::Yolo => {
                Some(format!("{name:?} (it would give every agent without a preset all permissions)"))
            }
            Ok(_) => None,
            Err(_) if rejected.iter().any(|other| other == name) => None,
            Err(_) => {
                let known = self.custom_presets.iter().map(|custom| custom.name.as_str());
                Some(format!("{name:?}{}", super::suggest::for_preset(name, known)))
            }
        }
    }
}

impl CustomPreset {
    fn location(&self) -> String {
        format!("config.toml:{}: {PRESETS_TABLE}.{}", self.line, self.name)
    }

    /// Name of the preset that it narrows.
    pub(crate) fn extends(&self) -> &str {
        self.text(EXTENDS).unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<&SettingValue> {
        self.entries.iter().find(|entry| PRESET_KEYS[entry.key_index].name == key).map(|entry| &entry.value)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Some(SettingValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Option<Vec<Arc<str>>> {
        match self.value(key) {
            Some(SettingValue::List(texts)) => {
                Some(texts.iter().map(|text| Arc::from(text.as_str())).collect())
            }
            _ => None,
        }
    }

    fn paths(&self, key: &str) -> Option<Vec<FilePath>> {
        let root = FilePath::root();
        // The parser has validated the paths, so none is dropped here.
        let paths = self.list(key)?.into_iter().filter_map(|text| FilePath::resolve(&text, &root).ok());
        Some(paths.collect())
    }

    fn hosts(&self, key: &str) -> Option<Vec<HostPattern>> {
        // The parser has validated the patterns, so none is dropped here.
        Some(self.list(key)?.iter().filter_map(|text| HostPattern::parse(text)).collect())
    }

    fn targets(&self) -> Option<Targets> {
        Some(match self.value("targets")? {
            SettingValue::Text(word) => match word.as_str() {
                "parent" => Targets::parent(),
                "children" => Targets::descendants(),
                "family" => Targets::parent_and_descendants(),
                _ => Targets::none(),
            },
            SettingValue::List(names) => {
                Targets::restricted_to(NameSet::only(names.iter().map(String::as_str)))
            }
            _ => Targets::none(),
        })
    }

    fn rules(&self) -> Vec<RuleEntry> {
        let rules = |action: RuleAction| {
            let texts = self.list(action.name()).unwrap_or_default();
            // Checked when the file was read.
            texts
                .into_iter()
                .filter_map(move |text| Some(RuleEntry::of_creator(action, Rule::parse(&text).ok()?)))
        };
        RuleAction::ALL.into_iter().flat_map(rules).collect()
    }

    fn budget(&self) -> Budget {
        Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| {
            match self.value(&format!("max_{resource}")) {
                Some(SettingValue::Integer(count)) => budget.with_limit(resource, Some(*count)),
                _ => budget,
            }
        })
    }

    /// Returns the narrowing with paths and tool names as written in the file.
    fn unresolved_narrowing(&self) -> Narrowing {
        Narrowing {
            description: self.text("description").map(str::to_owned),
            tools: self.list("tools"),
            disable_tools: self.list("disable_tools").unwrap_or_default(),
            read_paths: self.paths("read_paths"),
            write_paths: self.paths("write_paths"),
            blocked_paths: self.paths("blocked_paths").unwrap_or_default(),
            commands: self.list("allowed_commands"),
            hosts: self.hosts("allowed_hosts"),
            denied_hosts: self.hosts("denied_hosts").unwrap_or_default(),
            may_create: self.list("may_create"),
            targets: self.targets(),
            rules: self.rules(),
            budget: self.budget(),
        }
    }

    /// Returns the narrowing with symbolic links resolved and tools by their canonical names.
    fn resolved_narrowing(&self, workspace: &dyn Workspace, tools: &ToolSet) -> Result<Narrowing, String> {
        let root = FilePath::root();
        let resolve = |paths: Vec<FilePath>| -> Result<Vec<FilePath>, String> {
            paths.iter().map(|path| workspace.resolve_path(path.as_str(), &root)).collect()
        };
        let canonical = |name: Arc<str>| tools.find(&name).map_or(name, |tool| Arc::clone(&tool.spec().name));
        let mut narrowing = self.unresolved_narrowing();
        narrowing.tools = narrowing.tools.map(|names| names.into_iter().map(canonical).collect());
        narrowing.disable_tools = narrowing.disable_tools.into_iter().map(canonical).collect();
        for entry in &mut narrowing.rules {
            entry.rule = entry.rule.clone().with_canonical_tool(|name| canonical(Arc::from(name)));
        }
        narrowing.read_paths = narrowing.read_paths.map(resolve).transpose()?;
        narrowing.write_paths = narrowing.write_paths.map(resolve).transpose()?;
        // Block both forms: a path is checked as text first, and again after it was opened and resolved.
        let blocked = resolve(narrowing.blocked_paths.clone())?;
        narrowing.blocked_paths.extend(blocked);
        Ok(narrowing)
    }
}

/// Result of adding presets in dependency order.
struct AddOutcome<'c> {
    faults: Vec<(&'c CustomPreset, PresetFault)>,
    /// Presets whose base could not be added: it does not exist, was rejected, or is part of a cycle.
    missing_base: Vec<&'c CustomPreset>,
}

/// Adds presets in dependency order: first those that other presets extend or list in `may_create`.
fn add_all<'c>(presets: &mut Presets, mut pending: Vec<(&'c CustomPreset, Narrowing)>) -> AddOutcome<'c> {
    let mut faults = Vec::new();
    loop {
        let has_base = |custom: &CustomPreset| presets.find(custom.extends()).is_ok();
        let names_known = |narrowing: &Narrowing| {
            narrowing.may_create.iter().flatten().all(|name| presets.find(name).is_ok())
        };
        // The parser reports names that do not exist; here they must not block the other presets.
        let any_complete =
            pending.iter().any(|(custom, narrowing)| has_base(custom) && names_known(narrowing));
        let is_ready = |(custom, narrowing): &(&CustomPreset, Narrowing)| {
            has_base(custom) && (!any_complete || names_known(narrowing))
        };
        let (ready, not_ready): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_ready);
        pending = not_ready;
        if ready.is_empty() {
            return AddOutcome {
                faults,
                missing_base: pending.into_iter().map(|(custom, _)| custom).collect(),
            };
        }
        for (custom, narrowing) in ready {
            if let Err(fault) = presets.add(&custom.name, custom.extends(), narrowing) {
                faults.push((custom, fault));
            }
        }
    }
}
