//! Agents come to life and go to sleep. What is live is bounded; what sleeps costs a line in the directory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::journal::{AgentState, Replay, RestartPolicy, Serial};
use agent::outside::{ModelRequest, ModelSpec, ModelStream, Provider, StoredAgent, Timestamp};
use agent::{AgentId, CountedMessage, Fault, FaultKind, Message, Window};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Pool;
use super::directory::{LiveReservation, Lookup};
use crate::actor::{Actor, Command, PendingTurn};
use crate::admission::{busy, shutting_down};
use crate::capability::CapabilityDigest;
use crate::handle::{AgentHandle, AgentRef, Shared, agent_not_found};
use crate::lineage::{LineageNode, NewLineageNode, StoredLineageNode};
use crate::published::Published;

/// Commands that may wait in an inbox beyond the turns that are open: cancels.
const INBOX_HEADROOM: usize = 16;

/// How often names of old sends are forgotten.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Whoever reads from an agent keeps it from sleeping for a moment. Nobody is refused for that.
const LIVE_RETRY_DELAYS_MS: [u64; 6] = [1, 4, 10, 25, 60, 150];

/// Agents that are woken at once to settle their turns.
const RESUMES_RUNNING_MAX: usize = 64;

/// An agent that is about to live.
pub(super) struct NewAgent {
    pub(super) node: Arc<LineageNode>,
    pub(super) capability: CapabilityDigest,
    pub(super) created_at: Timestamp,
    pub(super) created_by: String,
    pub(super) origin: Option<String>,
    pub(super) on_restart: RestartPolicy,
    pub(super) model_requested: Option<String>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) window: Window,
    pub(super) state: AgentState,
}

type Commands = mpsc::Receiver<Box<Command>>;

impl Pool {
    pub(crate) async fn wake(self: &Arc<Self>, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        loop {
            match self.directory.lookup(agent.serial) {
                Lookup::Live(handle) => {
                    handle.shared.last_used_ms.store(self.uptime_ms(), Ordering::Relaxed);
                    return Ok(handle);
                }
                Lookup::NotFound => return Err(agent_not_found(&agent.id)),
                Lookup::Asleep(gate) => {
                    let _waking = gate.lock().await;
                    // Whoever had the gate before has woken it; if it sleeps again since, it has another gate.
                    if let Lookup::Asleep(now) = self.directory.lookup(agent.serial)
                        && Arc::ptr_eq(&now, &gate)
                    {
                        return self.restore_agent(agent).await;
                    }
                }
            }
        }
    }

    /// Makes the agent from what was kept.
    async fn restore_agent(self: &Arc<Self>, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        if self.stop_requested.is_cancelled() && self.admission.is_closed() {
            return Err(shutting_down());
        }
        let live_place = self.reserve_live().await?;
        let (kin, stored) = self
            .load_agents(&[agent.serial])
            .await?
            .remove(&agent.serial)
            .ok_or_else(|| agent_not_found(&agent.id))?;
        let records = self.outside.store.history(agent.serial).await?;
        let (messages, open) = Replay::from_records(records).into_parts();
        let StoredAgent { record, mut state, .. } = stored;
        let provider = self.provider_for(record.model.as_deref());
        let window = count_window(record.system_prompt.as_deref(), messages, &provider).await;
        state.messages = window.messages().len() as u64;
        let (handle, commands) = self.assemble(NewAgent {
            node: kin,
            capability: CapabilityDigest::from_bytes(record.capability_digest),
            created_at: record.created_at,
            created_by: record.by,
            origin: record.origin,
            on_restart: record.on_restart,
            model_requested: record.model,
            provider,
            window,
            state,
        });
        let waiting = open.into_iter().map(|open| {
            let place = self.admission.readmit(&handle.shared.open_turns);
            PendingTurn::from_stored(open, place)
        });
        let waiting = waiting.collect();
        self.start_agent(&handle, commands, waiting, live_place);
        Ok(handle)
    }

    /// A model that is gone does not keep an agent from being read; it is missed when it is asked.
    fn provider_for(&self, model: Option<&str>) -> Arc<dyn Provider> {
        match model.map(|model| (model, self.outside.models.find(model))) {
            None => self.outside.models.default_model(),
            Some((_, Ok(provider))) => provider,
            Some((model, Err(fault))) => Arc::new(MissingModel { model: model.to_owned(), fault }),
        }
    }

