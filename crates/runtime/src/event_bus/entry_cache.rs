//! Cache of journal entries for subscribers: bounded in bytes, evicts the oldest insertion first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::journal::Serial;
use agent::outside::JournalEntry;

/// Size of all cached entries. A single larger entry is cached alone, so that its readers read it once.
pub(super) const ENTRY_CACHE_BYTES_MAX: usize = 32 << 20;

/// Journal entries by sequence, shared by all subscribers.
#[derive(Default)]
pub(super) struct EntryCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Arc<JournalEntry>>,
    /// Sequences by agent and the entry's number among the agent's entries.
    sequences: HashMap<(Serial, u64), u64>,
    /// Sequences in the order of insertion.
    order: VecDeque<u64>,
    bytes: usize,
}

impl EntryCache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, entry: &Arc<JournalEntry>) {
        let mut state = self.state();
        if state.entries.insert(entry.sequence, Arc::clone(entry)).is_some() {
            return;
        }
        state.sequences.insert((entry.agent, entry.agent_sequence), entry.sequence);
        state.order.push_back(entry.sequence);
        state.bytes += entry.record.content_bytes();
        while state.bytes > ENTRY_CACHE_BYTES_MAX && state.order.len() > 1 {
            state.evict_oldest();
        }
    }

    pub(super) fn get(&self, sequence: u64) -> Option<Arc<JournalEntry>> {
        self.state().entries.get(&sequence).cloned()
    }

    pub(super) fn get_of_agent(&self, agent: Serial, agent_sequence: u64) -> Option<Arc<JournalEntry>> {
        let state = self.state();
        let sequence = state.sequences.get(&(agent, agent_sequence))?;
        state.entries.get(sequence).cloned()
    }

    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }
}

impl State {
    fn evict_oldest(&mut self) {
        if let Some(entry) = self.order.pop_front().and_then(|sequence| self.entries.remove(&sequence)) {
            self.sequences.remove(&(entry.agent, entry.agent_sequence));
            self.bytes -= entry.record.content_bytes();
        }
    }
}
