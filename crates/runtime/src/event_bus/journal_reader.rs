//! Reading the journal for subscribers: page by page, through the entry cache.

use std::sync::Arc;

use agent::journal::Serial;
use agent::outside::{EntryRange, JournalBounds, JournalEntry, Store, StoreFault};
use agent::{Fault, FaultKind};
use tokio_util::task::TaskTracker;

use super::EventBus;
use super::entry_cache::EntryCache;

/// Journal entries read per page.
const PAGE_ENTRIES_MAX: usize = 256;

/// Size of a page: about as much as a connection takes at once.
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// Reads journal entries through the cache of the event bus; cheap to clone.
#[derive(Clone)]
pub(crate) struct JournalReader {
    pub(crate) bus: Arc<EventBus>,
    pub(crate) store: Arc<dyn Store>,
    /// Runs the reads: a reader that is no longer polled must not hold the lock on pages.
    pub(crate) tasks: TaskTracker,
}

/// A position in the journal of all agents, or of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    agent: Option<Serial>,
    pub(super) sequence: u64,
    /// Number of the entry among its agent's entries; `None` when not known yet.
    agent_sequence: Option<u64>,
}

impl Position {
    pub(super) fn new(agent: Option<Serial>, sequence: u64) -> Self {
        Self { agent, sequence, agent_sequence: (sequence == 0).then_some(0) }
    }

    pub(super) fn advance(&mut self, entry: &JournalEntry) {
        self.sequence = entry.sequence;
        self.agent_sequence = Some(entry.agent_sequence);
    }

    /// Returns the next entry if it is cached.
    pub(super) fn find_next(&self, entries: &EntryCache) -> Option<Arc<JournalEntry>> {
        match self.agent {
            None => entries.get(self.sequence.checked_add(1)?),
            Some(agent) => entries.get_of_agent(agent, self.agent_sequence?.checked_add(1)?),
        }
    }
}

impl JournalReader {
    pub(super) async fn bounds(&self) -> Result<JournalBounds, Fault> {
        Ok(self.store.bounds().await?)
    }

    /// Returns the entry with this sequence.
    pub(super) async fn entry(&self, sequence: u64) -> Result<Arc<JournalEntry>, Fault> {
        let before = Position { agent: None, sequence: sequence.saturating_sub(1), agent_sequence: None };
        let found = match before.find_next(&self.bus.entries) {
            Some(entry) => Some(entry),
            None => self.read_after(before).await?,
        };
        let missing = || StoreFault::Corrupt(format!("entry {sequence} is missing"));
        Ok(found.filter(|entry| entry.sequence == sequence).ok_or_else(missing)?)
    }

    /// Reads the page after a position into the cache; returns its first entry, or `None` at the end of the journal.
    pub(super) async fn read_after(&self, position: Position) -> Result<Option<Arc<JournalEntry>>, Fault> {
        let Self { bus, store, .. } = self.clone();
        let read = async move {
            let _page_guard = bus.page_lock.lock().await;
            // Another reader may have read it meanwhile.
            if let Some(entry) = position.find_next(&bus.entries) {
                return Ok(Some(entry));
            }
            let page = store.read(page_range(position)).await?;
            page.iter().for_each(|entry| bus.entries.insert(entry));
            Ok::<_, StoreFault>(page.into_iter().next())
        };
        let page = self.tasks.spawn(read).await.map_err(|fault| {
            Fault::new(FaultKind::Internal, "Internal error: the journal cannot be read").caused_by(fault)
        })?;
        Ok(page?)
    }
}

fn page_range(position: Position) -> EntryRange {
    let Position { agent, sequence: after, .. } = position;
    EntryRange { agent, after, limit: PAGE_ENTRIES_MAX, bytes_max: PAGE_BYTES_MAX }
}
