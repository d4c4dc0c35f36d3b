//! What an agent may do now, and why; and what it was given, which can be changed. A change counts from the next effect
//! on, for the agent and for everybody below it.

use std::sync::Arc;

use agent::journal::Record;
use agent::permission::{
    Budget, Dimension, Effect, FilePath, Grant, GrantKind, GrantRequest, Level, Limit, Permissions, Preset,
    PresetFault, Resource, Verdict, explain, judge,
};
use agent::{AgentId, Fault, FaultKind};

use super::create::{Initiator, OwnedInitiator};
use super::stored_permissions::{to_stored_permissions, to_stored_request};
use super::{Pool, PoolHandle};
use crate::handle::AgentHandle;
use crate::lineage::{GrantedPermissions, InsufficientBudget, LineageNode};

/// What an agent is given, as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionSpec {
    /// Its preset; the pool's own when there is none.
    pub preset: Option<String>,
    /// Tools it may not call.
    pub disable_tools: Vec<String>,
    /// Where it may write.
    pub write_paths: Option<Vec<String>>,
    /// Presets its children may have; those of its preset when nothing is said. Only an admin may say it.
    pub may_create: Option<Vec<String>>,
    /// What it may grant, when that is not what it may do. Only an admin may say it.
    pub may_grant: Option<MayGrantSpec>,
    /// How much it may use up.
    pub budget: Budget,
}

/// The second set of an agent, when it differs from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MayGrantSpec {
    /// The preset it begins from; the agent's own when there is none.
    pub preset: Option<String>,
    /// Tools it may not grant.
    pub disable_tools: Vec<String>,
    /// Where it may let children write.
    pub write_paths: Option<Vec<String>>,
    /// Presets that it may let children create from.
    pub may_create: Option<Vec<String>>,
}

/// The most items of one list: each is held against each, at every tool call of the agent.
const LIST_ITEMS_MAX: usize = 256;

