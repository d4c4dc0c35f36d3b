//! Lineage tree of agents: each node holds the agent's ancestors, granted permissions and resource ledger. A node
//! outlives its agent as long as a descendant exists, so that an orphan keeps the permission ceiling and budget it
//! had.

mod permissions;
mod persistence;
mod release;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use agent::AgentId;
use agent::journal::{Serial, StoredPermissions};
use agent::permission::{DirectoryIdentity, FilePath, Level, Permissions, Relation, Resource};

pub(crate) use self::persistence::StoredLineageNode;
use self::release::Refund;
pub(crate) use self::release::Release;
use crate::ledger::{Account, Ledger};
use crate::pool::PermissionSpec;

/// A node of the agent tree.
#[derive(Debug)]
pub(crate) struct LineageNode {
    /// Current agent id; changes on rename.
    id: RwLock<AgentId>,
    /// Unique, ascending number; distinguishes agents that had the same id one after the other.
    pub(crate) serial: Serial,
    pub(crate) parent: Option<Arc<LineageNode>>,
    pub(crate) depth: u32,
    pub(crate) cwd: FilePath,
    granted: RwLock<GrantedPermissions>,
    /// Serializes read-modify-write changes of `granted`.
    change_lock: tokio::sync::Mutex<()>,
    ledger: Mutex<Ledger>,
    /// Ancestors that hold this agent's reservations, by resource: the nearest ancestor with a limit at the time of
    /// reservation.
    budget_sources: Mutex<Vec<(Resource, Arc<LineageNode>)>>,
    /// Subtree usage by resource, whichever account was debited.
    totals: [AtomicU64; 4],
    /// Subtree cost.
    cost: AtomicU64,
    /// Number of existing descendants.
    descendant_count: AtomicU64,
    /// Whether the agent was destroyed.
    is_destroyed: AtomicBool,
    /// Whether the creation is enqueued at the store. Until then, ancestors do not persist the budget reserved for it.
    creation_enqueued: AtomicBool,
    /// Part of `reserved` that belongs to children whose creation is not enqueued, by resource.
    reserved_pending: [AtomicU64; 4],
    /// Ledger version; increases with every change of usage or reservations.
    version: AtomicU64,
    /// Highest ledger version enqueued at the store.
    version_enqueued: AtomicU64,
}

/// Parameters of a new lineage node.
pub(crate) struct NewLineageNode {
    pub(crate) id: AgentId,
    pub(crate) serial: u64,
    pub(crate) parent: Option<Arc<LineageNode>>,
    pub(crate) cwd: FilePath,
    pub(crate) granted: GrantedPermissions,
}

/// Permissions granted to an agent; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct GrantedPermissions {
    pub(crate) preset: Arc<str>,
    pub(crate) level: Level,
    pub(crate) permissions: Arc<Permissions>,
    /// The request as resolved, so that a later change can replace one part of it.
    pub(crate) spec: Arc<PermissionSpec>,
    /// The request in its stored form.
    pub(crate) stored: Arc<StoredPermissions>,
}

/// The requested amount exceeds the remaining budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InsufficientBudget {
    pub(crate) resource: Resource,
    pub(crate) remaining: u64,
}

impl LineageNode {
    /// Creates a node and reserves its budget at its ancestors.
    ///
    /// # Errors
    /// When an ancestor has too little left; nothing is reserved then.
    pub(crate) fn new(new: NewLineageNode) -> Result<Arc<Self>, InsufficientBudget> {
        let budget = new.granted.permissions.may.budget;
        let node = Self::new_pending(new);
        for resource in Resource::CONSUMED {
            let limit = budget.limit(resource);
            if let Some(limit) = limit
                && let Err(shortfall) = node.set_limit(resource, Some(limit))
            {
                node.release_pending();
                return Err(shortfall);
            }
        }
        Ok(Arc::new(node))
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
            creation_enqueued: AtomicBool::new(false),
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

    /// Adds identities of granted directories.
    pub(crate) fn add_identities(&self, identities: &[DirectoryIdentity]) {
        let mut current = self.granted.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut current.permissions).add_identities(identities);
    }

    /// Replaces the granted permissions and adjusts the budget reservations.
    ///
    /// # Errors
    /// When an ancestor has too little left; nothing changes then.
    pub(crate) fn set_granted(&self, granted: GrantedPermissions) -> Result<(), InsufficientBudget> {
        // Locked throughout: concurrent changes must not mix their limits.
        let mut current = self.granted.write().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (current.permissions.may.budget, granted.permissions.may.budget);
        for (index, resource) in Resource::CONSUMED.into_iter().enumerate() {
            if let Err(shortfall) = self.set_limit(resource, after.limit(resource)) {
                for resource in &Resource::CONSUMED[..index] {
                    // Rolls back: releases what was just reserved, or reserves what was just released. Fails only if
                    // a concurrent reservation took the latter.
                    let _ = self.set_limit(*resource, before.limit(*resource));
                }
                return Err(shortfall);
            }
        }
        *current = granted;
        Ok(())
    }

    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &LineageNode> {
        std::iter::successors(self.parent.as_deref(), |node| node.parent.as_deref())
    }

