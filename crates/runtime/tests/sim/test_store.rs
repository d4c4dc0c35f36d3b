//! A store that does as it is told: holds what is given to it, refuses it, or stops keeping anything at all, as a disk
//! does when the daemon is killed. What is kept is kept in memory, and several pools may have it one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, Bounds, Doing, Entry, IndexRow, Moment, Span, Store, StoreFault, StoredAgent, StoredTurn, Watcher,
};
use store::MemoryStore;
use tokio::sync::oneshot;

/// One life of a store: what it keeps outlives it.
pub(crate) struct TestStore {
    kept: Arc<MemoryStore>,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In line, and not kept yet.
    line: VecDeque<InLine>,
    /// Tickets given so far.
    tickets: u64,
    is_held: bool,
    /// The daemon was killed: nothing more is kept, and nobody hears of it.
    is_dead: bool,
    /// How many calls are kept before it is.
    lives_for: Option<usize>,
    /// How often others get to run before a call is kept.
    yields: usize,
    /// Calls that ask for nothing but their place in line; none while they are not held.
    held_places: Option<Vec<oneshot::Sender<Result<(), StoreFault>>>>,
    refusals: Vec<Refusal>,
    /// Everything that was put in line, with whether it was kept.
    seen: Vec<Seen>,
    histories: Vec<Serial>,
    /// Nothing before this entry is there any more.
    begins_at: u64,
    watcher: Option<Arc<dyn Watcher>>,
}

struct InLine {
    ticket: u64,
    appends: Vec<Append>,
    done: oneshot::Sender<Result<(), StoreFault>>,
}

/// What is not to be kept.
struct Refusal {
    kind: Option<&'static str>,
    times: usize,
    fault: StoreFault,
}

/// One call, as it was put in line.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) was_kept: bool,
}

impl TestStore {
    pub(crate) fn new() -> Arc<Self> {
        Self::over(store::memory())
    }

    /// A new life of what was kept before.
    pub(crate) fn over(kept: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { kept, desk: Arc::default() })
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryStore> {
        &self.kept
    }

    /// Keeps nothing until it is released.
    pub(crate) fn hold(&self) {
        self.desk.state().is_held = true;
    }

    pub(crate) fn release(&self) {
        self.desk.state().is_held = false;
        self.desk.keep(&self.kept, u64::MAX);
        let places = self.desk.state().held_places.take();
        places.into_iter().flatten().for_each(|place| drop(place.send(Ok(()))));
    }

    /// Holds calls that ask for nothing but their place in line, until it is released.
    pub(crate) fn hold_places(&self) {
        self.desk.state().held_places = Some(Vec::new());
    }

    /// Lets others run before each call is kept.
    pub(crate) fn take_time(&self, yields: usize) {
        self.desk.state().yields = yields;
    }

    /// Keeps so many calls more, and is dead then.
    pub(crate) fn live_for(&self, calls: usize) {
        let mut state = self.desk.state();
        state.lives_for = Some(calls);
        state.is_dead = calls == 0;
    }

    /// Loses all entries before this one.
    pub(crate) fn begin_at(&self, sequence: u64) {
        self.desk.state().begins_at = sequence;
    }

    /// Keeps nothing from now on; whoever waits waits for ever.
    pub(crate) fn die(&self) {
        self.live_for(0);
    }

    /// Whether something is in line, and not kept yet.
    pub(crate) fn has_line(&self) -> bool {
        !self.desk.state().line.is_empty()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.desk.state().is_dead
    }

    /// Refuses the next calls.
    pub(crate) fn refuse(&self, times: usize, fault: StoreFault) {
        self.desk.state().refusals.push(Refusal { kind: None, times, fault });
    }

    /// Refuses the next calls that have a record of this kind.
    pub(crate) fn refuse_kind(&self, kind: &'static str, times: usize, fault: StoreFault) {
        self.desk.state().refusals.push(Refusal { kind: Some(kind), times, fault });
    }

    /// Refuses nothing any more.
    pub(crate) fn heal(&self) {
        self.desk.state().refusals.clear();
    }

    /// Fails for good, and tells whoever watches.
    pub(crate) fn break_down(&self, why: &str) {
        let broken = StoreFault::Broken(why.to_owned());
        self.desk.state().refusals.insert(0, Refusal { kind: None, times: usize::MAX, fault: broken });
        let watcher = self.desk.state().watcher.clone();
        watcher.expect("somebody watches").broken(why);
    }

