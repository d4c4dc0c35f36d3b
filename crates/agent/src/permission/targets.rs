//! The set of other agents that an agent may access: by relation, by name, or both.

use std::fmt;

use super::{NameSet, Relation};
use crate::AgentId;

/// A set of agents, relative to one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// Its parent.
    pub parent: bool,
    /// Its descendants.
    pub descendants: bool,
    /// Agents with these names.
    pub named: NameSet,
    /// Restricts all of the above to agents with these names.
    pub restricted_to: NameSet,
}

impl Targets {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self { parent: false, descendants: false, named: NameSet::none(), restricted_to: NameSet::all() }
    }

    /// All agents.
    #[must_use]
    pub fn all() -> Self {
        Self { parent: true, descendants: true, named: NameSet::all(), restricted_to: NameSet::all() }
    }

    /// The parent.
    #[must_use]
    pub fn parent() -> Self {
        Self { parent: true, ..Self::none() }
    }

    /// All descendants.
    #[must_use]
    pub fn descendants() -> Self {
        Self { descendants: true, ..Self::none() }
    }

    /// Parent and descendants.
    #[must_use]
    pub fn parent_and_descendants() -> Self {
        Self { parent: true, descendants: true, ..Self::none() }
    }

    /// Agents with these names.
    #[must_use]
    pub fn named(names: NameSet) -> Self {
        Self { named: names, ..Self::none() }
    }

    /// All agents, restricted to these names.
    #[must_use]
    pub fn restricted_to(names: NameSet) -> Self {
        Self { restricted_to: names, ..Self::all() }
    }

    /// Whether an agent with this name and relation is in the set.
    #[must_use]
    pub fn contains(&self, agent: &AgentId, relation: Relation) -> bool {
        let by_relation = match relation {
            Relation::Parent => self.parent,
            Relation::Descendant => self.descendants,
            Relation::Itself | Relation::Other => false,
        };
        let named = relation != Relation::Itself && self.named.contains(agent.as_str());
        (by_relation || named) && self.restricted_to.contains(agent.as_str())
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (!self.parent && !self.descendants && self.named.is_empty()) || self.restricted_to.is_empty()
    }

    /// The intersection of both sets. Relations are relative to the agent that owns the set, so an agent that one set
    /// allows by name and the other only by relation is not in the intersection.
    #[must_use]
    pub fn intersection(&self, other: &Targets) -> Targets {
        Targets {
            parent: self.parent && other.parent,
            descendants: self.descendants && other.descendants,
            named: self.named.intersection(&other.named),
            restricted_to: self.restricted_to.intersection(&other.restricted_to),
        }
    }

    /// Whether this set is a subset of the other.
    #[must_use]
    pub fn is_within(&self, other: &Targets) -> bool {
        *other == Targets::all()
            || ((!self.parent || other.parent)
                && (!self.descendants || other.descendants)
                && self.named.is_within(&other.named)
                && self.restricted_to.is_within(&other.restricted_to))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("none");
        }
        match (self.parent, self.descendants) {
            (true, true) if self.named == NameSet::all() => out.write_str("any agent")?,
            (true, true) => out.write_str("parent and child agents")?,
            (true, false) => out.write_str("parent agent")?,
            (false, true) => out.write_str("child agents")?,
            (false, false) => write!(out, "{}", self.named)?,
        }
        if (self.parent || self.descendants) && !self.named.is_empty() && self.named != NameSet::all() {
            write!(out, ", and {}", self.named)?;
        }
        if self.restricted_to != NameSet::all() {
            write!(out, ", of these {}", self.restricted_to)
        } else {
            Ok(())
        }
    }
}
