//! The event stream: what is kept, told in the order it is kept, and what models say meanwhile. Agents never wait for
//! whoever listens: a reader that falls behind goes on from the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use agent::journal::Serial;
use agent::outside::{CommitListener, EntryRange, JournalEntry, Store};
use agent::{AgentId, Fault, RequestId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::handle::AgentHandle;

/// What is told.
#[derive(Debug, Clone)]
pub enum BusEvent {
    /// Something was kept.
    Entry(Arc<JournalEntry>),
    /// A model said something; it is not kept like this.
    Delta(Arc<Delta>),
    /// The reader's place is not in the journal. What there is begins and ends here, and is read from its beginning.
    Gap {
        /// The first sequence there is.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// The reader was too slow: deltas were dropped. What was kept follows from the journal; none of it is lost.
    Lagged,
}

/// A piece of what a model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Whose model.
    pub agent: Serial,
    /// The agent's name.
    pub name: AgentId,
    /// The name of the send.
    pub request_id: RequestId,
    /// The turn.
    pub turn: u64,
    /// What the piece is of.
    pub kind: DeltaKind,
    /// The piece.
    pub text: String,
}

/// What a piece is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    /// The answer.
    Text,
    /// What the model thinks before it answers.
    Reasoning,
}

/// Whose events.
pub enum EventScope {
    /// Everybody's.
    All,
    /// One agent's. It does not go to sleep while somebody listens.
    Agent(AgentHandle),
}

#[derive(Debug, Clone)]
enum Delivery {
    Entry(Arc<JournalEntry>),
    Delta(Arc<Delta>),
}

/// What one listener may be behind before it goes on from the journal.
const ALL_LAG_MAX: usize = 4096;
const AGENT_LAG_MAX: usize = 512;

/// Entries read at once.
const PAGE_ENTRIES_MAX: usize = 256;

/// Tells listeners.
pub(crate) struct EventBus {
    all: broadcast::Sender<Delivery>,
    agents: RwLock<HashMap<Serial, broadcast::Sender<Delivery>>>,
    /// Listeners there are: with none, nothing is told.
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

    /// Why the store takes nothing more. Returns when it does not.
    pub(crate) async fn wait_store_failure(&self) -> String {
        let mut broken = self.store_failure.subscribe();
        let why = broken.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default());
        match why {
            Ok(why) => why,
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether anybody listens at all.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Tells what a model says.
    pub(crate) fn publish_delta(&self, delta: Delta) {
        let serial = delta.agent;
        self.publish(serial, &Delivery::Delta(Arc::new(delta)));
    }

    fn publish(&self, serial: Serial, told: &Delivery) {
        // Nobody has to listen.
        let _ = self.all.send(told.clone());
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agents.get(&serial) {
            let _ = agent.send(told.clone());
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

/// Somebody who listens.
pub struct Subscription {
    store: Arc<dyn Store>,
    deliveries: broadcast::Receiver<Delivery>,
    serial: Option<Serial>,
    /// Everything up to here was given.
    cursor: u64,
    /// Read from the journal and not given yet.
    backlog: VecDeque<Arc<JournalEntry>>,
    /// Whether there may be more in the journal than was told.
    is_behind: bool,
    initial: VecDeque<BusEvent>,
    subscribers: Arc<AtomicUsize>,
    _agent: Option<AgentHandle>,
}

impl Subscription {
    /// Begins to listen behind `after`; with none, from now on.
    pub(crate) async fn begin(
        feed: &EventBus,
        store: Arc<dyn Store>,
        scope: EventScope,
        after: Option<u64>,
    ) -> Result<Self, Fault> {
        let agent = match scope {
            EventScope::All => None,
            EventScope::Agent(agent) => Some(agent),
        };
        let serial = agent.as_ref().map(|agent| agent.agent_ref().serial());
        feed.subscribers.fetch_add(1, Ordering::AcqRel);
        // Counted before it listens and before it reads: what is kept from now on is told, what was kept before is read.
        let mut subscription = Self {
            deliveries: feed.receiver(serial),
            store,
            serial,
            cursor: 0,
            backlog: VecDeque::new(),
            is_behind: after.is_some(),
            initial: VecDeque::new(),
            subscribers: Arc::clone(&feed.subscribers),
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

    /// The next item. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn next(&mut self) -> Result<BusEvent, Fault> {
        loop {
            if let Some(item) = self.initial.pop_front() {
                return Ok(item);
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
                // Read from the journal before.
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

    /// The sequence of the last entry given, or where listening began.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    async fn catch_up(&mut self) -> Result<(), Fault> {
        let span = EntryRange { agent: self.serial, after: self.cursor, limit: PAGE_ENTRIES_MAX };
        // What was told by now is read now; deltas among it would come behind the end of their turn.
        self.deliveries = self.deliveries.resubscribe();
        let page = self.store.read(span).await?;
        // A page that is not full was the last: what came after it is told.
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
