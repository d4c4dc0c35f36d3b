//! What an agent may do now, and why; and what it was given, which can be changed. A change counts from the next effect
//! on, for the agent and for everybody below it.

use std::sync::Arc;

use agent::journal::Record;
use agent::permission::{
    Ask, Authority, Budget, Dimension, Effect, FilePath, Grant, Level, Limit, Preset, PresetFault, Resource,
    Verdict, Whose, explain, judge,
};
use agent::{AgentId, Fault, FaultKind};

use super::create::{Author, By};
use super::restore::{kept_ask, kept_rights};
use super::{Pool, PoolHandle};
use crate::handle::AgentHandle;
use crate::kin::{Kin, Short, Standing};

/// What an agent is given, as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RightsSpec {
    /// Its preset; the pool's own when there is none.
    pub preset: Option<String>,
    /// Tools it may not call.
    pub disable_tools: Vec<String>,
    /// Where it may write.
    pub write_paths: Option<Vec<String>>,
    /// Presets its children may have; those of its preset when nothing is said. Only an admin may say it.
    pub may_create: Option<Vec<String>>,
    /// What it may grant, when that is not what it may do. Only an admin may say it.
    pub may_grant: Option<MayGrant>,
    /// How much it may use up.
    pub budget: Budget,
}

/// The second set of an agent, when it differs from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MayGrant {
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
const ITEMS_MAX: usize = 256;

impl RightsSpec {
    fn must_be_short(&self) -> Result<(), Fault> {
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
        match lists.into_iter().find(|(_, count)| *count > ITEMS_MAX) {
            None => Ok(()),
            Some((list, count)) => {
                let text = format!("{list} must hold at most {ITEMS_MAX} items, got: {count}");
                Err(Fault::new(FaultKind::Invalid, text))
            }
        }
    }
}

/// What is to be different. What is not named stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Another preset.
    pub preset: Option<String>,
    /// The tools it may not call, all of them.
    pub disable_tools: Option<Vec<String>>,
    /// Where it may write.
    pub write_paths: Option<Vec<String>>,
    /// Presets its children may have. Only an admin may say it.
    pub may_create: Option<Vec<String>>,
    /// What it may grant. Only an admin may say it.
    pub may_grant: Option<MayGrant>,
    /// Other limits; none lifts one.
    pub budget: Vec<(Resource, Option<u64>)>,
}

impl Change {
    fn applied_to(&self, rights: &RightsSpec) -> RightsSpec {
        let mut rights = rights.clone();
        if self.preset.is_some() {
            rights.preset.clone_from(&self.preset);
        }
        if let Some(tools) = &self.disable_tools {
            rights.disable_tools.clone_from(tools);
        }
        if self.write_paths.is_some() {
            rights.write_paths.clone_from(&self.write_paths);
        }
        if self.may_create.is_some() {
            rights.may_create.clone_from(&self.may_create);
        }
        if self.may_grant.is_some() {
            rights.may_grant.clone_from(&self.may_grant);
        }
        for (resource, limit) in &self.budget {
            rights.budget = rights.budget.with(*resource, *limit);
        }
        rights
    }
}

/// What an agent may do and grant now.
#[derive(Debug, Clone)]
pub struct AgentRights {
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
    pub holdings: Vec<Holding>,
}

/// One resource of an agent.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// Which.
    pub resource: Resource,
    /// The agent's own limit.
    pub limit: Option<u64>,
    /// What it used, with what children used that have no share of their own.
    pub used: u64,
    /// What is set aside for children.
    pub reserved: u64,
    /// What it can still use.
    pub left: Option<u64>,
}

impl PoolHandle {
    /// What an agent may do now, and why.
    #[must_use]
    pub fn rights(&self, agent: &AgentHandle) -> AgentRights {
        let kin = agent.kin();
        let (line, standing) = (kin.line(), kin.standing());
        AgentRights {
            id: agent.id().clone(),
            preset: Arc::clone(&standing.preset),
            level: standing.level,
            ancestors: kin.ancestors().map(Kin::id).collect(),
            may: kin.may(),
            may_grant: kin.may_grant(),
            limits: explain(&line, Whose::May),
            grant_limits: explain(&line, Whose::MayGrant),
            holdings: Resource::ALL.into_iter().map(|resource| holding(agent, resource)).collect(),
        }
    }

