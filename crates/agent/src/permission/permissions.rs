//! An agent's two grants: what it may do, and what it may grant. Both are effective only within what every ancestor
//! may grant; this intersection is computed on demand and never cached.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ApprovalRules, Grant, Resource};
use crate::AgentId;
use crate::journal::Serial;

/// The permissions of an agent. By default both grants are equal, so that a child never exceeds its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// What it may do.
    pub may: Arc<Grant>,
    /// What it may grant to children: no descendant may do or grant more.
    pub may_grant: Arc<Grant>,
    /// The origin of each limit.
    pub reasons: Reasons,
    /// Which calls are asked for, allowed without asking, or denied.
    pub approvals: Arc<ApprovalRules>,
}

/// A dimension of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// Tools that may be called.
    Tools,
    /// Directories that may be read.
    Read,
    /// Directories that may be written.
    Write,
    /// Directories that are blocked.
    Blocked,
    /// Programs that may be run.
    Commands,
    /// Hosts that may be connected to.
    Hosts,
    /// Approval rules.
    Rules,
    /// Presets that children may be created from.
    Create,
    /// Agents that may be accessed.
    Targets,
    /// The limit of a resource.
    Budget(Resource),
}

impl Dimension {
    /// All dimensions.
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

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Tools => "tools",
            Dimension::Read => "read",
            Dimension::Write => "write",
            Dimension::Blocked => "blocked",
            Dimension::Commands => "commands",
            Dimension::Hosts => "hosts",
            Dimension::Rules => "rules",
            Dimension::Create => "create",
            Dimension::Targets => "targets",
            Dimension::Budget(resource) => resource.name(),
        }
    }
}

/// The origins of an agent's limits, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons {
    default_reason: Arc<str>,
    overrides: BTreeMap<Dimension, Arc<str>>,
}

impl Reasons {
    /// The same reason for every limit.
    #[must_use]
    pub fn uniform(reason: impl Into<Arc<str>>) -> Self {
        Self { default_reason: reason.into(), overrides: BTreeMap::new() }
    }

    /// Sets the reason of one limit.
    pub fn set(&mut self, dimension: Dimension, reason: impl Into<Arc<str>>) {
        self.overrides.insert(dimension, reason.into());
    }

    /// The reason of a limit.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> &Arc<str> {
        self.overrides.get(&dimension).unwrap_or(&self.default_reason)
    }
}

/// An agent in a lineage, with its permissions.
#[derive(Debug, Clone)]
pub struct LineageLink {
    /// Its name.
    pub agent: AgentId,
    /// Its serial.
    pub serial: Serial,
    /// Its own permissions, without the limits of its ancestors.
    pub permissions: Arc<Permissions>,
}

impl Permissions {
    /// Permissions with two equal grants.
    #[must_use]
    pub fn uniform(grant: Grant, reasons: Reasons) -> Self {
        let grant = Arc::new(grant);
        Self { may: Arc::clone(&grant), may_grant: grant, reasons, approvals: Arc::default() }
    }
}

/// The ceiling of a child: the maximum it can be granted, given the permissions of all its ancestors in any order.
#[must_use]
pub fn ceiling<'a>(ancestors: impl IntoIterator<Item = &'a Permissions>) -> Grant {
    ancestors
        .into_iter()
        .fold(Grant::everything(), |all, permissions| all.intersection(&permissions.may_grant))
}

/// What an agent may do now: its own grant below the ceiling of its ancestors. The lineage starts with the agent.
#[must_use]
pub fn effective(lineage: &[LineageLink]) -> Grant {
    match lineage {
        [] => Grant::nothing(),
        [own, ancestors @ ..] => {
            own.permissions.may.intersection(&ceiling(ancestors.iter().map(|link| &*link.permissions)))
        }
    }
}
