//! Kin on its way to the store and back: what is written of it, and how it takes the place it had. And what it costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::NanoDollars;
use agent::journal::{Serial, StoredAccount, StoredLedger};
use agent::permission::Resource;

use super::{LineageNode, NewLineageNode, resource_index};
use crate::ledger::Account;

/// What an agent was in the tree, as it was kept.
pub(crate) struct StoredLineageNode {
    pub(crate) new: NewLineageNode,
    pub(crate) ledger: StoredLedger,
    pub(crate) descendant_count: u64,
    pub(crate) is_destroyed: bool,
}

impl LineageNode {
    /// Takes the place it had. Nothing is taken from its ancestors: what it had set aside is set aside still.
    pub(crate) fn restore(kept: StoredLineageNode) -> Arc<Self> {
        let StoredLineageNode { new, ledger, descendant_count: descendants, is_destroyed: gone } = kept;
        let kin = Self::new_pending(new);
        for (resource, account) in Resource::CONSUMED.into_iter().zip(ledger.accounts) {
            let StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source: lender, total } =
                account;
            *kin.ledger().account_mut(resource) = Account { limit, used, reserved, paid_elsewhere, share };
            kin.total(resource).store(total, Ordering::Release);
            if let Some(lender) = lender.and_then(|serial| kin.find_ancestor(serial)) {
                kin.budget_sources().push((resource, lender));
            }
        }
        kin.cost.store(ledger.cost, Ordering::Release);
        kin.descendant_count.store(descendants, Ordering::Release);
        kin.is_destroyed.store(gone, Ordering::Release);
        kin.committed.store(true, Ordering::Release);
        kin.version.store(ledger.version, Ordering::Release);
        kin.version_enqueued.store(ledger.version, Ordering::Release);
        Arc::new(kin)
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }

    /// It is about to be kept: what its ancestors have set aside for it is kept with it.
    pub(crate) fn mark_committed(&self) {
        self.committed.store(true, Ordering::Release);
        let lenders: Vec<_> = self.budget_sources().clone();
        for (resource, lender) in lenders {
            lender.adjust_reserved_pending(resource, self.account(resource).share, 0);
            lender.bump_version();
        }
    }

    pub(super) fn adjust_reserved_pending(&self, resource: Resource, before: u64, after: u64) {
        let change = |sum: u64| Some(sum.saturating_sub(before).saturating_add(after));
        // Changing it always succeeds.
        let _ = self.reserved_pending[resource_index(resource)].fetch_update(
            Ordering::AcqRel,
            Ordering::Acquire,
            change,
        );
    }

    fn find_ancestor(&self, serial: Serial) -> Option<Arc<LineageNode>> {
        let line = std::iter::successors(self.parent.as_ref(), |kin| kin.parent.as_ref());
        line.into_iter().find(|kin| kin.serial == serial).cloned()
    }

    /// What has changed since it was last put in line, for the agent and everybody above it.
    pub(crate) fn take_changed_ledgers(&self) -> Vec<(Serial, StoredLedger)> {
        let line = std::iter::once(self).chain(self.ancestors());
        line.filter_map(|kin| kin.take_changed_ledger().map(|ledger| (kin.serial, ledger))).collect()
    }

    /// The version is read first: what is newer than it says is put in line again later.
    fn take_changed_ledger(&self) -> Option<StoredLedger> {
        let version = self.version.load(Ordering::Acquire);
        if self.version_enqueued.fetch_max(version, Ordering::AcqRel) >= version {
            return None;
        }
        Some(self.stored_ledger(version))
    }

    fn stored_ledger(&self, version: u64) -> StoredLedger {
        let lenders: Vec<_> =
            self.budget_sources().iter().map(|(resource, kin)| (*resource, kin.serial)).collect();
        let accounts = Resource::CONSUMED.map(|resource| {
            let Account { limit, used, reserved, paid_elsewhere, share } = self.account(resource);
            let lender = lenders.iter().find(|(lent, _)| *lent == resource).map(|(_, serial)| *serial);
            let total = self.total(resource).load(Ordering::Acquire);
            let for_unborn = self.reserved_pending[resource_index(resource)].load(Ordering::Acquire);
            let reserved = reserved.saturating_sub(for_unborn);
            StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source: lender, total }
        });
        StoredLedger { version, accounts, cost: self.tree_cost() }
    }

    /// Writes down what a model has cost, for the agent and everybody above it.
    pub(crate) fn record_cost(&self, cost: NanoDollars) {
        if cost == 0 {
            return;
        }
        let more = |sum: u64| Some(sum.saturating_add(cost));
        for kin in std::iter::once(self).chain(self.ancestors()) {
            // Adding always succeeds.
            let _ = kin.cost.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            kin.bump_version();
        }
    }

    /// What the agent and all below it have cost.
    pub(crate) fn tree_cost(&self) -> NanoDollars {
        self.cost.load(Ordering::Acquire)
    }
}
