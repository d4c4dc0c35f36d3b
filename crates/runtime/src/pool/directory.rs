//! Which agents there are, whose children they are, by which capability each is known, and which of them are live. A
//! lock instead of a task of its own, because a list must never wait in a queue; it is held for a look-up or an insert,
//! never across an await.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use agent::journal::Serial;
use agent::outside::IndexRow;
use agent::permission::Relation;
use agent::{AgentId, Fault, FaultKind};

use crate::admission::{busy, shutting_down};
use crate::capability::CapabilityDigest;
use crate::handle::{AgentHandle, Shared};
use crate::lineage::{InsufficientBudget, LineageNode};

mod live;

pub(crate) use live::LiveReservation;

#[derive(Default)]
pub(crate) struct Directory {
    state: RwLock<DirectoryState>,
}

#[derive(Default)]
struct DirectoryState {
    /// Names that are taken, by whoever has them or is about to.
    by_id: HashMap<AgentId, Serial>,
    /// Everybody by age, with those that are gone for as long as there are orphans of theirs.
    agents: BTreeMap<Serial, DirectoryEntry>,
    children: HashMap<Serial, BTreeSet<Serial>>,
    by_capability: HashMap<CapabilityDigest, Serial>,
    live: HashSet<Serial>,
    /// Places among the live that are promised to agents that are about to be.
    live_reserved: usize,
    closed: bool,
}

/// One agent. Small: there may be very many of them, and most are asleep.
struct DirectoryEntry {
    id: AgentId,
    parent: Option<Serial>,
    capability: CapabilityDigest,
    presence: Presence,
    is_finished: bool,
    /// Its place in the tree, while somebody needs it.
    node: Weak<LineageNode>,
}

enum Presence {
    /// It is being kept for the first time; nobody can find it yet.
    Pending,
    /// It is in the store alone. Whoever wakes it holds the gate meanwhile.
    Asleep(Option<Arc<tokio::sync::Mutex<()>>>),
    Live(AgentHandle),
    /// It was destroyed; somebody below it lives on.
    Destroyed,
}

/// Why an agent was not let in.
pub(crate) enum ReserveError {
    /// The name is taken.
    NameTaken,
    /// Anything else.
    Refused(Fault),
}

/// An agent as it is found.
pub(crate) enum Lookup {
    Live(AgentHandle),
    /// Whoever wants to wake it takes this gate first, and looks again.
    Asleep(Arc<tokio::sync::Mutex<()>>),
    NotFound,
}

/// One agent in a list. Whoever lists has no handle: being looked at keeps nobody awake.
pub(crate) struct ListedAgent {
    pub(crate) serial: Serial,
    pub(crate) live: Option<Arc<Shared>>,
    pub(crate) child_count: usize,
}

/// What becomes of the children of an agent that is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildPolicy {
    /// They go with it.
    Cascade,
    /// They stay, under the ceiling they had.
    Orphan,
}

impl Directory {
    /// A directory of what was kept.
    pub(crate) fn from_rows(rows: Vec<IndexRow>) -> Self {
        let mut entries = DirectoryState::default();
        for row in rows {
            if let Some(parent) = row.parent {
                entries.children.entry(parent).or_default().insert(row.serial);
            }
            let capability = CapabilityDigest::from_bytes(row.capability_digest);
            if !row.is_destroyed {
                entries.by_id.insert(row.id.clone(), row.serial);
                entries.by_capability.insert(capability, row.serial);
            }
            let node = DirectoryEntry {
                id: row.id,
                parent: row.parent,
                capability,
                presence: if row.is_destroyed { Presence::Destroyed } else { Presence::Asleep(None) },
                is_finished: row.is_finished,
                node: Weak::new(),
            };
            entries.agents.insert(row.serial, node);
        }
        Self { state: RwLock::new(entries) }
    }

