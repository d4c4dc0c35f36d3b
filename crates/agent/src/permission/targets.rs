//! Which other agents an agent may reach: by kinship, by name, or both.

use std::fmt;

use super::{Kinship, Names};
use crate::AgentId;

/// A set of agents, seen from one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// Its parent.
    pub parent: bool,
    /// Its children, and theirs.
    pub descendants: bool,
    /// Whoever has one of these names.
    pub named: Names,
    /// Of all these, only whoever has one of these names.
    pub among: Names,
}

impl Targets {
    /// Nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self { parent: false, descendants: false, named: Names::none(), among: Names::any() }
    }

    /// Everybody.
    #[must_use]
    pub fn anybody() -> Self {
        Self { parent: true, descendants: true, named: Names::any(), among: Names::any() }
    }

    /// The parent.
    #[must_use]
    pub fn parent() -> Self {
        Self { parent: true, ..Self::nobody() }
    }

    /// The children, and theirs.
    #[must_use]
    pub fn children() -> Self {
        Self { descendants: true, ..Self::nobody() }
    }

    /// Parent and children.
    #[must_use]
    pub fn family() -> Self {
        Self { parent: true, descendants: true, ..Self::nobody() }
    }

    /// Whoever has one of these names.
    #[must_use]
    pub fn list(names: Names) -> Self {
        Self { named: names, ..Self::nobody() }
    }

    /// Of those that are allowed anyway, only whoever has one of these names.
    #[must_use]
    pub fn only_among(names: Names) -> Self {
        Self { among: names, ..Self::anybody() }
    }

    /// Whether an agent of this kinship and name is among them.
    #[must_use]
    pub fn contains(&self, agent: &AgentId, kinship: Kinship) -> bool {
        let kin = match kinship {
            Kinship::Parent => self.parent,
            Kinship::Descendant => self.descendants,
            Kinship::Itself | Kinship::Other => false,
        };
        let named = kinship != Kinship::Itself && self.named.contains(agent.as_str());
        (kin || named) && self.among.contains(agent.as_str())
    }

    /// Whether nobody is among them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (!self.parent && !self.descendants && self.named.is_empty()) || self.among.is_empty()
    }

    /// What both allow. Kinship is seen from the one who asks, so what only one of them allows by name and the other
    /// by kinship is allowed by neither.
    #[must_use]
    pub fn and(&self, other: &Targets) -> Targets {
        Targets {
            parent: self.parent && other.parent,
            descendants: self.descendants && other.descendants,
            named: self.named.and(&other.named),
            among: self.among.and(&other.among),
        }
    }

    /// Whether everybody in this set is in the other too.
    #[must_use]
    pub fn within(&self, other: &Targets) -> bool {
        *other == Targets::anybody()
            || ((!self.parent || other.parent)
                && (!self.descendants || other.descendants)
                && self.named.within(&other.named)
                && self.among.within(&other.among))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("nobody");
        }
        match (self.parent, self.descendants) {
            (true, true) if self.named == Names::any() => out.write_str("anybody")?,
            (true, true) => out.write_str("parent and child agents")?,
            (true, false) => out.write_str("parent agent")?,
            (false, true) => out.write_str("child agents")?,
            (false, false) => write!(out, "{}", self.named)?,
        }
        if (self.parent || self.descendants) && !self.named.is_empty() && self.named != Names::any() {
            write!(out, ", and {}", self.named)?;
        }
        if self.among != Names::any() { write!(out, ", of these {}", self.among) } else { Ok(()) }
    }
}
