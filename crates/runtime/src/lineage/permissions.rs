//! Effective permissions: the agent's own grant, bounded by what its ancestors may grant. Computed on each query, so
//! that a change at an ancestor takes effect at once.

use agent::ToolSpec;
use agent::permission::{
    CallReview, CallText, Decision, Denial, DirectorySet, Effect, Grant, Grantor, LineageLink, Permit, Rule,
    ceiling, connects_to_hosts, effective, review,
};

use super::LineageNode;

impl LineageNode {
    /// Returns the chain from the agent to the root, with each one's current permissions.
    pub(crate) fn lineage(&self) -> Vec<LineageLink> {
        let link = |node: &LineageNode| LineageLink {
            agent: node.id(),
            serial: node.serial,
            permissions: node.permissions(),
        };
        std::iter::once(link(self)).chain(self.ancestors().map(link)).collect()
    }

    /// Returns the effective grant.
    pub(crate) fn may(&self) -> Grant {
        effective(&self.lineage())
    }

    /// Decides on a tool call with the permissions and approval rules as they are now.
    pub(crate) fn review(
        &self,
        effects: &[Effect],
        call: CallText<'_>,
        approved_by: Option<Grantor>,
    ) -> Decision {
        review(&CallReview { lineage: &self.lineage(), effects, call, approved_by })
    }

    /// Authorizes effects that are not those of a tool call, so that they cannot be asked for.
    pub(crate) fn authorize(&self, effects: &[Effect]) -> Result<Permit, Denial> {
        match self.review(effects, CallText { tool: "", arguments: "" }, None) {
            Decision::Allowed(permit) => Ok(permit),
            Decision::Denied(denial) => Err(denial),
            Decision::Ask(question) => Err(question.into_denial()),
        }
    }

    /// Returns the grant that bounds its children.
    pub(crate) fn may_grant(&self) -> Grant {
        ceiling(self.lineage().iter().map(|link| &*link.permissions))
    }

    /// Returns a predicate for the tools that a model sees: those of `may().allows_tool`, computed without the whole grant,
    /// and tools that connect only if there is a host to connect to or to ask for.
    pub(crate) fn tool_filter(&self) -> impl Fn(&ToolSpec) -> bool + use<> {
        let own = self.permissions();
        let ancestors: Vec<_> = self.ancestors().map(LineageNode::permissions).collect();
        let hosts = ancestors
            .iter()
            .fold(own.may.hosts.clone(), |hosts, ancestor| hosts.intersection(&ancestor.may_grant.hosts));
        let may_connect = !hosts.is_empty() || own.approvals.asks_for(|rule| matches!(rule, Rule::Host(_)));
        move |tool| {
            own.may.allows_tool(tool)
                && ancestors.iter().all(|ancestor| ancestor.may_grant.allows_tool(tool))
                && (may_connect || !connects_to_hosts(tool))
        }
    }

    /// Returns the directories it may write to.
    pub(crate) fn write_directories(&self) -> DirectorySet {
        let own = self.permissions().may.write.clone();
        self.ancestors()
            .fold(own, |directories, node| directories.intersection(&node.permissions().may_grant.write))
    }
}
