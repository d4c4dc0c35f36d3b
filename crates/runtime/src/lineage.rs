//! An agent's place in the tree: its ancestors, what it was given, what it has used up. It outlives the agent for as
//! long as a descendant does, so that an orphan's ceiling stays what it was.

mod permissions;
mod persistence;
mod release;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use agent::AgentId;
use agent::journal::{Serial, StoredPermissions};
use agent::permission::{FilePath, Level, Permissions, Relation, Resource};

pub(crate) use self::persistence::StoredLineageNode;
use self::release::Refund;
pub(crate) use self::release::Release;
use crate::ledger::{Account, Ledger};
use crate::pool::PermissionSpec;

/// One agent in the tree.
#[derive(Debug)]
pub(crate) struct LineageNode {
    /// Changes when the agent is renamed.
    id: RwLock<AgentId>,
    /// Tells two agents of one name apart; rises with age.
    pub(crate) serial: Serial,
    pub(crate) parent: Option<Arc<LineageNode>>,
    pub(crate) depth: u32,
    pub(crate) cwd: FilePath,
    granted: RwLock<GrantedPermissions>,
    /// Held by whoever changes the standing, from looking at it on.
    change_lock: tokio::sync::Mutex<()>,
    ledger: Mutex<Ledger>,
    /// Where the shares of this agent are set aside, by resource: the nearest ancestor with a limit at the time.
    budget_sources: Mutex<Vec<(Resource, Arc<LineageNode>)>>,
    /// What the agent and all below it have used, by resource, whoever has set it aside.
    totals: [AtomicU64; 4],
    /// What the agent and all below it have cost.
    cost: AtomicU64,
    /// Descendants that exist.
    descendant_count: AtomicU64,
    /// Whether the agent exists no more.
    is_destroyed: AtomicBool,
    /// Whether it is in line to be kept. What is set aside for whoever is not is not kept either.
    committed: AtomicBool,
    /// What is set aside for those, by resource.
    reserved_pending: [AtomicU64; 4],
    /// Rises with every change of what is used up or set aside.
    version: AtomicU64,
    /// The highest version that is in line to be kept.
    version_enqueued: AtomicU64,
}

/// What an agent is in the tree, before it is there.
pub(crate) struct NewLineageNode {
    pub(crate) id: AgentId,
    pub(crate) serial: u64,
    pub(crate) parent: Option<Arc<LineageNode>>,
    pub(crate) cwd: FilePath,
    pub(crate) granted: GrantedPermissions,
}

/// What an agent was given: cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct GrantedPermissions {
    pub(crate) preset: Arc<str>,
    pub(crate) level: Level,
    pub(crate) permissions: Arc<Permissions>,
    /// What was asked for, so that one part of it can be changed later.
    pub(crate) spec: Arc<PermissionSpec>,
    /// The same as it is kept.
    pub(crate) stored: Arc<StoredPermissions>,
}

/// There is not so much left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InsufficientBudget {
    pub(crate) resource: Resource,
    pub(crate) remaining: u64,
}

impl LineageNode {
    /// Takes its place; what its budget sets aside is taken from its ancestors.
    ///
    /// # Errors
    /// When they have not so much left; nothing is taken then.
    pub(crate) fn new(new: NewLineageNode) -> Result<Arc<Self>, InsufficientBudget> {
        let budget = new.granted.permissions.may.budget;
        let kin = Self::new_pending(new);
        for resource in Resource::CONSUMED {
            let limit = budget.limit(resource);
            if let Some(limit) = limit
                && let Err(short) = kin.set_limit(resource, Some(limit))
            {
                kin.release_pending();
                return Err(short);
            }
        }
        Ok(Arc::new(kin))
    }

    fn new_pending(new: NewLineageNode) -> Self {
        Self {
            depth: new.parent.as_ref().map_or(0, |parent| parent.depth + 1),
            id: RwLock::new(new.id),
            serial: new.serial,
            parent: new.parent,
            cwd: new.cwd,
            granted: RwLock::new(new.granted),
            change_lock: tokio::sync::Mutex::default(),
            ledger: Mutex::new(Ledger::default()),
            budget_sources: Mutex::default(),
            totals: Default::default(),
            cost: AtomicU64::new(0),
            descendant_count: AtomicU64::new(0),
            is_destroyed: AtomicBool::new(false),
            committed: AtomicBool::new(false),
            reserved_pending: Default::default(),
            version: AtomicU64::new(0),
            version_enqueued: AtomicU64::new(0),
        }
    }