    /// Keeps a name for an agent that is about to be kept, when its parent is still there and everybody above it may have
    /// one more.
    pub(crate) fn reserve(
        &self,
        kin: &Arc<LineageNode>,
        capability: CapabilityDigest,
        agents_max: usize,
    ) -> Result<(), ReserveError> {
        let mut entries = self.write();
        let id = kin.id();
        if entries.closed {
            return Err(ReserveError::Refused(shutting_down()));
        }
        if entries.by_id.contains_key(&id) {
            return Err(ReserveError::NameTaken);
        }
        if entries.by_id.len() >= agents_max {
            return Err(ReserveError::Refused(Fault::new(
                busy(),
                format!("busy: {agents_max} agents exist"),
            )));
        }
        if let Some(parent) = &kin.parent {
            if !entries.exists(parent.serial) {
                let text = format!("Parent agent not found: {}", parent.id());
                return Err(ReserveError::Refused(Fault::new(FaultKind::Invalid, text)));
            }
            kin.count_descendant()
                .map_err(|short| ReserveError::Refused(children_budget_exhausted(&id, short)))?;
            entries.children.entry(parent.serial).or_default().insert(kin.serial);
        }
        let node = DirectoryEntry {
            id: id.clone(),
            parent: kin.parent.as_ref().map(|parent| parent.serial),
            capability,
            presence: Presence::Pending,
            is_finished: false,
            node: Arc::downgrade(kin),
        };
        entries.by_id.insert(id, kin.serial);
        entries.agents.insert(kin.serial, node);
        Ok(())
    }

    pub(crate) fn find(&self, id: &AgentId) -> Option<Serial> {
        let entries = self.read();
        entries.by_id.get(id).copied().filter(|serial| entries.exists(*serial))
    }

    /// The agent known by a capability.
    pub(crate) fn find_by_capability(&self, digest: &CapabilityDigest) -> Option<(Serial, AgentId)> {
        let entries = self.read();
        let serial = *entries.by_capability.get(digest)?;
        entries.agents.get(&serial).map(|node| (serial, node.id.clone()))
    }

    pub(crate) fn exists(&self, serial: Serial) -> bool {
        self.read().exists(serial)
    }

    pub(crate) fn id_of(&self, serial: Serial) -> Option<AgentId> {
        let entries = self.read();
        entries.agents.get(&serial).filter(|_| entries.exists(serial)).map(|node| node.id.clone())
    }

