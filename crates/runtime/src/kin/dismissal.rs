//! An agent that goes, and one that stays after all because its end could not be kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::permission::Resource;

use super::Kin;
use crate::ledger::Account;

/// An agent that was dismissed, and all that went back with it.
#[must_use = "it is taken back when it could not be kept"]
pub(crate) struct Dismissal<'a> {
    pub(super) kin: &'a Kin,
    pub(super) repaid: Vec<Repaid<'a>>,
}

/// An account that was settled.
pub(super) struct Repaid<'a> {
    pub(super) kin: &'a Kin,
    pub(super) resource: Resource,
    pub(super) before: Account,
    pub(super) lender: Option<Arc<Kin>>,
}

impl Dismissal<'_> {
    /// It is gone for good.
    pub(crate) fn confirm(self) {}

    /// It stays. Dismissals are taken back the last one first.
    pub(crate) fn take_back(self) {
        for repaid in self.repaid.into_iter().rev() {
            repaid.take_back();
        }
        for kin in self.kin.ancestors() {
            kin.descendants.fetch_add(1, Ordering::AcqRel);
            // What was in line to be kept was refused with the rest.
            kin.touch();
        }
        self.kin.gone.store(false, Ordering::Release);
    }
}

impl Repaid<'_> {
    /// What was used meanwhile was paid by whoever is above, and stays so. What was given back may be used up by now: then
    /// the lender has nothing left, and its limit holds all the same.
    fn take_back(self) {
        let Self { kin, resource, before, lender } = self;
        kin.change_account(resource, |account| {
            let meanwhile = account.used.saturating_sub(before.used);
            let paid_elsewhere = match before.limit {
                Some(_) => before.paid_elsewhere.saturating_add(meanwhile),
                None => before.paid_elsewhere,
            };
            *account = Account { used: account.used, paid_elsewhere, ..before };
        });
        let Some(lender) = lender else { return };
        lender.change_account(resource, |theirs| {
            theirs.reserved = theirs.reserved.saturating_add(before.share);
            theirs.used = theirs.used.saturating_sub(before.paid_here());
        });
        kin.lenders().push((resource, lender));
    }
}

impl Kin {
    /// An agent that was never there gives back what was set aside for it.
    pub(crate) fn give_up(&self) {
        let _repaid = self.settle();
    }
}
