//! Per-agent resource ledger: limit, usage, and reservations for children. [`lineage`](crate::lineage) decides which
//! ancestor's account is debited when an agent has no limit of its own.

use agent::permission::Resource;

/// Accounts of one agent, by consumable resource.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: [Account; 4],
}

/// Account of one resource.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Account {
    /// Lifetime limit; `None` draws on the ancestors.
    pub(crate) limit: Option<u64>,
    pub(crate) used: u64,
    /// Reserved for children with limits of their own.
    pub(crate) reserved: u64,
    /// Usage from before the limit was set; it was debited to an ancestor.
    pub(crate) paid_elsewhere: u64,
    /// Amount an ancestor has reserved for this account.
    pub(crate) share: u64,
}

impl Account {
    /// Returns what remains under the limit.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used.saturating_add(self.reserved)))
    }

    /// Returns the amount to reserve at the budget source. It covers at least usage and reservations, however low the
    /// limit is: neither can be spent a second time.
    pub(crate) fn required_share(&self) -> u64 {
        let held = self.used.saturating_add(self.reserved);
        self.limit.map_or(0, |limit| limit.max(held).saturating_sub(self.paid_elsewhere))
    }

    /// Returns the used part of the reservation.
    pub(crate) fn used_of_share(&self) -> u64 {
        self.used.saturating_sub(self.paid_elsewhere)
    }
}

impl Ledger {
    pub(crate) fn account(&self, resource: Resource) -> Account {
        resource_index(resource).map_or_else(Account::default, |index| self.accounts[index])
    }

    /// Must not be called for [`Resource::Children`], which has no account: a release build would return the account of
    /// turns.
    pub(crate) fn account_mut(&mut self, resource: Resource) -> &mut Account {
        debug_assert!(resource != Resource::Children);
        &mut self.accounts[resource_index(resource).unwrap_or_default()]
    }
}

fn resource_index(resource: Resource) -> Option<usize> {
    Resource::CONSUMED.iter().position(|consumed| *consumed == resource)
}
