//! In-memory directory of all agents: ids, tree, capabilities, and which agents are live. A lock and not an actor,
//! because a listing must never wait in a queue; held for a lookup or an insert, never across an await.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use agent::journal::Serial;
use agent::outside::{IndexRow, StoreFault};
use agent::permission::Relation;
use agent::{AgentId, Fault, FaultKind};

use crate::admission::{busy, shutting_down};
use crate::capability::CapabilityDigest;
use crate::handle::{AgentHandle, Shared};
use crate::lineage::{InsufficientBudget, LineageNode};

mod live;
#[cfg(test)]
mod tests;

pub(crate) use live::LiveReservation;

#[derive(Default)]
pub(crate) struct Directory {
    state: RwLock<DirectoryState>,
}

#[derive(Default)]
struct DirectoryState {
    /// Ids in use or reserved.
    by_id: HashMap<AgentId, Serial>,
    /// All agents by age, including destroyed ones that still have orphans.
    agents: BTreeMap<Serial, DirectoryEntry>,
    children: HashMap<Serial, BTreeSet<Serial>>,
    by_capability: HashMap<CapabilityDigest, Serial>,
    live: HashSet<Serial>,
    /// Live slots reserved for agents that are starting.
    live_reserved: usize,
    closed: bool,
}

/// Directory entry of one agent. Small: there may be very many, mostly asleep.
struct DirectoryEntry {
    id: AgentId,
    parent: Option<Serial>,
    capability: CapabilityDigest,
    presence: Presence,
    is_finished: bool,
    /// Lineage node, while it is in use.
    node: Weak<LineageNode>,
    /// Of a root: the lock of its tree, while it is in use.
    tree_lock: Weak<TreeLock>,
}

/// Lock of one tree of agents: shared to create an agent in it, exclusive to destroy or rename one. Held until the
/// change is committed.
pub(crate) type TreeLock = tokio::sync::RwLock<()>;

enum Presence {
    /// Creation not yet committed; not visible.
    Pending,
    /// Only in the store. The mutex serializes waking it.
    Asleep(Option<Arc<tokio::sync::Mutex<()>>>),
    Live(AgentHandle),
    /// Destroyed, but a descendant exists.
    Destroyed,
}

/// Why an id could not be reserved.
pub(crate) enum ReserveError {
    /// The id is taken.
    IdTaken,
    /// Another fault.
    Refused(Fault),
}

/// Result of a lookup.
pub(crate) enum Lookup {
    Live(AgentHandle),
    /// To wake the agent, lock this mutex first and look it up again.
    Asleep(Arc<tokio::sync::Mutex<()>>),
    NotFound,
}

/// A listed agent. Without a handle, because listing must not keep agents awake.
pub(crate) struct ListedAgent {
    pub(crate) serial: Serial,
    pub(crate) id: AgentId,
    pub(crate) live: Option<Arc<Shared>>,
    pub(crate) child_count: usize,
}

/// What happens to the descendants of a destroyed agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildPolicy {
    /// They are destroyed too.
    Cascade,
    /// They stay, under the ceiling they had.
    Orphan,
}

impl Directory {
    /// Builds the directory from the stored index. Refuses a parent that is not older than its child: a cycle would be
    /// followed for ever.
    pub(crate) fn from_rows(rows: Vec<IndexRow>) -> Result<Self, StoreFault> {
        let mut state = DirectoryState::default();
        for row in rows {
            if let Some(parent) = row.parent {
                if parent >= row.serial {
                    let IndexRow { serial, id, .. } = row;
                    let why =
                        format!("agent {serial} ('{id}'): its parent {parent} was not created before it");
                    return Err(StoreFault::Corrupt(why));
                }
                state.children.entry(parent).or_default().insert(row.serial);
            }
            let capability = CapabilityDigest::from_bytes(row.capability_digest);
            if !row.is_destroyed {
                state.by_id.insert(row.id.clone(), row.serial);
                state.by_capability.insert(capability, row.serial);
            }
            let entry = DirectoryEntry {
                id: row.id,
                parent: row.parent,
                capability,
                presence: if row.is_destroyed { Presence::Destroyed } else { Presence::Asleep(None) },
                is_finished: row.is_finished,
                node: Weak::new(),
                tree_lock: Weak::new(),
            };
            state.agents.insert(row.serial, entry);
        }
        Ok(Self { state: RwLock::new(state) })
    }

