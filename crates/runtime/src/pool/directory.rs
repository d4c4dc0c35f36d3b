//! Which agents exist. A lock instead of a task of its own, because a list must never wait in a queue; it is held
//! for a look-up or an insert, never across an await.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use agent::{AgentId, Fault};

use crate::handle::AgentHandle;
use crate::turnstile::{busy, shutting_down};

#[derive(Default)]
pub(super) struct Directory {
    entries: RwLock<Entries>,
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<AgentId, u64>,
    by_age: BTreeMap<u64, AgentHandle>,
    created: u64,
    closed: bool,
}

impl Directory {
    /// False when the name is taken.
    pub(super) fn insert(&self, handle: AgentHandle, agents_max: usize) -> Result<bool, Fault> {
        let mut entries = self.write();
        if entries.closed {
            return Err(shutting_down());
        }
        if entries.by_id.contains_key(handle.id()) {
            return Ok(false);
        }
        if entries.by_id.len() >= agents_max {
            return Err(Fault::new(busy(), format!("busy: {agents_max} agents exist")));
        }
        let age = entries.created;
        entries.created += 1;
        entries.by_id.insert(handle.id().clone(), age);
        entries.by_age.insert(age, handle);
        Ok(true)
    }

    pub(super) fn find(&self, id: &AgentId) -> Option<AgentHandle> {
        let entries = self.read();
        entries.by_id.get(id).and_then(|age| entries.by_age.get(age)).cloned()
    }

    pub(super) fn remove(&self, id: &AgentId) -> Option<AgentHandle> {
        let mut entries = self.write();
        let age = entries.by_id.remove(id)?;
        entries.by_age.remove(&age)
    }

    /// Takes everybody out and lets nobody in again: an agent that came after would never be ended.
    pub(super) fn close(&self) -> Vec<AgentHandle> {
        let mut entries = self.write();
        entries.closed = true;
        entries.by_id.clear();
        std::mem::take(&mut entries.by_age).into_values().collect()
    }

    pub(super) fn map<T>(&self, view: impl Fn(&AgentHandle) -> T) -> Vec<T> {
        self.read().by_age.values().map(view).collect()
    }

    /// Whether there is anybody, and all of them pass.
    pub(super) fn some_and_all(&self, passes: impl Fn(&AgentHandle) -> bool) -> bool {
        let entries = self.read();
        !entries.by_age.is_empty() && entries.by_age.values().all(passes)
    }

    pub(super) fn len(&self) -> usize {
        self.read().by_id.len()
    }

    /// Nothing in here runs foreign code while it holds the lock, so a poisoned lock still guards whole entries.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}
