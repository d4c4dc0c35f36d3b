//! A store that does as it is told: holds what is given to it, refuses it, or stops keeping anything at all, as a disk
//! does when the daemon is killed. What is kept is kept in memory, and several pools may have it one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, CommitListener, EntryRange, IndexRow, JournalBounds, JournalEntry, Store, StoreFault,
    StoredAgent, StoredTurn, Timestamp,
};
use store::MemoryStore;
use tokio::sync::oneshot;

/// One life of a store: what it keeps outlives it.
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
    /// In line, and not kept yet.
    queue: VecDeque<QueuedAppend>,
    /// Tickets given so far.
    last_ticket: u64,
    is_held: bool,
    /// The daemon was killed: nothing more is kept, and nobody hears of it.
    is_dead: bool,
    /// How many calls are kept before it is.
    appends_left: Option<usize>,
    /// How often others get to run before a call is kept.
    yields: usize,
    /// Calls that ask for nothing but their place in line; none while they are not held.
    held_barriers: Option<Vec<oneshot::Sender<Result<(), StoreFault>>>>,
    injected_faults: Vec<InjectedFault>,
    /// Everything that was put in line, with whether it was kept.
    observed: Vec<ObservedAppend>,
    history_reads: Vec<Serial>,
    /// Nothing before this entry is there any more.
    first_sequence: u64,
    listener: Option<Arc<dyn CommitListener>>,
}

struct QueuedAppend {
    ticket: u64,
    appends: Vec<Append>,
    done: oneshot::Sender<Result<(), StoreFault>>,
}

/// What is not to be kept.
struct InjectedFault {
    kind: Option<&'static str>,
    times: usize,
    fault: StoreFault,
}

/// One call, as it was put in line.
#[derive(Debug, Clone)]
pub(crate) struct ObservedAppend {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) was_committed: bool,
}