    /// Reserves an id for an agent to be created, if its parent still exists and every ancestor may have another
    /// descendant.
    pub(crate) fn reserve(
        &self,
        node: &Arc<LineageNode>,
        capability: CapabilityDigest,
        agents_max: usize,
    ) -> Result<(), ReserveError> {
        let mut state = self.write();
        let id = node.id();
        if state.closed {
            return Err(ReserveError::Refused(shutting_down()));
        }
        if state.by_id.contains_key(&id) {
            return Err(ReserveError::IdTaken);
        }
        if state.by_id.len() >= agents_max {
            return Err(ReserveError::Refused(Fault::new(
                busy(),
                format!("busy: {agents_max} agents exist"),
            )));
        }
        if let Some(parent) = &node.parent {
            if !state.exists(parent.serial) {
                let text = format!("Parent agent not found: {}", parent.id());
                return Err(ReserveError::Refused(Fault::new(FaultKind::Invalid, text)));
            }
            node.count_descendant()
                .map_err(|shortfall| ReserveError::Refused(children_budget_exhausted(&id, shortfall)))?;
            state.children.entry(parent.serial).or_default().insert(node.serial);
        }
        let entry = DirectoryEntry {
            id: id.clone(),
            parent: node.parent.as_ref().map(|parent| parent.serial),
            capability,
            presence: Presence::Pending,
            is_finished: false,
            node: Arc::downgrade(node),
            tree_lock: Weak::new(),
        };
        state.by_id.insert(id, node.serial);
        state.agents.insert(node.serial, entry);
        Ok(())
    }

    pub(crate) fn find(&self, id: &AgentId) -> Option<Serial> {
        let state = self.read();
        state.by_id.get(id).copied().filter(|serial| state.exists(*serial))
    }

    /// Finds an agent by its capability.
    pub(crate) fn find_by_capability(&self, digest: &CapabilityDigest) -> Option<(Serial, AgentId)> {
        let state = self.read();
        let serial = *state.by_capability.get(digest)?;
        state.agents.get(&serial).map(|entry| (serial, entry.id.clone()))
    }

    pub(crate) fn exists(&self, serial: Serial) -> bool {
        self.read().exists(serial)
    }

    pub(crate) fn id_of(&self, serial: Serial) -> Option<AgentId> {
        let state = self.read();
        state.agents.get(&serial).filter(|_| state.exists(serial)).map(|entry| entry.id.clone())
    }

    /// Returns the agent's handle, if it is live.
    pub(crate) fn live_handle(&self, serial: Serial) -> Option<AgentHandle> {
        match &self.read().agents.get(&serial)?.presence {
            Presence::Live(handle) => Some(handle.clone()),
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        }
    }

    pub(crate) fn lookup(&self, serial: Serial) -> Lookup {
        if let Some(handle) = self.live_handle(serial) {
            return Lookup::Live(handle);
        }
        let mut state = self.write();
        match state.agents.get_mut(&serial).map(|entry| &mut entry.presence) {
            Some(Presence::Live(handle)) => Lookup::Live(handle.clone()),
            Some(Presence::Asleep(wake_lock)) => {
                Lookup::Asleep(Arc::clone(wake_lock.get_or_insert_default()))
            }
            Some(Presence::Pending | Presence::Destroyed) | None => Lookup::NotFound,
        }
    }

    /// Returns the lineage node, if it is in memory.
    pub(crate) fn node(&self, serial: Serial) -> Option<Arc<LineageNode>> {
        self.read().agents.get(&serial)?.node.upgrade()
    }

    /// Registers a restored lineage node.
    pub(crate) fn set_node(&self, node: &Arc<LineageNode>) {
        if let Some(entry) = self.write().agents.get_mut(&node.serial) {
            entry.node = Arc::downgrade(node);
        }
    }

    /// Returns an agent's parent, which may be destroyed.
    pub(crate) fn parent(&self, serial: Serial) -> Option<Serial> {
        self.read().agents.get(&serial)?.parent
    }

    /// Returns the lock of the agent's tree; `None` when the agent does not exist. The root of an agent never changes.
    pub(crate) fn tree_lock(&self, serial: Serial) -> Option<Arc<TreeLock>> {
        let mut state = self.write();
        let root = state.lineage(serial).take_while(|serial| state.agents.contains_key(serial)).last()?;
        let entry = state.agents.get_mut(&root)?;
        Some(entry.tree_lock.upgrade().unwrap_or_else(|| {
            let tree_lock = Arc::default();
            entry.tree_lock = Arc::downgrade(&tree_lock);
            tree_lock
        }))
    }