    /// Changes what an agent was given.
    ///
    /// # Errors
    /// When the change is wrong, or more than the ancestors may grant, or cannot be kept; nothing changes then.
    pub async fn change_rights(&self, agent: &AgentHandle, change: &Change, by: By<'_>) -> Result<(), Fault> {
        let (pool, agent, change) = (Arc::clone(&self.pool), agent.clone(), change.clone());
        let author = Author::of(by);
        // Whoever asked may go away; a change that has begun is finished.
        self.pool.finish(async move { pool.change_rights(&agent, &change, author.by()).await }).await
    }
}

impl Pool {
    async fn change_rights(&self, agent: &AgentHandle, change: &Change, by: By<'_>) -> Result<(), Fault> {
        let kin = agent.kin();
        // Two changes at once would each begin from what was before, and the second would undo the first.
        let _changing = kin.changing().await;
        let before = kin.standing();
        let standing = self.changed_standing(kin, &before, change, by)?;
        let budget = standing.rights.budget;
        kin.change(standing.clone()).map_err(|short| match budget.limit(short.resource) {
            Some(_) => too_little(short),
            None => held_by_children(short),
        })?;
        let by = by.name().to_owned();
        let record = Record::RightsChanged { by: by.clone(), rights: Box::new((*standing.kept).clone()) };
        if let Err(fault) = agent.shared.append(vec![record], |_| {}).await {
            // What was before fits: nothing else could take what is given back here.
            let _ = kin.change(before);
            return Err(fault.into());
        }
        tracing::info!(
            target: "nexus3::audit",
            event = "changed", principal = by, action = "set_permissions", agent = %agent.id(), "permissions changed"
        );
        Ok(())
    }

    fn changed_standing(
        &self,
        kin: &Kin,
        before: &Standing,
        change: &Change,
        by: By<'_>,
    ) -> Result<Standing, Fault> {
        let rights = change.applied_to(&before.rights);
        let outer = kin.parent.as_ref().map(|parent| parent.may_grant());
        let preset = self.preset(&rights, Some(Level::Trusted))?;
        if change.preset.is_some() && preset.level > Level::Trusted {
            return Err(self.no_such_preset(preset.name(), Some(Level::Trusted)));
        }
        let create = Effect::Create(preset.lineage.clone());
        if let Some(parent) = &kin.parent {
            must_be_allowed(std::slice::from_ref(&create), &parent.may())?;
        }
        if let By::Agent(own) = by {
            // What it could not have created it cannot make of what it has.
            must_be_allowed(std::slice::from_ref(&create), &own.kin().may())?;
            must_not_widen(change.may_create.is_some() || change.may_grant.is_some())?;
        }
        self.standing(&rights, &kin.cwd, outer.as_ref())
    }

    pub(super) fn preset(&self, rights: &RightsSpec, level_max: Option<Level>) -> Result<&Preset, Fault> {
        let name = rights.preset.as_deref().unwrap_or(&self.options.preset_default);
        self.options.presets.find(name).map_err(|_| self.no_such_preset(name, level_max))
    }

    /// One of the presets that can be had over the wire.
    fn named_preset(&self, parameter: &str, name: &str) -> Result<&Preset, Fault> {
        let found = self.options.presets.find(name).ok().filter(|preset| preset.level <= Level::Trusted);
        found.ok_or_else(|| self.unknown_preset(parameter, name, Level::Trusted))
    }

    pub(super) fn no_such_preset(&self, name: &str, level_max: Option<Level>) -> Fault {
        self.unknown_preset("preset", name, level_max.unwrap_or(Level::Yolo))
    }

    fn unknown_preset(&self, parameter: &str, name: &str, level_max: Level) -> Fault {
        let choices = self.options.presets.choices(level_max);
        Fault::new(
            FaultKind::Invalid,
            format!("{parameter} must be one of {choices}, got: '{}'", shown(name)),
        )
    }

    /// What an agent gets: its asks filled in, and each thing it names checked against what its parent may grant.
    pub(super) fn standing(
        &self,
        rights: &RightsSpec,
        cwd: &FilePath,
        outer: Option<&Grant>,
    ) -> Result<Standing, Fault> {
        let preset = self.preset(rights, None)?;
        rights.must_be_short()?;
        let ask = Ask {
            cwd: cwd.clone(),
            write_paths: self.write_paths(rights.write_paths.as_deref(), cwd, outer)?,
            disable_tools: self.tool_names(&rights.disable_tools),
            may_create: self.preset_names("may_create", rights.may_create.as_deref(), outer)?,
            budget: rights.budget,
        };
        let may = preset.resolve(&ask).map_err(|fault| ill_fitting(&fault))?;
        let mut authority = may.authority();
        let mut kept = kept_rights(preset, &ask);
        if let Some(second) = &rights.may_grant {
            let (grant, ask) = self.second_set(second, preset, &ask, outer)?;
            authority = Authority { may_grant: Arc::new(grant), ..authority };
            kept.may_grant = Some((second.preset.clone(), kept_ask(&ask)));
        }
        Ok(Standing {
            preset: Arc::clone(preset.name()),
            level: preset.level,
            authority: Arc::new(authority),
            rights: Arc::new(rights.clone()),
            kept: Arc::new(kept),
        })
    }

