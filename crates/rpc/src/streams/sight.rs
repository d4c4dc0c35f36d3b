//! Who may see what happens: an admin everything, an agent itself and those below it. Judged for each thing that happens,
//! when it is told.

use std::collections::BTreeSet;

use agent::journal::{DAEMON, Record, Serial};
use agent::outside::JournalEntry;
use runtime::{AgentRef, FeedItem, PoolHandle};

use crate::caller::{Errand, Principal};

/// What a watcher may see.
pub(super) enum Sight {
    /// Everything.
    All,
    /// What an agent may see.
    Of(Box<OwnSight>),
}

/// What an agent may see.
pub(super) struct OwnSight {
    own: AgentRef,
    /// Whether it may look at those below it: the same tool that lets it read their messages. None when that has to be
    /// found out again.
    may_look_below: Option<bool>,
    /// Those below it, as far as it knew them: when they are destroyed, the tree does not know them any more.
    below: BTreeSet<Serial>,
}

/// What becomes of one thing that happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    Told,
    Hidden,
    /// There is nobody left to tell.
    Over,
}

/// Agents below that are remembered.
const BELOW_MAX: usize = 4096;

impl Sight {
    pub(super) fn of(principal: Principal, pool: &PoolHandle) -> Self {
        match principal {
            Principal::Admin => Sight::All,
            Principal::Agent(own) => {
                let below = pool.descendants_of(&own);
                let mut sight = OwnSight { own, may_look_below: None, below: BTreeSet::new() };
                below.into_iter().for_each(|agent| sight.remember(agent));
                Sight::Of(Box::new(sight))
            }
        }
    }

    /// Finds out what counts now. The agent is woken for it and not held: whoever watches does not keep it from its sleep
    /// or from another name.
    pub(super) async fn clear(&mut self, pool: &PoolHandle) {
        if let Sight::Of(sight) = self
            && sight.may_look_below.is_none()
        {
            let tool = Errand::EVENTS.tool();
            let woken = pool.wake(&sight.own).await;
            let has_tool = woken.is_ok_and(|own| own.tool_names().iter().any(|name| **name == *tool));
            sight.may_look_below = Some(has_tool);
        }
    }

    /// What becomes of one thing that happened. Only of a clear sight.
    pub(super) fn look(&mut self, pool: &PoolHandle, item: &FeedItem) -> Look {
        match (self, item) {
            (Sight::All, _) | (Sight::Of(_), FeedItem::Gap { .. } | FeedItem::Lagged) => Look::Told,
            (Sight::Of(sight), FeedItem::Entry(entry)) => sight.look_at(pool, entry),
            (Sight::Of(sight), FeedItem::Delta(delta)) if !pool.still_there(&sight.own) => {
                if delta.agent == sight.own.serial() { Look::Hidden } else { Look::Over }
            }
            (Sight::Of(sight), FeedItem::Delta(delta)) => told(sight.sees(pool, delta.agent)),
        }
    }
}

impl OwnSight {
    fn look_at(&mut self, pool: &PoolHandle, entry: &JournalEntry) -> Look {
        let own = self.own.serial();
        if entry.agent != own && !pool.still_there(&self.own) {
            return Look::Over;
        }
        match &entry.record {
            // The daemon's own affairs, and what others wanted and did not get.
            _ if entry.agent == DAEMON => Look::Hidden,
            Record::Denied { principal, .. }
                if entry.agent_id.as_ref().is_none_or(|name| name.as_str() != principal) =>
            {
                Look::Hidden
            }
            Record::Created(made) => {
                let is_below =
                    made.parent.is_some_and(|parent| parent == own || self.below.contains(&parent));
                if is_below {
                    self.remember(entry.agent);
                }
                told(self.sees(pool, entry.agent))
            }
            Record::PermissionsChanged { .. } => {
                let is_seen = self.sees(pool, entry.agent);
                self.may_look_below = None;
                told(is_seen)
            }
            _ => told(self.sees(pool, entry.agent)),
        }
    }

    fn sees(&mut self, pool: &PoolHandle, agent: Serial) -> bool {
        if agent == self.own.serial() {
            return true;
        }
        if pool.is_in_subtree(agent, &self.own) {
            self.remember(agent);
        }
        self.may_look_below == Some(true) && self.below.contains(&agent)
    }

    fn remember(&mut self, agent: Serial) {
        self.below.insert(agent);
        if self.below.len() > BELOW_MAX {
            self.below.pop_first();
        }
    }
}

fn told(is_seen: bool) -> Look {
    if is_seen { Look::Told } else { Look::Hidden }
}
