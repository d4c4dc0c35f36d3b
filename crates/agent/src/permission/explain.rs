//! Why an agent may not do more: every limit with the one who set it, and the reason.

use std::sync::Arc;

use super::{Dimension, Grant, LineageLink, Permissions};
use crate::AgentId;

/// Which of an agent's two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantKind {
    /// What it may do.
    May,
    /// What it may grant.
    MayGrant,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub dimension: Dimension,
    /// What is left of it after this limit, in words.
    pub allows: String,
    /// Who set it: the agent itself or one of its ancestors.
    pub set_by: AgentId,
    /// Where it comes from.
    pub reason: Arc<str>,
}

/// Every limit on one of an agent's sets, the oldest ancestor's first. The first of the line is the agent, then its
/// parent, and so on. What an ancestor forbids is said once, where it was first forbidden.
#[must_use]
pub fn explain(line: &[LineageLink], whose: GrantKind) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut left = Grant::everything();
    for (place, link) in line.iter().enumerate().rev() {
        let own = place == 0 && whose == GrantKind::May;
        let set = if own { &link.permissions.may } else { &link.permissions.may_grant };
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

/// What a grant allows in one dimension. Two grants allow the same exactly when the words are the same.
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
        Dimension::Commands => grant.commands.to_string(),
        Dimension::Hosts => grant.hosts.to_string(),
        Dimension::Create => grant.create.to_string(),
        Dimension::Targets => grant.targets.to_string(),
        Dimension::Budget(resource) => {
            grant.budget.limit(resource).map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
        }
    }
}
