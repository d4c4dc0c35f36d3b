//! What an agent has used up and what it has set aside for its children, by resource. The limits are its budget; who
//! pays when it has none of its own is decided in [`kin`](crate::kin).

use agent::permission::Resource;

/// An agent's accounts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: [Account; 4],
}

/// One account.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Account {
    /// Over the agent's life; none draws on its ancestors.
    pub(crate) limit: Option<u64>,
    pub(crate) used: u64,
    /// Set aside for children that have shares of their own.
    pub(crate) reserved: u64,
    /// What was used before there was a limit: somebody else has paid for it.
    pub(crate) paid_elsewhere: u64,
    /// What an ancestor has set aside for this account.
    pub(crate) share: u64,
}

impl Account {
    /// What is left under the limit.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used.saturating_add(self.reserved)))
    }

    /// How much of an ancestor's account this one has to hold. What is used or set aside stays held, however low the
    /// limit is: it cannot be used a second time.
    pub(crate) fn required_share(&self) -> u64 {
        let held = self.used.saturating_add(self.reserved);
        self.limit.map_or(0, |limit| limit.max(held).saturating_sub(self.paid_elsewhere))
    }

    /// What was used of the share.
    pub(crate) fn used_of_share(&self) -> u64 {
        self.used.saturating_sub(self.paid_elsewhere)
    }
}

impl Ledger {
    pub(crate) fn account(&self, resource: Resource) -> Account {
        resource_index(resource).map_or_else(Account::default, |place| self.accounts[place])
    }

    /// Children are held and not used up: they have no account, and whatever is done to this one is lost.
    pub(crate) fn account_mut(&mut self, resource: Resource) -> &mut Account {
        debug_assert!(resource != Resource::Children);
        &mut self.accounts[resource_index(resource).unwrap_or_default()]
    }
}

fn resource_index(resource: Resource) -> Option<usize> {
    Resource::CONSUMED.iter().position(|consumed| *consumed == resource)
}