    /// Returns the number of existing descendants.
    pub(crate) fn descendant_count(&self, serial: Serial) -> u64 {
        let state = self.read();
        state.descendants_of(serial).filter(|serial| state.exists(*serial)).count() as u64
    }

    /// Returns all descendants.
    pub(crate) fn descendants_of(&self, serial: Serial) -> Vec<Serial> {
        self.read().descendants_of(serial).collect()
    }

    /// Whether an agent is `top` or a descendant of it.
    pub(crate) fn is_in_subtree(&self, serial: Serial, top: Serial) -> bool {
        let state = self.read();
        state.lineage(serial).any(|serial| serial == top)
    }

    /// Returns the relation of the agent `id` to `own`.
    pub(crate) fn relation(&self, own: Serial, id: &AgentId) -> Relation {
        let state = self.read();
        let Some(other) = state.by_id.get(id).copied().filter(|serial| state.exists(*serial)) else {
            return Relation::Other;
        };
        if other == own {
            Relation::Itself
        } else if state.agents.get(&own).is_some_and(|entry| entry.parent == Some(other)) {
            Relation::Parent
        } else if state.lineage(other).any(|serial| serial == own) {
            Relation::Descendant
        } else {
            Relation::Other
        }
    }

    /// Returns the lowest free temporary id: `.1`, `.2`, …
    pub(crate) fn free_temporary_id(&self) -> Option<AgentId> {
        let state = self.read();
        let names = (1..=state.by_id.len() + 1).map(|number| format!(".{number}"));
        names.filter_map(|name| AgentId::parse(&name).ok()).find(|id| !state.by_id.contains_key(id))
    }

    /// Returns the temporary agents.
    pub(crate) fn temporary(&self) -> Vec<Serial> {
        let state = self.read();
        let is_temporary = |(_, entry): &(&Serial, &DirectoryEntry)| entry.id.is_temporary();
        state.agents.iter().filter(is_temporary).map(|(serial, _)| *serial).collect()
    }

    /// Returns the agents to destroy with this one: itself first, ancestors before descendants.
    pub(crate) fn destroy_set(&self, serial: Serial, children: ChildPolicy) -> Vec<Serial> {
        let state = self.read();
        if !state.exists(serial) {
            return Vec::new();
        }
        let descendants =
            (children == ChildPolicy::Cascade).then(|| state.descendants_of(serial)).into_iter().flatten();
        std::iter::once(serial).chain(descendants).filter(|serial| state.exists(*serial)).collect()
    }

    /// Removes an agent. Returns its handle if it was live.
    pub(crate) fn remove(&self, serial: Serial) -> Option<AgentHandle> {
        self.write().remove(serial)
    }

    /// Reserves a new id for a rename. Returns false when it is taken.
    pub(crate) fn reserve_id(&self, serial: Serial, id: &AgentId) -> bool {
        let mut state = self.write();
        let is_free = !state.by_id.contains_key(id);
        if is_free {
            state.by_id.insert(id.clone(), serial);
        }
        is_free
    }

    pub(crate) fn release_id(&self, id: &AgentId) {
        self.write().by_id.remove(id);
    }

    pub(crate) fn rename(&self, serial: Serial, id: &AgentId) {
        let mut state = self.write();
        let Some(entry) = state.agents.get_mut(&serial) else { return };
        let old_id = std::mem::replace(&mut entry.id, id.clone());
        if let Some(node) = entry.node.upgrade() {
            node.rename(id.clone());
        }
        state.by_id.remove(&old_id);
    }

    pub(crate) fn set_finished(&self, serial: Serial) {
        if let Some(entry) = self.write().agents.get_mut(&serial) {
            entry.is_finished = true;
        }
    }

    /// Closes the directory to new agents and returns all live ones.
    pub(crate) fn close(&self) -> Vec<AgentHandle> {
        let mut state = self.write();
        state.closed = true;
        let live = |entry: &DirectoryEntry| match &entry.presence {
            Presence::Live(handle) => Some(handle.clone()),
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        };
        state.agents.values().filter_map(live).collect()
    }