    pub(crate) fn id(&self) -> AgentId {
        self.id.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn rename(&self, id: AgentId) {
        *self.id.write().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) async fn lock_for_change(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.change_lock.lock().await
    }

    pub(crate) fn granted(&self) -> GrantedPermissions {
        self.granted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn permissions(&self) -> Arc<Permissions> {
        Arc::clone(&self.granted.read().unwrap_or_else(PoisonError::into_inner).permissions)
    }

    /// Gives the agent another standing, budgets and all.
    ///
    /// # Errors
    /// When the ancestors have not so much left; nothing changes then.
    pub(crate) fn set_granted(&self, standing: GrantedPermissions) -> Result<(), InsufficientBudget> {
        // Held throughout: two changes at once must not mix their limits.
        let mut current = self.granted.write().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (current.permissions.may.budget, standing.permissions.may.budget);
        for (place, resource) in Resource::CONSUMED.into_iter().enumerate() {
            if let Err(short) = self.set_limit(resource, after.limit(resource)) {
                for resource in &Resource::CONSUMED[..place] {
                    // Going back gives up what was just taken, or takes what was just given up.
                    let _ = self.set_limit(*resource, before.limit(*resource));
                }
                return Err(short);
            }
        }
        *current = standing;
        Ok(())
    }

    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &LineageNode> {
        std::iter::successors(self.parent.as_deref(), |kin| kin.parent.as_deref())
    }

    /// Who is at the top of its tree.
    pub(crate) fn root(&self) -> Serial {
        self.ancestors().last().map_or(self.serial, |kin| kin.serial)
    }

    pub(crate) fn is_descendant_of(&self, other: &LineageNode) -> bool {
        self.ancestors().any(|kin| kin.serial == other.serial)
    }

    /// What another agent is to this one.
    pub(crate) fn relation_to(&self, other: &LineageNode) -> Relation {
        if other.serial == self.serial {
            Relation::Itself
        } else if self.parent.as_ref().is_some_and(|parent| parent.serial == other.serial) {
            Relation::Parent
        } else if other.is_descendant_of(self) {
            Relation::Descendant
        } else {
            Relation::Other
        }
    }

    /// Counts a new descendant at every ancestor, or says who has too many.
    pub(crate) fn count_descendant(&self) -> Result<(), InsufficientBudget> {
        for kin in self.ancestors() {
            let limit = kin.permissions().may.budget.limit(Resource::Children);
            if limit.is_some_and(|limit| kin.descendant_count.load(Ordering::Acquire) >= limit) {
                return Err(InsufficientBudget { resource: Resource::Children, remaining: 0 });
            }
        }
        for kin in self.ancestors() {
            kin.descendant_count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The agent goes: it no longer counts, and what it had set aside goes back unless orphans still live on it. So does
    /// what an ancestor that was gone before had set aside, when this was its last orphan.
    pub(crate) fn release(&self) -> Release<'_> {
        self.is_destroyed.store(true, Ordering::Release);
        for kin in self.ancestors() {
            kin.descendant_count.fetch_sub(1, Ordering::AcqRel);
        }
        let is_over =
            |kin: &&LineageNode| kin.is_destroyed.load(Ordering::Acquire) && kin.descendant_count() == 0;
        let over = std::iter::once(self).chain(self.ancestors()).filter(is_over);
        Release { node: self, refunds: over.flat_map(LineageNode::close_accounts).collect() }
    }

    pub(crate) fn descendant_count(&self) -> u64 {
        self.descendant_count.load(Ordering::Acquire)
    }

    pub(crate) fn account(&self, resource: Resource) -> Account {
        self.ledger().account(resource)
    }

    /// What the agent can still use: the least that it or an ancestor allows. None is no limit.
    pub(crate) fn remaining(&self, resource: Resource) -> Option<u64> {
        let room = |kin: &LineageNode| {
            let limit = kin.account(resource).limit?;
            Some(limit.saturating_sub(kin.total(resource).load(Ordering::Acquire)))
        };
        let rooms = std::iter::once(self).chain(self.ancestors()).filter_map(room);
        rooms.chain(self.remaining_in_account(resource)).min()
    }

    /// What is left of the account that the agent draws on.
    fn remaining_in_account(&self, resource: Resource) -> Option<u64> {
        match self.account(resource).remaining() {
            Some(left) => Some(left),
            None => self.parent.as_ref().and_then(|parent| parent.remaining_in_account(resource)),
        }
    }

    /// Uses some, if there is so much.
    pub(crate) fn try_consume(&self, resource: Resource, amount: u64) -> bool {
        if !self.try_add_to_totals(resource, amount) {
            return false;
        }
        let paid = self.try_debit(resource, amount);
        if !paid {
            self.subtract_from_totals(resource, amount, self.depth + 1);
        }
        paid
    }

    /// Counts at the agent and at every ancestor, if none of their limits is exceeded; otherwise nowhere. No ancestor's
    /// tree uses up more than its limit, however much was set aside in it when the limit was higher.
    fn try_add_to_totals(&self, resource: Resource, amount: u64) -> bool {
        for (counted, kin) in (0..).zip(std::iter::once(self).chain(self.ancestors())) {
            let limit = kin.account(resource).limit;
            let fits = |total: &u64| limit.is_none_or(|limit| *total <= limit);
            let add = |total: u64| Some(total.saturating_add(amount)).filter(fits);
            if kin.total(resource).fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_err() {
                self.subtract_from_totals(resource, amount, counted);
                return false;
            }
            kin.bump_version();
        }
        true
    }

    fn subtract_from_totals(&self, resource: Resource, amount: u64, counted: u32) {
        for (_, kin) in (0..counted).zip(std::iter::once(self).chain(self.ancestors())) {
            kin.total(resource).fetch_sub(amount, Ordering::AcqRel);
            kin.bump_version();
        }
    }

    fn try_debit(&self, resource: Resource, amount: u64) -> bool {
        let mut ledger = self.ledger();
        let account = ledger.account_mut(resource);
        let paid = match account.remaining() {
            Some(left) => left >= amount,
            None => self.parent.as_ref().is_none_or(|parent| parent.try_debit(resource, amount)),
        };
        if paid {
            account.used = account.used.saturating_add(amount);
            self.bump_version();
        }
        paid
    }

    /// What was taken was not used after all.
    pub(crate) fn reverse_consumption(&self, resource: Resource, amount: u64) {
        self.subtract_from_totals(resource, amount, self.depth + 1);
        self.reverse_debit(resource, amount);
    }

    fn reverse_debit(&self, resource: Resource, amount: u64) {
        let mut ledger = self.ledger();
        let account = ledger.account_mut(resource);
        account.used = account.used.saturating_sub(amount);
        self.bump_version();
        if account.limit.is_none()
            && let Some(parent) = &self.parent
        {
            parent.reverse_debit(resource, amount);
        }
    }

    /// Writes down what was used, also when it was too much.
    pub(crate) fn record_usage(&self, resource: Resource, amount: u64) {
        let more = |total: u64| Some(total.saturating_add(amount));
        for kin in std::iter::once(self).chain(self.ancestors()) {
            // Adding always succeeds.
            let _ = kin.total(resource).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            kin.bump_version();
        }
        self.debit(resource, amount);
    }

    fn debit(&self, resource: Resource, amount: u64) {
        let mut ledger = self.ledger();
        let account = ledger.account_mut(resource);
        account.used = account.used.saturating_add(amount);
        self.bump_version();
        if account.limit.is_none()
            && let Some(parent) = &self.parent
        {
            parent.debit(resource, amount);
        }
    }

    /// Children are held and not used up; what is counted for them here is looked at by nobody.
    fn total(&self, resource: Resource) -> &AtomicU64 {
        &self.totals[resource_index(resource)]
    }

    /// Another limit for one resource. More is taken from the ancestors, less goes back to them.
    ///
    /// # Errors
    /// When they have not so much left, or children hold shares of a limit that would be lifted; nothing changes then.
    fn set_limit(&self, resource: Resource, limit: Option<u64>) -> Result<(), InsufficientBudget> {
        let mut ledger = self.ledger();
        let account = ledger.account_mut(resource);
        if account.limit == limit {
            return Ok(());
        }
        let mut next = Account { limit, ..*account };
        if account.limit.is_none() {
            next.paid_elsewhere = account.used;
        }
        if limit.is_none() {
            if account.reserved > 0 {
                return Err(InsufficientBudget { resource, remaining: account.reserved });
            }
            next.paid_elsewhere = 0;
        }
        next.share = match limit {
            Some(_) => self.adjust_reservation(resource, account.share, next.required_share())?,
            None => {
                let _lender = self.release_share(resource, *account);
                0
            }
        };
        *account = next;
        self.bump_version();
        Ok(())
    }

    /// Changes what an ancestor has set aside for this agent from `before` to `after`; gives what is set aside then:
    /// nothing, when no ancestor has a limit.
    fn adjust_reservation(
        &self,
        resource: Resource,
        before: u64,
        after: u64,
    ) -> Result<u64, InsufficientBudget> {
        let mut lenders = self.budget_sources();
        // A lender that has lent nothing may have lost its limit since: then it has none to lend from.
        if before == 0 {
            lenders.retain(|(lent, _)| *lent != resource);
        }
        let known = lenders.iter().find(|(lent, _)| *lent == resource).map(|(_, kin)| Arc::clone(kin));
        let Some(lender) = known.or_else(|| self.nearest_limited_ancestor(resource)) else { return Ok(0) };
        let mut ledger = lender.ledger();
        let account = ledger.account_mut(resource);
        let left = account.remaining().unwrap_or(u64::MAX);
        if after > before && after - before > left {
            return Err(InsufficientBudget { resource, remaining: left });
        }
        account.reserved = account.reserved.saturating_sub(before).saturating_add(after);
        drop(ledger);
        if !self.is_committed() {
            lender.adjust_reserved_pending(resource, before, after);
        }
        lender.bump_version();
        if !lenders.iter().any(|(lent, _)| *lent == resource) {
            lenders.push((resource, lender));
        }
        Ok(after)
    }

    /// Gives a share back: what was used of it stays used. Gives whoever had set it aside.
    fn release_share(&self, resource: Resource, account: Account) -> Option<Arc<LineageNode>> {
        let mut lenders = self.budget_sources();
        let place = lenders.iter().position(|(lent, _)| *lent == resource)?;
        let (_, lender) = lenders.swap_remove(place);
        drop(lenders);
        lender.update_account(resource, |theirs| {
            theirs.reserved = theirs.reserved.saturating_sub(account.share);
            theirs.used = theirs.used.saturating_add(account.used_of_share());
        });
        if !self.is_committed() {
            lender.adjust_reserved_pending(resource, account.share, 0);
        }
        Some(lender)
    }

    /// Gives all shares back. What a turn that is just being ended still uses is paid by whoever is above.
    fn close_accounts(&self) -> Vec<Refund<'_>> {
        let settle = |resource| {
            let mut ledger = self.ledger();
            let account = ledger.account_mut(resource);
            let before = *account;
            let lender = self.release_share(resource, before);
            *account = Account { limit: None, paid_elsewhere: 0, share: 0, ..before };
            self.bump_version();
            Refund { node: self, resource, before, budget_source: lender }
        };
        Resource::CONSUMED.into_iter().map(settle).collect()
    }

    fn update_account(&self, resource: Resource, change: impl FnOnce(&mut Account)) {
        change(self.ledger().account_mut(resource));
        self.bump_version();
    }

    fn nearest_limited_ancestor(&self, resource: Resource) -> Option<Arc<LineageNode>> {
        let mut kin = self.parent.as_ref();
        while let Some(ancestor) = kin {
            if ancestor.account(resource).limit.is_some() {
                return Some(Arc::clone(ancestor));
            }
            kin = ancestor.parent.as_ref();
        }
        None
    }

    /// Locked from child to parent, never the other way, and for a few instructions.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget_sources(&self) -> MutexGuard<'_, Vec<(Resource, Arc<LineageNode>)>> {
        self.budget_sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more descendants it can have; none is no limit.
    pub(crate) fn remaining_children(&self) -> Option<u64> {
        let own = std::iter::once(self).chain(self.ancestors());
        own.filter_map(|kin| {
            let limit = kin.permissions().may.budget.limit(Resource::Children)?;
            Some(limit.saturating_sub(kin.descendant_count()))
        })
        .min()
    }
}

fn resource_index(resource: Resource) -> usize {
    Resource::CONSUMED.iter().position(|consumed| *consumed == resource).unwrap_or_default()
}
