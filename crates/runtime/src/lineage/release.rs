//! An agent that goes, and one that stays after all because its end could not be kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::permission::Resource;

use super::LineageNode;
use crate::ledger::Account;

/// An agent that was dismissed, and all that went back with it.
#[must_use = "it is taken back when it could not be kept"]
pub(crate) struct Release<'a> {
    pub(super) node: &'a LineageNode,
    pub(super) refunds: Vec<Refund<'a>>,
}

/// An account that was settled.
pub(super) struct Refund<'a> {
    pub(super) node: &'a LineageNode,
    pub(super) resource: Resource,
    pub(super) before: Account,
    pub(super) budget_source: Option<Arc<LineageNode>>,
}

impl Release<'_> {
    /// It is gone for good.
    pub(crate) fn confirm(self) {}

    /// It stays. Dismissals are taken back the last one first.
    pub(crate) fn roll_back(self) {
        for repaid in self.refunds.into_iter().rev() {
            repaid.roll_back();
        }
        for kin in self.node.ancestors() {
            kin.descendant_count.fetch_add(1, Ordering::AcqRel);
            // What was in line to be kept was refused with the rest.
            kin.bump_version();
        }
        self.node.is_destroyed.store(false, Ordering::Release);
    }
}

impl Refund<'_> {
    /// What was used meanwhile was paid by whoever is above, and stays so. What was given back may be used up by now: then
    /// the lender has nothing left, and its limit holds all the same.
    fn roll_back(self) {
        let Self { node: kin, resource, before, budget_source: lender } = self;
        kin.update_account(resource, |account| {
            let meanwhile = account.used.saturating_sub(before.used);
            let paid_elsewhere = match before.limit {
                Some(_) => before.paid_elsewhere.saturating_add(meanwhile),
                None => before.paid_elsewhere,
            };
            *account = Account { used: account.used, paid_elsewhere, ..before };
        });
        let Some(lender) = lender else { return };
        lender.update_account(resource, |theirs| {
            theirs.reserved = theirs.reserved.saturating_add(before.share);
            theirs.used = theirs.used.saturating_sub(before.used_of_share());
        });
        kin.budget_sources().push((resource, lender));
    }
}

impl LineageNode {
    /// An agent that was never there gives back what was set aside for it.
    pub(crate) fn release_pending(&self) {
        let _repaid = self.close_accounts();
    }
}