impl TestStore {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_memory(store::memory())
    }

    /// A new life of what was kept before.
    pub(crate) fn with_memory(kept: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { memory: kept, shared: Arc::default() })
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryStore> {
        &self.memory
    }

    /// Keeps nothing until it is released.
    pub(crate) fn hold(&self) {
        self.shared.state().is_held = true;
    }

    pub(crate) fn release(&self) {
        self.shared.state().is_held = false;
        self.shared.commit_queued(&self.memory, u64::MAX);
        let places = self.shared.state().held_barriers.take();
        places.into_iter().flatten().for_each(|place| drop(place.send(Ok(()))));
    }

    /// Holds calls that ask for nothing but their place in line, until it is released.
    pub(crate) fn hold_barriers(&self) {
        self.shared.state().held_barriers = Some(Vec::new());
    }

    /// Lets others run before each call is kept.
    pub(crate) fn set_commit_yields(&self, yields: usize) {
        self.shared.state().yields = yields;
    }

    /// Keeps so many calls more, and is dead then.
    pub(crate) fn die_after(&self, calls: usize) {
        let mut state = self.shared.state();
        state.appends_left = Some(calls);
        state.is_dead = calls == 0;
    }

    /// Loses all entries before this one.
    pub(crate) fn prune_before(&self, sequence: u64) {
        self.shared.state().first_sequence = sequence;
    }

    /// Keeps nothing from now on; whoever waits waits for ever.
    pub(crate) fn die(&self) {
        self.die_after(0);
    }

    /// Whether something is in line, and not kept yet.
    pub(crate) fn has_queued(&self) -> bool {
        !self.shared.state().queue.is_empty()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.state().is_dead
    }

    /// Refuses the next calls.
    pub(crate) fn inject_fault(&self, times: usize, fault: StoreFault) {
        self.shared.state().injected_faults.push(InjectedFault { kind: None, times, fault });
    }

    /// Refuses the next calls that have a record of this kind.
    pub(crate) fn inject_fault_for_kind(&self, kind: &'static str, times: usize, fault: StoreFault) {
        self.shared.state().injected_faults.push(InjectedFault { kind: Some(kind), times, fault });
    }

    /// Refuses nothing any more.
    pub(crate) fn clear_faults(&self) {
        self.shared.state().injected_faults.clear();
    }

    /// Fails for good, and tells whoever watches.
    pub(crate) fn fail_permanently(&self, why: &str) {
        let broken = StoreFault::Failed(why.to_owned());
        self.shared
            .state()
            .injected_faults
            .insert(0, InjectedFault { kind: None, times: usize::MAX, fault: broken });
        let watcher = self.shared.state().listener.clone();
        watcher.expect("somebody watches").store_failed(why);
    }

    /// Everything that was put in line since this was last asked.
    pub(crate) fn take_observed(&self) -> Vec<ObservedAppend> {
        std::mem::take(&mut self.shared.state().observed)
    }

    /// How often an agent's history was read.
    pub(crate) fn history_read_count(&self, serial: Serial) -> usize {
        self.shared.state().history_reads.iter().filter(|read| **read == serial).count()
    }

    /// What is kept of an agent.
    pub(crate) async fn stored_records(&self, serial: Serial) -> Vec<Record> {
        self.memory.history(serial).await.expect("memory can be read")
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

    /// Keeps what is in line, up to this ticket.
    fn commit_queued(&self, kept: &MemoryStore, ticket: u64) {
        loop {
            let mut state = self.state();
            if state.is_held || state.is_dead || state.queue.front().is_none_or(|first| first.ticket > ticket)
            {
                return;
            }
            let Some(QueuedAppend { ticket, appends, done }) = state.queue.pop_front() else { return };
            let refusal = state.take_fault(&appends);
            drop(state);
            // Memory keeps what it is given when it is given.
            let result = match refusal {
                Some(fault) => Err(fault),
                None => futures_util::FutureExt::now_or_never(kept.append(appends)).expect("memory is quick"),
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
        let has = |kind| appends.iter().flat_map(|one| &one.records).any(|record| record.kind() == kind);
        let fits = |refusal: &&mut InjectedFault| refusal.times > 0 && refusal.kind.is_none_or(has);
        // An empty call asks for its place in line and nothing else.
        let is_empty = appends.iter().all(|one| one.records.is_empty() && one.ledgers.is_empty());
        let refusal = self.injected_faults.iter_mut().find(fits).filter(|_| !is_empty)?;
        refusal.times -= 1;
        Some(refusal.fault.clone())
    }

    fn mark_committed(&mut self, ticket: u64) {
        let first = self.last_ticket - self.observed.len() as u64;
        let place = usize::try_from(ticket - first - 1).ok();
        if let Some(seen) = place.and_then(|place| self.observed.get_mut(place)) {
            seen.was_committed = true;
        }
        if let Some(left) = &mut self.appends_left {
            *left = left.saturating_sub(1);
            self.is_dead |= *left == 0;
        }
    }
}

fn kinds(appends: &[Append]) -> Vec<&'static str> {
    appends.iter().flat_map(|one| &one.records).map(Record::kind).collect()
}

impl Store for TestStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        let (done, is_done) = oneshot::channel();
        if appends.iter().all(|one| one.records.is_empty())
            && let Some(held) = &mut self.shared.state().held_barriers
        {
            held.push(done);
            return Box::pin(async move { is_done.await.unwrap_or(Ok(())) });
        }
        let (ticket, yields) = {
            let mut state = self.shared.state();
            state.last_ticket += 1;
            let (ticket, yields) = (state.last_ticket, state.yields);
            state.observed.push(ObservedAppend { kinds: kinds(&appends), was_committed: false });
            state.queue.push_back(QueuedAppend { ticket, appends, done });
            (ticket, yields)
        };
        if self.commits_immediately() {
            self.shared.commit_queued(&self.memory, ticket);
        }
        let (desk, kept) = (Arc::clone(&self.shared), Arc::clone(&self.memory));
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            desk.commit_queued(&kept, ticket);
            match is_done.await {
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
        self.memory.agents(serials)
    }

    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>> {
        self.shared.state().history_reads.push(agent);
        let yields = self.shared.state().yields;
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
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

    fn read(&self, span: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        let begins_at = self.shared.state().first_sequence;
        self.memory.read(EntryRange { after: span.after.max(begins_at.saturating_sub(1)), ..span })
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        let begins_at = self.shared.state().first_sequence;
        Box::pin(async move {
            let bounds = self.memory.bounds().await?;
            Ok(JournalBounds { first: bounds.first.max(begins_at), ..bounds })
        })
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        self.memory.prune_turns(before)
    }

    fn set_listener(&self, watcher: Arc<dyn CommitListener>) {
        self.shared.state().listener = Some(Arc::clone(&watcher));
        self.memory.set_listener(watcher);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.memory.close()
    }
}