    pub(super) fn assemble(self: &Arc<Self>, new: NewAgent) -> (AgentHandle, Commands) {
        let (inbox, commands) = mpsc::channel(self.limits.agent_turns_open_max + INBOX_HEADROOM);
        let shared = Arc::new(Shared {
            id: new.node.id(),
            node: new.node,
            capability: new.capability,
            created_at: new.created_at,
            created_by: new.created_by,
            origin: new.origin,
            on_restart: new.on_restart,
            model_requested: new.model_requested,
            model: new.provider.model().map(Arc::from),
            provider: new.provider,
            published: Published::new(new.window, &new.state),
            turns: AtomicU64::new(new.state.turns),
            enqueued_state: Mutex::new(new.state),
            store: Arc::clone(&self.outside.store),
            clock: Arc::clone(&self.outside.clock),
            event_bus: Arc::clone(&self.event_bus),
            admission: Arc::clone(&self.admission),
            open_turns: Arc::new(AtomicUsize::new(0)),
            limits: Arc::clone(&self.limits),
            pool: Arc::downgrade(self),
            last_used_ms: AtomicU64::new(self.uptime_ms()),
            end_requested: CancellationToken::new(),
            needs_reload: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        (AgentHandle { shared, inbox }, commands)
    }

    /// Starts the agent's task and lets others find it.
    pub(super) fn start_agent(
        &self,
        handle: &AgentHandle,
        commands: Commands,
        waiting: VecDeque<PendingTurn>,
        place: LiveReservation<'_>,
    ) {
        // Until the task is spawned, so that a stop waits for both.
        let _starting = self.tasks.token();
        let span = tracing::info_span!(parent: None, "agent", agent = %handle.id());
        tracing::debug!(parent: &span, "agent is live");
        let actor = Actor::new(Arc::clone(&handle.shared), commands, waiting);
        if !self.directory.go_live(handle.clone(), place) {
            handle.request_end();
        }
        self.tasks.spawn(actor.run().instrument(span));
    }

    /// A place among the live. Those that rest longest go to sleep for it.
    ///
    /// # Errors
    /// When all of them are at work, and go on with it.
    pub(super) async fn reserve_live(&self) -> Result<LiveReservation<'_>, Fault> {
        let max = self.limits.live_agents_max.max(1);
        for wait_ms in LIVE_RETRY_DELAYS_MS {
            if let Some(place) = self.directory.reserve_live(max) {
                return Ok(place);
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        let busy = || Fault::new(busy(), format!("busy: {max} agents are at work"));
        self.directory.reserve_live(max).ok_or_else(busy)
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// An agent's place in the tree.
    pub(super) async fn node_of(&self, serial: Serial) -> Result<Arc<LineageNode>, Fault> {
        if let Some(kin) = self.directory.node(serial) {
            return Ok(kin);
        }
        let gone = || Fault::new(FaultKind::NotFound, "Agent not found");
        self.load_agents(&[serial]).await?.remove(&serial).map(|(kin, _)| kin).ok_or_else(gone)
    }

    /// Agents as they are kept, with their places in the tree.
    pub(super) async fn load_agents(
        &self,
        serials: &[Serial],
    ) -> Result<HashMap<Serial, (Arc<LineageNode>, StoredAgent)>, Fault> {
        let _restoring = self.restore_lock.lock().await;
        let mut wanted: BTreeSet<Serial> = serials.iter().copied().collect();
        for serial in serials {
            let mut serial = *serial;
            while self.directory.node(serial).is_none() {
                wanted.insert(serial);
                match self.directory.parent(serial) {
                    Some(parent) => serial = parent,
                    None => break,
                }
            }
        }
        let mut rows = self.outside.store.agents(wanted.into_iter().collect()).await?;
        // Whoever is above was there before.
        rows.sort_unstable_by_key(|row| row.serial);
        let mut loaded: HashMap<Serial, (Arc<LineageNode>, StoredAgent)> = HashMap::new();
        for row in rows {
            let kin = match self.directory.node(row.serial) {
                Some(kin) => kin,
                None => self.restore_node(&row, &loaded)?,
            };
            loaded.insert(row.serial, (kin, row));
        }
        Ok(loaded)
    }

    fn restore_node(
        &self,
        row: &StoredAgent,
        loaded: &HashMap<Serial, (Arc<LineageNode>, StoredAgent)>,
    ) -> Result<Arc<LineageNode>, Fault> {
        let parent = match row.record.parent {
            None => None,
            Some(parent) => {
                let found = loaded.get(&parent).map(|(kin, _)| Arc::clone(kin));
                // Without whoever is above it, nothing would limit it.
                Some(
                    found
                        .or_else(|| self.directory.node(parent))
                        .ok_or_else(|| missing_parent(&row.record.id))?,
                )
            }
        };
        let kin = LineageNode::restore(StoredLineageNode {
            new: NewLineageNode {
                id: row.record.id.clone(),
                serial: row.serial,
                parent,
                cwd: row.record.cwd.clone(),
                granted: self.restore_permissions(&row.record.permissions, &row.record.cwd),
            },
            ledger: row.ledger.clone(),
            descendant_count: self.directory.descendant_count(row.serial),
            is_destroyed: row.is_destroyed,
        });
        self.directory.set_node(&kin);
        Ok(kin)
    }

    /// Temporary agents do not outlive the daemon. Whoever is below them and is not temporary does.
    pub(super) async fn destroy_temporary_agents(self: &Arc<Self>) -> Result<(), Fault> {
        for serial in self.directory.temporary() {
            self.destroy(serial, super::ChildPolicy::Orphan, "restart").await?;
        }
        Ok(())
    }

    /// Wakes everybody whose turn was open: it goes on, or is marked.
    pub(super) fn resume_open_turns(self: &Arc<Self>, unsettled: Vec<Serial>) {
        if unsettled.is_empty() {
            return;
        }
        tracing::info!(
            "{} agents had open turns when the daemon stopped; they are taken up",
            unsettled.len()
        );
        self.resume_agents(unsettled);
    }

    /// Turns of an agent that could not keep its work are open in the store. They go on when there may be room again, also
    /// when nobody asks for them.
    pub(crate) fn resume_later(self: &Arc<Self>, serial: Serial, after: Duration) {
        let (pool, stop) = (Arc::downgrade(self), self.stop_requested.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(after) => {}
                () = stop.cancelled() => return,
            }
            if let Some(pool) = pool.upgrade() {
                pool.resume_agents(vec![serial]);
            }
        });
    }

    fn resume_agents(self: &Arc<Self>, unsettled: Vec<Serial>) {
        let pool = Arc::downgrade(self);
        let turnstile = Arc::clone(&self.admission);
        self.tasks.spawn(async move {
            let wake = |serial| {
                let pool = pool.upgrade();
                async move {
                    let Some(pool) = pool else { return };
                    let Some(id) = pool.directory.id_of(serial) else { return };
                    let agent = AgentRef { serial, id };
                    while let Err(fault) = pool.wake(&agent).await {
                        let FaultKind::Busy { retry_after_ms } = fault.kind else {
                            return tracing::error!(agent = %agent.id, "a turn could not be taken up: {fault}");
                        };
                        if pool.stop_requested.is_cancelled() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
                    }
                }
            };
            use futures_util::StreamExt;
            let waking = futures_util::stream::iter(unsettled).map(wake).buffer_unordered(RESUMES_RUNNING_MAX);
            tokio::select! {
                () = waking.collect::<()>() => {}
                () = turnstile.abort.cancelled() => {}
            }
        });
    }

    /// Names of sends are remembered for a while.
    pub(super) fn prune_old_turns(self: &Arc<Self>) {
        let (store, clock) = (Arc::clone(&self.outside.store), Arc::clone(&self.outside.clock));
        let retention = i64::try_from(self.limits.request_retention.as_micros()).unwrap_or(i64::MAX);
        let stop = self.stop_requested.clone();
        self.tasks.spawn(async move {
            let forget = async {
                loop {
                    let before = Timestamp(clock.now().0.saturating_sub(retention));
                    if let Err(fault) = store.prune_turns(before).await {
                        tracing::warn!("names of old sends could not be forgotten: {fault}");
                    }
                    tokio::time::sleep(PRUNE_INTERVAL).await;
                }
            };
            tokio::select! {
                () = forget => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// More text than this is counted beside whatever else the thread has to do.
const INLINE_COUNT_BYTES_MAX: usize = 256 << 10;

/// The context of an agent that comes back: every message is counted once.
async fn count_window(
    prompt: Option<&str>,
    messages: Vec<Arc<Message>>,
    provider: &Arc<dyn Provider>,
) -> Window {
    let (prompt, provider) = (prompt.map(str::to_owned), Arc::clone(provider));
    let bytes: usize = messages.iter().map(|message| message.text.len()).sum();
    let count_all = move || {
        let count = |text: &str| provider.count(text);
        let mut window = Window::new(prompt.as_deref(), &count);
        messages.iter().for_each(|message| window.push(CountedMessage::new(Arc::clone(message), &count)));
        window
    };
    if bytes <= INLINE_COUNT_BYTES_MAX {
        return count_all();
    }
    match tokio::task::spawn_blocking(count_all).await {
        Ok(window) => window,
        // Only a panic ends it otherwise, and that is whoever counts.
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn missing_parent(id: &AgentId) -> Fault {
    let fault = Fault::new(FaultKind::Internal, "Internal error: the store is damaged; run nexus3 check");
    fault.caused_by(format!("the parent of agent '{id}' is not in the store"))
}

/// A model that was there when the agent was made.
struct MissingModel {
    model: String,
    fault: Fault,
}

impl Provider for MissingModel {
    fn call(&self, _: ModelRequest) -> ModelStream {
        let text = format!("the model of this agent cannot be used any more: {}", self.fault.public);
        let fault = Fault::new(FaultKind::Model, text);
        Box::pin(futures_util::stream::once(std::future::ready(Err(fault))))
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn spec(&self) -> &ModelSpec {
        const TRAITS: ModelSpec = ModelSpec::with_window(0);
        &TRAITS
    }
}
