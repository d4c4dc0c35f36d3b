//! Grants: what is allowed, in every dimension. The intersection of two grants is exact; ceilings are built from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::directory_identity::merge_identities;
use super::{
    Budget, Confinement, DirectoryIdentity, DirectorySet, Effect, FilePath, HostSet, NameSet, Targets,
};
use crate::ToolSpec;

/// A set of allowed actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Tools that may be called.
    pub tools: NameSet,
    /// Names under which tools are disabled: also other names of tools, even of tools that do not exist yet.
    pub disabled_tools: BTreeSet<Arc<str>>,
    /// Directories that may be read.
    pub read: DirectorySet,
    /// Directories that may be written.
    pub write: DirectorySet,
    /// Directories that may be neither read nor written, whatever else is allowed.
    pub blocked: Vec<FilePath>,
    /// The identities of the directories in `read` and `write`, as far as they are recorded. A file is opened only if
    /// all those at or above the directory that permits it hold.
    pub identities: Vec<DirectoryIdentity>,
    /// Programs that may be run.
    pub commands: NameSet,
    /// Whether commands may run outside the sandbox.
    pub unsandboxed: bool,
    /// Hosts that may be connected to.
    pub hosts: HostSet,
    /// Presets that children may be created from.
    pub create: NameSet,
    /// Agents that may be accessed.
    pub targets: Targets,
    /// Consumption limits.
    pub budget: Budget,
}

impl Grant {
    /// The grant that allows nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            tools: NameSet::none(),
            disabled_tools: BTreeSet::new(),
            read: DirectorySet::none(),
            write: DirectorySet::none(),
            blocked: Vec::new(),
            identities: Vec::new(),
            commands: NameSet::none(),
            unsandboxed: false,
            hosts: HostSet::none(),
            create: NameSet::none(),
            targets: Targets::none(),
            budget: Budget::zero(),
        }
    }

    /// The grant that allows everything: the ceiling where no ancestor sets a limit.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            tools: NameSet::all(),
            disabled_tools: BTreeSet::new(),
            read: DirectorySet::all(),
            write: DirectorySet::all(),
            blocked: Vec::new(),
            identities: Vec::new(),
            commands: NameSet::all(),
            unsandboxed: true,
            hosts: HostSet::everything(),
            create: NameSet::all(),
            targets: Targets::all(),
            budget: Budget::unlimited(),
        }
    }

    /// The intersection: what both grants allow.
    #[must_use]
    pub fn intersection(&self, other: &Grant) -> Grant {
        let mut blocked = self.blocked.clone();
        blocked.extend(other.blocked.iter().cloned());
        blocked.sort();
        blocked.dedup();
        Grant {
            tools: self.tools.intersection(&other.tools),
            disabled_tools: self.disabled_tools.union(&other.disabled_tools).cloned().collect(),
            read: self.read.intersection(&other.read),
            write: self.write.intersection(&other.write),
            blocked,
            identities: merge_identities(&self.identities, &other.identities),
            commands: self.commands.intersection(&other.commands),
            unsandboxed: self.unsandboxed && other.unsandboxed,
            hosts: self.hosts.intersection(&other.hosts),
            create: self.create.intersection(&other.create),
            targets: self.targets.intersection(&other.targets),
            budget: self.budget.intersection(&other.budget),
        }
    }

    /// The grant that also allows these effects, as far as directories, commands and hosts forbid them. What is blocked
    /// or disabled stays so.
    #[must_use]
    pub(super) fn widened_by<'a>(&self, effects: impl IntoIterator<Item = &'a Effect>) -> Grant {
        let mut grant = self.clone();
        for effect in effects {
            match effect {
                Effect::Read(path) => grant.read = grant.read.with(path.parent()),
                Effect::Write(path) => grant.write = grant.write.with(path.parent()),
                Effect::Run(command) => {
                    grant.commands = grant.commands.with(&command.program);
                    grant.unsandboxed |= command.confinement == Confinement::Unsandboxed;
                }
                Effect::Connect(host) => grant.hosts = grant.hosts.with(host),
                Effect::Use(_)
                | Effect::UseAlias(_)
                | Effect::Create(_)
                | Effect::Reach(..)
                | Effect::ReadValues
                | Effect::WriteValues => {}
            }
        }
        grant
    }

    /// Whether a tool may be called: under its name, by which tools are granted, and its others, and with its program.
    #[must_use]
    pub fn allows_tool(&self, tool: &ToolSpec) -> bool {
        let is_disabled = tool.lookup_names().skip(1).any(|other| self.disabled_tools.contains(other));
        let may_run = tool.program.as_ref().is_none_or(|program| self.commands.contains(program));
        self.tools.contains(&tool.name) && !is_disabled && may_run
    }

    /// Whether this grant allows nothing that the other does not allow.
    #[must_use]
    pub fn is_within(&self, other: &Grant) -> bool {
        let blocks = |path: &FilePath| self.blocked.iter().any(|own| own.contains(path));
        let touches = |directories: &DirectorySet, path: &FilePath| {
            directories
                .intersection(&DirectorySet::from_roots([path.clone()]))
                .roots()
                .iter()
                .any(|root| !blocks(root))
        };
        // Of the other grant, the identities that apply to a directory are those at or above the one that permits it.
        let is_identified = |own: &DirectorySet, outer: &DirectorySet| {
            own.roots().iter().filter_map(|root| outer.find(root)).all(|permitting| {
                let applies = |identity: &&DirectoryIdentity| identity.path.contains(&permitting.root);
                other.identities.iter().filter(applies).all(|identity| self.identities.contains(identity))
            })
        };
        self.tools.is_within(&other.tools)
            && (self.tools.is_empty() || other.disabled_tools.is_subset(&self.disabled_tools))
            && is_identified(&self.read, &other.read)
            && is_identified(&self.write, &other.write)
            && self.read.is_within(&other.read)
            && self.write.is_within(&other.write)
            && !other.blocked.iter().any(|path| touches(&self.read, path) || touches(&self.write, path))
            && self.commands.is_within(&other.commands)
            && (!self.unsandboxed || other.unsandboxed)
            && self.hosts.is_within(&other.hosts)
            && self.create.is_within(&other.create)
            && self.targets.is_within(&other.targets)
            && self.budget.is_within(&other.budget)
    }
}