impl PermissionSpec {
    fn check_list_sizes(&self) -> Result<(), Fault> {
        let count = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
        let second = self.may_grant.as_ref();
        let lists = [
            ("disable_tools", self.disable_tools.len()),
            ("allowed_write_paths", count(&self.write_paths)),
            ("may_create", count(&self.may_create)),
            ("may_grant.disable_tools", second.map_or(0, |second| second.disable_tools.len())),
            ("may_grant.allowed_write_paths", second.map_or(0, |second| count(&second.write_paths))),
            ("may_grant.may_create", second.map_or(0, |second| count(&second.may_create))),
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

/// What is to be different. What is not named stays as it is.
#[derive(Debug, Clone, Default)]
pub struct PermissionChange {
    /// Another preset.
    pub preset: Option<String>,
    /// The tools it may not call, all of them.
    pub disable_tools: Option<Vec<String>>,
    /// Where it may write.
    pub write_paths: Option<Vec<String>>,
    /// Presets its children may have. Only an admin may say it.
    pub may_create: Option<Vec<String>>,
    /// What it may grant. Only an admin may say it.
    pub may_grant: Option<MayGrantSpec>,
    /// Other limits; none lifts one.
    pub budget: Vec<(Resource, Option<u64>)>,
}

impl PermissionChange {
    fn apply_to(&self, permissions: &PermissionSpec) -> PermissionSpec {
        let mut permissions = permissions.clone();
        if self.preset.is_some() {
            permissions.preset.clone_from(&self.preset);
        }
        if let Some(tools) = &self.disable_tools {
            permissions.disable_tools.clone_from(tools);
        }
        if self.write_paths.is_some() {
            permissions.write_paths.clone_from(&self.write_paths);
        }
        if self.may_create.is_some() {
            permissions.may_create.clone_from(&self.may_create);
        }
        if self.may_grant.is_some() {
            permissions.may_grant.clone_from(&self.may_grant);
        }
        for (resource, limit) in &self.budget {
            permissions.budget = permissions.budget.with_limit(*resource, *limit);
        }
        permissions
    }
}

/// What an agent may do and grant now.
#[derive(Debug, Clone)]
pub struct AgentPermissions {
    /// The agent.
    pub id: AgentId,
    /// Its preset.
    pub preset: Arc<str>,
    /// How much it is trusted.
    pub level: Level,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<AgentId>,
    /// What it may do.
    pub may: Grant,
    /// What it may grant.
    pub may_grant: Grant,
    /// Every limit on what it may do.
    pub limits: Vec<Limit>,
    /// Every limit on what it may grant.
    pub grant_limits: Vec<Limit>,
    /// What it has used up, by resource.
    pub resource_usage: Vec<ResourceUsage>,
}

/// One resource of an agent.
#[derive(Debug, Clone, Copy)]
pub struct ResourceUsage {
    /// Which.
    pub resource: Resource,
    /// The agent's own limit.
    pub limit: Option<u64>,
    /// What it used, with what children used that have no share of their own.
    pub used: u64,
    /// What is set aside for children.
    pub reserved: u64,
    /// What it can still use.
    pub remaining: Option<u64>,
}

impl PoolHandle {
    /// What an agent may do now, and why.
    #[must_use]
    pub fn permissions(&self, agent: &AgentHandle) -> AgentPermissions {
        let kin = agent.node();
        let (line, standing) = (kin.lineage(), kin.granted());
        AgentPermissions {
            id: agent.id().clone(),
            preset: Arc::clone(&standing.preset),
            level: standing.level,
            ancestors: kin.ancestors().map(LineageNode::id).collect(),
            may: kin.may(),
            may_grant: kin.may_grant(),
            limits: explain(&line, GrantKind::May),
            grant_limits: explain(&line, GrantKind::MayGrant),
            resource_usage: Resource::ALL
                .into_iter()
                .map(|resource| resource_usage(agent, resource))
                .collect(),
        }
    }

    /// Changes what an agent was given.
    ///
    /// # Errors
    /// When the change is wrong, or more than the ancestors may grant, or cannot be kept; nothing changes then.
    pub async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
        by: Initiator<'_>,
    ) -> Result<(), Fault> {
        let (pool, agent, change) = (Arc::clone(&self.pool), agent.clone(), change.clone());
        let author = OwnedInitiator::from_initiator(by);
        // Whoever asked may go away; a change that has begun is finished.
        self.pool
            .run_detached(
                async move { pool.change_permissions(&agent, &change, author.as_initiator()).await },
            )
            .await
    }
}

impl Pool {
    async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
        by: Initiator<'_>,
    ) -> Result<(), Fault> {
        let kin = agent.node();
        // Two changes at once would each begin from what was before, and the second would undo the first.
        let _changing = kin.lock_for_change().await;
        let before = kin.granted();
        let standing = self.resolve_change(kin, &before, change, by)?;
        let budget = standing.spec.budget;
        kin.set_granted(standing.clone()).map_err(|short| match budget.limit(short.resource) {
            Some(_) => budget_exceeds_parent(short),
            None => reserved_by_children(short),
        })?;
        let by = by.name().to_owned();
        let record =
            Record::PermissionsChanged { by: by.clone(), permissions: Box::new((*standing.stored).clone()) };
        if let Err(fault) = agent.shared.append(vec![record], |_| {}).await {
            // What was before fits: nothing else could take what is given back here.
            let _ = kin.set_granted(before);
            return Err(fault.into());
        }
        tracing::info!(
            target: "nexus3::audit",
            event = "changed", principal = by, action = "set_permissions", agent = %agent.id(), "permissions changed"
        );
        Ok(())
    }

    fn resolve_change(
        &self,
        kin: &LineageNode,
        before: &GrantedPermissions,
        change: &PermissionChange,
        by: Initiator<'_>,
    ) -> Result<GrantedPermissions, Fault> {
        let permissions = change.apply_to(&before.spec);
        let outer = kin.parent.as_ref().map(|parent| parent.may_grant());
        let preset = self.find_preset(&permissions, Some(Level::Trusted))?;
        if change.preset.is_some() && preset.level > Level::Trusted {
            return Err(self.preset_not_found(preset.name(), Some(Level::Trusted)));
        }
        let create = Effect::Create(preset.inheritance.clone());
        if let Some(parent) = &kin.parent {
            authorize_effects(std::slice::from_ref(&create), &parent.may())?;
        }
        if let Initiator::Agent(own) = by {
            // What it could not have created it cannot make of what it has.
            authorize_effects(std::slice::from_ref(&create), &own.node().may())?;
            reject_widening(change.may_create.is_some() || change.may_grant.is_some())?;
        }
        self.resolve_permissions(&permissions, &kin.cwd, outer.as_ref())
    }

    pub(super) fn find_preset(
        &self,
        permissions: &PermissionSpec,
        level_max: Option<Level>,
    ) -> Result<&Preset, Fault> {
        let name = permissions.preset.as_deref().unwrap_or(&self.options.preset_default);
        self.options.presets.find(name).map_err(|_| self.preset_not_found(name, level_max))
    }

    /// One of the presets that can be had over the wire.
    fn find_wire_preset(&self, parameter: &str, name: &str) -> Result<&Preset, Fault> {
        let found = self.options.presets.find(name).ok().filter(|preset| preset.level <= Level::Trusted);
        found.ok_or_else(|| self.invalid_preset(parameter, name, Level::Trusted))
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

    /// What an agent gets: its asks filled in, and each thing it names checked against what its parent may grant.
    pub(super) fn resolve_permissions(
        &self,
        spec: &PermissionSpec,
        cwd: &FilePath,
        outer: Option<&Grant>,
    ) -> Result<GrantedPermissions, Fault> {
        let preset = self.find_preset(spec, None)?;
        spec.check_list_sizes()?;
        let ask = GrantRequest {
            cwd: cwd.clone(),
            write_paths: self.resolve_write_paths(spec.write_paths.as_deref(), cwd, outer)?,
            disable_tools: self.canonical_tool_names(&spec.disable_tools),
            may_create: self.resolve_preset_names("may_create", spec.may_create.as_deref(), outer)?,
            budget: spec.budget,
        };
        let may = preset.resolve(&ask).map_err(|fault| invalid_preset_request(&fault))?;
        let mut permissions = may.into_permissions();
        let mut kept = to_stored_permissions(preset, &ask);
        if let Some(second) = &spec.may_grant {
            let (grant, ask) = self.resolve_may_grant(second, preset, &ask, outer)?;
            permissions = Permissions { may_grant: Arc::new(grant), ..permissions };
            kept.may_grant = Some((second.preset.clone(), to_stored_request(&ask)));
        }
        Ok(GrantedPermissions {
            preset: Arc::clone(preset.name()),
            level: preset.level,
            permissions: Arc::new(permissions),
            spec: Arc::new(spec.clone()),
            stored: Arc::new(kept),
        })
    }

    fn resolve_may_grant(
        &self,
        second: &MayGrantSpec,
        own: &Preset,
        first: &GrantRequest,
        outer: Option<&Grant>,
    ) -> Result<(Grant, GrantRequest), Fault> {
        let preset = match &second.preset {
            None => own,
            Some(name) => self.find_wire_preset("may_grant.preset", name)?,
        };
        if let Some(outer) = outer {
            authorize_effects(&[Effect::Create(preset.inheritance.clone())], outer)?;
        }
        let ask = GrantRequest {
            cwd: first.cwd.clone(),
            write_paths: self.resolve_write_paths(second.write_paths.as_deref(), &first.cwd, outer)?,
            disable_tools: self.canonical_tool_names(&second.disable_tools),
            may_create: self.resolve_preset_names(
                "may_grant.may_create",
                second.may_create.as_deref(),
                outer,
            )?,
            budget: first.budget,
        };
        let resolved = preset.resolve(&ask).map_err(|fault| invalid_preset_request(&fault))?;
        Ok((resolved.grant, ask))
    }

    fn resolve_write_paths(
        &self,
        paths: Option<&[String]>,
        cwd: &FilePath,
        outer: Option<&Grant>,
    ) -> Result<Option<Vec<FilePath>>, Fault> {
        let Some(paths) = paths else { return Ok(None) };
        let place = |text: &String| {
            let found = self.outside.workspace.resolve_path(text, cwd);
            let path = found.map_err(|why| {
                Fault::new(
                    FaultKind::Invalid,
                    format!("allowed_write_path '{}' invalid: {why}", echoed(text)),
                )
            })?;
            if outer.is_some_and(|outer| outer.write.find(&path).is_none()) {
                let text = format!("allowed_write_path '{path}' is outside parent's allowed paths");
                return Err(Fault::denied(Dimension::Write.name(), text));
            }
            Ok(path)
        };
        paths.iter().map(place).collect::<Result<_, _>>().map(Some)
    }

    /// Tools by the names that grants know. A name that no tool has yet stays as it is: should one come, it is disabled.
    fn canonical_tool_names(&self, names: &[String]) -> Vec<Arc<str>> {
        let known = |name: &String| match self.outside.tools.find(name) {
            Some(tool) => Arc::clone(&tool.spec().name),
            None => Arc::from(name.as_str()),
        };
        names.iter().map(known).collect()
    }

    fn resolve_preset_names(
        &self,
        parameter: &str,
        names: Option<&[String]>,
        outer: Option<&Grant>,
    ) -> Result<Option<Vec<Arc<str>>>, Fault> {
        let Some(names) = names else { return Ok(None) };
        let found = |name: &String| {
            let preset = self.find_wire_preset(parameter, name)?;
            if outer.is_some_and(|outer| !preset.inheritance.iter().any(|name| outer.create.contains(name))) {
                let text = format!("{parameter} '{name}' exceeds parent ceiling");
                return Err(Fault::denied(Dimension::Create.name(), text));
            }
            Ok(Arc::clone(preset.name()))
        };
        names.iter().map(found).collect::<Result<_, _>>().map(Some)
    }
}

/// The longest text of a caller that is repeated to it.
const ECHOED_CHARS_MAX: usize = 200;

fn echoed(text: &str) -> String {
    text.chars().take(ECHOED_CHARS_MAX).collect()
}

pub(super) fn authorize_effects(effects: &[Effect], grant: &Grant) -> Result<(), Fault> {
    match judge(effects, grant) {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(denial) => Err(Fault::denied(denial.dimension.name(), denial.text)),
    }
}

/// What only an admin may ask for is refused to agents.
pub(super) fn reject_widening(asks: bool) -> Result<(), Fault> {
    let text = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    if asks { Err(Fault::denied(Dimension::Create.name(), text)) } else { Ok(()) }
}

fn invalid_preset_request(fault: &PresetFault) -> Fault {
    Fault::new(FaultKind::Invalid, fault.to_string())
}

fn reserved_by_children(short: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, remaining: left } = short;
    let text = format!("budget of {resource} cannot be lifted: children hold {left} of it");
    Fault::new(FaultKind::Invalid, text)
}

pub(super) fn budget_exceeds_parent(short: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, remaining: left } = short;
    let text = format!("budget of {resource} exceeds what the parent has left: {left}");
    Fault::denied(resource.name(), text)
}

fn resource_usage(agent: &AgentHandle, resource: Resource) -> ResourceUsage {
    let kin = agent.node();
    if resource == Resource::Children {
        let limit = kin.permissions().may.budget.limit(resource);
        let used = kin.descendant_count();
        return ResourceUsage { resource, limit, used, reserved: 0, remaining: kin.remaining_children() };
    }
    let account = kin.account(resource);
    ResourceUsage {
        resource,
        limit: account.limit,
        used: account.used,
        reserved: account.reserved,
        remaining: kin.remaining(resource),
    }
}