    /// Returns the serial of the tree's root.
    pub(crate) fn root(&self) -> Serial {
        self.ancestors().last().map_or(self.serial, |node| node.serial)
    }

    pub(crate) fn is_descendant_of(&self, other: &LineageNode) -> bool {
        self.ancestors().any(|node| node.serial == other.serial)
    }

    /// Returns the relation of `other` to this agent.
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

    /// Counts a new descendant at every ancestor, unless one has reached its limit.
    pub(crate) fn count_descendant(&self) -> Result<(), InsufficientBudget> {
        for node in self.ancestors() {
            let limit = node.permissions().may.budget.limit(Resource::Children);
            if limit.is_some_and(|limit| node.descendant_count.load(Ordering::Acquire) >= limit) {
                return Err(InsufficientBudget { resource: Resource::Children, remaining: 0 });
            }
        }
        for node in self.ancestors() {
            node.descendant_count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Marks the agent destroyed: decrements the ancestors' descendant counts and refunds its reservations, unless
    /// orphans still draw on them. Also refunds the reservations of destroyed ancestors whose last orphan this was.
    pub(crate) fn release(&self) -> Release<'_> {
        self.is_destroyed.store(true, Ordering::Release);
        for node in self.ancestors() {
            node.descendant_count.fetch_sub(1, Ordering::AcqRel);
        }
        let is_closable =
            |node: &&LineageNode| node.is_destroyed.load(Ordering::Acquire) && node.descendant_count() == 0;
        let closable = std::iter::once(self).chain(self.ancestors()).filter(is_closable);
        Release { node: self, refunds: closable.flat_map(LineageNode::close_accounts).collect() }
    }

    pub(crate) fn descendant_count(&self) -> u64 {
        self.descendant_count.load(Ordering::Acquire)
    }

    pub(crate) fn account(&self, resource: Resource) -> Account {
        self.ledger().account(resource)
    }

    /// Returns the remaining budget: the minimum over the agent and its ancestors; `None` is unlimited.
    pub(crate) fn remaining(&self, resource: Resource) -> Option<u64> {
        let headroom_at = |node: &LineageNode| {
            let limit = node.account(resource).limit?;
            Some(limit.saturating_sub(node.total(resource).load(Ordering::Acquire)))
        };
        let headrooms = std::iter::once(self).chain(self.ancestors()).filter_map(headroom_at);
        headrooms.chain(self.remaining_in_account(resource)).min()
    }

    /// Returns what remains in the account the agent draws on: its own, or the nearest ancestor's that has a limit.
    fn remaining_in_account(&self, resource: Resource) -> Option<u64> {
        match self.account(resource).remaining() {
            Some(remaining) => Some(remaining),
            None => self.parent.as_ref().and_then(|parent| parent.remaining_in_account(resource)),
        }
    }

    /// Consumes `amount`, if the budget allows it.
    pub(crate) fn try_consume(&self, resource: Resource, amount: u64) -> bool {
        if !self.try_add_to_totals(resource, amount) {
            return false;
        }
        let is_debited = self.try_debit(resource, amount);
        if !is_debited {
            self.subtract_from_totals(resource, amount, self.depth + 1);
        }
        is_debited
    }

    /// Adds to the totals of the agent and every ancestor, unless one exceeds its limit; then to none. A subtree never
    /// uses more than its root's limit, even if more was reserved in it while the limit was higher.
    fn try_add_to_totals(&self, resource: Resource, amount: u64) -> bool {
        for (counted, node) in (0..).zip(std::iter::once(self).chain(self.ancestors())) {
            let limit = node.account(resource).limit;
            let fits = |total: &u64| limit.is_none_or(|limit| *total <= limit);
            let add = |total: u64| Some(total.saturating_add(amount)).filter(fits);
            if node.total(resource).fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_err() {
                self.subtract_from_totals(resource, amount, counted);
                return false;
            }
            node.bump_version();
        }
        true
    }

    fn subtract_from_totals(&self, resource: Resource, amount: u64, counted: u32) {
        for (_, node) in (0..counted).zip(std::iter::once(self).chain(self.ancestors())) {
            node.total(resource).fetch_sub(amount, Ordering::AcqRel);
            node.bump_version();
        }
    }

    fn try_debit(&self, resource: Resource, amount: u64) -> bool {
        let mut ledger = self.ledger();
        let account = ledger.account_mut(resource);
        let is_debited = match account.remaining() {
            Some(remaining) => remaining >= amount,
            None => self.parent.as_ref().is_none_or(|parent| parent.try_debit(resource, amount)),
        };
        if is_debited {
            account.used = account.used.saturating_add(amount);
            self.bump_version();
        }
        is_debited
    }

    /// Reverses [`Self::try_consume`].
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

    /// Records usage unconditionally, even beyond the limit.
    pub(crate) fn record_usage(&self, resource: Resource, amount: u64) {
        let add = |total: u64| Some(total.saturating_add(amount));
        for node in std::iter::once(self).chain(self.ancestors()) {
            // Infallible: `add` never returns `None`.
            let _ = node.total(resource).fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
            node.bump_version();
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

    /// Subtree usage of a consumable resource. Not for [`Resource::Children`], which has no total.
    fn total(&self, resource: Resource) -> &AtomicU64 {
        &self.totals[resource_index(resource)]
    }

    /// Changes the limit of one resource and adjusts the reservation at the ancestors.
    ///
    /// # Errors
    /// When an ancestor has too little left, or children hold reservations of a limit that would be removed; nothing
    /// changes then.
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
                let _source = self.release_share(resource, *account);
                0
            }
        };
        *account = next;
        self.bump_version();
        Ok(())
    }

