//! An agent's two sets: what it may do, and what it may grant. What counts is their intersection with what every
//! ancestor may grant, taken when it is needed and never kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Grant, Resource};
use crate::AgentId;

/// What an agent was given. By default both sets are the same, so that a child never exceeds its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// What it may do.
    pub may: Arc<Grant>,
    /// What it may grant to children: no child may do or grant more.
    pub may_grant: Arc<Grant>,
    /// Where each limit comes from.
    pub reasons: Reasons,
}

/// One kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// Tools that may be called.
    Tools,
    /// Folders that may be read.
    Read,
    /// Folders that may be written.
    Write,
    /// Folders that are closed to everybody.
    Blocked,
    /// Programs that may be run.
    Commands,
    /// Hosts that may be talked to.
    Hosts,
    /// Presets that children may be created from.
    Create,
    /// Agents that may be reached.
    Targets,
    /// How much of a resource.
    Budget(Resource),
}

impl Dimension {
    /// All of them.
    pub const ALL: [Dimension; 13] = [
        Dimension::Tools,
        Dimension::Read,
        Dimension::Write,
        Dimension::Blocked,
        Dimension::Commands,
        Dimension::Hosts,
        Dimension::Create,
        Dimension::Targets,
        Dimension::Budget(Resource::Turns),
        Dimension::Budget(Resource::ToolCalls),
        Dimension::Budget(Resource::Tokens),
        Dimension::Budget(Resource::WallMs),
        Dimension::Budget(Resource::Children),
    ];

    /// The name clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Tools => "tools",
            Dimension::Read => "read",
            Dimension::Write => "write",
            Dimension::Blocked => "blocked",
            Dimension::Commands => "commands",
            Dimension::Hosts => "hosts",
            Dimension::Create => "create",
            Dimension::Targets => "targets",
            Dimension::Budget(resource) => resource.name(),
        }
    }
}

/// Where an agent's limits come from, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons {
    default_reason: Arc<str>,
    overrides: BTreeMap<Dimension, Arc<str>>,
}

impl Reasons {
    /// The same reason for every limit.
    #[must_use]
    pub fn uniform(usual: impl Into<Arc<str>>) -> Self {
        Self { default_reason: usual.into(), overrides: BTreeMap::new() }
    }

    /// Another reason for one limit.
    pub fn set(&mut self, dimension: Dimension, reason: impl Into<Arc<str>>) {
        self.overrides.insert(dimension, reason.into());
    }

    /// The reason of a limit.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> &Arc<str> {
        self.overrides.get(&dimension).unwrap_or(&self.default_reason)
    }
}

/// An agent in a line of ancestors.
#[derive(Debug, Clone)]
pub struct LineageLink {
    /// Its name.
    pub agent: AgentId,
    /// What it was given.
    pub permissions: Arc<Permissions>,
}

impl Permissions {
    /// Both sets the same.
    #[must_use]
    pub fn uniform(grant: Grant, reasons: Reasons) -> Self {
        let grant = Arc::new(grant);
        Self { may: Arc::clone(&grant), may_grant: grant, reasons }
    }
}

/// What a child of the last in this line can be given at most. The line may be in any order.
#[must_use]
pub fn ceiling<'a>(ancestors: impl IntoIterator<Item = &'a Permissions>) -> Grant {
    ancestors.into_iter().fold(Grant::everything(), |all, one| all.intersection(&one.may_grant))
}

/// What an agent may do now: its own grant below the ceiling of all its ancestors. The first of the line is the agent.
#[must_use]
pub fn effective(line: &[LineageLink]) -> Grant {
    match line {
        [] => Grant::nothing(),
        [own, ancestors @ ..] => {
            own.permissions.may.intersection(&ceiling(ancestors.iter().map(|link| &*link.permissions)))
        }
    }
}
