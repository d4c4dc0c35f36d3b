//! Permits for event streams: a limit on all, a share of it for each agent, and a part that only admins use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An agent may open this part of all streams.
const AGENT_SHARE: usize = 16;

/// This part of all streams is reserved for admins.
const ADMIN_RESERVE: usize = 4;

/// Counts the open event streams.
#[derive(Debug)]
pub(super) struct StreamPermits {
    streams_max: usize,
    open: Mutex<OpenStreams>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    admins: usize,
    /// By the serial of the agent.
    agents: HashMap<u64, usize>,
}

/// Why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamsFull {
    /// All streams that the caller may use are open.
    All,
    /// The agent has used its share.
    Share,
}

/// Permit of an open stream, returned on drop.
#[derive(Debug)]
pub(super) struct StreamPermit {
    permits: Arc<StreamPermits>,
    agent: Option<u64>,
}

impl StreamPermits {
    pub(super) fn new(streams_max: usize) -> Arc<Self> {
        Arc::new(Self { streams_max, open: Mutex::default() })
    }

    /// Acquires a permit for an agent or, with `None`, for an admin.
    pub(super) fn try_acquire(self: &Arc<Self>, agent: Option<u64>) -> Result<StreamPermit, StreamsFull> {
        let mut open = self.open();
        let of_agents: usize = open.agents.values().sum();
        let reserved = if agent.is_some() { self.streams_max / ADMIN_RESERVE } else { 0 };
        // Streams of admins count against the reserve first, so that they do not displace those of agents.
        if open.admins.max(reserved) + of_agents >= self.streams_max {
            return Err(StreamsFull::All);
        }
        match agent {
            None => open.admins += 1,
            Some(agent) => {
                let own = open.agents.entry(agent).or_default();
                if *own >= (self.streams_max / AGENT_SHARE).max(1) {
                    return Err(StreamsFull::Share);
                }
                *own += 1;
            }
        }
        Ok(StreamPermit { permits: Arc::clone(self), agent })
    }

    fn open(&self) -> MutexGuard<'_, OpenStreams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.permits.open();
        match self.agent {
            None => open.admins -= 1,
            Some(agent) => {
                let own = open.agents.entry(agent).or_default();
                *own = own.saturating_sub(1);
                if *own == 0 {
                    open.agents.remove(&agent);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_gets_its_share_and_admins_the_reserve() {
        let permits = StreamPermits::new(1024);
        let mut held: Vec<_> = (0..64).map(|_| permits.try_acquire(Some(1)).unwrap()).collect();
        assert_eq!(permits.try_acquire(Some(1)).err(), Some(StreamsFull::Share));
        for agent in 2..=12 {
            held.extend((0..64).map(|_| permits.try_acquire(Some(agent)).unwrap()));
        }
        assert_eq!(permits.try_acquire(Some(13)).err(), Some(StreamsFull::All), "768 are for agents");
        let admins: Vec<_> = (0..256).map(|_| permits.try_acquire(None).unwrap()).collect();
        assert_eq!(permits.try_acquire(None).err(), Some(StreamsFull::All));
        drop(admins);
        held.clear();
        assert!(permits.try_acquire(Some(1)).is_ok(), "permits are returned");
        assert!(permits.open().agents.is_empty());
    }

    #[test]
    fn admins_may_use_all_streams() {
        let permits = StreamPermits::new(4);
        let held: Vec<_> = (0..4).map(|_| permits.try_acquire(None).unwrap()).collect();
        assert_eq!(permits.try_acquire(None).err(), Some(StreamsFull::All));
        assert_eq!(permits.try_acquire(Some(1)).err(), Some(StreamsFull::All));
        drop(held);
        assert!(StreamPermits::new(1).try_acquire(Some(1)).is_ok(), "the smallest limit has no reserve");
    }
}