    /// The agent, if it is live.
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
        let mut entries = self.write();
        match entries.agents.get_mut(&serial).map(|node| &mut node.presence) {
            Some(Presence::Live(handle)) => Lookup::Live(handle.clone()),
            Some(Presence::Asleep(gate)) => Lookup::Asleep(Arc::clone(gate.get_or_insert_default())),
            Some(Presence::Pending | Presence::Destroyed) | None => Lookup::NotFound,
        }
    }

    /// The place in the tree, if somebody has it.
    pub(crate) fn node(&self, serial: Serial) -> Option<Arc<LineageNode>> {
        self.read().agents.get(&serial)?.node.upgrade()
    }

    /// Everybody may find the place in the tree from now on.
    pub(crate) fn set_node(&self, kin: &Arc<LineageNode>) {
        if let Some(node) = self.write().agents.get_mut(&kin.serial) {
            node.node = Arc::downgrade(kin);
        }
    }

    /// An agent's parent, and whether it is gone.
    pub(crate) fn parent(&self, serial: Serial) -> Option<Serial> {
        self.read().agents.get(&serial)?.parent
    }

    /// How many exist below.
    pub(crate) fn descendant_count(&self, serial: Serial) -> u64 {
        let entries = self.read();
        entries.descendants_of(serial).filter(|serial| entries.exists(*serial)).count() as u64
    }

    /// Everybody below.
    pub(crate) fn descendants_of(&self, serial: Serial) -> Vec<Serial> {
        self.read().descendants_of(serial).collect()
    }

    /// Whether one agent is another, or below it.
    pub(crate) fn is_in_subtree(&self, serial: Serial, top: Serial) -> bool {
        let entries = self.read();
        entries.lineage(serial).any(|serial| serial == top)
    }

    /// What the agent of this name is to another.
    pub(crate) fn relation(&self, own: Serial, id: &AgentId) -> Relation {
        let entries = self.read();
        let Some(other) = entries.by_id.get(id).copied().filter(|serial| entries.exists(*serial)) else {
            return Relation::Other;
        };
        if other == own {
            Relation::Itself
        } else if entries.agents.get(&own).is_some_and(|node| node.parent == Some(other)) {
            Relation::Parent
        } else if entries.lineage(other).any(|serial| serial == own) {
            Relation::Descendant
        } else {
            Relation::Other
        }
    }

    /// The lowest `.1`, `.2`, … that is free.
    pub(crate) fn free_temporary_id(&self) -> Option<AgentId> {
        let entries = self.read();
        let names = (1..=entries.by_id.len() + 1).map(|number| format!(".{number}"));
        names.filter_map(|name| AgentId::parse(&name).ok()).find(|id| !entries.by_id.contains_key(id))
    }

    /// The temporary agents.
    pub(crate) fn temporary(&self) -> Vec<Serial> {
        let entries = self.read();
        let is_temporary = |(_, node): &(&Serial, &DirectoryEntry)| node.id.is_temporary();
        entries.agents.iter().filter(is_temporary).map(|(serial, _)| *serial).collect()
    }

    /// Who goes when this agent is destroyed; the agent comes first, and whoever is above comes before who is below.
    pub(crate) fn destroy_set(&self, serial: Serial, children: ChildPolicy) -> Vec<Serial> {
        let entries = self.read();
        if !entries.exists(serial) {
            return Vec::new();
        }
        let below =
            (children == ChildPolicy::Cascade).then(|| entries.descendants_of(serial)).into_iter().flatten();
        std::iter::once(serial).chain(below).filter(|serial| entries.exists(*serial)).collect()
    }

    /// Takes an agent out. Gives its handle if it was live.
    pub(crate) fn remove(&self, serial: Serial) -> Option<AgentHandle> {
        self.write().remove(serial)
    }

    /// Another name. False when it is taken.
    pub(crate) fn reserve_name(&self, serial: Serial, id: &AgentId) -> bool {
        let mut entries = self.write();
        let free = !entries.by_id.contains_key(id);
        if free {
            entries.by_id.insert(id.clone(), serial);
        }
        free
    }

    pub(crate) fn release_name(&self, id: &AgentId) {
        self.write().by_id.remove(id);
    }

    pub(crate) fn rename(&self, serial: Serial, id: &AgentId) {
        let mut entries = self.write();
        let Some(node) = entries.agents.get_mut(&serial) else { return };
        let before = std::mem::replace(&mut node.id, id.clone());
        if let Some(kin) = node.node.upgrade() {
            kin.rename(id.clone());
        }
        entries.by_id.remove(&before);
    }

    pub(crate) fn set_finished(&self, serial: Serial) {
        if let Some(node) = self.write().agents.get_mut(&serial) {
            node.is_finished = true;
        }
    }

    /// Lets nobody in again, and gives everybody who is live.
    pub(crate) fn close(&self) -> Vec<AgentHandle> {
        let mut entries = self.write();
        entries.closed = true;
        let live = |node: &DirectoryEntry| match &node.presence {
            Presence::Live(handle) => Some(handle.clone()),
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        };
        entries.agents.values().filter_map(live).collect()
    }

    /// Some of the agents that pass, in the order they were created, and how many pass.
    pub(crate) fn page(
        &self,
        under: Option<Serial>,
        offset: usize,
        limit: usize,
    ) -> (usize, Vec<ListedAgent>) {
        let entries = self.read();
        let passes = |serial: &Serial| under.is_none_or(|top| entries.lineage(*serial).any(|one| one == top));
        let (mut total, mut page) = (0, Vec::new());
        for serial in entries.agents.keys().filter(|serial| entries.exists(**serial) && passes(serial)) {
            if total >= offset && page.len() < limit {
                page.push(entries.listed_agent(*serial));
            }
            total += 1;
        }
        (total, page)
    }

    /// An agent's children in the order they were created.
    pub(crate) fn children(&self, parent: Serial) -> Vec<ListedAgent> {
        let entries = self.read();
        entries.children_of(parent).map(|serial| entries.listed_agent(serial)).collect()
    }

    pub(crate) fn child_count(&self, parent: Serial) -> usize {
        self.read().children_of(parent).count()
    }

    /// Whether there is anybody, and all of them are finished.
    pub(crate) fn all_finished(&self) -> bool {
        let entries = self.read();
        let mut existing = entries.agents.iter().filter(|(serial, _)| entries.exists(**serial)).peekable();
        existing.peek().is_some() && existing.all(|(_, node)| node.is_finished)
    }

    pub(crate) fn len(&self) -> usize {
        self.read().by_id.len()
    }

    /// Nothing in here runs foreign code while it holds the lock, so a poisoned lock still guards whole entries.
    fn read(&self) -> RwLockReadGuard<'_, DirectoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, DirectoryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryState {
    fn exists(&self, serial: Serial) -> bool {
        let there = |node: &DirectoryEntry| matches!(node.presence, Presence::Asleep(_) | Presence::Live(_));
        self.agents.get(&serial).is_some_and(there)
    }

    /// The agent, its parent, and so on.
    fn lineage(&self, serial: Serial) -> impl Iterator<Item = Serial> {
        std::iter::successors(Some(serial), |serial| self.agents.get(serial)?.parent)
    }

    /// Everybody below, those above before those below them.
    fn descendants_of(&self, serial: Serial) -> impl Iterator<Item = Serial> {
        let mut found: Vec<Serial> = self.children.get(&serial).into_iter().flatten().copied().collect();
        let mut place = 0;
        while place < found.len() {
            found.extend(self.children.get(&found[place]).into_iter().flatten());
            place += 1;
        }
        found.into_iter()
    }

    fn children_of(&self, parent: Serial) -> impl Iterator<Item = Serial> {
        let all = self.children.get(&parent).into_iter().flatten().copied();
        all.filter(|serial| self.exists(*serial))
    }

    fn listed_agent(&self, serial: Serial) -> ListedAgent {
        let live = match self.agents.get(&serial).map(|node| &node.presence) {
            Some(Presence::Live(handle)) => Some(Arc::clone(&handle.shared)),
            Some(Presence::Pending | Presence::Asleep(_) | Presence::Destroyed) | None => None,
        };
        ListedAgent { serial, live, child_count: self.children_of(serial).count() }
    }

    fn remove(&mut self, serial: Serial) -> Option<AgentHandle> {
        let node = self.agents.get_mut(&serial)?;
        let (id, capability) = (node.id.clone(), node.capability);
        let stage = std::mem::replace(&mut node.presence, Presence::Destroyed);
        self.by_id.remove(&id);
        self.by_capability.remove(&capability);
        self.prune(serial);
        match stage {
            Presence::Live(handle) => {
                self.live.remove(&serial);
                Some(handle)
            }
            Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        }
    }

    /// Forgets an agent that is gone, and those above it that were gone before, when nobody is below them any more.
    fn prune(&mut self, serial: Serial) {
        let mut serial = serial;
        while self.agents.get(&serial).is_some_and(|node| matches!(node.presence, Presence::Destroyed))
            && !self.children.contains_key(&serial)
        {
            let Some(parent) = self.agents.remove(&serial).and_then(|node| node.parent) else { return };
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

fn children_budget_exhausted(id: &AgentId, short: InsufficientBudget) -> Fault {
    let InsufficientBudget { resource, .. } = short;
    let text = format!("Cannot create agent '{id}': the budget of {resource} of an ancestor is used up");
    Fault::denied(resource.name(), text)
}
