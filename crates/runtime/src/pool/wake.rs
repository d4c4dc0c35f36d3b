//! Waking and restoring agents. The number of live agents is bounded; a sleeping agent costs one directory entry.

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

/// Inbox capacity beyond the open turns, for cancels and other commands.
const INBOX_HEADROOM: usize = 16;

/// Interval between two deletions of old request ids.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Retry delays while reserving a live slot: a reader keeps an agent from sleeping for a moment, which should not fail
/// a call.
const LIVE_RETRY_DELAYS_MS: [u64; 6] = [1, 4, 10, 25, 60, 150];

/// Agents woken concurrently to resume their turns.
const RESUMES_RUNNING_MAX: usize = 64;

/// Parameters of an agent that is starting.
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
                Lookup::Asleep(wake_lock) => {
                    let _wake_guard = wake_lock.lock().await;
                    // Only if it still sleeps with this lock. Otherwise the previous holder has woken it, and it may
                    // sleep again with a new lock.
                    if let Lookup::Asleep(now) = self.directory.lookup(agent.serial)
                        && Arc::ptr_eq(&now, &wake_lock)
                    {
                        return self.restore_agent(agent).await;
                    }
                }
            }
        }
    }

    /// Restores the agent from the store.
    async fn restore_agent(self: &Arc<Self>, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        if self.stop_requested.is_cancelled() && self.admission.is_closed() {
            return Err(shutting_down());
        }
        let reservation = self.reserve_live().await?;
        let (node, stored) = self
            .load_agents(&[agent.serial])
            .await?
            .remove(&agent.serial)
            .ok_or_else(|| agent_not_found(&agent.id))?;
        let records = self.outside.store.history(agent.serial).await?;
        let (messages, open_turns) = Replay::from_records(records).into_parts();
        let StoredAgent { record, mut state, .. } = stored;
        let provider = self.provider_for(record.model.as_deref());
        let window = count_window(record.system_prompt.as_deref(), messages, &provider).await;
        state.messages = window.messages().len() as u64;
        let (handle, commands) = self.assemble(NewAgent {
            node,
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
        let queue = open_turns.into_iter().map(|open_turn| {
            let permit = self.admission.readmit(&handle.shared.open_turns);
            PendingTurn::from_stored(open_turn, permit)
        });
        let queue = queue.collect();
        self.start_agent(&handle, commands, queue, reservation);
        Ok(handle)
    }

    /// Returns the provider of a model. A missing model fails on use, so that the agent can still be read.
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

    /// Starts the actor task and makes the agent visible.
    pub(super) fn start_agent(
        &self,
        handle: &AgentHandle,
        commands: Commands,
        queue: VecDeque<PendingTurn>,
        reservation: LiveReservation<'_>,
    ) {
        // Held until the task is spawned, so that a shutdown waits for it.
        let _starting = self.tasks.token();
        let span = tracing::info_span!(parent: None, "agent", agent = %handle.id());
        tracing::debug!(parent: &span, "agent is live");
        let actor = Actor::new(Arc::clone(&handle.shared), commands, queue);
        if !self.directory.go_live(handle.clone(), reservation) {
            handle.request_end();
        }
        self.tasks.spawn(actor.run().instrument(span));
    }

    /// Reserves a live slot; idle agents go to sleep for it.
    ///
    /// # Errors
    /// When all live agents stay busy.
    pub(super) async fn reserve_live(&self) -> Result<LiveReservation<'_>, Fault> {
        let max = self.limits.live_agents_max.max(1);
        for wait_ms in LIVE_RETRY_DELAYS_MS {
            if let Some(reservation) = self.directory.reserve_live(max) {
                return Ok(reservation);
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        let busy = || Fault::new(busy(), format!("busy: {max} agents are working"));
        self.directory.reserve_live(max).ok_or_else(busy)
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns an agent's lineage node, restoring it if needed.
    pub(super) async fn node_of(&self, serial: Serial) -> Result<Arc<LineageNode>, Fault> {
        if let Some(node) = self.directory.node(serial) {
            return Ok(node);
        }
        let not_found = || Fault::new(FaultKind::NotFound, "Agent not found");
        self.load_agents(&[serial]).await?.remove(&serial).map(|(node, _)| node).ok_or_else(not_found)
    }

    /// Loads agents from the store, and restores their lineage nodes.
    pub(super) async fn load_agents(
        &self,
        serials: &[Serial],
    ) -> Result<HashMap<Serial, (Arc<LineageNode>, StoredAgent)>, Fault> {
        let _restore_guard = self.restore_lock.lock().await;
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
        // Ancestors have lower serials.
        rows.sort_unstable_by_key(|row| row.serial);
        let mut loaded: HashMap<Serial, (Arc<LineageNode>, StoredAgent)> = HashMap::new();
        for row in rows {
            let node = match self.directory.node(row.serial) {
                Some(node) => node,
                None => self.restore_node(&row, &loaded)?,
            };
            loaded.insert(row.serial, (node, row));
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
                let found = loaded.get(&parent).map(|(node, _)| Arc::clone(node));
                // An agent restored without its parent would have no ceiling.
                Some(
                    found
                        .or_else(|| self.directory.node(parent))
                        .ok_or_else(|| missing_parent(&row.record.id))?,
                )
            }
        };
        let node = LineageNode::restore(StoredLineageNode {
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
        self.directory.set_node(&node);
        Ok(node)
    }

    /// Destroys temporary agents, which do not survive a restart. Their descendants that are not temporary do.
    pub(super) async fn destroy_temporary_agents(self: &Arc<Self>) -> Result<(), Fault> {
        for serial in self.directory.temporary() {
            self.destroy(serial, super::ChildPolicy::Orphan, "restart").await?;
        }
        Ok(())
    }

    /// Wakes agents with open turns, which are resumed or marked as interrupted.
    pub(super) fn resume_open_turns(self: &Arc<Self>, serials: Vec<Serial>) {
        if serials.is_empty() {
            return;
        }
        tracing::info!("{} agents had open turns when the daemon stopped; resuming them", serials.len());
        self.resume_agents(serials);
    }

    /// Resumes an agent's open turns after a delay: after a commit failed for lack of disk space, they continue when
    /// there may be space again, even without a call.
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

    fn resume_agents(self: &Arc<Self>, serials: Vec<Serial>) {
        let pool = Arc::downgrade(self);
        let admission = Arc::clone(&self.admission);
        self.tasks.spawn(async move {
            let wake = |serial| {
                let pool = pool.upgrade();
                async move {
                    let Some(pool) = pool else { return };
                    let Some(id) = pool.directory.id_of(serial) else { return };
                    let agent = AgentRef { serial, id };
                    while let Err(fault) = pool.wake(&agent).await {
                        let FaultKind::Busy { retry_after_ms } = fault.kind else {
                            return tracing::error!(agent = %agent.id, "could not resume an open turn: {fault}");
                        };
                        if pool.stop_requested.is_cancelled() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
                    }
                }
            };
            use futures_util::StreamExt;
            let wakes = futures_util::stream::iter(serials).map(wake).buffer_unordered(RESUMES_RUNNING_MAX);
            tokio::select! {
                () = wakes.collect::<()>() => {}
                () = admission.abort.cancelled() => {}
            }
        });
    }

    /// Deletes the request ids and responses of ended turns after the retention time, periodically.
    pub(super) fn prune_old_turns(self: &Arc<Self>) {
        let (store, clock) = (Arc::clone(&self.outside.store), Arc::clone(&self.outside.clock));
        let retention = i64::try_from(self.limits.request_retention.as_micros()).unwrap_or(i64::MAX);
        let stop = self.stop_requested.clone();
        self.tasks.spawn(async move {
            let prune = async {
                loop {
                    let before = Timestamp(clock.now().0.saturating_sub(retention));
                    if let Err(fault) = store.prune_turns(before).await {
                        tracing::warn!("could not prune old turns: {fault}");
                    }
                    tokio::time::sleep(PRUNE_INTERVAL).await;
                }
            };
            tokio::select! {
                () = prune => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// Text beyond this size is counted on a blocking thread.
const INLINE_COUNT_BYTES_MAX: usize = 256 << 10;

/// Rebuilds the context of an agent, counting the tokens of each message.
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
        // The task is never aborted, so this is a panic in the token counter.
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn missing_parent(id: &AgentId) -> Fault {
    let fault = Fault::new(FaultKind::Internal, "Internal error: the store is damaged; run nexus3 check");
    fault.caused_by(format!("the parent of agent '{id}' is not in the store"))
}

/// Placeholder for a model that no longer exists.
struct MissingModel {
    model: String,
    fault: Fault,
}

impl Provider for MissingModel {
    fn call(&self, _: ModelRequest) -> ModelStream {
        let text = format!("the agent's model is not available: {}", self.fault.public);
        let fault = Fault::new(FaultKind::Model, text);
        Box::pin(futures_util::stream::once(std::future::ready(Err(fault))))
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(0);
        &SPEC
    }
}
