//! Waking agents and starting their actors. The number of live agents is bounded; a sleeping agent costs one directory
//! entry.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::journal::{AgentState, RestartPolicy};
use agent::outside::{Provider, Timestamp};
use agent::{Fault, PrincipalId, Window};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Pool;
use super::directory::{LiveReservation, Lookup};
use crate::actor::{Actor, Command, PendingTurn};
use crate::admission::busy;
use crate::capability::CapabilityDigest;
use crate::handle::{AgentHandle, AgentRef, Shared, agent_not_found};
use crate::lineage::LineageNode;
use crate::published::Published;

/// Inbox capacity beyond the open turns, for cancels and other commands.
const INBOX_HEADROOM: usize = 16;

/// Retry delays while reserving a live slot: a reader keeps an agent from sleeping for a moment, which should not fail
/// a call.
const LIVE_RETRY_DELAYS_MS: [u64; 6] = [1, 4, 10, 25, 60, 150];

/// Parameters of an agent that is starting.
pub(super) struct NewAgent {
    pub(super) node: Arc<LineageNode>,
    pub(super) capability: CapabilityDigest,
    pub(super) created_at: Timestamp,
    pub(super) created_by: PrincipalId,
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
            known_secrets: Arc::clone(&self.options.known_secrets),
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
}
