//! Test fixture for a pool: a scripted model, test tools, a workspace with a few directories, a fixed clock, counting
//! entropy, and a store with fault injection. A second fixture may open the store of a first.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use agent::outside::{Clock, Entropy, ModelSpec, Workspace};
use agent::permission::{DirectoryIdentity, FilePath};
use agent::{AgentId, Fault, FaultKind, KnownSecrets, MessageSource, RequestId, TurnEnd};
use runtime::{
    AgentHandle, AgentLiveness, AgentRef, AgentSpec, AgentStatus, ChildPolicy, CreatedAgent, FirstMessage,
    Initiator, Limits, NameSpec, NewMessage, Outside, PermissionChange, PermissionSpec, PoolHandle,
    PoolOptions,
};
use testkit::{CountingEntropy, ScriptedProvider, SingleModel, TestClock, WINDOW_TOKENS};

use crate::test_store::TestStore;
use crate::tools::TestTools;

/// The directories of the workspace.
pub(crate) const DIRECTORIES: &[&str] = &["/", "/work", "/work/a", "/work/a/deep", "/work/b", "/elsewhere"];

/// A workspace that contains only directories. They have no identity until a test gives them one.
#[derive(Default)]
pub(crate) struct TestWorkspace {
    inodes: Mutex<BTreeMap<FilePath, u64>>,
    links: Mutex<BTreeMap<FilePath, FilePath>>,
}

impl TestWorkspace {
    /// Puts a directory at a path, in place of another one.
    pub(crate) fn put_directory(&self, at: &str, inode: u64) {
        self.inodes.lock().expect("no test panics with the lock").insert(path(at), inode);
    }

    /// Puts a symbolic link at a path.
    pub(crate) fn put_link(&self, at: &str, target: &str) {
        self.links.lock().expect("no test panics with the lock").insert(path(at), path(target));
    }
}

impl Workspace for TestWorkspace {
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let resolved = self.resolve_path(path, base)?;
        if DIRECTORIES.contains(&resolved.as_str()) {
            Ok(resolved)
        } else {
            Err(format!("no such directory: {path}"))
        }
    }

    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let resolved = FilePath::resolve(path, base).map_err(|fault| fault.to_string())?;
        let links = self.links.lock().expect("no test panics with the lock");
        Ok(links.get(&resolved).cloned().unwrap_or(resolved))
    }

    fn identify_directory(&self, path: &FilePath) -> Option<DirectoryIdentity> {
        let inodes = self.inodes.lock().expect("no test panics with the lock");
        // The last one at or above the path is the nearest.
        let (path, inode) = inodes.iter().rfind(|(directory, _)| directory.contains(path))?;
        Some(DirectoryIdentity { path: path.clone(), device: 1, inode: *inode, born_ns: None })
    }
}

/// A pool with its model, tools and store.
pub(crate) struct World {
    pub(crate) pool: PoolHandle,
    pub(crate) model: Arc<ScriptedProvider>,
    pub(crate) tools: Arc<TestTools>,
    pub(crate) store: Arc<TestStore>,
    pub(crate) workspace: Arc<TestWorkspace>,
    world_options: WorldOptions,
}

/// Options of a fixture.
#[derive(Clone)]
pub(crate) struct WorldOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) store: Arc<TestStore>,
    pub(crate) tools: Arc<TestTools>,
    pub(crate) workspace: Arc<TestWorkspace>,
    pub(crate) pool_options: PoolOptions,
    /// Names of the model, besides the default.
    pub(crate) models: Vec<&'static str>,
    pub(crate) model_spec: ModelSpec,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(TestClock::default()),
            entropy: Arc::new(CountingEntropy::default()),
            store: TestStore::new(),
            tools: Arc::new(TestTools::new()),
            workspace: Arc::default(),
            pool_options: PoolOptions {
                system_prompt_default: Some("the pool's prompt".to_owned()),
                cwd: path("/work"),
                ..PoolOptions::default()
            },
            models: vec!["scripted/one"],
            model_spec: ModelSpec::with_window(WINDOW_TOKENS),
        }
    }
}

