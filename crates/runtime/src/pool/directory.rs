//! Which agents exist, whose children they are, and by which capability each is known. A lock instead of a task of its
//! own, because a list must never wait in a queue; it is held for a look-up or an insert, never across an await.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use agent::{AgentId, Fault, FaultKind};

use crate::capability::CapabilityDigest;
use crate::handle::AgentHandle;
use crate::kin::{Kin, Short};
use crate::published::AgentSummary;
use crate::turnstile::{busy, shutting_down};

#[derive(Default)]
pub(crate) struct Directory {
    entries: RwLock<Entries>,
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<AgentId, u64>,
    by_serial: BTreeMap<u64, AgentHandle>,
    /// Children by their parent's serial, with those that are gone for as long as there are orphans of theirs: whoever
    /// is above them goes through them.
    children: HashMap<u64, BTreeSet<u64>>,
    by_capability: HashMap<CapabilityDigest, u64>,
    closed: bool,
}

/// Why an agent was not let in.
pub(crate) enum NotIn {
    /// The name is taken.
    Taken,
    /// Anything else.
    Refused(Fault),
}

impl Directory {
    /// Lets an agent in, when its parent is still there and everybody above it may have one more.
    pub(crate) fn insert(&self, handle: AgentHandle, agents_max: usize) -> Result<(), NotIn> {
        let mut entries = self.write();
        if entries.closed {
            return Err(NotIn::Refused(shutting_down()));
        }
        if entries.by_id.contains_key(handle.id()) {
            return Err(NotIn::Taken);
        }
        if entries.by_id.len() >= agents_max {
            return Err(NotIn::Refused(Fault::new(busy(), format!("busy: {agents_max} agents exist"))));
        }
        let kin = handle.kin();
        if let Some(parent) = &kin.parent {
            if !entries.by_serial.contains_key(&parent.serial) {
                let text = format!("Parent agent not found: {}", parent.id);
                return Err(NotIn::Refused(Fault::new(FaultKind::Invalid, text)));
            }
            kin.admit().map_err(|short| NotIn::Refused(too_many_children(kin, short)))?;
            entries.children.entry(parent.serial).or_default().insert(kin.serial);
        }
        entries.by_id.insert(handle.id().clone(), kin.serial);
        entries.by_capability.insert(handle.shared.capability, kin.serial);
        entries.by_serial.insert(kin.serial, handle);
        Ok(())
    }

    pub(crate) fn find(&self, id: &AgentId) -> Option<AgentHandle> {
        let entries = self.read();
        entries.by_id.get(id).and_then(|serial| entries.by_serial.get(serial)).cloned()
    }

    /// The agent known by a capability.
    pub(crate) fn find_by_capability(&self, digest: &CapabilityDigest) -> Option<AgentHandle> {
        let entries = self.read();
        let serial = entries.by_capability.get(digest)?;
        entries.by_serial.get(serial).cloned()
    }

    /// The lowest `.1`, `.2`, … that is free.
    pub(crate) fn free_temporary_id(&self) -> Option<AgentId> {
        let entries = self.read();
        let names = (1..=entries.by_id.len() + 1).map(|number| format!(".{number}"));
        names.filter_map(|name| AgentId::parse(&name).ok()).find(|id| !entries.by_id.contains_key(id))
    }

    /// Takes an agent out, and its descendants with it unless they are to be orphans. The agent comes first.
    pub(crate) fn remove(&self, agent: &AgentHandle, children: Children) -> Vec<AgentHandle> {
        let mut entries = self.write();
        let serial = agent.kin().serial;
        if !entries.by_serial.contains_key(&serial) {
            return Vec::new();
        }
        let mut leaving = vec![serial];
        let mut place = 0;
        while children == Children::Go && place < leaving.len() {
            leaving.extend(entries.children.get(&leaving[place]).into_iter().flatten());
            place += 1;
        }
        leaving.into_iter().filter_map(|serial| entries.take(serial)).collect()
    }

    /// Takes everybody out and lets nobody in again: an agent that came after would never be ended.
    pub(crate) fn close(&self) -> Vec<AgentHandle> {
        let mut entries = self.write();
        entries.closed = true;
        let serials: Vec<u64> = entries.by_serial.keys().copied().collect();
        serials.into_iter().filter_map(|serial| entries.take(serial)).collect()
    }

    /// Some of the agents that pass, in the order they were created, and how many pass.
    pub(crate) fn page(
        &self,
        passes: impl Fn(&AgentHandle) -> bool,
        offset: usize,
        limit: usize,
    ) -> (usize, Vec<AgentSummary>) {
        let entries = self.read();
        let (mut total, mut page) = (0, Vec::new());
        for handle in entries.by_serial.values().filter(|handle| passes(handle)) {
            if total >= offset && page.len() < limit {
                page.push(handle.summary(entries.children_of(handle).count()));
            }
            total += 1;
        }
        (total, page)
    }

    /// An agent's children in the order they were created.
    pub(crate) fn children(&self, parent: &AgentHandle) -> Vec<AgentHandle> {
        let entries = self.read();
        entries.children_of(parent).filter_map(|serial| entries.by_serial.get(serial)).cloned().collect()
    }

    pub(crate) fn child_count(&self, parent: &AgentHandle) -> usize {
        self.read().children_of(parent).count()
    }

    /// Whether there is anybody, and all of them pass.
    pub(crate) fn some_and_all(&self, passes: impl Fn(&AgentHandle) -> bool) -> bool {
        let entries = self.read();
        !entries.by_serial.is_empty() && entries.by_serial.values().all(passes)
    }

    pub(crate) fn len(&self) -> usize {
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

/// What becomes of the children of an agent that is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// They go with it.
    Go,
    /// They stay, under the ceiling they had.
    Stay,
}

impl Entries {
    fn children_of(&self, parent: &AgentHandle) -> impl Iterator<Item = &u64> {
        let exists = |serial: &&u64| self.by_serial.contains_key(serial);
        self.children.get(&parent.kin().serial).into_iter().flatten().filter(exists)
    }

    fn take(&mut self, serial: u64) -> Option<AgentHandle> {
        let handle = self.by_serial.remove(&serial)?;
        self.by_id.remove(handle.id());
        self.by_capability.remove(&handle.shared.capability);
        let kin = handle.kin();
        self.prune(kin);
        kin.dismiss();
        Some(handle)
    }

    /// Forgets an agent that is gone, and those above it that were gone before, when nobody is below them any more.
    fn prune(&mut self, kin: &Kin) {
        let mut kin = kin;
        while !self.by_serial.contains_key(&kin.serial) && !self.children.contains_key(&kin.serial) {
            let Some(parent) = &kin.parent else { return };
            if let Some(siblings) = self.children.get_mut(&parent.serial) {
                siblings.remove(&kin.serial);
                if siblings.is_empty() {
                    self.children.remove(&parent.serial);
                }
            }
            kin = parent;
        }
    }
}

fn too_many_children(kin: &Kin, short: Short) -> Fault {
    let Short { resource, .. } = short;
    let text =
        format!("Cannot create agent '{}': the budget of {resource} of an ancestor is used up", kin.id);
    Fault::denied(resource.name(), text)
}
