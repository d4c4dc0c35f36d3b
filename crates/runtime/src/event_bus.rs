//! Event bus: publishes journal entries in commit order, and output of models and tools while it streams. Publishing never waits for
//! a subscriber; one that lags catches up from the journal. Channels and subscribers hold positions: the events
//! themselves are in caches that all subscribers share, bounded in bytes.

mod delta_window;
mod entry_cache;
mod journal_reader;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use agent::journal::Serial;
use agent::outside::{CommitListener, JournalEntry, ToolOutputStream};
use agent::{AgentId, RequestId};
use tokio::sync::{broadcast, watch};

use self::delta_window::DeltaWindow;
use self::entry_cache::EntryCache;
pub(crate) use self::journal_reader::JournalReader;
pub use self::subscription::Subscription;
use crate::handle::AgentHandle;

/// An event of a subscription.
#[derive(Debug, Clone)]
pub enum BusEvent {
    /// A committed journal entry.
    Entry(Arc<JournalEntry>),
    /// A piece of streamed output of a model or a tool; not persisted.
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

/// A piece of streamed output of a model or a tool.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaKind {
    /// Response text.
    Text,
    /// Reasoning before the response.
    Reasoning,
    /// Output of a tool call that runs.
    ToolOutput {
        /// Id of the tool call.
        call_id: Arc<str>,
        /// Which output.
        stream: ToolOutputStream,
    },
}

/// Which agents' events a subscription delivers.
pub enum EventScope {
    /// All agents.
    All,
    /// One agent. The subscription keeps it awake.
    Agent(AgentHandle),
}

/// What a channel delivers: a reference to an event in the shared caches.
#[derive(Debug, Clone)]
enum Delivery {
    /// Sequence of a committed entry.
    Entry(u64),
    Delta(Weak<Delta>),
}

/// Events referenced per channel; a subscriber that lags further catches up from the journal.
const ALL_LAG_MAX: usize = 4096;
const AGENT_LAG_MAX: usize = 512;

/// Publishes journal entries and deltas to subscribers.
pub(crate) struct EventBus {
    all: broadcast::Sender<Delivery>,
    agents: RwLock<HashMap<Serial, broadcast::Sender<Delivery>>>,
    /// Number of subscribers; with none, nothing is published or cached.
    subscribers: AtomicUsize,
    /// Entries that were published or read from the journal lately.
    entries: EntryCache,
    /// Deltas that were published lately.
    deltas: DeltaWindow,
    /// Held while a page of the journal is read: one page at a time is in flight, and readers at the same position
    /// read it once.
    page_lock: tokio::sync::Mutex<()>,
    store_failure: watch::Sender<Option<String>>,
}

impl EventBus {
    pub(crate) fn new() -> Self {
        Self {
            all: broadcast::Sender::new(ALL_LAG_MAX),
            agents: RwLock::default(),
            subscribers: AtomicUsize::new(0),
            entries: EntryCache::default(),
            deltas: DeltaWindow::default(),
            page_lock: tokio::sync::Mutex::default(),
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

    /// Publishes a piece of output, in several deltas if it is long.
    pub(crate) fn publish_delta(&self, delta: Delta) {
        let serial = delta.agent;
        for delta in delta_window::split(delta) {
            let delta = self.deltas.push(delta);
            self.publish(serial, &Delivery::Delta(delta));
        }
    }

    fn publish(&self, serial: Serial, delivery: &Delivery) {
        // An error only means that there is no receiver.
        let _ = self.all.send(delivery.clone());
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agents.get(&serial) {
            let _ = agent.send(delivery.clone());
        }
    }

    /// Adds a subscriber. Later entries arrive by the channel, earlier ones are to be read from the journal.
    fn subscribe(&self, serial: Option<Serial>) -> broadcast::Receiver<Delivery> {
        self.subscribers.fetch_add(1, Ordering::AcqRel);
        let Some(serial) = serial else { return self.all.subscribe() };
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|_, agent| agent.receiver_count() > 0);
        agents.entry(serial).or_insert_with(|| broadcast::Sender::new(AGENT_LAG_MAX)).subscribe()
    }

    /// Removes a subscriber. The caches are emptied with the last one.
    fn unsubscribe(&self) {
        if self.subscribers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.entries.clear();
            self.deltas.clear();
        }
    }
}

impl CommitListener for EventBus {
    fn committed(&self, entries: &[Arc<JournalEntry>]) {
        if self.has_subscribers() {
            for entry in entries {
                self.entries.insert(entry);
                self.publish(entry.agent, &Delivery::Entry(entry.sequence));
            }
        }
    }

    fn store_failed(&self, why: &str) {
        self.store_failure.send_replace(Some(why.to_owned()));
    }
}
