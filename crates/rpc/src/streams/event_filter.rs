//! Visibility of events: an admin sees all, an agent only its own and its descendants'. Each event is filtered when it
//! is delivered, with the permissions of that time.

use std::collections::BTreeSet;

use agent::PrincipalId;
use agent::journal::{DAEMON, Record, Serial};
use agent::outside::JournalEntry;
use runtime::{AgentRef, BusEvent, PoolHandle};

use super::watch::EVENTS_ACCESS;
use crate::caller::Principal;

/// Filter of the events a subscriber may see.
pub(super) enum EventFilter {
    /// All events, for an admin.
    All,
    /// Events of an agent and its descendants.
    Subtree(Box<SubtreeFilter>),
}

/// Filter for an agent's subtree.
pub(super) struct SubtreeFilter {
    own: AgentRef,
    /// Whether the agent has the tool that reads its descendants' messages.
    can_see_descendants: bool,
    /// Version of the pool's permissions at which this was looked up.
    permissions_version: Option<u64>,
    /// Known descendants. Destroyed ones must be remembered here, because the tree no longer contains them.
    descendants: BTreeSet<Serial>,
}

/// Visibility of one event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Visible,
    Hidden,
    /// The subscribing agent was destroyed; the stream ends.
    Ended,
}

/// Maximum number of remembered descendants.
const DESCENDANTS_MAX: usize = 4096;

impl EventFilter {
    pub(super) fn for_principal(principal: &Principal, pool: &PoolHandle) -> Self {
        match principal {
            Principal::Admin => EventFilter::All,
            Principal::Agent(own) => {
                let descendants = pool.descendants_of(own);
                let mut filter = SubtreeFilter {
                    own: own.clone(),
                    can_see_descendants: false,
                    permissions_version: None,
                    descendants: BTreeSet::new(),
                };
                descendants.into_iter().for_each(|agent| filter.remember_descendant(agent));
                EventFilter::Subtree(Box::new(filter))
            }
        }
    }

    /// Looks up the agent's permissions if any permissions have changed. Wakes the agent but does not hold it, so that
    /// a stream prevents neither its sleep nor its renaming.
    pub(super) async fn refresh(&mut self, pool: &PoolHandle) {
        // Read before the permissions, so that a concurrent change is looked up again.
        let version = Some(pool.permissions_version());
        if let EventFilter::Subtree(filter) = self
            && filter.permissions_version != version
        {
            let woken = pool.wake(&filter.own).await;
            filter.permissions_version = version.filter(|_| woken.is_ok());
            filter.can_see_descendants = woken
                .is_ok_and(|own| own.tool_names().iter().any(|name| Some(&**name) == EVENTS_ACCESS.tool()));
        }
    }

    /// Returns the visibility of an event. Call `refresh` before.
    pub(super) fn visibility(&mut self, pool: &PoolHandle, item: &BusEvent) -> Visibility {
        match (self, item) {
            (EventFilter::All, _) | (EventFilter::Subtree(_), BusEvent::Gap { .. } | BusEvent::Lagged) => {
                Visibility::Visible
            }
            (EventFilter::Subtree(filter), BusEvent::Entry(entry)) => filter.entry_visibility(pool, entry),
            (EventFilter::Subtree(filter), BusEvent::Delta(delta)) if !pool.exists(&filter.own) => {
                if delta.agent == filter.own.serial() { Visibility::Hidden } else { Visibility::Ended }
            }
            (EventFilter::Subtree(filter), BusEvent::Delta(delta)) => {
                visible_if(filter.is_visible(pool, delta.agent))
            }
        }
    }

    /// Whether events of this agent may still be sent. Call `refresh` before.
    pub(super) fn sees_agent(&mut self, pool: &PoolHandle, agent: Serial) -> bool {
        match self {
            EventFilter::All => true,
            EventFilter::Subtree(filter) => pool.exists(&filter.own) && filter.is_visible(pool, agent),
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
            // Hidden: the daemon's own records, and denials of other principals.
            _ if entry.agent == DAEMON => Visibility::Hidden,
            Record::Denied { principal, .. }
                if entry.agent_id.clone().map(PrincipalId::Agent).as_ref() != Some(principal) =>
            {
                Visibility::Hidden
            }
            Record::Created(record) => {
                let is_descendant =
                    record.parent.is_some_and(|parent| parent == own || self.descendants.contains(&parent));
                if is_descendant {
                    self.remember_descendant(entry.agent);
                }
                visible_if(self.is_visible(pool, entry.agent))
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
        self.can_see_descendants && self.descendants.contains(&agent)
    }

    fn remember_descendant(&mut self, agent: Serial) {
        self.descendants.insert(agent);
        if self.descendants.len() > DESCENDANTS_MAX {
            self.descendants.pop_first();
        }
    }
}

fn visible_if(is_visible: bool) -> Visibility {
    if is_visible { Visibility::Visible } else { Visibility::Hidden }
}
