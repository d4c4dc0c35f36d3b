//! Persistence of lineage nodes: restores them from stored ledgers, collects changed ledgers for the store, and
//! accounts for model cost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::NanoDollars;
use agent::journal::{Serial, StoredAccount, StoredLedger};
use agent::permission::Resource;

use super::{LineageNode, NewLineageNode, resource_index};
use crate::ledger::Account;

/// Stored parameters of a lineage node.
pub(crate) struct StoredLineageNode {
    pub(crate) new: NewLineageNode,
    pub(crate) ledger: StoredLedger,
    pub(crate) descendant_count: u64,
    pub(crate) is_destroyed: bool,
}

impl LineageNode {
    /// Restores a node. Reserves nothing at the ancestors: their stored ledgers include its reservations.
    pub(crate) fn restore(stored: StoredLineageNode) -> Arc<Self> {
        let StoredLineageNode { new, ledger, descendant_count, is_destroyed } = stored;
        let node = Self::new_pending(new);
        for (resource, account) in Resource::CONSUMED.into_iter().zip(ledger.accounts) {
            let StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source: source, total } =
                account;
            *node.ledger().account_mut(resource) = Account { limit, used, reserved, paid_elsewhere, share };
            node.total(resource).store(total, Ordering::Release);
            if let Some(source) = source.and_then(|serial| node.find_ancestor(serial)) {
                node.budget_sources().push((resource, source));
            }
        }
        node.cost.store(ledger.cost, Ordering::Release);
        node.descendant_count.store(descendant_count, Ordering::Release);
        node.is_destroyed.store(is_destroyed, Ordering::Release);
        node.creation_enqueued.store(true, Ordering::Release);
        node.version.store(ledger.version, Ordering::Release);
        node.version_enqueued.store(ledger.version, Ordering::Release);
        Arc::new(node)
    }

    pub(super) fn is_creation_enqueued(&self) -> bool {
        self.creation_enqueued.load(Ordering::Acquire)
    }

    /// Marks the creation as enqueued; from now on the ancestors' persisted ledgers include its reservations.
    pub(crate) fn mark_creation_enqueued(&self) {
        self.creation_enqueued.store(true, Ordering::Release);
        let sources: Vec<_> = self.budget_sources().clone();
        for (resource, source) in sources {
            source.adjust_reserved_pending(resource, self.account(resource).share, 0);
            source.bump_version();
        }
    }

    pub(super) fn adjust_reserved_pending(&self, resource: Resource, before: u64, after: u64) {
        let change = |sum: u64| Some(sum.saturating_sub(before).saturating_add(after));
        // Infallible: `change` never returns `None`.
        let _ = self.reserved_pending[resource_index(resource)].fetch_update(
            Ordering::AcqRel,
            Ordering::Acquire,
            change,
        );
    }

    fn find_ancestor(&self, serial: Serial) -> Option<Arc<LineageNode>> {
        let lineage = std::iter::successors(self.parent.as_ref(), |node| node.parent.as_ref());
        lineage.into_iter().find(|node| node.serial == serial).cloned()
    }

    /// Returns the ledgers of the agent and its ancestors that changed since they were last enqueued, and marks them
    /// as enqueued.
    pub(crate) fn take_changed_ledgers(&self) -> Vec<(Serial, StoredLedger)> {
        let lineage = std::iter::once(self).chain(self.ancestors());
        lineage.filter_map(|node| node.take_changed_ledger().map(|ledger| (node.serial, ledger))).collect()
    }

    /// Reads the version before the accounts: a concurrent change gets a newer version and is enqueued again.
    fn take_changed_ledger(&self) -> Option<StoredLedger> {
        let version = self.version.load(Ordering::Acquire);
        if self.version_enqueued.fetch_max(version, Ordering::AcqRel) >= version {
            return None;
        }
        Some(self.stored_ledger(version))
    }

    fn stored_ledger(&self, version: u64) -> StoredLedger {
        let sources: Vec<_> =
            self.budget_sources().iter().map(|(resource, node)| (*resource, node.serial)).collect();
        let accounts = Resource::CONSUMED.map(|resource| {
            let Account { limit, used, reserved, paid_elsewhere, share } = self.account(resource);
            let source = sources.iter().find(|(funded, _)| *funded == resource).map(|(_, serial)| *serial);
            let total = self.total(resource).load(Ordering::Acquire);
            let reserved_pending = self.reserved_pending[resource_index(resource)].load(Ordering::Acquire);
            let reserved = reserved.saturating_sub(reserved_pending);
            StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source: source, total }
        });
        StoredLedger { version, accounts, cost: self.tree_cost() }
    }

    /// Adds the cost of a model call to the agent and its ancestors.
    pub(crate) fn record_cost(&self, cost: NanoDollars) {
        if cost == 0 {
            return;
        }
        let add = |sum: u64| Some(sum.saturating_add(cost));
        for node in std::iter::once(self).chain(self.ancestors()) {
            // Infallible: `add` never returns `None`.
            let _ = node.cost.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
            node.bump_version();
        }
    }

    /// Returns the cost of the subtree.
    pub(crate) fn tree_cost(&self) -> NanoDollars {
        self.cost.load(Ordering::Acquire)
    }
}
