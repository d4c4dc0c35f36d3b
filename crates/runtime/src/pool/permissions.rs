//! Permissions of agents: reports the effective grant with its reasons, and changes it. A change applies from the next
//! effect on, to the agent and its descendants.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::journal::{Record, StoredPermissions};
use agent::permission::{
    Dimension, DirectoryIdentity, Effect, FilePath, Grant, GrantKind, GrantRequest, Level, Limit,
    Permissions, Preset, PresetFault, ResolvedPreset, Resource, Rule, RuleAction, RuleEntry, Verdict,
    explain, judge,
};
use agent::{AgentId, Fault, FaultKind};

use super::create::{Initiator, OwnedInitiator};
use super::permission_spec::{MayGrantSpec, PermissionChange, PermissionSpec};
use super::requested_lists::{resolve_commands, resolve_denied_hosts, resolve_hosts};
use super::stored_permissions::{spec_from_stored, to_stored_permissions, to_stored_request};
use super::{Pool, PoolHandle};
use crate::handle::AgentHandle;
use crate::lineage::{GrantedPermissions, InsufficientBudget, LineageNode};

/// The resolved paths and identities of an earlier grant that a change leaves as they are.
#[derive(Default)]
pub(super) struct Recorded<'a> {
    paths: Vec<FilePath>,
    identities: &'a [DirectoryIdentity],
}

impl<'a> Recorded<'a> {
    /// A change that names directories, or the preset that grants the working directory, grants them as they are now.
    /// Any other change is no consent to what took their place.
    fn before(change: &PermissionChange, before: &'a GrantedPermissions) -> Self {
        let StoredPermissions { may, may_grant, .. } = &*before.stored;
        let own = may.write_paths.iter().filter(|_| change.write_paths.is_none());
        let granted = may_grant.iter().filter(|_| change.may_grant.is_none());
        let granted = granted.filter_map(|(_, request)| request.write_paths.as_ref());
        let names_directories =
            change.preset.is_some() || change.write_paths.is_some() || change.may_grant.is_some();
        Self {
            paths: own.chain(granted).flatten().cloned().collect(),
            identities: if names_directories { &[] } else { &before.permissions.may.identities },
        }
    }
}

/// Effective permissions of an agent.
#[derive(Debug, Clone)]
pub struct AgentPermissions {
    /// Agent id.
    pub id: AgentId,
    /// Preset.
    pub preset: Arc<str>,
    /// Trust level.
    pub level: Level,
    /// Ancestors, nearest first.
    pub ancestors: Vec<AgentId>,
    /// Approval rules, its own and those of its preset.
    pub rules: Vec<RuleEntry>,
    /// Grant for its own effects.
    pub may: Grant,
    /// Grant that bounds its children.
    pub may_grant: Grant,
    /// Every restriction on its own effects, with its reason.
    pub limits: Vec<Limit>,
    /// Every restriction on what it may grant, with its reason.
    pub grant_limits: Vec<Limit>,
    /// Usage by resource.
    pub resource_usage: Vec<ResourceUsage>,
}

/// Usage of one resource.
#[derive(Debug, Clone, Copy)]
pub struct ResourceUsage {
    /// Resource.
    pub resource: Resource,
    /// Own limit of the agent.
    pub limit: Option<u64>,
    /// Amount used, including children without limits of their own.
    pub used: u64,
    /// Amount reserved for children.
    pub reserved: u64,
    /// Amount remaining.
    pub remaining: Option<u64>,
}

impl PoolHandle {
    /// Returns the effective permissions, with reasons and usage.
    #[must_use]
    pub fn permissions(&self, agent: &AgentHandle) -> AgentPermissions {
        let node = agent.node();
        let (lineage, granted) = (node.lineage(), node.granted());
        AgentPermissions {
            id: agent.id().clone(),
            preset: Arc::clone(&granted.preset),
            level: granted.level,
            ancestors: node.ancestors().map(LineageNode::id).collect(),
            rules: granted.permissions.approvals.entries().to_vec(),
            may: node.may(),
            may_grant: node.may_grant(),
            limits: explain(&lineage, GrantKind::May),
            grant_limits: explain(&lineage, GrantKind::MayGrant),
            resource_usage: Resource::ALL
                .into_iter()
                .map(|resource| resource_usage(agent, resource))
                .collect(),
        }
    }