    /// Everything that was put in line since this was last asked.
    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.desk.state().seen)
    }

    /// How often an agent's history was read.
    pub(crate) fn histories_of(&self, serial: Serial) -> usize {
        self.desk.state().histories.iter().filter(|read| **read == serial).count()
    }

    /// What is kept of an agent.
    pub(crate) async fn kept_of(&self, serial: Serial) -> Vec<Record> {
        self.kept.history(serial).await.expect("memory can be read")
    }

    fn is_idle(&self) -> bool {
        let state = self.desk.state();
        !state.is_held && state.yields == 0
    }
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is in line, up to this ticket.
    fn keep(&self, kept: &MemoryStore, ticket: u64) {
        loop {
            let mut state = self.state();
            if state.is_held || state.is_dead || state.line.front().is_none_or(|first| first.ticket > ticket)
            {
                return;
            }
            let Some(InLine { ticket, appends, done }) = state.line.pop_front() else { return };
            let refusal = state.refusal(&appends);
            drop(state);
            // Memory keeps what it is given when it is given.
            let result = match refusal {
                Some(fault) => Err(fault),
                None => futures_util::FutureExt::now_or_never(kept.append(appends)).expect("memory is quick"),
            };
            let mut state = self.state();
            if result.is_ok() {
                state.was_kept(ticket);
            }
            drop(state);
            let _ = done.send(result);
        }
    }
}

impl State {
    fn refusal(&mut self, appends: &[Append]) -> Option<StoreFault> {
        let has = |kind| appends.iter().flat_map(|one| &one.records).any(|record| record.kind() == kind);
        let fits = |refusal: &&mut Refusal| refusal.times > 0 && refusal.kind.is_none_or(has);
        // An empty call asks for its place in line and nothing else.
        let is_empty = appends.iter().all(|one| one.records.is_empty() && one.ledgers.is_empty());
        let refusal = self.refusals.iter_mut().find(fits).filter(|_| !is_empty)?;
        refusal.times -= 1;
        Some(refusal.fault.clone())
    }

    fn was_kept(&mut self, ticket: u64) {
        let first = self.tickets - self.seen.len() as u64;
        let place = usize::try_from(ticket - first - 1).ok();
        if let Some(seen) = place.and_then(|place| self.seen.get_mut(place)) {
            seen.was_kept = true;
        }
        if let Some(left) = &mut self.lives_for {
            *left = left.saturating_sub(1);
            self.is_dead |= *left == 0;
        }
    }
}

fn kinds(appends: &[Append]) -> Vec<&'static str> {
    appends.iter().flat_map(|one| &one.records).map(Record::kind).collect()
}

impl Store for TestStore {
    fn append(&self, appends: Vec<Append>) -> Doing<'static, Result<(), StoreFault>> {
        let (done, is_done) = oneshot::channel();
        if appends.iter().all(|one| one.records.is_empty())
            && let Some(held) = &mut self.desk.state().held_places
        {
            held.push(done);
            return Box::pin(async move { is_done.await.unwrap_or(Ok(())) });
        }
        let (ticket, yields) = {
            let mut state = self.desk.state();
            state.tickets += 1;
            let (ticket, yields) = (state.tickets, state.yields);
            state.seen.push(Seen { kinds: kinds(&appends), was_kept: false });
            state.line.push_back(InLine { ticket, appends, done });
            (ticket, yields)
        };
        if self.is_idle() {
            self.desk.keep(&self.kept, ticket);
        }
        let (desk, kept) = (Arc::clone(&self.desk), Arc::clone(&self.kept));
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            desk.keep(&kept, ticket);
            match is_done.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn index(&self) -> Doing<'_, Result<Vec<IndexRow>, StoreFault>> {
        self.kept.index()
    }

    fn last_serial(&self) -> Doing<'_, Result<Serial, StoreFault>> {
        self.kept.last_serial()
    }

    fn agents(&self, serials: Vec<Serial>) -> Doing<'_, Result<Vec<StoredAgent>, StoreFault>> {
        self.kept.agents(serials)
    }

    fn history(&self, agent: Serial) -> Doing<'_, Result<Vec<Record>, StoreFault>> {
        self.desk.state().histories.push(agent);
        let yields = self.desk.state().yields;
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            self.kept.history(agent).await
        })
    }

    fn unsettled(&self) -> Doing<'_, Result<Vec<Serial>, StoreFault>> {
        self.kept.unsettled()
    }

    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> Doing<'_, Result<Option<StoredTurn>, StoreFault>> {
        self.kept.turn(agent, request_id)
    }

    fn read(&self, span: Span) -> Doing<'_, Result<Vec<Arc<Entry>>, StoreFault>> {
        let begins_at = self.desk.state().begins_at;
        self.kept.read(Span { after: span.after.max(begins_at.saturating_sub(1)), ..span })
    }

    fn bounds(&self) -> Doing<'_, Result<Bounds, StoreFault>> {
        let begins_at = self.desk.state().begins_at;
        Box::pin(async move {
            let bounds = self.kept.bounds().await?;
            Ok(Bounds { first: bounds.first.max(begins_at), ..bounds })
        })
    }

    fn forget_turns(&self, before: Moment) -> Doing<'static, Result<u64, StoreFault>> {
        self.kept.forget_turns(before)
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.desk.state().watcher = Some(Arc::clone(&watcher));
        self.kept.watch(watcher);
    }

    fn close(&self) -> Doing<'_, ()> {
        self.kept.close()
    }
}
