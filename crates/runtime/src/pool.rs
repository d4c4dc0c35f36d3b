//! All agents of a daemon: making, finding, listing and ending them, and stopping as a whole.

mod directory;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agent::outside::{Clock, Entropy, Provider};
use agent::{AgentId, Fault, FaultKind, RequestId, Window};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use self::directory::Directory;
use crate::actor::Actor;
use crate::handle::{AgentHandle, Shared};
use crate::limits::Limits;
use crate::published::{AgentSummary, Published};
use crate::turnstile::{Turnstile, shutting_down};

/// How a pool is set up.
#[derive(Debug, Clone, Default)]
pub struct PoolOptions {
    /// How much it takes on.
    pub limits: Limits,
    /// The prompt of an agent that is created without one.
    pub system_prompt_default: Option<String>,
}

/// What the pool needs of the world.
#[derive(Clone)]
pub struct Outside {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub entropy: Arc<dyn Entropy>,
}

/// What an agent is made from.
#[derive(Debug, Clone, Default)]
pub struct AgentSpec {
    /// Its name; made up when there is none.
    pub id: Option<AgentId>,
    /// Its prompt; the pool's own when there is none.
    pub system_prompt: Option<String>,
}

/// A handle to the pool: a cheap clone.
#[derive(Clone)]
pub struct PoolHandle {
    pool: Arc<Pool>,
}

struct Pool {
    directory: Directory,
    outside: Outside,
    options: PoolOptions,
    limits: Arc<Limits>,
    turnstile: Arc<Turnstile>,
    tasks: TaskTracker,
    stop_wanted: CancellationToken,
}

/// Commands that may wait in an inbox beyond the turns that are open: cancels.
const INBOX_SPARE: usize = 16;

/// Names made up before the random bytes are taken to be none: even among 100,000 agents the first is nearly always
/// free.
const MADE_UP_IDS_MAX: usize = 16;

impl PoolHandle {
    /// An empty pool. Agents run on the tokio runtime of whoever creates them.
    #[must_use]
    pub fn new(options: PoolOptions, outside: Outside) -> Self {
        let limits = Arc::new(options.limits.clone());
        let pool = Pool {
            directory: Directory::default(),
            turnstile: Arc::new(Turnstile::new(&limits)),
            tasks: TaskTracker::new(),
            stop_wanted: CancellationToken::new(),
            outside,
            options,
            limits,
        };
        Self { pool: Arc::new(pool) }
    }

    /// Creates an agent. A refused create leaves nothing behind.
    ///
    /// # Errors
    /// When the name is taken, the pool is full or stopping, or no name can be made up.
    pub fn create(&self, spec: AgentSpec) -> Result<AgentHandle, Fault> {
        let AgentSpec { id, system_prompt } = spec;
        match id {
            Some(id) => {
                let handle = self.try_create(&id, system_prompt.as_deref())?;
                handle.ok_or_else(|| Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}")))
            }
            None => {
                for _ in 0..MADE_UP_IDS_MAX {
                    let id = self.make_up_id()?;
                    if let Some(handle) = self.try_create(&id, system_prompt.as_deref())? {
                        return Ok(handle);
                    }
                }
                let fault = Fault::new(FaultKind::Internal, "no agent ID could be made up");
                Err(fault.caused_by(format!("{MADE_UP_IDS_MAX} of them were taken")))
            }
        }
    }

    /// The agent `main`, created on first use.
    ///
    /// # Errors
    /// When the pool is full or stopping.
    pub fn main_agent(&self) -> Result<AgentHandle, Fault> {
        let id = AgentId::main();
        loop {
            if let Some(handle) = self.find(&id) {
                return Ok(handle);
            }
            if let Some(handle) = self.try_create(&id, None)? {
                return Ok(handle);
            }
        }
    }

