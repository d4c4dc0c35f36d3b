//! Pool of all agents: lookup, shutdown, and the public API of the runtime. [`create`] creates agents, [`wake`] wakes
//! them, [`restore`] restores them from the store, [`destroy`] destroys them, [`permissions`] changes grants,
//! [`lifecycle`] forks, renames and imports, [`background`] resumes and prunes turns.

mod background;
mod create;
mod destroy;
mod directory;
mod lifecycle;
mod list;
mod permission_spec;
mod permissions;
mod requested_lists;
mod restore;
mod stored_permissions;
mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::journal::{DAEMON, Record, RestartPolicy, Serial};
use agent::outside::{Append, Clock, Entropy, Models, Store, Toolbox, Workspace};
use agent::permission::{FilePath, Presets};
use agent::{AgentId, Fault, FaultKind, KnownSecrets, PrincipalId, RequestId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::create::OwnedInitiator;
pub use self::create::{AgentSpec, CreatedAgent, FirstMessage, Initiator, NameSpec};
pub use self::directory::ChildPolicy;
use self::directory::Directory;
pub use self::lifecycle::{Fork, Import};
pub use self::list::{AgentPage, DamagedAgent, ListScope};
pub use self::permission_spec::{MayGrantSpec, PermissionChange, PermissionSpec};
pub use self::permissions::{AgentPermissions, ResourceUsage};
use crate::admission::{Admission, shutting_down};
use crate::approvals::{ApprovalInbox, DefaultAnswer};
use crate::capability::CapabilityDigest;
use crate::context::ContextOptions;
use crate::event_bus::{EventBus, EventScope, JournalReader, Subscription};
use crate::handle::{AgentHandle, AgentRef};
use crate::limits::Limits;
use crate::output_cache::OutputCache;
use crate::wait_graph::WaitGraph;

/// Options of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Resource limits.
    pub limits: Limits,
    /// Default system prompt.
    pub system_prompt_default: Option<String>,
    /// Options for the prompt and the volatile suffix.
    pub context: ContextOptions,
    /// Permission presets.
    pub presets: Presets,
    /// Default preset.
    pub preset_default: String,
    /// Default working directory.
    pub cwd: FilePath,
    /// Default restart policy for open turns.
    pub on_restart_default: RestartPolicy,
    /// Program version, recorded in the journal.
    pub version: String,
    /// Secrets that tool results must not show.
    pub known_secrets: Arc<KnownSecrets>,
    /// The answer to approval requests that are not answered in time.
    pub approval_default: DefaultAnswer,
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
            known_secrets: Arc::default(),
            approval_default: DefaultAnswer::default(),
        }
    }
}

/// External dependencies of the pool.
#[derive(Clone)]
pub struct Outside {
    /// Model registry.
    pub models: Arc<dyn Models>,
    /// Tool registry.
    pub tools: Arc<dyn Toolbox>,
    /// File system access.
    pub workspace: Arc<dyn Workspace>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Entropy source.
    pub entropy: Arc<dyn Entropy>,
    /// Persistent store.
    pub store: Arc<dyn Store>,
}

/// Handle to the pool; cheap to clone.
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
    pub(crate) approvals: Arc<ApprovalInbox>,
    pub(crate) tasks: TaskTracker,
    pub(crate) event_bus: Arc<EventBus>,
    stop_requested: CancellationToken,
    serials: AtomicU64,
    /// Number of changes to granted permissions.
    permission_changes: AtomicU64,
    /// Held while lineage nodes are restored from the store: one node must not be restored twice.
    restore_lock: tokio::sync::Mutex<()>,
    /// Time the pool was opened.
    opened_at: tokio::time::Instant,
}

