//! Explains an agent's limits: each with the agent that set it, and the reason.

use std::sync::Arc;

use super::{Dimension, Grant, LineageLink, Permissions};
use crate::AgentId;

/// Which of an agent's two grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantKind {
    /// What it may do.
    May,
    /// What it may grant.
    MayGrant,
}

/// One limit on an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The limited dimension.
    pub dimension: Dimension,
    /// What remains allowed after this limit, as text.
    pub allows: String,
    /// The agent that set it: the agent itself or one of its ancestors.
    pub set_by: AgentId,
    /// The origin of the limit.
    pub reason: Arc<str>,
}

/// Lists every limit on one of an agent's grants, the oldest ancestor's first. The lineage starts with the agent, then
/// its parent, and so on. A limit is listed once, at the oldest ancestor that sets it.
#[must_use]
pub fn explain(lineage: &[LineageLink], kind: GrantKind) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut left = Grant::everything();
    for (index, link) in lineage.iter().enumerate().rev() {
        let is_own = index == 0 && kind == GrantKind::May;
        let set = if is_own { &link.permissions.may } else { &link.permissions.may_grant };
        let next = left.intersection(set);
        limits.extend(narrowed_limits(&left, &next, &link.agent, &link.permissions));
        left = next;
    }
    limits
}

fn narrowed_limits<'a>(
    before: &'a Grant,
    after: &'a Grant,
    agent: &'a AgentId,
    permissions: &'a Permissions,
) -> impl Iterator<Item = Limit> + 'a {
    Dimension::ALL
        .into_iter()
        .filter(|dimension| describe(before, *dimension) != describe(after, *dimension))
        .map(|dimension| Limit {
            dimension,
            allows: describe(after, dimension),
            set_by: agent.clone(),
            reason: Arc::clone(permissions.reasons.get(dimension)),
        })
}

/// What a grant allows in one dimension, as text. Two grants allow the same exactly if their texts are equal.
pub(super) fn describe(grant: &Grant, dimension: Dimension) -> String {
    match dimension {
        Dimension::Tools => grant.tools.to_string(),
        Dimension::Read => grant.read.to_string(),
        Dimension::Write => grant.write.to_string(),
        Dimension::Blocked => {
            let paths: Vec<_> = grant.blocked.iter().map(ToString::to_string).collect();
            if paths.is_empty() {
                "nothing is blocked".to_owned()
            } else {
                format!("nothing in {}", paths.join(", "))
            }
        }
        Dimension::Commands if grant.unsandboxed || grant.commands.is_empty() => grant.commands.to_string(),
        Dimension::Commands => format!("{} in the sandbox", grant.commands),
        Dimension::Hosts => grant.hosts.to_string(),
        // Rules are listed on their own; see `ApprovalRules`.
        Dimension::Rules => String::new(),
        Dimension::Create => grant.create.to_string(),
        Dimension::Targets => grant.targets.to_string(),
        Dimension::Budget(resource) => {
            grant.budget.limit(resource).map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
        }
    }
}
