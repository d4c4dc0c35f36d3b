//! Who may see what happens: an admin everything, an agent itself and those below it. Judged for each thing that happens,
//! when it is told.

use std::collections::BTreeSet;

use agent::journal::{DAEMON, Record, Serial};
use agent::outside::JournalEntry;
use runtime::{AgentRef, BusEvent, PoolHandle};

use crate::caller::{Operation, Principal};

/// What a watcher may see.
pub(super) enum EventFilter {
    /// Everything.
    All,
    /// What an agent may see.
    Subtree(Box<SubtreeFilter>),
}

/// What an agent may see.
pub(super) struct SubtreeFilter {
    own: AgentRef,
    /// Whether it may look at those below it: the same tool that lets it read their messages. None when that has to be
    /// found out again.
    can_see_descendants: Option<bool>,
    /// Those below it, as far as it knew them: when they are destroyed, the tree does not know them any more.
    descendants: BTreeSet<Serial>,
}

/// What becomes of one thing that happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Visible,
    Hidden,
    /// There is nobody left to tell.
    Ended,
}

/// Agents below that are remembered.
const DESCENDANTS_MAX: usize = 4096;

impl EventFilter {
    pub(super) fn for_principal(principal: Principal, pool: &PoolHandle) -> Self {
        match principal {
            Principal::Admin => EventFilter::All,
            Principal::Agent(own) => {
                let below = pool.descendants_of(&own);
                let mut sight =
                    SubtreeFilter { own, can_see_descendants: None, descendants: BTreeSet::new() };
                below.into_iter().for_each(|agent| sight.remember_descendant(agent));
                EventFilter::Subtree(Box::new(sight))
            }
        }
    }

    /// Finds out what counts now. The agent is woken for it and not held: whoever watches does not keep it from its sleep
    /// or from another name.
    pub(super) async fn refresh(&mut self, pool: &PoolHandle) {
        if let EventFilter::Subtree(sight) = self
            && sight.can_see_descendants.is_none()
        {
            let tool = Operation::EVENTS.tool();
            let woken = pool.wake(&sight.own).await;
            let has_tool = woken.is_ok_and(|own| own.tool_names().iter().any(|name| **name == *tool));
            sight.can_see_descendants = Some(has_tool);
        }
    }

    /// What becomes of one thing that happened. Only of a clear sight.
    pub(super) fn visibility(&mut self, pool: &PoolHandle, item: &BusEvent) -> Visibility {
        match (self, item) {
            (EventFilter::All, _) | (EventFilter::Subtree(_), BusEvent::Gap { .. } | BusEvent::Lagged) => {
                Visibility::Visible
            }
            (EventFilter::Subtree(sight), BusEvent::Entry(entry)) => sight.entry_visibility(pool, entry),
            (EventFilter::Subtree(sight), BusEvent::Delta(delta)) if !pool.exists(&sight.own) => {
                if delta.agent == sight.own.serial() { Visibility::Hidden } else { Visibility::Ended }
            }
            (EventFilter::Subtree(sight), BusEvent::Delta(delta)) => {
                visible_if(sight.is_visible(pool, delta.agent))
            }
        }
    }
}

impl SubtreeFilter {
    fn entry_visibility(&mut self, pool: &PoolHandle, entry: &JournalEntry) -> Visibility {
        let own = self.own.serial();
        if entry.agent != own && !pool.exists(&self.own) {
            return Visibility::Ended;
        }
        match &entry.record {
            // The daemon's own affairs, and what others wanted and did not get.
            _ if entry.agent == DAEMON => Visibility::Hidden,
            Record::Denied { principal, .. }
                if entry.agent_id.as_ref().is_none_or(|name| name.as_str() != principal) =>
            {
                Visibility::Hidden
            }
            Record::Created(made) => {
                let is_below =
                    made.parent.is_some_and(|parent| parent == own || self.descendants.contains(&parent));
                if is_below {
                    self.remember_descendant(entry.agent);
                }
                visible_if(self.is_visible(pool, entry.agent))
            }
            Record::PermissionsChanged { .. } => {
                let is_seen = self.is_visible(pool, entry.agent);
                self.can_see_descendants = None;
                visible_if(is_seen)
            }
            _ => visible_if(self.is_visible(pool, entry.agent)),
        }
    }

    fn is_visible(&mut self, pool: &PoolHandle, agent: Serial) -> bool {
        if agent == self.own.serial() {
            return true;
        }
        if pool.is_in_subtree(agent, &self.own) {
            self.remember_descendant(agent);
        }
        self.can_see_descendants == Some(true) && self.descendants.contains(&agent)
    }

    fn remember_descendant(&mut self, agent: Serial) {
        self.descendants.insert(agent);
        if self.descendants.len() > DESCENDANTS_MAX {
            self.descendants.pop_first();
        }
    }
}

fn visible_if(is_seen: bool) -> Visibility {
    if is_seen { Visibility::Visible } else { Visibility::Hidden }
}