    /// Changes the permissions of an agent.
    ///
    /// # Errors
    /// When the change is invalid, exceeds what the ancestors may grant, or cannot be committed; nothing changes then.
    pub async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
        initiator: Initiator<'_>,
    ) -> Result<(), Fault> {
        let (pool, agent, change) = (Arc::clone(&self.pool), agent.clone(), change.clone());
        let initiator = OwnedInitiator::from_initiator(initiator);
        // Detached: a change that has started is finished, even if the caller leaves.
        self.pool
            .run_detached(
                async move { pool.change_permissions(&agent, &change, initiator.as_initiator()).await },
            )
            .await
    }
}

impl Pool {
    async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
        initiator: Initiator<'_>,
    ) -> Result<(), Fault> {
        let node = agent.node();
        // Without the lock, of two concurrent changes the second would undo the first.
        let _change_guard = node.lock_for_change().await;
        let before = node.granted();
        let granted = self.resolve_change(node, &before, change, initiator)?;
        let budget = granted.spec.budget;
        node.set_granted(granted.clone()).map_err(|shortfall| match budget.limit(shortfall.resource) {
            Some(_) => budget_exceeds_parent(shortfall),
            None => reserved_by_children(shortfall),
        })?;
        self.count_permission_change();
        let initiator = initiator.principal_id();
        let record = Record::PermissionsChanged {
            by: initiator.clone(),
            permissions: Box::new((*granted.stored).clone()),
        };
        if let Err(fault) = agent.shared.append(vec![record], |state| node.copy_identities(state)).await {
            // The old limits fit, unless a concurrent creation has reserved what a lowered limit released.
            let _ = node.set_granted(before);
            agent.shared.change_enqueued_state(|state| node.copy_identities(state));
            self.count_permission_change();
            return Err(fault.into());
        }
        tracing::info!(
            target: "nexus3::audit",
            event = "changed", principal = %initiator, action = "set_permissions", agent = %agent.id(), "permissions changed"
        );
        Ok(())
    }

    fn resolve_change(
        &self,
        node: &LineageNode,
        before: &GrantedPermissions,
        change: &PermissionChange,
        initiator: Initiator<'_>,
    ) -> Result<GrantedPermissions, Fault> {
        let spec = change.apply_to(&before.spec);
        let ceiling = node.parent.as_ref().map(|parent| parent.may_grant());
        let preset = self.find_preset(&spec, Some(Level::Trusted))?;
        if change.preset.is_some() && preset.level > Level::Trusted {
            return Err(self.preset_not_found(preset.name(), Some(Level::Trusted)));
        }
        let create = Effect::Create(preset.inheritance.clone());
        if let Some(parent) = &node.parent {
            authorize_effects(std::slice::from_ref(&create), &parent.may())?;
        }
        if let Initiator::Agent(agent) = initiator {
            // An agent may not change another to a preset that it may not create.
            authorize_effects(std::slice::from_ref(&create), &agent.node().may())?;
            let allows = change.rules.iter().any(|(action, _)| *action == RuleAction::Allow);
            reject_widening(change.may_create.is_some() || change.may_grant.is_some() || allows)?;
        }
        self.resolve_permissions(&spec, &node.cwd, ceiling.as_ref(), &Recorded::before(change, before))
    }

    pub(super) fn find_preset(
        &self,
        spec: &PermissionSpec,
        level_max: Option<Level>,
    ) -> Result<&Preset, Fault> {
        let name = spec.preset.as_deref().unwrap_or(&self.options.preset_default);
        self.options.presets.find(name).map_err(|_| self.preset_not_found(name, level_max))
    }

    /// Finds a preset that clients may request.
    fn find_wire_preset(&self, parameter: &str, name: &str) -> Result<&Preset, Fault> {
        let preset = self.options.presets.find(name).ok().filter(|preset| preset.level <= Level::Trusted);
        preset.ok_or_else(|| self.invalid_preset(parameter, name, Level::Trusted))
    }

    pub(super) fn preset_not_found(&self, name: &str, level_max: Option<Level>) -> Fault {
        self.invalid_preset("preset", name, level_max.unwrap_or(Level::Yolo))
    }

    fn invalid_preset(&self, parameter: &str, name: &str, level_max: Level) -> Fault {
        let choices = self.options.presets.choices(level_max);
        Fault::new(
            FaultKind::Invalid,
            format!("{parameter} must be one of {choices}, got: '{}'", echoed(name)),
        )
    }

    /// Resolves a request to permissions, checking each item against what the parent may grant. What an earlier grant
    /// has recorded is not resolved again.
    pub(super) fn resolve_permissions(
        &self,
        spec: &PermissionSpec,
        cwd: &FilePath,
        ceiling: Option<&Grant>,
        recorded: &Recorded<'_>,
    ) -> Result<GrantedPermissions, Fault> {
        let preset = self.find_preset(spec, None)?;
        spec.check_list_sizes()?;
        let request = GrantRequest {
            cwd: cwd.clone(),
            write_paths: self.resolve_write_paths(spec.write_paths.as_deref(), cwd, ceiling, recorded)?,
            tools: spec.tools.as_deref().map(|names| self.canonical_tool_names(names)),
            disable_tools: self.canonical_tool_names(&spec.disable_tools),
            commands: resolve_commands(spec.commands.as_deref(), ceiling)?,
            hosts: resolve_hosts(spec.hosts.as_deref(), ceiling)?,
            denied_hosts: resolve_denied_hosts(&spec.denied_hosts)?,
            may_create: self.resolve_preset_names("may_create", spec.may_create.as_deref(), ceiling)?,
            rules: spec.rules.iter().map(|entry| self.canonical_entry(entry)).collect(),
            budget: spec.budget,
        };
        let may = resolve_preset(preset, &request)?;
        let mut permissions = may.into_permissions();
        let mut stored = to_stored_permissions(preset, &request);
        if let Some(may_grant) = &spec.may_grant {
            let (grant, request) = self.resolve_may_grant(may_grant, preset, &request, ceiling, recorded)?;
            permissions = Permissions { may_grant: Arc::new(grant), ..permissions };
            stored.may_grant = Some((may_grant.preset.clone(), to_stored_request(&request)));
        }
        permissions.add_identities(&self.identify_directories(&permissions, recorded.identities));
        Ok(GrantedPermissions {
            preset: Arc::clone(preset.name()),
            level: preset.level,
            permissions: Arc::new(permissions),
            spec: Arc::new(spec_from_stored(&stored)),
            stored: Arc::new(stored),
        })
    }

    fn resolve_may_grant(
        &self,
        spec: &MayGrantSpec,
        own_preset: &Preset,
        own_request: &GrantRequest,
        ceiling: Option<&Grant>,
        recorded: &Recorded<'_>,
    ) -> Result<(Grant, GrantRequest), Fault> {
        let preset = match &spec.preset {
            None => own_preset,
            Some(name) => self.find_wire_preset("may_grant.preset", name)?,
        };
        if let Some(ceiling) = ceiling {
            authorize_effects(&[Effect::Create(preset.inheritance.clone())], ceiling)?;
        }
        let request = GrantRequest {
            cwd: own_request.cwd.clone(),
            write_paths: self.resolve_write_paths(
                spec.write_paths.as_deref(),
                &own_request.cwd,
                ceiling,
                recorded,
            )?,
            tools: spec.tools.as_deref().map(|names| self.canonical_tool_names(names)),
            disable_tools: self.canonical_tool_names(&spec.disable_tools),
            commands: resolve_commands(spec.commands.as_deref(), ceiling)?,
            hosts: resolve_hosts(spec.hosts.as_deref(), ceiling)?,
            denied_hosts: resolve_denied_hosts(&spec.denied_hosts)?,
            may_create: self.resolve_preset_names(
                "may_grant.may_create",
                spec.may_create.as_deref(),
                ceiling,
            )?,
            rules: Vec::new(),
            budget: own_request.budget,
        };
        Ok((resolve_preset(preset, &request)?.grant, request))
    }

    fn resolve_write_paths(
        &self,
        paths: Option<&[String]>,
        cwd: &FilePath,
        ceiling: Option<&Grant>,
        recorded: &Recorded<'_>,
    ) -> Result<Option<Vec<FilePath>>, Fault> {
        let Some(paths) = paths else { return Ok(None) };
        let resolve = |text: &String| {
            let known = recorded.paths.iter().find(|path| path.as_str() == text);
            let resolved = known.cloned().map_or_else(|| self.outside.workspace.resolve_path(text, cwd), Ok);
            let path = resolved.map_err(|why| {
                Fault::new(
                    FaultKind::Invalid,
                    format!("allowed_write_path '{}' invalid: {why}", echoed(text)),
                )
            })?;
            if ceiling.is_some_and(|ceiling| ceiling.write.find(&path).is_none()) {
                let text = format!("allowed_write_path '{path}' is outside parent's allowed paths");
                return Err(Fault::denied(Dimension::Write.name(), text));
            }
            Ok(path)
        };
        paths.iter().map(resolve).collect::<Result<_, _>>().map(Some)
    }

    /// Maps tool names to the canonical names that grants use. Unknown names stay: they apply to a tool that is added
    /// later.
    fn canonical_tool_names(&self, names: &[String]) -> Vec<Arc<str>> {
        names.iter().map(|name| self.canonical_tool_name(name)).collect()
    }

    fn canonical_tool_name(&self, name: &str) -> Arc<str> {
        match self.outside.tools.snapshot().find(name) {
            Some(tool) => Arc::clone(&tool.spec().name),
            None => Arc::from(name),
        }
    }

    /// A rule with the canonical name of its tool.
    pub(crate) fn canonical_rule(&self, rule: Rule) -> Rule {
        rule.with_canonical_tool(|name| self.canonical_tool_name(name))
    }

    fn canonical_entry(&self, entry: &RuleEntry) -> RuleEntry {
        RuleEntry { rule: self.canonical_rule(entry.rule.clone()), ..entry.clone() }
    }

    /// Counts a change of granted permissions.
    pub(crate) fn count_permission_change(&self) {
        self.permission_changes.fetch_add(1, Ordering::Release);
    }

    fn resolve_preset_names(
        &self,
        parameter: &str,
        names: Option<&[String]>,
        ceiling: Option<&Grant>,
    ) -> Result<Option<Vec<Arc<str>>>, Fault> {
        let Some(names) = names else { return Ok(None) };
        let resolve = |name: &String| {
            let preset = self.find_wire_preset(parameter, name)?;
            if ceiling
                .is_some_and(|ceiling| !preset.inheritance.iter().any(|name| ceiling.create.contains(name)))
            {
                let text = format!("{parameter} '{name}' exceeds parent ceiling");
                return Err(Fault::denied(Dimension::Create.name(), text));
            }
            Ok(Arc::clone(preset.name()))
        };
        names.iter().map(resolve).collect::<Result<_, _>>().map(Some)
    }
}

