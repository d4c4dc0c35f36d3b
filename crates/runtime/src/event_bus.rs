//! Event bus: publishes journal entries in commit order, and model output while it streams. Publishing never waits for
//! a subscriber; one that lags catches up from the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use agent::journal::Serial;
use agent::outside::{CommitListener, EntryRange, JournalEntry, Store};
use agent::{AgentId, Fault, RequestId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::handle::AgentHandle;

/// An event of a subscription.
#[derive(Debug, Clone)]
pub enum BusEvent {
    /// A committed journal entry.
    Entry(Arc<JournalEntry>),
    /// A piece of streamed model output; not persisted.
    Delta(Arc<Delta>),
    /// The requested cursor is outside the journal; reading starts at the first entry available.
    Gap {
        /// First sequence in the journal.
        first: u64,
        /// Last sequence in the journal.
        last: u64,
    },
    /// The subscriber lagged: deltas were dropped. No journal entry is lost; they follow from the journal.
    Lagged,
}

/// A piece of streamed model output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Serial of the agent.
    pub agent: Serial,
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Request id of the turn.
    pub request_id: RequestId,
    /// Number of the turn.
    pub turn: u64,
    /// Kind of output.
    pub kind: DeltaKind,
    /// Text of the piece.
    pub text: String,
}

/// Kind of streamed output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    /// Response text.
    Text,
    /// Reasoning before the response.
    Reasoning,
}

/// Which agents' events a subscription delivers.
pub enum EventScope {
    /// All agents.
    All,
    /// One agent. The subscription keeps it awake.
    Agent(AgentHandle),
}

#[derive(Debug, Clone)]
enum Delivery {
    Entry(Arc<JournalEntry>),
    Delta(Arc<Delta>),
}

/// Events buffered per channel; a subscriber that lags further catches up from the journal.
const ALL_LAG_MAX: usize = 4096;
const AGENT_LAG_MAX: usize = 512;

/// Journal entries read per page.
const PAGE_ENTRIES_MAX: usize = 256;

/// Publishes journal entries and deltas to subscribers.
pub(crate) struct EventBus {
    all: broadcast::Sender<Delivery>,
    agents: RwLock<HashMap<Serial, broadcast::Sender<Delivery>>>,
    /// Number of subscribers; with none, nothing is published.
    subscribers: Arc<AtomicUsize>,
    store_failure: watch::Sender<Option<String>>,
}

impl EventBus {
    pub(crate) fn new() -> Self {
        Self {
            all: broadcast::Sender::new(ALL_LAG_MAX),
            agents: RwLock::default(),
            subscribers: Arc::default(),
            store_failure: watch::Sender::new(None),
        }
    }

    /// Waits until the store has failed for good; returns the reason.
    pub(crate) async fn wait_store_failure(&self) -> String {
        let mut failure = self.store_failure.subscribe();
        let why = failure.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default());
        match why {
            Ok(why) => why,
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether there is any subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Publishes a piece of model output.
    pub(crate) fn publish_delta(&self, delta: Delta) {
        let serial = delta.agent;
        self.publish(serial, &Delivery::Delta(Arc::new(delta)));
    }

    fn publish(&self, serial: Serial, delivery: &Delivery) {
        // An error only means that there is no receiver.
        let _ = self.all.send(delivery.clone());
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agents.get(&serial) {
            let _ = agent.send(delivery.clone());
        }
    }

    fn receiver(&self, serial: Option<Serial>) -> broadcast::Receiver<Delivery> {
        let Some(serial) = serial else { return self.all.subscribe() };
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|_, agent| agent.receiver_count() > 0);
        agents.entry(serial).or_insert_with(|| broadcast::Sender::new(AGENT_LAG_MAX)).subscribe()
    }
}

impl CommitListener for EventBus {
    fn committed(&self, entries: &[Arc<JournalEntry>]) {
        if self.has_subscribers() {
            entries.iter().for_each(|entry| self.publish(entry.agent, &Delivery::Entry(Arc::clone(entry))));
        }
    }

    fn store_failed(&self, why: &str) {
        self.store_failure.send_replace(Some(why.to_owned()));
    }
}

/// A subscription to journal entries and deltas.
pub struct Subscription {
    store: Arc<dyn Store>,
    deliveries: broadcast::Receiver<Delivery>,
    serial: Option<Serial>,
    /// Sequence of the last entry returned.
    cursor: u64,
    /// Entries read from the journal, not yet returned.
    backlog: VecDeque<Arc<JournalEntry>>,
    /// Whether the journal may hold entries that the channel did not deliver.
    is_behind: bool,
    initial: VecDeque<BusEvent>,
    subscribers: Arc<AtomicUsize>,
    _agent: Option<AgentHandle>,
}

impl Subscription {
    /// Subscribes to events after sequence `after`; with `None`, from now on.
    pub(crate) async fn begin(
        bus: &EventBus,
        store: Arc<dyn Store>,
        scope: EventScope,
        after: Option<u64>,
    ) -> Result<Self, Fault> {
        let agent = match scope {
            EventScope::All => None,
            EventScope::Agent(agent) => Some(agent),
        };
        let serial = agent.as_ref().map(|agent| agent.agent_ref().serial());
        bus.subscribers.fetch_add(1, Ordering::AcqRel);
        // Increment, subscribe, then read the bounds: later entries arrive by the channel, earlier ones are read from
        // the journal.
        let mut subscription = Self {
            deliveries: bus.receiver(serial),
            store,
            serial,
            cursor: 0,
            backlog: VecDeque::new(),
            is_behind: after.is_some(),
            initial: VecDeque::new(),
            subscribers: Arc::clone(&bus.subscribers),
            _agent: agent,
        };
        let bounds = subscription.store.bounds().await?;
        subscription.cursor = match after {
            None => bounds.last,
            Some(after) if after > bounds.last || after + 1 < bounds.first => {
                subscription.initial.push_back(BusEvent::Gap { first: bounds.first, last: bounds.last });
                bounds.first.saturating_sub(1)
            }
            Some(after) => after,
        };
        Ok(subscription)
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn next(&mut self) -> Result<BusEvent, Fault> {
        loop {
            if let Some(event) = self.initial.pop_front() {
                return Ok(event);
            }
            if let Some(entry) = self.backlog.pop_front() {
                self.cursor = entry.sequence;
                return Ok(BusEvent::Entry(entry));
            }
            if self.is_behind {
                self.catch_up().await?;
                continue;
            }
            match self.deliveries.recv().await {
                Ok(Delivery::Entry(entry)) if entry.sequence > self.cursor => {
                    self.cursor = entry.sequence;
                    return Ok(BusEvent::Entry(entry));
                }
                // Already returned from the journal.
                Ok(Delivery::Entry(_)) => {}
                Ok(Delivery::Delta(delta)) => return Ok(BusEvent::Delta(delta)),
                Err(RecvError::Lagged(_)) => {
                    self.is_behind = true;
                    return Ok(BusEvent::Lagged);
                }
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns the sequence of the last entry returned, or the start of the subscription.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    async fn catch_up(&mut self) -> Result<(), Fault> {
        let range = EntryRange { agent: self.serial, after: self.cursor, limit: PAGE_ENTRIES_MAX };
        // Discards buffered events: the entries are read from the journal, and the deltas would arrive after the end
        // of their turn.
        self.deliveries = self.deliveries.resubscribe();
        let page = self.store.read(range).await?;
        // A partial page is the last one; later entries arrive by the channel.
        self.is_behind = page.len() >= PAGE_ENTRIES_MAX;
        self.backlog.extend(page);
        Ok(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::AcqRel);
    }
}