    /// Changes this agent's reservation at an ancestor from `before` to `after`. Returns the amount then reserved:
    /// zero when no ancestor has a limit.
    fn adjust_reservation(
        &self,
        resource: Resource,
        before: u64,
        after: u64,
    ) -> Result<u64, InsufficientBudget> {
        let mut sources = self.budget_sources();
        // A source with a zero reservation may have lost its limit since; then it cannot fund one.
        if before == 0 {
            sources.retain(|(funded, _)| *funded != resource);
        }
        let known = sources.iter().find(|(funded, _)| *funded == resource).map(|(_, node)| Arc::clone(node));
        let Some(source) = known.or_else(|| self.nearest_limited_ancestor(resource)) else { return Ok(0) };
        let mut ledger = source.ledger();
        let account = ledger.account_mut(resource);
        let remaining = account.remaining().unwrap_or(u64::MAX);
        if after > before && after - before > remaining {
            return Err(InsufficientBudget { resource, remaining });
        }
        account.reserved = account.reserved.saturating_sub(before).saturating_add(after);
        drop(ledger);
        if !self.is_creation_enqueued() {
            source.adjust_reserved_pending(resource, before, after);
        }
        source.bump_version();
        if !sources.iter().any(|(funded, _)| *funded == resource) {
            sources.push((resource, source));
        }
        Ok(after)
    }

    /// Releases the reservation and moves the used part of it to the budget source, which it returns.
    fn release_share(&self, resource: Resource, account: Account) -> Option<Arc<LineageNode>> {
        let mut sources = self.budget_sources();
        let index = sources.iter().position(|(funded, _)| *funded == resource)?;
        let (_, source) = sources.swap_remove(index);
        drop(sources);
        source.update_account(resource, |source_account| {
            source_account.reserved = source_account.reserved.saturating_sub(account.share);
            source_account.used = source_account.used.saturating_add(account.used_of_share());
        });
        if !self.is_creation_enqueued() {
            source.adjust_reserved_pending(resource, account.share, 0);
        }
        Some(source)
    }

    /// Releases all reservations. Usage that an ending turn still records is then debited to the ancestors.
    fn close_accounts(&self) -> Vec<Refund<'_>> {
        let close_account = |resource| {
            let mut ledger = self.ledger();
            let account = ledger.account_mut(resource);
            let before = *account;
            let source = self.release_share(resource, before);
            *account = Account { limit: None, paid_elsewhere: 0, share: 0, ..before };
            self.bump_version();
            Refund { node: self, resource, before, budget_source: source }
        };
        Resource::CONSUMED.into_iter().map(close_account).collect()
    }

    fn update_account(&self, resource: Resource, change: impl FnOnce(&mut Account)) {
        change(self.ledger().account_mut(resource));
        self.bump_version();
    }

    fn nearest_limited_ancestor(&self, resource: Resource) -> Option<Arc<LineageNode>> {
        let mut node = self.parent.as_ref();
        while let Some(ancestor) = node {
            if ancestor.account(resource).limit.is_some() {
                return Some(Arc::clone(ancestor));
            }
            node = ancestor.parent.as_ref();
        }
        None
    }

    /// Lock order: child before parent. Held for a few instructions.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget_sources(&self) -> MutexGuard<'_, Vec<(Resource, Arc<LineageNode>)>> {
        self.budget_sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many more descendants the agent may have; `None` is unlimited.
    pub(crate) fn remaining_children(&self) -> Option<u64> {
        let lineage = std::iter::once(self).chain(self.ancestors());
        lineage
            .filter_map(|node| {
                let limit = node.permissions().may.budget.limit(Resource::Children)?;
                Some(limit.saturating_sub(node.descendant_count()))
            })
            .min()
    }
}

fn resource_index(resource: Resource) -> usize {
    Resource::CONSUMED.iter().position(|consumed| *consumed == resource).unwrap_or_default()
}
