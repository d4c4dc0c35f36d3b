//! A subscription: a position in the journal, and a receiver of later events. It holds no event between two calls.

use std::sync::Arc;

use agent::Fault;
use agent::outside::JournalEntry;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::journal_reader::{JournalReader, Position};
use super::{BusEvent, Delivery, EventScope};
use crate::handle::AgentHandle;

/// A subscription to journal entries and deltas.
pub struct Subscription {
    journal: JournalReader,
    deliveries: broadcast::Receiver<Delivery>,
    /// The last entry returned.
    position: Position,
    /// Whether the journal may hold entries that the channel did not deliver.
    is_behind: bool,
    gap: Option<BusEvent>,
    _agent: Option<AgentHandle>,
}

impl Subscription {
    /// Subscribes to events after sequence `after`; with `None`, from now on.
    pub(crate) async fn begin(
        journal: JournalReader,
        scope: EventScope,
        after: Option<u64>,
    ) -> Result<Self, Fault> {
        let agent = match scope {
            EventScope::All => None,
            EventScope::Agent(agent) => Some(agent),
        };
        let serial = agent.as_ref().map(|agent| agent.agent_ref().serial());
        // Subscribe, then read the bounds: later entries arrive by the channel, earlier ones are read from the journal.
        let mut subscription = Self {
            deliveries: journal.bus.subscribe(serial),
            journal,
            position: Position::new(serial, 0),
            is_behind: after.is_some(),
            gap: None,
            _agent: agent,
        };
        let bounds = subscription.journal.bounds().await?;
        let sequence = match after {
            None => bounds.last,
            Some(after) if after > bounds.last || after + 1 < bounds.first => {
                subscription.gap = Some(BusEvent::Gap { first: bounds.first, last: bounds.last });
                bounds.first.saturating_sub(1)
            }
            Some(after) => after,
        };
        subscription.position = Position::new(serial, sequence);
        Ok(subscription)
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn next(&mut self) -> Result<BusEvent, Fault> {
        loop {
            // Cached entries are ready at once: a subscriber that filters many of them out must yield to other tasks.
            tokio::task::coop::consume_budget().await;
            if let Some(gap) = self.gap.take() {
                return Ok(gap);
            }
            if self.is_behind {
                match self.read_journal().await? {
                    Some(entry) => return Ok(self.deliver(entry)),
                    None => self.is_behind = false,
                }
            }
            match self.deliveries.recv().await {
                Ok(Delivery::Entry(sequence)) if sequence > self.position.sequence => {
                    return Ok(match self.journal.bus.entries.get(sequence) {
                        Some(entry) => self.deliver(entry),
                        None => self.fall_behind(),
                    });
                }
                // Already returned from the journal.
                Ok(Delivery::Entry(_)) => {}
                Ok(Delivery::Delta(delta)) => {
                    return Ok(delta.upgrade().map_or_else(|| self.fall_behind(), BusEvent::Delta));
                }
                Err(RecvError::Lagged(_)) => return Ok(self.fall_behind()),
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns the sequence of the last entry returned, or the start of the subscription.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.position.sequence
    }

    /// Returns an entry that `next` has returned before.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn entry(&self, sequence: u64) -> Result<Arc<JournalEntry>, Fault> {
        self.journal.entry(sequence).await
    }

    fn deliver(&mut self, entry: Arc<JournalEntry>) -> BusEvent {
        self.position.advance(&entry);
        BusEvent::Entry(entry)
    }

    /// Continues from the journal after events were evicted before they were returned.
    fn fall_behind(&mut self) -> BusEvent {
        self.is_behind = true;
        BusEvent::Lagged
    }

    /// Returns the next entry of the journal; `None` at its end.
    async fn read_journal(&mut self) -> Result<Option<Arc<JournalEntry>>, Fault> {
        if let Some(entry) = self.position.find_next(&self.journal.bus.entries) {
            return Ok(Some(entry));
        }
        // Discards buffered events: the entries are read from the journal, and the deltas would arrive after the end
        // of their turn. Entries committed after the read arrive by the channel.
        self.deliveries = self.deliveries.resubscribe();
        self.journal.read_after(self.position).await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.journal.bus.unsubscribe();
    }
}
