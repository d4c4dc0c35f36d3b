//! All agents of a daemon: finding, listing and ending them, and stopping as a whole. Making them is in [`create`],
//! waking them and putting them to sleep in [`wake`], ending them in [`destroy`], what they may do in [`rights`], and
//! what else can be done to a conversation in [`sessions`].

mod create;
mod destroy;
mod directory;
mod lifecycle;
mod list;
mod permissions;
mod stored_permissions;
mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::journal::{DAEMON, Record, RestartPolicy, Serial};
use agent::outside::{Append, Clock, Entropy, Models, Store, Toolbox, Workspace};
use agent::permission::{FilePath, Presets};
use agent::{AgentId, Fault, FaultKind, RequestId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::create::OwnedInitiator;
pub use self::create::{AgentSpec, CreatedAgent, FirstMessage, Initiator, NameSpec};
pub use self::directory::ChildPolicy;
use self::directory::Directory;
pub use self::lifecycle::{Fork, Import};
pub use self::list::ListScope;
pub use self::permissions::{
    AgentPermissions, MayGrantSpec, PermissionChange, PermissionSpec, ResourceUsage,
};
use crate::admission::Admission;
use crate::capability::CapabilityDigest;
use crate::context::ContextOptions;
use crate::event_bus::{EventBus, EventScope, Subscription};
use crate::handle::{AgentHandle, AgentRef};
use crate::limits::Limits;
use crate::output_cache::OutputCache;
use crate::wait_graph::WaitGraph;

/// How a pool is set up.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// How much it takes on.
    pub limits: Limits,
    /// The prompt of an agent that is created without one.
    pub system_prompt_default: Option<String>,
    /// What agents are told beside their messages.
    pub context: ContextOptions,
    /// The presets there are.
    pub presets: Presets,
    /// The preset of an agent that is created without one.
    pub preset_default: String,
    /// The working directory of an agent that is created without one.
    pub cwd: FilePath,
    /// What becomes of a turn that a crash cuts off, when its agent was told nothing.
    pub on_restart_default: RestartPolicy,
    /// The version of the program, for the journal.
    pub version: String,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            system_prompt_default: None,
            context: ContextOptions::default(),
            presets: Presets::builtin(&[]),
            preset_default: Presets::DEFAULT.to_owned(),
            cwd: FilePath::root(),
            on_restart_default: RestartPolicy::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
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
    /// Where agents are kept.
    pub store: Arc<dyn Store>,
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
    admission: Arc<Admission>,
    pub(crate) wait_graph: Arc<WaitGraph>,
    pub(crate) output_cache: Arc<OutputCache>,
    pub(crate) tasks: TaskTracker,
    pub(crate) event_bus: Arc<EventBus>,
    stop_requested: CancellationToken,
    serials: AtomicU64,
    /// Whoever makes an agent shares it; whoever takes one out of the tree or renames it has it alone.
    tree_lock: tokio::sync::RwLock<()>,
    /// Held while places in the tree are made from what was kept: one place must not be made twice.
    restore_lock: tokio::sync::Mutex<()>,
    /// When the pool was opened.
    opened_at: tokio::time::Instant,
}

