//! An in-memory store with fault injection: it holds commits back, rejects them, or stops committing as a killed daemon
//! does. The data outlives the store object, and several pools may open it one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, ChangeWrite, CommitListener, EntryRange, FileChangeStore, IndexRow, JournalBounds,
    JournalEntry, KeyRange, KeyValueStore, Namespace, Store, StoreFault, StoredAgent, StoredTurn,
    StoredValue, Timestamp, TurnChanges, ValueWrite,
};
use store::MemoryStore;
use tokio::sync::oneshot;

/// A store whose data outlives it.
pub(crate) struct TestStore {
    memory: Arc<MemoryStore>,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Appends that are enqueued and not committed.
    queue: VecDeque<QueuedAppend>,
    /// The last ticket issued.
    last_ticket: u64,
    is_held: bool,
    /// The appends of this agent are held, and others are committed.
    held_agent: Option<Serial>,
    held_appends: Vec<QueuedAppend>,
    /// The daemon was killed: nothing is committed any more, and no future resolves.
    is_dead: bool,
    /// Number of appends to commit before the store dies.
    appends_left: Option<usize>,
    /// Number of yields before each commit, and before each read of agents.
    yields: usize,
    /// Held barriers (empty appends that only wait for earlier ones); none while barriers are not held.
    held_barriers: Option<Vec<oneshot::Sender<Result<(), StoreFault>>>>,
    injected_faults: Vec<InjectedFault>,
    /// Every append since the last `take_observed`.
    observed: Vec<ObservedAppend>,
    history_reads: Vec<Serial>,
    /// An agent whose rows cannot be read.
    damaged_agent: Option<Serial>,
    /// The first entry that was not pruned.
    first_sequence: u64,
    listener: Option<Arc<dyn CommitListener>>,
}

struct QueuedAppend {
    ticket: u64,
    appends: Vec<Append>,
    done: oneshot::Sender<Result<(), StoreFault>>,
}

/// A fault for the next matching appends.
struct InjectedFault {
    kind: Option<&'static str>,
    times: usize,
    fault: StoreFault,
}

/// One append that was enqueued.
#[derive(Debug, Clone)]
pub(crate) struct ObservedAppend {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) was_committed: bool,
}