impl WorldOptions {
    pub(crate) fn with_limits(mut self, limits: Limits) -> Self {
        self.pool_options.limits = limits;
        self
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::open(WorldOptions::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Self {
        Self::open(WorldOptions::default().with_limits(limits)).await
    }

    pub(crate) async fn with_clock(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self::open(WorldOptions { clock, ..WorldOptions::default() }.with_limits(limits)).await
    }

    /// Options for a restart with the data stored so far.
    pub(crate) fn restart_options(&self) -> WorldOptions {
        WorldOptions {
            store: TestStore::with_memory(Arc::clone(self.store.memory())),
            ..self.world_options.clone()
        }
    }

    /// Kills the daemon and starts it again: uncommitted data is lost. The model is a new one.
    pub(crate) async fn restart(self) -> Self {
        let options = self.restart_options();
        self.kill().await;
        Self::open(options).await
    }

    /// Kills the daemon.
    pub(crate) async fn kill(self) {
        self.store.die();
        drop(self);
        // Tasks still running find the pool gone and end.
        run_until_idle().await;
    }

    /// Stops the daemon gracefully and starts it again.
    pub(crate) async fn stop_and_start(self) -> Self {
        let options = self.restart_options();
        self.pool.stop(std::time::Duration::from_secs(10)).await;
        drop(self);
        Self::open(options).await
    }

    pub(crate) async fn open(world_options: WorldOptions) -> Self {
        let WorldOptions { clock, entropy, store, tools, workspace, pool_options, models, model_spec } =
            world_options.clone();
        let model = Arc::new(ScriptedProvider::new(model_spec));
        let outside = Outside {
            models: Arc::new(SingleModel { model: Arc::clone(&model), names: models }),
            tools: Arc::<TestTools>::clone(&tools),
            workspace: Arc::<TestWorkspace>::clone(&workspace),
            clock,
            entropy,
            store: Arc::<TestStore>::clone(&store),
        };
        let pool = PoolHandle::open(pool_options, outside).await.expect("the store can be read");
        Self { pool, model, tools, store, workspace, world_options }
    }

    pub(crate) fn known_secrets(&self) -> &KnownSecrets {
        &self.world_options.pool_options.known_secrets
    }

    /// Creates an agent with the default preset.
    pub(crate) async fn agent(&self, name: &str) -> AgentHandle {
        self.create_handle(spec_named(name)).await
    }

    /// Creates agents with the default preset.
    pub(crate) async fn agents<const COUNT: usize>(&self, names: [&str; COUNT]) -> Vec<AgentHandle> {
        let mut agents = Vec::new();
        for name in names {
            agents.push(self.agent(name).await);
        }
        agents
    }

    /// Creates an agent that may create others.
    pub(crate) async fn trusted_agent(&self, name: &str) -> AgentHandle {
        self.create_handle(with_preset(spec_named(name), "trusted")).await
    }

    /// Creates a child with the default preset.
    pub(crate) async fn child_agent(&self, name: &str, parent: &AgentHandle) -> AgentHandle {
        self.create_handle(with_parent(spec_named(name), parent)).await
    }

    pub(crate) async fn create_handle(&self, spec: AgentSpec) -> AgentHandle {
        self.create(spec).await.expect("the agent is created").handle
    }

    pub(crate) async fn create(&self, spec: AgentSpec) -> Result<CreatedAgent, Fault> {
        self.pool.create(spec, Initiator::Admin).await
    }

    pub(crate) async fn expect_create_rejected(&self, spec: AgentSpec) -> Fault {
        self.create(spec).await.err().expect("the create is rejected")
    }

    pub(crate) async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
    ) -> Result<(), Fault> {
        self.pool.change_permissions(agent, change, Initiator::Admin).await
    }

    pub(crate) async fn finish(&self, agent: &AgentHandle) {
        self.pool.mark_agent_finished(agent, Initiator::Admin).await.expect("the commit succeeds");
    }

    /// The agent, woken if asleep.
    pub(crate) async fn find(&self, name: &str) -> AgentHandle {
        self.pool.find(&agent_id(name)).await.expect("the agent wakes").expect("the agent exists")
    }

    pub(crate) async fn list(&self) -> Vec<AgentStatus> {
        self.pool.list().await.expect("the store is readable")
    }

    /// An agent's entry in the list.
    pub(crate) async fn listed_status(&self, name: &str) -> AgentStatus {
        let found = self.list().await.into_iter().find(|agent| agent.id.as_str() == name);
        found.expect("the agent is listed")
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.iter().map(|agent| agent.id.to_string()).collect()
    }

    /// The names of the live agents.
    pub(crate) async fn live_names(&self) -> Vec<String> {
        let is_live = |agent: &AgentStatus| agent.state == AgentLiveness::Live;
        self.list().await.iter().filter(|agent| is_live(agent)).map(|agent| agent.id.to_string()).collect()
    }

    pub(crate) async fn children(&self, agent: &AgentHandle) -> Vec<AgentStatus> {
        self.pool.children(agent).await.expect("the store is readable").agents
    }

    pub(crate) fn status(&self, agent: &AgentHandle) -> AgentStatus {
        self.pool.status(agent)
    }

    pub(crate) async fn destroy(&self, agent: &AgentHandle) -> bool {
        self.destroy_ref(&agent.agent_ref(), ChildPolicy::Cascade).await
    }

    /// Destroys an agent by name.
    pub(crate) async fn destroy_named(&self, name: &str, children: ChildPolicy) -> bool {
        let agent = self.pool.find_ref(&agent_id(name)).expect("the agent exists");
        self.destroy_ref(&agent, children).await
    }

    pub(crate) async fn destroy_ref(&self, agent: &AgentRef, children: ChildPolicy) -> bool {
        self.pool.destroy(agent, children, Initiator::Admin).await.expect("the commit succeeds")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tools.release_handles();
    }
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).expect("a valid path")
}