impl PoolHandle {
    /// A pool of what the store has. Turns that were open when it was last left are taken up again in the background.
    /// Agents run on the tokio runtime of whoever opens it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open(options: PoolOptions, outside: Outside) -> Result<Self, Fault> {
        let (store, feed) = (Arc::clone(&outside.store), Arc::new(EventBus::new()));
        store.set_listener(Arc::clone(&feed) as Arc<_>);
        let (rows, last_serial) = (store.index().await?, store.last_serial().await?);
        let unsettled = store.agents_with_open_turns().await?;
        let limits = Arc::new(options.limits.clone());
        let pool = Arc::new(Pool {
            directory: Directory::from_rows(rows),
            admission: Arc::new(Admission::new(&limits)),
            wait_graph: Arc::default(),
            output_cache: Arc::new(OutputCache::new(limits.output_cache_bytes_max)),
            tasks: TaskTracker::new(),
            event_bus: feed,
            stop_requested: CancellationToken::new(),
            serials: AtomicU64::new(last_serial + 1),
            tree_lock: tokio::sync::RwLock::default(),
            restore_lock: tokio::sync::Mutex::default(),
            opened_at: tokio::time::Instant::now(),
            outside,
            options,
            limits,
        });
        pool.enqueue_record(Record::DaemonStarted { version: pool.options.version.clone() });
        pool.destroy_temporary_agents().await?;
        pool.resume_open_turns(unsettled);
        pool.prune_old_turns();
        Ok(Self { pool })
    }

    /// Creates an agent: it is kept when this returns. A refused create leaves nothing behind.
    ///
    /// # Errors
    /// When the ask is wrong or not allowed, the name is taken, the pool is full or stopping, or there is no room to keep
    /// it.
    pub async fn create(&self, spec: AgentSpec, by: Initiator<'_>) -> Result<CreatedAgent, Fault> {
        let (pool, author) = (Arc::clone(&self.pool), OwnedInitiator::from_initiator(by));
        // Whoever asked may go away; what has begun is finished or undone.
        self.pool.run_detached(async move { pool.create(spec, author.as_initiator()).await }).await
    }

    /// The agent `main`, created on first use.
    ///
    /// # Errors
    /// When the pool is full or stopping.
    pub async fn main_agent(&self) -> Result<AgentHandle, Fault> {
        let id = AgentId::main();
        loop {
            if let Some(handle) = self.find(&id).await? {
                return Ok(handle);
            }
            let spec = AgentSpec { name: NameSpec::Given(id.clone()), ..AgentSpec::default() };
            match self.create(spec, Initiator::Admin).await {
                Ok(created) => return Ok(created.handle),
                // Somebody else was faster.
                Err(_) if self.find_ref(&id).is_some() => {}
                Err(fault) if fault.kind == FaultKind::Invalid => tokio::task::yield_now().await,
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A name for a send that came without one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn generate_request_id(&self) -> Result<RequestId, Fault> {
        self.pool.generate_request_id()
    }

    /// Which agent has this name. Does not wake it.
    #[must_use]
    pub fn find_ref(&self, id: &AgentId) -> Option<AgentRef> {
        self.pool.directory.find(id).map(|serial| AgentRef { serial, id: id.clone() })
    }

    /// The agent that a capability token stands for. Does not wake it.
    #[must_use]
    pub fn find_ref_by_capability(&self, token: &[u8]) -> Option<AgentRef> {
        let found = self.pool.directory.find_by_capability(&CapabilityDigest::from_token(token));
        found.map(|(serial, id)| AgentRef { serial, id })
    }

    /// Whether the agent still exists. Another agent of its name is another agent.
    #[must_use]
    pub fn exists(&self, agent: &AgentRef) -> bool {
        self.pool.directory.exists(agent.serial)
    }

    /// Whether an agent is another, or below it.
    #[must_use]
    pub fn is_in_subtree(&self, agent: Serial, top: &AgentRef) -> bool {
        self.pool.directory.is_in_subtree(agent, top.serial)
    }

    /// Everybody below an agent.
    #[must_use]
    pub fn descendants_of(&self, top: &AgentRef) -> Vec<Serial> {
        self.pool.directory.descendants_of(top.serial)
    }

    /// Finds an agent, and wakes it if it sleeps.
    ///
    /// # Errors
    /// When it cannot be woken.
    pub async fn find(&self, id: &AgentId) -> Result<Option<AgentHandle>, Fault> {
        match self.find_ref(id) {
            None => Ok(None),
            Some(agent) => match self.wake(&agent).await {
                Err(fault) if fault.kind == FaultKind::NotFound => Ok(None),
                woken => woken.map(Some),
            },
        }
    }

    /// The agent, woken if it sleeps; however many ask at once, it is woken once.
    ///
    /// # Errors
    /// When it is gone or cannot be woken.
    pub async fn wake(&self, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        self.pool.wake(agent).await
    }

    /// Listens to what happens behind `after`; with none, from now on.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn subscribe(&self, scope: EventScope, after: Option<u64>) -> Result<Subscription, Fault> {
        Subscription::begin(&self.pool.event_bus, Arc::clone(&self.pool.outside.store), scope, after).await
    }

    /// Writes into the journal that something was not allowed.
    pub fn record_denial(
        &self,
        principal: &str,
        agent: Option<&AgentRef>,
        action: &str,
        rule: &str,
        text: &str,
    ) {
        let record = Record::Denied {
            principal: principal.to_owned(),
            action: action.to_owned(),
            rule: rule.to_owned(),
            text: text.to_owned(),
        };
        let agent = agent.filter(|agent| self.exists(agent));
        self.pool.enqueue_record_for(agent, record);
    }

    /// Returns when the store has failed and takes nothing more, with the reason: the daemon has to be started again.
    pub async fn store_failed(&self) -> String {
        self.pool.event_bus.wait_store_failure().await
    }

    /// How many agents there are.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.pool.directory.len()
    }

    /// The presets there are.
    #[must_use]
    pub fn presets(&self) -> &Presets {
        &self.pool.options.presets
    }

    /// Whether there is a model of this name.
    #[must_use]
    pub fn has_model(&self, name: &str) -> bool {
        self.pool.outside.models.find(name).is_ok()
    }

    /// Ends an agent, and its children with it unless they are to stay. False when it is gone already; another agent of
    /// its name is left alone. The names are free when this returns; dropping the future does not save anybody.
    ///
    /// # Errors
    /// When that cannot be kept; nobody is ended then.
    pub async fn destroy(
        &self,
        agent: &AgentRef,
        children: ChildPolicy,
        by: Initiator<'_>,
    ) -> Result<bool, Fault> {
        let (pool, serial, by) = (self.clone(), agent.serial, by.name().to_owned());
        let destroy = async move {
            let leaving = pool.pool.destroy(serial, children, &by).await?;
            if !leaving.is_empty() {
                pool.stop_when_all_finished();
            }
            Ok(leaving)
        };
        let leaving = self.pool.run_detached(destroy).await?;
        if leaving.is_empty() {
            return Ok(false);
        }
        for handle in leaving.into_iter().flatten() {
            handle.wait_ended().await;
        }
        Ok(true)
    }

    /// Marks an agent as finished; when an admin has said so of all agents, the daemon is asked to stop.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub async fn mark_agent_finished(&self, agent: &AgentHandle, by: Initiator<'_>) -> Result<(), Fault> {
        let (pool, agent, author) = (self.clone(), agent.clone(), OwnedInitiator::from_initiator(by));
        let finish = async move {
            agent.mark_finished(author.as_initiator()).await?;
            if matches!(author, OwnedInitiator::Admin) {
                pool.pool.directory.set_finished(agent.node().serial);
            }
            pool.stop_when_all_finished();
            Ok(())
        };
        self.pool.run_detached(finish).await
    }

    /// An empty pool goes on: its agents are still to come, or its last one was destroyed.
    fn stop_when_all_finished(&self) {
        if self.pool.directory.all_finished() {
            self.request_stop();
        }
    }

    /// Asks whoever runs this pool to stop it.
    pub fn request_stop(&self) {
        self.pool.stop_requested.cancel();
    }

    /// Whether somebody has asked for a stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.pool.stop_requested.is_cancelled()
    }

    /// Returns when somebody has asked for a stop.
    pub async fn stop_requested(&self) {
        self.pool.stop_requested.cancelled().await;
    }

    /// Cancels all open turns now; for a stop that cannot wait.
    pub fn abort_turns(&self) {
        self.pool.admission.abort.cancel();
    }

    /// How many turns are running or waiting.
    #[must_use]
    pub fn open_turns(&self) -> usize {
        self.pool.admission.open_turns()
    }

    /// Stops: no new turns or agents; open turns get `grace` to end and are cancelled then. Returns how many were
    /// cancelled, when every agent's task has ended.
    pub async fn stop(&self, grace: Duration) -> usize {
        let pool = &self.pool;
        self.request_stop();
        pool.admission.close();
        let in_time = tokio::time::timeout(grace, pool.admission.drained()).await.is_ok();
        let cancelled = if in_time { 0 } else { pool.admission.open_turns() };
        pool.admission.abort.cancel();
        pool.admission.drained().await;
        pool.directory.close().iter().for_each(AgentHandle::request_end);
        pool.tasks.close();
        pool.tasks.wait().await;
        pool.enqueue_record(Record::DaemonStopped);
        cancelled
    }
}