    fn second_set(
        &self,
        second: &MayGrant,
        own: &Preset,
        first: &Ask,
        outer: Option<&Grant>,
    ) -> Result<(Grant, Ask), Fault> {
        let preset = match &second.preset {
            None => own,
            Some(name) => self.named_preset("may_grant.preset", name)?,
        };
        if let Some(outer) = outer {
            must_be_allowed(&[Effect::Create(preset.lineage.clone())], outer)?;
        }
        let ask = Ask {
            cwd: first.cwd.clone(),
            write_paths: self.write_paths(second.write_paths.as_deref(), &first.cwd, outer)?,
            disable_tools: self.tool_names(&second.disable_tools),
            may_create: self.preset_names("may_grant.may_create", second.may_create.as_deref(), outer)?,
            budget: first.budget,
        };
        let resolved = preset.resolve(&ask).map_err(|fault| ill_fitting(&fault))?;
        Ok((resolved.grant, ask))
    }

    fn write_paths(
        &self,
        paths: Option<&[String]>,
        cwd: &FilePath,
        outer: Option<&Grant>,
    ) -> Result<Option<Vec<FilePath>>, Fault> {
        let Some(paths) = paths else { return Ok(None) };
        let place = |text: &String| {
            let found = self.outside.workspace.place(text, cwd);
            let path = found.map_err(|why| {
                Fault::new(FaultKind::Invalid, format!("allowed_write_path '{}' invalid: {why}", shown(text)))
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
    fn tool_names(&self, names: &[String]) -> Vec<Arc<str>> {
        let known = |name: &String| match self.outside.tools.find(name) {
            Some(tool) => Arc::clone(&tool.spec().name),
            None => Arc::from(name.as_str()),
        };
        names.iter().map(known).collect()
    }

    fn preset_names(
        &self,
        parameter: &str,
        names: Option<&[String]>,
        outer: Option<&Grant>,
    ) -> Result<Option<Vec<Arc<str>>>, Fault> {
        let Some(names) = names else { return Ok(None) };
        let found = |name: &String| {
            let preset = self.named_preset(parameter, name)?;
            if outer.is_some_and(|outer| !preset.lineage.iter().any(|name| outer.create.contains(name))) {
                let text = format!("{parameter} '{name}' exceeds parent ceiling");
                return Err(Fault::denied(Dimension::Create.name(), text));
            }
            Ok(Arc::clone(preset.name()))
        };
        names.iter().map(found).collect::<Result<_, _>>().map(Some)
    }
}

/// The longest text of a caller that is repeated to it.
const SHOWN_CHARS_MAX: usize = 200;

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

pub(super) fn must_be_allowed(effects: &[Effect], grant: &Grant) -> Result<(), Fault> {
    match judge(effects, grant) {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(denial) => Err(Fault::denied(denial.dimension.name(), denial.text)),
    }
}

/// What only an admin may ask for is refused to agents.
pub(super) fn must_not_widen(asks: bool) -> Result<(), Fault> {
    let text = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    if asks { Err(Fault::denied(Dimension::Create.name(), text)) } else { Ok(()) }
}

fn ill_fitting(fault: &PresetFault) -> Fault {
    Fault::new(FaultKind::Invalid, fault.to_string())
}

fn held_by_children(short: Short) -> Fault {
    let Short { resource, left } = short;
    let text = format!("budget of {resource} cannot be lifted: children hold {left} of it");
    Fault::new(FaultKind::Invalid, text)
}

pub(super) fn too_little(short: Short) -> Fault {
    let Short { resource, left } = short;
    let text = format!("budget of {resource} exceeds what the parent has left: {left}");
    Fault::denied(resource.name(), text)
}

fn holding(agent: &AgentHandle, resource: Resource) -> Holding {
    let kin = agent.kin();
    if resource == Resource::Children {
        let limit = kin.authority().may.budget.limit(resource);
        let used = kin.descendants();
        return Holding { resource, limit, used, reserved: 0, left: kin.children_left() };
    }
    let account = kin.account(resource);
    Holding {
        resource,
        limit: account.limit,
        used: account.used,
        reserved: account.reserved,
        left: kin.left(resource),
    }
}