pub(crate) fn agent_id(name: &str) -> AgentId {
    AgentId::parse(name).expect("a valid name")
}

pub(crate) fn spec_named(name: &str) -> AgentSpec {
    AgentSpec { name: NameSpec::Given(agent_id(name)), ..AgentSpec::default() }
}

pub(crate) fn with_preset(spec: AgentSpec, preset: &str) -> AgentSpec {
    AgentSpec {
        permissions: PermissionSpec { preset: Some(preset.to_owned()), ..spec.permissions.clone() },
        ..spec
    }
}

pub(crate) fn with_parent(spec: AgentSpec, parent: &AgentHandle) -> AgentSpec {
    AgentSpec { parent: Some(parent.id().clone()), ..spec }
}

pub(crate) fn with_first_message(spec: AgentSpec, script: &str) -> AgentSpec {
    AgentSpec {
        initial: Some(FirstMessage { text: script.to_owned(), source: MessageSource::default() }),
        ..spec
    }
}

pub(crate) fn numeric_request_id(number: i64) -> RequestId {
    RequestId::Number(number)
}

pub(crate) fn new_message(request_id: i64, script: &str) -> NewMessage {
    NewMessage {
        text: script.to_owned(),
        images: Vec::new(),
        request_id: RequestId::Number(request_id),
        source: MessageSource::default(),
    }
}

/// A send that runs on its own task, so that it proceeds without being polled.
pub(crate) type SendTask = tokio::task::JoinHandle<Result<TurnEnd, Fault>>;

pub(crate) fn start_send(agent: &AgentHandle, request_id: i64, script: &str) -> SendTask {
    let (agent, message) = (agent.clone(), new_message(request_id, script));
    tokio::spawn(async move { agent.send(message).await })
}

/// The turn end of a successful send.
pub(crate) async fn expect_end(sending: SendTask) -> TurnEnd {
    sending.await.expect("a send does not panic").expect("the turn succeeds")
}

/// The fault of a failed send.
pub(crate) async fn expect_fault(sending: SendTask) -> Fault {
    sending.await.expect("a send does not panic").expect_err("the turn fails")
}

/// Awaits a control call and checks that no simulated time passes: a control call must not wait for a turn.
pub(crate) async fn without_waiting<T>(call: impl Future<Output = T>) -> T {
    let before = tokio::time::Instant::now();
    let result = call.await;
    assert_eq!(tokio::time::Instant::now(), before, "the call waited");
    result
}

/// Runs a future on this thread, with a paused clock.
pub(crate) fn block_on_paused<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be created").block_on(future)
}

/// Runs all tasks until every one of them waits.
pub(crate) async fn run_until_idle() {
    // The paused clock advances only when no task can run, so the sleep ends when all tasks are idle.
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

/// The number of tasks of this runtime that have not ended.
pub(crate) fn alive_task_count() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The tasks of an idle pool.
pub(crate) const POOL_TASKS: usize = 1;

pub(crate) fn is_busy(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Busy { .. })
}