impl Drop for Pool {
    /// Whoever works for the pool itself ends with it.
    fn drop(&mut self) {
        self.stop_requested.cancel();
    }
}

impl Pool {
    /// Writes something into the journal; nobody waits for it.
    fn enqueue_record(&self, record: Record) {
        self.enqueue_record_for(None, record);
    }

    fn enqueue_record_for(&self, agent: Option<&AgentRef>, record: Record) {
        let append = Append {
            agent: agent.map_or(DAEMON, |agent| agent.serial),
            agent_id: agent.map(|agent| agent.id.clone()),
            at: self.outside.clock.now(),
            records: vec![record],
            state: None,
            ledgers: Vec::new(),
        };
        drop(self.outside.store.append(vec![append]));
    }

    /// Runs something to its end, whether or not whoever asked for it stays.
    async fn run_detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let done = self.tasks.spawn(work).await;
        done.unwrap_or_else(|fault| {
            Err(Fault::new(FaultKind::Internal, "Internal error: the call panicked").caused_by(fault))
        })
    }

    fn next_serial(&self) -> Serial {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn generate_request_id(&self) -> Result<RequestId, Fault> {
        let mut bytes = [0; 8];
        self.outside.entropy.fill(&mut bytes)?;
        Ok(RequestId::Text(format!("{:016x}", u64::from_be_bytes(bytes))))
    }
}