/// Maximum characters of caller input echoed in an error.
const ECHOED_CHARS_MAX: usize = 200;

pub(super) fn echoed(text: &str) -> String {
    text.chars().take(ECHOED_CHARS_MAX).collect()
}

pub(super) fn authorize_effects(effects: &[Effect], grant: &Grant) -> Result<(), Fault> {
    match judge(effects, grant) {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(denial) => Err(Fault::denied(denial.dimension.name(), denial.text)),
    }
}

/// Rejects admin-only fields from agents.
pub(super) fn reject_widening(is_widening: bool) -> Result<(), Fault> {
    let text = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    if is_widening { Err(Fault::denied(Dimension::Create.name(), text)) } else { Ok(()) }
}

fn resolve_preset(preset: &Preset, request: &GrantRequest) -> Result<ResolvedPreset, Fault> {
    let invalid = |fault: PresetFault| Fault::new(FaultKind::Invalid, fault.to_string());
    let resolved = preset.resolve(request).map_err(invalid)?;
    preset.check_commands(request).map_err(invalid)?;
    preset.check_hosts(request).map_err(invalid)?;
    Ok(resolved)
}

fn reserved_by_children(shortfall: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, remaining: reserved } = shortfall;
    let text = format!("limit on {resource} cannot be removed: {reserved} are reserved for children");
    Fault::new(FaultKind::Invalid, text)
}

pub(super) fn budget_exceeds_parent(shortfall: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, remaining } = shortfall;
    let text = format!("budget of {resource} exceeds what the parent has left: {remaining}");
    Fault::denied(resource.name(), text)
}

fn resource_usage(agent: &AgentHandle, resource: Resource) -> ResourceUsage {
    let node = agent.node();
    if resource == Resource::Children {
        let limit = node.permissions().may.budget.limit(resource);
        let used = node.descendant_count();
        return ResourceUsage { resource, limit, used, reserved: 0, remaining: node.remaining_children() };
    }
    let account = node.account(resource);
    ResourceUsage {
        resource,
        limit: account.limit,
        used: account.used,
        reserved: account.reserved,
        remaining: node.remaining(resource),
    }
}