    /// Returns a page of the agents under `under` in creation order, and their total number.
    pub(crate) fn page(
        &self,
        under: Option<Serial>,
        offset: usize,
        limit: usize,
    ) -> (usize, Vec<ListedAgent>) {
        let state = self.read();
        let passes =
            |serial: &Serial| under.is_none_or(|top| state.lineage(*serial).any(|ancestor| ancestor == top));
        let (mut total, mut page) = (0, Vec::new());
        for serial in state.agents.keys().filter(|serial| state.exists(**serial) && passes(serial)) {
            if total >= offset && page.len() < limit {
                page.extend(state.listed_agent(*serial));
            }
            total += 1;
        }
        (total, page)
    }

    /// Returns an agent's children in creation order.
    pub(crate) fn children(&self, parent: Serial) -> Vec<ListedAgent> {
        let state = self.read();
        state.children_of(parent).filter_map(|serial| state.listed_agent(serial)).collect()
    }

    pub(crate) fn child_count(&self, parent: Serial) -> usize {
        self.read().children_of(parent).count()
    }

    /// Whether there is at least one agent and all are finished.
    pub(crate) fn all_finished(&self) -> bool {
        let state = self.read();
        let mut existing = state.agents.iter().filter(|(serial, _)| state.exists(**serial)).peekable();
        existing.peek().is_some() && existing.all(|(_, entry)| entry.is_finished)
    }

    pub(crate) fn len(&self) -> usize {
        self.read().by_id.len()
    }

    /// Ignores poisoning: no foreign code runs under the lock, so the entries are consistent.
    fn read(&self) -> RwLockReadGuard<'_, DirectoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, DirectoryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryState {
    fn exists(&self, serial: Serial) -> bool {
        let is_existing =
            |entry: &DirectoryEntry| matches!(entry.presence, Presence::Asleep(_) | Presence::Live(_));
        self.agents.get(&serial).is_some_and(is_existing)
    }

    /// Iterates from the agent to its root.
    fn lineage(&self, serial: Serial) -> impl Iterator<Item = Serial> {
        std::iter::successors(Some(serial), |serial| self.agents.get(serial)?.parent)
    }

    /// Returns all descendants, in breadth-first order.
    fn descendants_of(&self, serial: Serial) -> impl Iterator<Item = Serial> {
        let mut found: Vec<Serial> = self.children.get(&serial).into_iter().flatten().copied().collect();
        let mut next = 0;
        while next < found.len() {
            found.extend(self.children.get(&found[next]).into_iter().flatten());
            next += 1;
        }
        found.into_iter()
    }

    fn children_of(&self, parent: Serial) -> impl Iterator<Item = Serial> {
        let all = self.children.get(&parent).into_iter().flatten().copied();
        all.filter(|serial| self.exists(*serial))
    }

    fn listed_agent(&self, serial: Serial) -> Option<ListedAgent> {
        let entry = self.agents.get(&serial)?;
        let live = match &entry.presence {
            Presence::Live(handle) => Some(Arc::clone(&handle.shared)),
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        };
        let (id, child_count) = (entry.id.clone(), self.children_of(serial).count());
        Some(ListedAgent { serial, id, live, child_count })
    }

    fn remove(&mut self, serial: Serial) -> Option<AgentHandle> {
        let entry = self.agents.get_mut(&serial)?;
        let (id, capability) = (entry.id.clone(), entry.capability);
        let presence = std::mem::replace(&mut entry.presence, Presence::Destroyed);
        self.by_id.remove(&id);
        self.by_capability.remove(&capability);
        self.prune(serial);
        match presence {
            Presence::Live(handle) => {
                self.live.remove(&serial);
                Some(handle)
            }
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        }
    }

    /// Removes the entries of a destroyed agent and of its destroyed ancestors, once they have no descendants.
    fn prune(&mut self, serial: Serial) {
        let mut serial = serial;
        while self.agents.get(&serial).is_some_and(|entry| matches!(entry.presence, Presence::Destroyed))
            && !self.children.contains_key(&serial)
        {
            let Some(parent) = self.agents.remove(&serial).and_then(|entry| entry.parent) else { return };
            if let Some(siblings) = self.children.get_mut(&parent) {
                siblings.remove(&serial);
                if siblings.is_empty() {
                    self.children.remove(&parent);
                }
            }
            serial = parent;
        }
    }
}

fn children_budget_exhausted(id: &AgentId, shortfall: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, .. } = shortfall;
    let text = format!("Cannot create agent '{id}': the budget of {resource} of an ancestor is used up");
    Fault::denied(resource.name(), text)
}
