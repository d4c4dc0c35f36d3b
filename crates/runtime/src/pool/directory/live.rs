//! Live agents and the bounded number of slots for them.

use std::sync::Arc;

use agent::journal::Serial;

use super::{Directory, DirectoryState, Presence};
use crate::handle::{AgentHandle, Shared};

/// Reserved live slot of an agent that is starting; released on drop.
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
    /// Reserves a live slot, putting the least recently used idle agents to sleep if needed. Returns `None` when all
    /// live agents are in use. Evicts and reserves under one lock, so that a concurrent caller cannot take the freed
    /// slot.
    pub(crate) fn reserve_live(&self, max: usize) -> Option<LiveReservation<'_>> {
        let mut state = self.write();
        if state.live.len() + state.live_reserved >= max {
            // Evicts more than needed, so that not every caller scans all live agents.
            for serial in state.longest_idle(max / 16 + 1) {
                state.put_to_sleep(serial);
            }
        }
        (state.live.len() + state.live_reserved < max).then(|| {
            state.live_reserved += 1;
            LiveReservation { directory: self, is_used: false }
        })
    }

    /// Makes an agent live and visible. Returns false when it has to end at once: it was destroyed while waking, or
    /// the pool is stopping.
    pub(crate) fn go_live(&self, handle: AgentHandle, mut reservation: LiveReservation<'_>) -> bool {
        let mut state = self.write();
        // The reservation ends here in any case, under the same lock.
        reservation.is_used = true;
        state.live_reserved -= 1;
        let (serial, closed) = (handle.node().serial, state.closed);
        let Some(entry) = state.agents.get_mut(&serial) else { return false };
        if !matches!(entry.presence, Presence::Pending | Presence::Asleep(_)) {
            return false;
        }
        let capability = entry.capability;
        entry.presence = Presence::Live(handle);
        state.live.insert(serial);
        state.by_capability.insert(capability, serial);
        !closed
    }

    /// Puts a live agent to sleep, if only the directory holds a handle, so that no caller can send it work meanwhile.
    pub(crate) fn put_to_sleep(&self, serial: Serial) -> bool {
        self.write().put_to_sleep(serial)
    }

    /// Removes a live agent that has to reload; remaining handles find its inbox closed.
    pub(crate) fn remove_live(&self, shared: &Arc<Shared>) {
        let mut state = self.write();
        let serial = shared.node.serial;
        let Some(entry) = state.agents.get_mut(&serial) else { return };
        // It may have been put to sleep and woken since; then another instance is live.
        if matches!(&entry.presence, Presence::Live(handle) if Arc::ptr_eq(&handle.shared, shared)) {
            entry.presence = Presence::Asleep(None);
            state.live.remove(&serial);
        }
    }
}

impl DirectoryState {
    fn put_to_sleep(&mut self, serial: Serial) -> bool {
        let Some(entry) = self.agents.get_mut(&serial) else { return false };
        match &entry.presence {
            Presence::Live(handle) if handle.is_evictable() => {
                entry.presence = Presence::Asleep(None);
                self.live.remove(&serial);
                true
            }
            Presence::Live(_) | Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => false,
        }
    }

    /// Returns idle live agents, least recently used first.
    fn longest_idle(&self, count: usize) -> Vec<Serial> {
        let idle_since = |serial: &Serial| match &self.agents.get(serial)?.presence {
            Presence::Live(handle) if handle.is_evictable() => Some((handle.last_used_ms(), *serial)),
            Presence::Live(_) | Presence::Pending | Presence::Asleep(_) | Presence::Destroyed => None,
        };
        let mut idle: Vec<(u64, Serial)> = self.live.iter().filter_map(idle_since).collect();
        idle.sort_unstable();
        idle.into_iter().take(count).map(|(_, serial)| serial).collect()
    }
}