impl PoolHandle {
    /// Opens a pool from the store. Turns that were open at the last stop are resumed in the background. Agents run on
    /// the caller's tokio runtime.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open(options: PoolOptions, outside: Outside) -> Result<Self, Fault> {
        let (store, event_bus) = (Arc::clone(&outside.store), Arc::new(EventBus::new()));
        store.set_listener(Arc::clone(&event_bus) as Arc<_>);
        let (rows, last_serial) = (store.index().await?, store.last_serial().await?);
        let agents_with_open_turns = store.agents_with_open_turns().await?;
        let limits = Arc::new(options.limits.clone());
        let pool = Arc::new(Pool {
            directory: Directory::from_rows(rows)?,
            admission: Arc::new(Admission::new(&limits)),
            wait_graph: Arc::default(),
            output_cache: Arc::new(OutputCache::new(limits.output_cache_bytes_max)),
            approvals: Arc::default(),
            tasks: TaskTracker::new(),
            event_bus,
            stop_requested: CancellationToken::new(),
            serials: AtomicU64::new(last_serial + 1),
            permission_changes: AtomicU64::new(0),
            restore_lock: tokio::sync::Mutex::default(),
            opened_at: tokio::time::Instant::now(),
            outside,
            options,
            limits,
        });
        pool.enqueue_record(Record::DaemonStarted { version: pool.options.version.clone() });
        pool.destroy_temporary_agents().await?;
        pool.resume_open_turns(agents_with_open_turns);
        pool.prune_old_turns();
        Ok(Self { pool })
    }

    /// Creates an agent; it is committed when this returns. A rejected creation leaves nothing behind.
    ///
    /// # Errors
    /// When the request is invalid or denied, the id is taken, the pool is full or stopping, or the commit failed.
    pub async fn create(&self, spec: AgentSpec, initiator: Initiator<'_>) -> Result<CreatedAgent, Fault> {
        let (pool, initiator) = (Arc::clone(&self.pool), OwnedInitiator::from_initiator(initiator));
        // Detached: a creation that has started is finished or rolled back, even if the caller leaves.
        self.pool.run_detached(async move { pool.create(spec, initiator.as_initiator()).await }).await
    }

    /// Returns the agent `main`; creates it on first use.
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
                // Another caller created it first.
                Err(_) if self.find_ref(&id).is_some() => {}
                Err(fault) if fault.kind == FaultKind::Invalid => tokio::task::yield_now().await,
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Generates a request id for a request without one.
    ///
    /// # Errors
    /// When the entropy source fails.
    pub fn generate_request_id(&self) -> Result<RequestId, Fault> {
        self.pool.generate_request_id()
    }

    /// Finds an agent by id. Does not wake it.
    #[must_use]
    pub fn find_ref(&self, id: &AgentId) -> Option<AgentRef> {
        self.pool.directory.find(id).map(|serial| AgentRef { serial, id: id.clone() })
    }

    /// Finds the agent that a capability token authenticates. Does not wake it.
    #[must_use]
    pub fn find_ref_by_capability(&self, token: &[u8]) -> Option<AgentRef> {
        let found = self.pool.directory.find_by_capability(&CapabilityDigest::from_token(token));
        found.map(|(serial, id)| AgentRef { serial, id })
    }

    /// Whether the agent still exists. A new agent that reuses its id does not count.
    #[must_use]
    pub fn exists(&self, agent: &AgentRef) -> bool {
        self.pool.directory.exists(agent.serial)
    }

    /// Whether `agent` is `top` or a descendant of it.
    #[must_use]
    pub fn is_in_subtree(&self, agent: Serial, top: &AgentRef) -> bool {
        self.pool.directory.is_in_subtree(agent, top.serial)
    }

    /// Returns a number that every change of an agent's permissions increases. What was derived from permissions is
    /// valid as long as it stays the same.
    #[must_use]
    pub fn permissions_version(&self) -> u64 {
        self.pool.permission_changes.load(Ordering::Acquire)
    }

    /// Returns the descendants of an agent.
    #[must_use]
    pub fn descendants_of(&self, top: &AgentRef) -> Vec<Serial> {
        self.pool.directory.descendants_of(top.serial)
    }

    /// Finds an agent by id, and wakes it if it is asleep.
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

    /// Returns a handle to the agent, waking it if it is asleep; concurrent calls wake it once.
    ///
    /// # Errors
    /// When it was destroyed or cannot be woken.
    pub async fn wake(&self, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        self.pool.wake(agent).await
    }

    /// Subscribes to events after sequence `after`; with `None`, from now on.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn subscribe(&self, scope: EventScope, after: Option<u64>) -> Result<Subscription, Fault> {
        let (bus, store) = (Arc::clone(&self.pool.event_bus), Arc::clone(&self.pool.outside.store));
        let journal = JournalReader { bus, store, tasks: self.pool.tasks.clone() };
        Subscription::begin(journal, scope, after).await
    }

    /// Records a denied call in the journal.
    pub fn record_denial(
        &self,
        principal: PrincipalId,
        agent: Option<&AgentRef>,
        action: &str,
        rule: &str,
        text: &str,
    ) {
        let record = Record::Denied {
            principal,
            action: action.to_owned(),
            rule: rule.to_owned(),
            text: text.to_owned(),
        };
        let agent = agent.filter(|agent| self.exists(agent));
        self.pool.enqueue_record_for(agent, record);
    }

    /// Waits until the store has failed for good; returns the reason. The daemon has to be restarted then.
    pub async fn store_failed(&self) -> String {
        self.pool.event_bus.wait_store_failure().await
    }

    /// Returns the number of agents.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.pool.directory.len()
    }

    /// Permission presets.
    #[must_use]
    pub fn presets(&self) -> &Presets {
        &self.pool.options.presets
    }

    /// Whether a model of this name exists.
    #[must_use]
    pub fn has_model(&self, name: &str) -> bool {
        self.pool.outside.models.find(name).is_ok()
    }

    /// Destroys an agent, and its descendants according to `children`. Returns false when it does not exist any more;
    /// a new agent that reuses its id is left alone. The ids are free when this returns. Dropping the future does not
    /// stop it.
    ///
    /// # Errors
    /// When the commit failed; no agent is destroyed then.
    pub async fn destroy(
        &self,
        agent: &AgentRef,
        children: ChildPolicy,
        initiator: Initiator<'_>,
    ) -> Result<bool, Fault> {
        let (pool, serial, initiator) = (self.clone(), agent.serial, initiator.principal_id());
        let destroy = async move {
            let destroyed = pool.pool.destroy(serial, children, &initiator).await?;
            if !destroyed.is_empty() {
                pool.stop_when_all_finished();
            }
            Ok(destroyed)
        };
        let destroyed = self.pool.run_detached(destroy).await?;
        if destroyed.is_empty() {
            return Ok(false);
        }
        for handle in destroyed.into_iter().flatten() {
            handle.wait_ended().await;
        }
        Ok(true)
    }

    /// Marks an agent as finished; requests a stop when an admin has marked all agents.
    ///
    /// # Errors
    /// When the commit failed.
    pub async fn mark_agent_finished(
        &self,
        agent: &AgentHandle,
        initiator: Initiator<'_>,
    ) -> Result<(), Fault> {
        let (pool, agent, initiator) =
            (self.clone(), agent.clone(), OwnedInitiator::from_initiator(initiator));
        let finish = async move {
            agent.mark_finished(initiator.as_initiator()).await?;
            if matches!(initiator, OwnedInitiator::Admin) {
                pool.pool.directory.set_finished(agent.node().serial);
            }
            pool.stop_when_all_finished();
            Ok(())
        };
        self.pool.run_detached(finish).await
    }

    /// Requests a stop if every agent is finished. An empty pool does not stop: its agents are still to be created, or
    /// the last one was destroyed.
    fn stop_when_all_finished(&self) {
        if self.pool.directory.all_finished() {
            self.request_stop();
        }
    }

    /// Requests a stop from the owner of the pool.
    pub fn request_stop(&self) {
        self.pool.stop_requested.cancel();
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.pool.stop_requested.is_cancelled()
    }

    /// Checks that no stop was requested.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub fn check_running(&self) -> Result<(), Fault> {
        if self.is_stopping() { Err(shutting_down()) } else { Ok(()) }
    }

    /// Waits until a stop is requested.
    pub async fn stop_requested(&self) {
        self.pool.stop_requested.cancelled().await;
    }

    /// Cancels all open turns at once, for an immediate stop.
    pub fn abort_turns(&self) {
        self.pool.admission.abort.cancel();
    }

    /// Returns the number of open turns, running or queued.
    #[must_use]
    pub fn open_turns(&self) -> usize {
        self.pool.admission.open_turns()
    }

    /// Stops the pool: rejects new turns and agents, gives open turns `grace` to end, then cancels them. Returns the
    /// number cancelled, after every actor task has ended.
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
    /// Ends the pool's background tasks.
    fn drop(&mut self) {
        self.stop_requested.cancel();
    }
}

impl Pool {
    /// Enqueues a journal record without waiting for its commit.
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

    /// Runs `work` to completion in its own task, even if the caller is dropped.
    pub(crate) async fn run_detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let done = self.tasks.spawn(work).await;
        done.unwrap_or_else(|fault| {
            Err(Fault::new(FaultKind::Internal, "Internal error: the call panicked").caused_by(fault))
        })
    }

    /// Waits for the destruction or rename in progress, if any, that may free this id. The caller holds no tree lock:
    /// two callers could wait for each other.
    async fn wait_for_id(&self, id: &AgentId) {
        let tree_lock = self.directory.find(id).and_then(|serial| self.directory.tree_lock(serial));
        if let Some(tree_lock) = tree_lock {
            drop(tree_lock.read().await);
        }
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
