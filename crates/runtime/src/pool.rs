//! All agents of a daemon: finding, listing and ending them, and stopping as a whole. Making them is in [`create`],
//! what they may do in [`rights`].

mod create;
mod directory;
mod rights;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::outside::{Clock, Entropy, Models, Toolbox, Workspace};
use agent::permission::{FilePath, Presets};
use agent::{AgentId, Fault, RequestId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::create::{AgentSpec, By, Created, FirstMessage, Name};
pub use self::directory::Children;
use self::directory::Directory;
pub use self::rights::{AgentRights, Change, Holding, MayGrant, RightsSpec};
use crate::capability::CapabilityDigest;
use crate::handle::AgentHandle;
use crate::limits::Limits;
use crate::published::AgentSummary;
use crate::turnstile::Turnstile;
use crate::waits::Waits;

/// How a pool is set up.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// How much it takes on.
    pub limits: Limits,
    /// The prompt of an agent that is created without one.
    pub system_prompt_default: Option<String>,
    /// The presets there are.
    pub presets: Presets,
    /// The preset of an agent that is created without one.
    pub preset_default: String,
    /// The working directory of an agent that is created without one.
    pub cwd: FilePath,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            system_prompt_default: None,
            presets: Presets::builtin(&[]),
            preset_default: Presets::DEFAULT.to_owned(),
            cwd: FilePath::root(),
        }
    }
}

/// What the pool needs of the world.
#[derive(Clone)]
pub struct Outside {
    /// The models.
    pub models: Arc<dyn Models>,
    /// The tools.
    pub tools: Arc<dyn Toolbox>,
    /// The disk.
    pub workspace: Arc<dyn Workspace>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub entropy: Arc<dyn Entropy>,
}

/// A handle to the pool: a cheap clone.
#[derive(Clone)]
pub struct PoolHandle {
    pub(crate) pool: Arc<Pool>,
}

pub(crate) struct Pool {
    pub(crate) directory: Directory,
    pub(crate) outside: Outside,
    pub(crate) options: PoolOptions,
    limits: Arc<Limits>,
    turnstile: Arc<Turnstile>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) tasks: TaskTracker,
    stop_wanted: CancellationToken,
    serials: AtomicU64,
}

impl PoolHandle {
    /// An empty pool. Agents run on the tokio runtime of whoever creates them.
    #[must_use]
    pub fn new(options: PoolOptions, outside: Outside) -> Self {
        let limits = Arc::new(options.limits.clone());
        let pool = Pool {
            directory: Directory::default(),
            turnstile: Arc::new(Turnstile::new(&limits)),
            waits: Arc::default(),
            tasks: TaskTracker::new(),
            stop_wanted: CancellationToken::new(),
            serials: AtomicU64::new(0),
            outside,
            options,
            limits,
        };
        Self { pool: Arc::new(pool) }
    }

    /// Creates an agent. A refused create leaves nothing behind.
    ///
    /// # Errors
    /// When the ask is wrong or not allowed, the name is taken, or the pool is full or stopping.
    pub fn create(&self, spec: AgentSpec, by: By<'_>) -> Result<Created, Fault> {
        self.pool.create(spec, by)
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
            let spec = AgentSpec { name: Name::Given(id.clone()), ..AgentSpec::default() };
            match self.create(spec, By::Admin) {
                Ok(created) => return Ok(created.handle),
                // Somebody else was faster.
                Err(_) if self.find(&id).is_some() => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A name for a send that came without one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn make_up_request_id(&self) -> Result<RequestId, Fault> {
        self.pool.make_up_request_id()
    }

    /// Finds an agent.
    #[must_use]
    pub fn find(&self, id: &AgentId) -> Option<AgentHandle> {
        self.pool.directory.find(id)
    }

    /// The agent that a capability token stands for.
    #[must_use]
    pub fn find_by_capability(&self, token: &[u8]) -> Option<AgentHandle> {
        self.pool.directory.find_by_capability(&CapabilityDigest::of(token))
    }

    /// All agents in the order they were created.
    #[must_use]
    pub fn list(&self) -> Vec<AgentSummary> {
        self.list_page(|_| true, 0, usize::MAX).1
    }

    /// Some of the agents that pass, in the order they were created, and how many pass.
    #[must_use]
    pub fn list_page(
        &self,
        passes: impl Fn(&AgentHandle) -> bool,
        offset: usize,
        limit: usize,
    ) -> (usize, Vec<AgentSummary>) {
        self.pool.directory.page(passes, offset, limit)
    }

    /// One agent as it is in a list.
    #[must_use]
    pub fn summary(&self, agent: &AgentHandle) -> AgentSummary {
        agent.summary(self.pool.directory.child_count(agent))
    }

    /// An agent's children in the order they were created.
    #[must_use]
    pub fn children(&self, agent: &AgentHandle) -> Vec<AgentSummary> {
        self.pool.directory.children(agent).iter().map(|child| self.summary(child)).collect()
    }

    /// How many agents there are.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.pool.directory.len()
    }

    /// Ends the agent of this name; see [`PoolHandle::destroy_this`]. False when there is none.
    pub async fn destroy(&self, id: &AgentId, children: Children) -> bool {
        match self.find(id) {
            Some(agent) => self.destroy_this(&agent, children).await,
            None => false,
        }
    }

    /// Ends an agent, and its children with it unless they are to stay. False when it is gone already; another agent of
    /// its name is left alone. The names are free at once; dropping the future does not save anybody.
    pub async fn destroy_this(&self, agent: &AgentHandle, children: Children) -> bool {
        let leaving = self.pool.directory.remove(agent, children);
        leaving.iter().for_each(AgentHandle::begin_end);
        if leaving.is_empty() {
            return false;
        }
        self.stop_when_all_finished();
        for handle in leaving {
            handle.ended().await;
        }
        true
    }

    /// Marks an agent as finished; when an admin has said so of all agents, the daemon is asked to stop.
    pub fn finish_agent(&self, handle: &AgentHandle, by: By<'_>) {
        handle.mark_finished(by);
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

    /// Whether somebody has asked for a stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.pool.stop_wanted.is_cancelled()
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

impl Pool {
    fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn make_up_request_id(&self) -> Result<RequestId, Fault> {
        let mut bytes = [0; 8];
        self.outside.entropy.fill(&mut bytes)?;
        Ok(RequestId::Text(format!("{:016x}", u64::from_be_bytes(bytes))))
    }
}
