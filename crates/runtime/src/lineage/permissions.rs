//! What an agent may do and grant: what it was given, below all that its ancestors may grant. Worked out when it is asked
//! for, so that a change above counts at once.

use agent::permission::{DirectorySet, Grant, LineageLink, ceiling, effective};

use super::LineageNode;

impl LineageNode {
    /// The agent, its parent, and so on, each with what it has now.
    pub(crate) fn lineage(&self) -> Vec<LineageLink> {
        let link = |kin: &LineageNode| LineageLink { agent: kin.id(), permissions: kin.permissions() };
        std::iter::once(link(self)).chain(self.ancestors().map(link)).collect()
    }

    /// What it may do now.
    pub(crate) fn may(&self) -> Grant {
        effective(&self.lineage())
    }

    /// What it may grant now.
    pub(crate) fn may_grant(&self) -> Grant {
        ceiling(self.lineage().iter().map(|link| &*link.permissions))
    }

    /// Says of any tool whether it may use it now: what its grant would say, without working all of that out.
    pub(crate) fn tool_filter(&self) -> impl Fn(&str) -> bool + use<> {
        let own = self.permissions();
        let above: Vec<_> = self.ancestors().map(LineageNode::permissions).collect();
        move |tool| own.may.tools.contains(tool) && above.iter().all(|kin| kin.may_grant.tools.contains(tool))
    }

    /// Where it may write now.
    pub(crate) fn write_folders(&self) -> DirectorySet {
        let own = self.permissions().may.write.clone();
        self.ancestors().fold(own, |folders, kin| folders.intersection(&kin.permissions().may_grant.write))
    }
}
