//! Requests for permissions, and changes of them, before presets and paths are resolved.

use agent::permission::{Budget, Resource, Rule, RuleAction, RuleEntry};
use agent::{Fault, FaultKind};

/// Requested permissions of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionSpec {
    /// Preset; the pool's default if `None`.
    pub preset: Option<String>,
    /// The only tools the agent may call; the preset's own if `None`.
    pub tools: Option<Vec<String>>,
    /// Tools the agent may not call.
    pub disable_tools: Vec<String>,
    /// Paths the agent may write to.
    pub write_paths: Option<Vec<String>>,
    /// Commands the agent may run, `*` for all; the preset's own if `None`.
    pub commands: Option<Vec<String>>,
    /// Hosts the agent may connect to; the preset's own if `None`.
    pub hosts: Option<Vec<String>>,
    /// Hosts the agent may not connect to.
    pub denied_hosts: Vec<String>,
    /// Presets its children may have; the preset's own if `None`. Admin only.
    pub may_create: Option<Vec<String>>,
    /// What it may grant, if different from what it may do. Admin only.
    pub may_grant: Option<MayGrantSpec>,
    /// Approval rules beside those of the preset. Those that allow are admin only.
    pub rules: Vec<RuleEntry>,
    /// Resource limits.
    pub budget: Budget,
}

/// What an agent may grant, if different from what it may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MayGrantSpec {
    /// Base preset; the agent's own if `None`.
    pub preset: Option<String>,
    /// The only tools it may grant; the preset's own if `None`.
    pub tools: Option<Vec<String>>,
    /// Tools it may not grant.
    pub disable_tools: Vec<String>,
    /// Paths it may let children write to.
    pub write_paths: Option<Vec<String>>,
    /// Commands it may let children run, `*` for all.
    pub commands: Option<Vec<String>>,
    /// Hosts it may let children connect to.
    pub hosts: Option<Vec<String>>,
    /// Hosts it may not let children connect to.
    pub denied_hosts: Vec<String>,
    /// Presets its children may in turn create.
    pub may_create: Option<Vec<String>>,
}

/// Maximum items per list: lists are compared pairwise at every tool call.
const LIST_ITEMS_MAX: usize = 256;

impl PermissionSpec {
    pub(super) fn check_list_sizes(&self) -> Result<(), Fault> {
        let count = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
        let none = MayGrantSpec::default();
        let may_grant = self.may_grant.as_ref().unwrap_or(&none);
        let lists = [
            ("tools", count(&self.tools)),
            ("disable_tools", self.disable_tools.len()),
            ("allowed_write_paths", count(&self.write_paths)),
            ("allowed_commands", count(&self.commands)),
            ("allowed_hosts", count(&self.hosts)),
            ("denied_hosts", self.denied_hosts.len()),
            ("may_create", count(&self.may_create)),
            ("may_grant.tools", count(&may_grant.tools)),
            ("may_grant.disable_tools", may_grant.disable_tools.len()),
            ("may_grant.allowed_write_paths", count(&may_grant.write_paths)),
            ("may_grant.allowed_commands", count(&may_grant.commands)),
            ("may_grant.allowed_hosts", count(&may_grant.hosts)),
            ("may_grant.denied_hosts", may_grant.denied_hosts.len()),
            ("may_grant.may_create", count(&may_grant.may_create)),
            ("ask, allow and deny together", self.rules.len()),
        ];
        match lists.into_iter().find(|(_, count)| *count > LIST_ITEMS_MAX) {
            None => Ok(()),
            Some((list, count)) => {
                let text = format!("{list} must hold at most {LIST_ITEMS_MAX} items, got: {count}");
                Err(Fault::new(FaultKind::Invalid, text))
            }
        }
    }
}

/// A change of permissions; fields that are `None` stay as they are.
#[derive(Debug, Clone, Default)]
pub struct PermissionChange {
    /// New preset.
    pub preset: Option<String>,
    /// New, complete list of the only tools it may call.
    pub tools: Option<Vec<String>>,
    /// New, complete list of tools it may not call.
    pub disable_tools: Option<Vec<String>>,
    /// Paths the agent may write to.
    pub write_paths: Option<Vec<String>>,
    /// Commands the agent may run, `*` for all; the preset's own if `None`.
    pub commands: Option<Vec<String>>,
    /// Hosts the agent may connect to; the preset's own if `None`.
    pub hosts: Option<Vec<String>>,
    /// New, complete list of hosts it may not connect to.
    pub denied_hosts: Option<Vec<String>>,
    /// Presets its children may have. Admin only.
    pub may_create: Option<Vec<String>>,
    /// What it may grant. Admin only.
    pub may_grant: Option<MayGrantSpec>,
    /// New, complete lists of approval rules, by action. Those that allow are admin only.
    pub rules: Vec<(RuleAction, Vec<Rule>)>,
    /// New limits; `None` removes one.
    pub budget: Vec<(Resource, Option<u64>)>,
}

impl PermissionChange {
    pub(super) fn apply_to(&self, spec: &PermissionSpec) -> PermissionSpec {
        let mut spec = spec.clone();
        if self.preset.is_some() {
            spec.preset.clone_from(&self.preset);
        }
        if self.tools.is_some() {
            spec.tools.clone_from(&self.tools);
        }
        if let Some(tools) = &self.disable_tools {
            spec.disable_tools.clone_from(tools);
        }
        if self.write_paths.is_some() {
            spec.write_paths.clone_from(&self.write_paths);
        }
        if self.commands.is_some() {
            spec.commands.clone_from(&self.commands);
        }
        if self.hosts.is_some() {
            spec.hosts.clone_from(&self.hosts);
        }
        if let Some(hosts) = &self.denied_hosts {
            spec.denied_hosts.clone_from(hosts);
        }
        if self.may_create.is_some() {
            spec.may_create.clone_from(&self.may_create);
        }
        if self.may_grant.is_some() {
            spec.may_grant.clone_from(&self.may_grant);
        }
        for (action, rules) in &self.rules {
            spec.rules.retain(|entry| entry.action != *action);
            spec.rules.extend(rules.iter().map(|rule| RuleEntry::of_creator(*action, rule.clone())));
        }
        for (resource, limit) in &self.budget {
            spec.budget = spec.budget.with_limit(*resource, *limit);
        }
        spec
    }
}
