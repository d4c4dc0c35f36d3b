//! The event stream: what is kept, told in the order it is kept, and what models say meanwhile. Agents never wait for
//! whoever listens: a reader that falls behind goes on from the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use agent::journal::Serial;
use agent::outside::{JournalEntry, EntryRange, Store, Watcher};
use agent::{AgentId, Fault, RequestId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::handle::AgentHandle;

/// What is told.
#[derive(Debug, Clone)]
pub enum FeedItem {
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
pub enum FeedScope {
    /// Everybody's.
    All,
    /// One agent's. It does not go to sleep while somebody listens.
    Agent(AgentHandle),
}

#[derive(Debug, Clone)]
enum Told {
    Entry(Arc<JournalEntry>),
    Delta(Arc<Delta>),
}

/// What one listener may be behind before it goes on from the journal.
const ALL_BEHIND_MAX: usize = 4096;
const AGENT_BEHIND_MAX: usize = 512;

/// Entries read at once.
const PAGE: usize = 256;

/// Tells listeners.
pub(crate) struct Feed {
    all: broadcast::Sender<Told>,
    agents: RwLock<HashMap<Serial, broadcast::Sender<Told>>>,
    /// Listeners there are: with none, nothing is told.
    listeners: Arc<AtomicUsize>,
    broken: watch::Sender<Option<String>>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            all: broadcast::Sender::new(ALL_BEHIND_MAX),
            agents: RwLock::default(),
            listeners: Arc::default(),
            broken: watch::Sender::new(None),
        }
    }

    /// Why the store takes nothing more. Returns when it does not.
    pub(crate) async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default());
        match why {
            Ok(why) => why,
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether anybody listens at all.
    pub(crate) fn is_heard(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    /// Tells what a model says.
    pub(crate) fn say(&self, delta: Delta) {
        let serial = delta.agent;
        self.tell(serial, &Told::Delta(Arc::new(delta)));
    }

    fn tell(&self, serial: Serial, told: &Told) {
        // Nobody has to listen.
        let _ = self.all.send(told.clone());
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agents.get(&serial) {
            let _ = agent.send(told.clone());
        }
    }

    fn listen(&self, serial: Option<Serial>) -> broadcast::Receiver<Told> {
        let Some(serial) = serial else { return self.all.subscribe() };
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|_, agent| agent.receiver_count() > 0);
        agents.entry(serial).or_insert_with(|| broadcast::Sender::new(AGENT_BEHIND_MAX)).subscribe()
    }
}

impl Watcher for Feed {
    fn kept(&self, entries: &[Arc<JournalEntry>]) {
        if self.is_heard() {
            entries.iter().for_each(|entry| self.tell(entry.agent, &Told::Entry(Arc::clone(entry))));
        }
    }

    fn broken(&self, why: &str) {
        self.broken.send_replace(Some(why.to_owned()));
    }
}

/// Somebody who listens.
pub struct Subscription {
    store: Arc<dyn Store>,
    told: broadcast::Receiver<Told>,
    serial: Option<Serial>,
    /// Everything up to here was given.
    cursor: u64,
    /// Read from the journal and not given yet.
    read: VecDeque<Arc<JournalEntry>>,
    /// Whether there may be more in the journal than was told.
    behind: bool,
    first: VecDeque<FeedItem>,
    listeners: Arc<AtomicUsize>,
    _agent: Option<AgentHandle>,
}

impl Subscription {
    /// Begins to listen behind `after`; with none, from now on.
    pub(crate) async fn begin(
        feed: &Feed,
        store: Arc<dyn Store>,
        scope: FeedScope,
        after: Option<u64>,
    ) -> Result<Self, Fault> {
        let agent = match scope {
            FeedScope::All => None,
            FeedScope::Agent(agent) => Some(agent),
        };
        let serial = agent.as_ref().map(|agent| agent.refer().serial());
        feed.listeners.fetch_add(1, Ordering::AcqRel);
        // Counted before it listens and before it reads: what is kept from now on is told, what was kept before is read.
        let mut subscription = Self {
            told: feed.listen(serial),
            store,
            serial,
            cursor: 0,
            read: VecDeque::new(),
            behind: after.is_some(),
            first: VecDeque::new(),
            listeners: Arc::clone(&feed.listeners),
            _agent: agent,
        };
        let bounds = subscription.store.bounds().await?;
        subscription.cursor = match after {
            None => bounds.last,
            Some(after) if after > bounds.last || after + 1 < bounds.first => {
                subscription.first.push_back(FeedItem::Gap { first: bounds.first, last: bounds.last });
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
    pub async fn next(&mut self) -> Result<FeedItem, Fault> {
        loop {
            if let Some(item) = self.first.pop_front() {
                return Ok(item);
            }
            if let Some(entry) = self.read.pop_front() {
                self.cursor = entry.sequence;
                return Ok(FeedItem::Entry(entry));
            }
            if self.behind {
                self.catch_up().await?;
                continue;
            }
            match self.told.recv().await {
                Ok(Told::Entry(entry)) if entry.sequence > self.cursor => {
                    self.cursor = entry.sequence;
                    return Ok(FeedItem::Entry(entry));
                }
                // Read from the journal before.
                Ok(Told::Entry(_)) => {}
                Ok(Told::Delta(delta)) => return Ok(FeedItem::Delta(delta)),
                Err(RecvError::Lagged(_)) => {
                    self.behind = true;
                    return Ok(FeedItem::Lagged);
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
        let span = EntryRange { agent: self.serial, after: self.cursor, limit: PAGE };
        // What was told by now is read now; deltas among it would come behind the end of their turn.
        self.told = self.told.resubscribe();
        let page = self.store.read(span).await?;
        // A page that is not full was the last: what came after it is told.
        self.behind = page.len() >= PAGE;
        self.read.extend(page);
        Ok(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}
