//! Release of a destroyed agent's reservations, and its rollback when the store could not commit the destruction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::permission::Resource;

use super::LineageNode;
use crate::ledger::Account;

/// A destroyed agent and its refunded reservations, until the store has committed the destruction.
#[must_use = "roll back if the store cannot commit the destruction"]
pub(crate) struct Release<'a> {
    pub(super) node: &'a LineageNode,
    pub(super) refunds: Vec<Refund<'a>>,
}

/// A closed account, as it was before, and the budget source that got its reservation back.
pub(super) struct Refund<'a> {
    pub(super) node: &'a LineageNode,
    pub(super) resource: Resource,
    pub(super) before: Account,
    pub(super) budget_source: Option<Arc<LineageNode>>,
}

impl Release<'_> {
    /// Confirms the release: the destruction is committed.
    pub(crate) fn confirm(self) {}

    /// Rolls back the release. Several releases are rolled back in reverse order.
    pub(crate) fn roll_back(self) {
        for refund in self.refunds.into_iter().rev() {
            refund.roll_back();
        }
        for node in self.node.ancestors() {
            node.descendant_count.fetch_add(1, Ordering::AcqRel);
            // The store rejected the enqueued ledgers with the batch: they must be enqueued again.
            node.bump_version();
        }
        self.node.is_destroyed.store(false, Ordering::Release);
    }
}

impl Refund<'_> {
    /// Usage recorded in between was debited to the ancestors and stays there. The refunded budget may be used up by
    /// now; then the source has nothing left, and its limit still holds.
    fn roll_back(self) {
        let Self { node, resource, before, budget_source: source } = self;
        node.update_account(resource, |account| {
            let used_meanwhile = account.used.saturating_sub(before.used);
            let paid_elsewhere = match before.limit {
                Some(_) => before.paid_elsewhere.saturating_add(used_meanwhile),
                None => before.paid_elsewhere,
            };
            *account = Account { used: account.used, paid_elsewhere, ..before };
        });
        let Some(source) = source else { return };
        source.update_account(resource, |source_account| {
            source_account.reserved = source_account.reserved.saturating_add(before.share);
            source_account.used = source_account.used.saturating_sub(before.used_of_share());
        });
        node.budget_sources().push((resource, source));
    }
}

impl LineageNode {
    /// Releases the reservations of an agent whose creation failed.
    pub(crate) fn release_pending(&self) {
        let _refunds = self.close_accounts();
    }
}