impl TestStore {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_memory(store::memory())
    }

    /// A store with the data of an earlier one.
    pub(crate) fn with_memory(memory: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { memory, shared: Arc::default() })
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryStore> {
        &self.memory
    }

    /// Commits nothing until `release`.
    pub(crate) fn hold(&self) {
        self.shared.state().is_held = true;
    }

    /// Commits nothing of this agent until `release`.
    pub(crate) fn hold_agent(&self, agent: Serial) {
        self.shared.state().held_agent = Some(agent);
    }

    pub(crate) fn release(&self) {
        let mut state = self.shared.state();
        state.is_held = false;
        state.held_agent = None;
        let held = std::mem::take(&mut state.held_appends);
        state.queue.extend(held);
        drop(state);
        self.shared.commit_queued(&self.memory, u64::MAX);
        let barriers = self.shared.state().held_barriers.take();
        barriers.into_iter().flatten().for_each(|barrier| drop(barrier.send(Ok(()))));
    }

    /// Makes the rows of this agent unreadable.
    pub(crate) fn damage_agent(&self, agent: Serial) {
        self.shared.state().damaged_agent = Some(agent);
    }

    /// Holds barriers until `release`.
    pub(crate) fn hold_barriers(&self) {
        self.shared.state().held_barriers = Some(Vec::new());
    }

    /// Sets the number of yields before each commit, and before each read of agents.
    pub(crate) fn set_commit_yields(&self, yields: usize) {
        self.shared.state().yields = yields;
    }

    /// Commits this number of appends, then dies.
    pub(crate) fn die_after(&self, appends: usize) {
        let mut state = self.shared.state();
        state.appends_left = Some(appends);
        state.is_dead = appends == 0;
    }

    /// Prunes all entries before this one.
    pub(crate) fn prune_before(&self, sequence: u64) {
        self.shared.state().first_sequence = sequence;
    }

    /// Stops committing; waiters wait for ever.
    pub(crate) fn die(&self) {
        self.die_after(0);
    }

    /// Whether an append is enqueued and not committed.
    pub(crate) fn has_queued(&self) -> bool {
        !self.shared.state().queue.is_empty()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.state().is_dead
    }

    /// Rejects the next appends.
    pub(crate) fn inject_fault(&self, times: usize, fault: StoreFault) {
        self.shared.state().injected_faults.push(InjectedFault { kind: None, times, fault });
    }

    /// Rejects the next appends that contain a record of this kind.
    pub(crate) fn inject_fault_for_kind(&self, kind: &'static str, times: usize, fault: StoreFault) {
        self.shared.state().injected_faults.push(InjectedFault { kind: Some(kind), times, fault });
    }

    /// Removes all injected faults.
    pub(crate) fn clear_faults(&self) {
        self.shared.state().injected_faults.clear();
    }

    /// Fails permanently and notifies the listener.
    pub(crate) fn fail_permanently(&self, reason: &str) {
        let fault = StoreFault::Failed(reason.to_owned());
        self.shared.state().injected_faults.insert(0, InjectedFault { kind: None, times: usize::MAX, fault });
        let listener = self.shared.state().listener.clone();
        listener.expect("a listener is set").store_failed(reason);
    }

    /// Returns the appends observed since the last call.
    pub(crate) fn take_observed(&self) -> Vec<ObservedAppend> {
        std::mem::take(&mut self.shared.state().observed)
    }

    /// Number of reads of an agent's history.
    pub(crate) fn history_read_count(&self, serial: Serial) -> usize {
        self.shared.state().history_reads.iter().filter(|read| **read == serial).count()
    }

    /// The committed records of an agent.
    pub(crate) async fn stored_records(&self, serial: Serial) -> Vec<Record> {
        self.memory.history(serial).await.expect("the memory store is readable")
    }

    fn commits_immediately(&self) -> bool {
        let state = self.shared.state();
        !state.is_held && state.yields == 0
    }
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the queue up to this ticket.
    fn commit_queued(&self, memory: &MemoryStore, ticket: u64) {
        loop {
            let mut state = self.state();
            if state.is_held || state.is_dead || state.queue.front().is_none_or(|first| first.ticket > ticket)
            {
                return;
            }
            let Some(QueuedAppend { ticket, appends, done }) = state.queue.pop_front() else { return };
            let injected = state.take_fault(&appends);
            drop(state);
            // The memory store commits within the call.
            let result = match injected {
                Some(fault) => Err(fault),
                None => futures_util::FutureExt::now_or_never(memory.append(appends))
                    .expect("the memory store commits at once"),
            };
            let mut state = self.state();
            if result.is_ok() {
                state.mark_committed(ticket);
            }
            drop(state);
            let _ = done.send(result);
        }
    }
}

impl State {
    fn take_fault(&mut self, appends: &[Append]) -> Option<StoreFault> {
        let contains =
            |kind| appends.iter().flat_map(|append| &append.records).any(|record| record.kind() == kind);
        let matches =
            |injected: &&mut InjectedFault| injected.times > 0 && injected.kind.is_none_or(contains);
        // An empty append is a barrier, which injected faults do not reject.
        let is_empty = appends.iter().all(|append| append.records.is_empty() && append.ledgers.is_empty());
        let injected = self.injected_faults.iter_mut().find(matches).filter(|_| !is_empty)?;
        injected.times -= 1;
        Some(injected.fault.clone())
    }

    fn mark_committed(&mut self, ticket: u64) {
        let first = self.last_ticket - self.observed.len() as u64;
        let position = usize::try_from(ticket - first - 1).ok();
        if let Some(append) = position.and_then(|position| self.observed.get_mut(position)) {
            append.was_committed = true;
        }
        if let Some(left) = &mut self.appends_left {
            *left = left.saturating_sub(1);
            self.is_dead |= *left == 0;
        }
    }
}