    /// None when the name is taken.
    fn try_create(&self, id: &AgentId, system_prompt: Option<&str>) -> Result<Option<AgentHandle>, Fault> {
        let pool = &self.pool;
        if pool.stop_wanted.is_cancelled() {
            return Err(shutting_down());
        }
        let prompt = system_prompt.or(pool.options.system_prompt_default.as_deref());
        let (inbox, commands) = mpsc::channel(pool.limits.agent_turns_open_max + INBOX_SPARE);
        let shared = Arc::new(Shared {
            id: id.clone(),
            created_at: pool.outside.clock.now(),
            model: pool.outside.provider.model().map(Arc::from),
            provider: Arc::clone(&pool.outside.provider),
            published: Published::new(Window::new(prompt)),
            turnstile: Arc::clone(&pool.turnstile),
            open_turns: Arc::new(AtomicUsize::new(0)),
            limits: Arc::clone(&pool.limits),
            ending: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let handle = AgentHandle { shared: Arc::clone(&shared), inbox };
        // From before the agent can be found until its task is spawned, so that a stop waits for both.
        let _creating = pool.tasks.token();
        if !pool.directory.insert(handle.clone(), pool.limits.agents_max)? {
            return Ok(None);
        }
        let span = tracing::info_span!(parent: None, "agent", agent = %id);
        tracing::debug!(parent: &span, "agent created");
        let actor = Actor::new(shared, commands, Arc::clone(&pool.outside.clock));
        pool.tasks.spawn(actor.run().instrument(span));
        Ok(Some(handle))
    }

    fn make_up_id(&self) -> Result<AgentId, Fault> {
        let mut bytes = [0; 4];
        self.pool.outside.entropy.fill(&mut bytes)?;
        AgentId::parse(&format!("{:08x}", u32::from_be_bytes(bytes)))
            .map_err(|fault| Fault::new(FaultKind::Internal, "no agent ID could be made up").caused_by(fault))
    }

    /// A name for a send that came without one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn make_up_request_id(&self) -> Result<RequestId, Fault> {
        let mut bytes = [0; 8];
        self.pool.outside.entropy.fill(&mut bytes)?;
        Ok(RequestId::Text(format!("{:016x}", u64::from_be_bytes(bytes))))
    }

    /// Finds an agent.
    #[must_use]
    pub fn find(&self, id: &AgentId) -> Option<AgentHandle> {
        self.pool.directory.find(id)
    }

    /// All agents in the order they were created.
    #[must_use]
    pub fn list(&self) -> Vec<AgentSummary> {
        self.pool.directory.map(AgentHandle::summary)
    }

    /// How many agents there are.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.pool.directory.len()
    }

    /// Ends an agent. False when there is none of that name. The name is free at once; dropping the future does not
    /// save the agent.
    pub async fn destroy(&self, id: &AgentId) -> bool {
        let Some(handle) = self.pool.directory.remove(id) else { return false };
        handle.begin_end();
        self.stop_when_all_finished();
        handle.ended().await;
        true
    }

    /// Marks an agent as finished; when all agents are, the daemon is asked to stop.
    pub fn finish_agent(&self, handle: &AgentHandle) {
        handle.mark_finished();
        self.stop_when_all_finished();
    }

    /// An empty pool goes on: its agents are still to come, or its last one was destroyed.
    fn stop_when_all_finished(&self) {
        if self.pool.directory.some_and_all(AgentHandle::is_finished) {
            self.request_stop();
        }
    }

    /// Asks whoever runs this pool to stop it.
    pub fn request_stop(&self) {
        self.pool.stop_wanted.cancel();
    }

    /// Returns when somebody has asked for a stop.
    pub async fn stop_requested(&self) {
        self.pool.stop_wanted.cancelled().await;
    }

    /// Cancels all open turns now; for a stop that cannot wait.
    pub fn abort_turns(&self) {
        self.pool.turnstile.abort.cancel();
    }

    /// How many turns are running or waiting.
    #[must_use]
    pub fn open_turns(&self) -> usize {
        self.pool.turnstile.open_turns()
    }

    /// Stops: no new turns or agents; open turns get `grace` to end and are cancelled then. Returns how many were
    /// cancelled, when every agent's task has ended.
    pub async fn stop(&self, grace: Duration) -> usize {
        let pool = &self.pool;
        self.request_stop();
        pool.turnstile.close();
        let in_time = tokio::time::timeout(grace, pool.turnstile.emptied()).await.is_ok();
        let cancelled = if in_time { 0 } else { pool.turnstile.open_turns() };
        pool.turnstile.abort.cancel();
        pool.turnstile.emptied().await;
        pool.directory.close().iter().for_each(AgentHandle::begin_end);
        pool.tasks.close();
        pool.tasks.wait().await;
        cancelled
    }
}
