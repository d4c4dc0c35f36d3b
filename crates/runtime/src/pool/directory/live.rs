//! Who is live, and the places there are for them.

use std::sync::Arc;

use agent::journal::Serial;

use super::{Directory, DirectoryState, Presence};
use crate::handle::{AgentHandle, Shared};

/// A place among the live, promised to one agent until it is live or is given up.
pub(crate) struct LiveReservation<'a> {
    directory: &'a Directory,
    is_used: bool,
}

impl Drop for LiveReservation<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.directory.write().live_reserved -= 1;
        }
    }
}

impl Directory {
    /// Promises a place to an agent that is about to live, and puts those to sleep for it that rest longest. None when
    /// all who are live are at work. One step: of two who come at once, neither counts a place that the other gave up, and
    /// both find somebody who rests.
    pub(crate) fn reserve_live(&self, max: usize) -> Option<LiveReservation<'_>> {
        let mut entries = self.write();
        if entries.live.len() + entries.live_reserved >= max {
            // Some more than needed, so that not everybody who comes has to look at all of them.
            for serial in entries.longest_idle(max / 16 + 1) {
                entries.put_to_sleep(serial);
            }
        }
        (entries.live.len() + entries.live_reserved < max).then(|| {
            entries.live_reserved += 1;
            LiveReservation { directory: self, is_used: false }
        })
    }

    /// The agent is kept, or has woken: from now on it can be found. False when it has to end at once: it was destroyed
    /// while it woke, or everything stops.
    pub(crate) fn go_live(&self, handle: AgentHandle, mut place: LiveReservation<'_>) -> bool {
        let mut entries = self.write();
        // The promise ends here in any case, under the same lock.
        place.is_used = true;
        entries.live_reserved -= 1;
        let (serial, closed) = (handle.node().serial, entries.closed);
        let Some(node) = entries.agents.get_mut(&serial) else { return false };
        if !matches!(node.presence, Presence::Pending | Presence::Asleep(_)) {
            return false;
        }
        let capability = node.capability;
        node.presence = Presence::Live(handle);
        entries.live.insert(serial);
        entries.by_capability.insert(capability, serial);
        !closed
    }

    /// Lets a live agent go, if nobody but the directory can reach it: then nobody can give it work meanwhile.
    pub(crate) fn put_to_sleep(&self, serial: Serial) -> bool {
        self.write().put_to_sleep(serial)
    }

    /// Lets a live agent go that has stumbled; whoever still has a handle meets a closed inbox.
    pub(crate) fn remove_live(&self, fallen: &Arc<Shared>) {
        let mut entries = self.write();
        let serial = fallen.node.serial;
        let Some(node) = entries.agents.get_mut(&serial) else { return };
        // It may have been put to sleep and woken since: then another is live in its place.
        if matches!(&node.presence, Presence::Live(handle) if Arc::ptr_eq(&handle.shared, fallen)) {
            node.presence = Presence::Asleep(None);
            entries.live.remove(&serial);
        }
    }
}

impl DirectoryState {
    fn put_to_sleep(&mut self, serial: Serial) -> bool {
        let Some(node) = self.agents.get_mut(&serial) else { return false };
        match &node.presence {
            Presence::Live(handle) if handle.is_evictable() => {
                node.presence = Presence::Asleep(None);
                self.live.remove(&serial);
                true
            }
            Presence::Live(_) | Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => false,
        }
    }

    /// Live agents that rest, the longest first.
    fn longest_idle(&self, count: usize) -> Vec<Serial> {
        let rests = |serial: &Serial| match &self.agents.get(serial)?.presence {
            Presence::Live(handle) if handle.is_evictable() => Some((handle.last_used_ms(), *serial)),
            Presence::Live(_) | Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        };
        let mut resting: Vec<(u64, Serial)> = self.live.iter().filter_map(rests).collect();
        resting.sort_unstable();
        resting.into_iter().take(count).map(|(_, serial)| serial).collect()
    }
}