async fn yield_times(yields: usize) {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

fn kinds(appends: &[Append]) -> Vec<&'static str> {
    appends.iter().flat_map(|append| &append.records).map(Record::kind).collect()
}

impl KeyValueStore for TestStore {
    fn write_value(&self, write: ValueWrite) -> BoxFuture<'static, Result<bool, StoreFault>> {
        self.memory.write_value(write)
    }

    fn value(
        &self,
        namespace: Namespace,
        key: String,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<StoredValue>, StoreFault>> {
        self.memory.value(namespace, key, at)
    }

    fn keys(&self, range: KeyRange) -> BoxFuture<'_, Result<Vec<String>, StoreFault>> {
        self.memory.keys(range)
    }
}

impl FileChangeStore for TestStore {
    fn record_changes(&self, write: ChangeWrite) -> BoxFuture<'static, Result<(), StoreFault>> {
        self.memory.record_changes(write)
    }

    fn turn_changes(
        &self,
        agent: Serial,
        turn: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<TurnChanges>, StoreFault>> {
        self.memory.turn_changes(agent, turn)
    }
}

impl Store for TestStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        let (done, committed) = oneshot::channel();
        if appends.iter().all(|append| append.records.is_empty())
            && let Some(barriers) = &mut self.shared.state().held_barriers
        {
            barriers.push(done);
            return Box::pin(async move { committed.await.unwrap_or(Ok(())) });
        }
        let (ticket, yields) = {
            let mut state = self.shared.state();
            state.last_ticket += 1;
            let (ticket, yields) = (state.last_ticket, state.yields);
            state.observed.push(ObservedAppend { kinds: kinds(&appends), was_committed: false });
            let is_held = appends.iter().any(|append| state.held_agent == Some(append.agent));
            let append = QueuedAppend { ticket, appends, done };
            if is_held {
                state.held_appends.push(append);
            } else {
                state.queue.push_back(append);
            }
            (ticket, yields)
        };
        if self.commits_immediately() {
            self.shared.commit_queued(&self.memory, ticket);
        }
        let (shared, memory) = (Arc::clone(&self.shared), Arc::clone(&self.memory));
        Box::pin(async move {
            yield_times(yields).await;
            shared.commit_queued(&memory, ticket);
            match committed.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>> {
        self.memory.index()
    }

    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>> {
        self.memory.last_serial()
    }

    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>> {
        let yields = self.shared.state().yields;
        Box::pin(async move {
            yield_times(yields).await;
            let damaged = self.shared.state().damaged_agent;
            match damaged {
                Some(agent) if serials.contains(&agent) => {
                    Err(StoreFault::Corrupt(format!("agent {agent}: checksum mismatch")))
                }
                _ => self.memory.agents(serials).await,
            }
        })
    }

    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>> {
        self.shared.state().history_reads.push(agent);
        let yields = self.shared.state().yields;
        Box::pin(async move {
            yield_times(yields).await;
            self.memory.history(agent).await
        })
    }

    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>> {
        self.memory.agents_with_open_turns()
    }

    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>> {
        self.memory.turn(agent, request_id)
    }

    fn read(&self, range: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        let first_sequence = self.shared.state().first_sequence;
        self.memory.read(EntryRange { after: range.after.max(first_sequence.saturating_sub(1)), ..range })
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        let first_sequence = self.shared.state().first_sequence;
        Box::pin(async move {
            let bounds = self.memory.bounds().await?;
            Ok(JournalBounds { first: bounds.first.max(first_sequence), ..bounds })
        })
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        self.memory.prune_turns(before)
    }

    fn set_listener(&self, listener: Arc<dyn CommitListener>) {
        self.shared.state().listener = Some(Arc::clone(&listener));
        self.memory.set_listener(listener);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.memory.close()
    }
}
