//! Who is live, and the places there are for them.

use std::sync::Arc;

use agent::journal::Serial;

use super::{Directory, Entries, Stage};
use crate::handle::{AgentHandle, Shared};

/// A place among the live, promised to one agent until it is live or is given up.
pub(crate) struct LivePlace<'a> {
    directory: &'a Directory,
    is_taken: bool,
}

impl Drop for LivePlace<'_> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.directory.write().live_promised -= 1;
        }
    }
}

impl Directory {
    /// Promises a place to an agent that is about to live, and puts those to sleep for it that rest longest. None when
    /// all who are live are at work. One step: of two who come at once, neither counts a place that the other gave up, and
    /// both find somebody who rests.
    pub(crate) fn promise_live(&self, max: usize) -> Option<LivePlace<'_>> {
        let mut entries = self.write();
        if entries.live.len() + entries.live_promised >= max {
            // Some more than needed, so that not everybody who comes has to look at all of them.
            for serial in entries.resting(max / 16 + 1) {
                entries.put_to_sleep(serial);
            }
        }
        (entries.live.len() + entries.live_promised < max).then(|| {
            entries.live_promised += 1;
            LivePlace { directory: self, is_taken: false }
        })
    }

    /// The agent is kept, or has woken: from now on it can be found. False when it has to end at once: it was destroyed
    /// while it woke, or everything stops.
    pub(crate) fn go_live(&self, handle: AgentHandle, mut place: LivePlace<'_>) -> bool {
        let mut entries = self.write();
        // The promise ends here in any case, under the same lock.
        place.is_taken = true;
        entries.live_promised -= 1;
        let (serial, closed) = (handle.kin().serial, entries.closed);
        let Some(node) = entries.nodes.get_mut(&serial) else { return false };
        if !matches!(node.stage, Stage::Coming | Stage::Asleep(_)) {
            return false;
        }
        let capability = node.capability;
        node.stage = Stage::Live(handle);
        entries.live.insert(serial);
        entries.by_capability.insert(capability, serial);
        !closed
    }

    /// Lets a live agent go, if nobody but the directory can reach it: then nobody can give it work meanwhile.
    pub(crate) fn put_to_sleep(&self, serial: Serial) -> bool {
        self.write().put_to_sleep(serial)
    }

    /// Lets a live agent go that has stumbled; whoever still has a handle meets a closed inbox.
    pub(crate) fn drop_live(&self, fallen: &Arc<Shared>) {
        let mut entries = self.write();
        let serial = fallen.kin.serial;
        let Some(node) = entries.nodes.get_mut(&serial) else { return };
        // It may have been put to sleep and woken since: then another is live in its place.
        if matches!(&node.stage, Stage::Live(handle) if Arc::ptr_eq(&handle.shared, fallen)) {
            node.stage = Stage::Asleep(None);
            entries.live.remove(&serial);
        }
    }
}

impl Entries {
    fn put_to_sleep(&mut self, serial: Serial) -> bool {
        let Some(node) = self.nodes.get_mut(&serial) else { return false };
        match &node.stage {
            Stage::Live(handle) if handle.is_only_one() => {
                node.stage = Stage::Asleep(None);
                self.live.remove(&serial);
                true
            }
            Stage::Live(_) | Stage::Coming | Stage::Asleep(_) | Stage::Gone => false,
        }
    }

    /// Live agents that rest, the longest first.
    fn resting(&self, count: usize) -> Vec<Serial> {
        let rests = |serial: &Serial| match &self.nodes.get(serial)?.stage {
            Stage::Live(handle) if handle.is_only_one() => Some((handle.last_used(), *serial)),
            Stage::Live(_) | Stage::Coming | Stage::Asleep(_) | Stage::Gone => None,
        };
        let mut resting: Vec<(u64, Serial)> = self.live.iter().filter_map(rests).collect();
        resting.sort_unstable();
        resting.into_iter().take(count).map(|(_, serial)| serial).collect()
    }
}
