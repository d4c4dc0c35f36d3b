//! The world of a pool under test: the scripted model, tools that do as they are told, a disk with a few folders, a
//! clock that stands, entropy that counts, a store that can be told to fail. A second world may have the store of a first.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use agent::outside::{Clock, Entropy, ModelSpec, Models, Provider, Timestamp, Workspace};
use agent::permission::FilePath;
use agent::{AgentId, Fault, FaultKind, MessageSource, RequestId, TurnEnd};
use runtime::{
    AgentHandle, AgentLiveness, AgentRef, AgentSpec, AgentStatus, ChildPolicy, CreatedAgent, FirstMessage,
    Initiator, Limits, NameSpec, NewMessage, Outside, PermissionChange, PermissionSpec, PoolHandle,
    PoolOptions,
};

use crate::model::{ScriptedModel, WINDOW_TOKENS};
use crate::test_store::TestStore;
use crate::tools::TestTools;

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// It is always the same moment.
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// A clock that is set by hand.
pub(crate) struct ManualClock {
    now: AtomicI64,
}

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { now: AtomicI64::new(NOW.0) })
    }

    pub(crate) fn advance(&self, time: std::time::Duration) {
        let micros = i64::try_from(time.as_micros()).expect("not that long");
        self.now.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }
}

/// Bytes nobody has to guess: 1, 2, 3, ...
#[derive(Default)]
pub(crate) struct CountingEntropy {
    filled: AtomicU64,
}

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        let count = self.filled.fetch_add(1, Ordering::Relaxed) + 1;
        let digits = count.to_be_bytes();
        bytes.fill(0);
        let (from, to) = (digits.len().saturating_sub(bytes.len()), bytes.len().saturating_sub(digits.len()));
        bytes[to..].copy_from_slice(&digits[from..]);
        Ok(())
    }
}

/// One model, by every name it has.
struct SingleModel {
    model: Arc<ScriptedModel>,
    names: Vec<&'static str>,
}

impl Models for SingleModel {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::<ScriptedModel>::clone(&self.model)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        if self.names.contains(&name) {
            Ok(self.default_model())
        } else {
            Err(Fault::new(FaultKind::Invalid, format!("no such model: {name}")))
        }
    }
}

/// The folders there are.
pub(crate) const FOLDERS: &[&str] = &["/", "/work", "/work/a", "/work/a/deep", "/work/b", "/elsewhere"];

/// A disk with nothing but folders.
pub(crate) struct TestWorkspace;

impl Workspace for TestWorkspace {
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let found = self.resolve_path(path, base)?;
        if FOLDERS.contains(&found.as_str()) { Ok(found) } else { Err(format!("no such folder: {path}")) }
    }

    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        FilePath::resolve(path, base).map_err(|fault| fault.to_string())
    }
}

/// A pool, its model, its tools and its store.
pub(crate) struct World {
    pub(crate) pool: PoolHandle,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) tools: Arc<TestTools>,
    pub(crate) store: Arc<TestStore>,
    world_options: WorldOptions,
}

/// What a world is made of, where it is not made as usual.
#[derive(Clone)]
pub(crate) struct WorldOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) store: Arc<TestStore>,
    pub(crate) tools: Arc<TestTools>,
    pub(crate) pool_options: PoolOptions,
    /// Names of models, beside the usual one.
    pub(crate) models: Vec<&'static str>,
    pub(crate) model_spec: ModelSpec,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(FixedClock),
            entropy: Arc::new(CountingEntropy::default()),
            store: TestStore::new(),
            tools: Arc::new(TestTools::new()),
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

    /// The same world with what is kept now, for its next life.
    pub(crate) fn restart_options(&self) -> WorldOptions {
        WorldOptions {
            store: TestStore::with_memory(Arc::clone(self.store.memory())),
            ..self.world_options.clone()
        }
    }

    /// The daemon is killed and started again: what is not kept is lost. The model is a new one.
    pub(crate) async fn restart(self) -> Self {
        let plan = self.restart_options();
        self.kill().await;
        Self::open(plan).await
    }

    /// The daemon is killed.
    pub(crate) async fn kill(self) {
        self.store.die();
        drop(self);
        // Whoever was at work finds nobody to work for.
        run_until_idle().await;
    }

    /// The daemon stops in order and is started again.
    pub(crate) async fn stop_and_start(self) -> Self {
        let plan = self.restart_options();
        self.pool.stop(std::time::Duration::from_secs(10)).await;
        drop(self);
        Self::open(plan).await
    }

    pub(crate) async fn open(plan: WorldOptions) -> Self {
        let kept_plan = plan.clone();
        let WorldOptions { clock, entropy, store, tools, pool_options: options, models, model_spec: traits } =
            plan;
        let model = Arc::new(ScriptedModel::new(traits));
        let outside = Outside {
            models: Arc::new(SingleModel { model: Arc::clone(&model), names: models }),
            tools: Arc::<TestTools>::clone(&tools),
            workspace: Arc::new(TestWorkspace),
            clock,
            entropy,
            store: Arc::<TestStore>::clone(&store),
        };
        let pool = PoolHandle::open(options, outside).await.expect("the store can be read");
        Self { pool, model, tools, store, world_options: kept_plan }
    }

    /// An agent of the default preset.
    pub(crate) async fn agent(&self, name: &str) -> AgentHandle {
        self.create_handle(spec_named(name)).await
    }

    /// Several of them.
    pub(crate) async fn agents<const COUNT: usize>(&self, names: [&str; COUNT]) -> Vec<AgentHandle> {
        let mut agents = Vec::new();
        for name in names {
            agents.push(self.agent(name).await);
        }
        agents
    }

    /// An agent that may create others.
    pub(crate) async fn trusted_agent(&self, name: &str) -> AgentHandle {
        self.create_handle(with_preset(spec_named(name), "trusted")).await
    }

    /// A child of the default preset.
    pub(crate) async fn child_agent(&self, name: &str, parent: &AgentHandle) -> AgentHandle {
        self.create_handle(with_parent(spec_named(name), parent)).await
    }

    pub(crate) async fn create_handle(&self, spec: AgentSpec) -> AgentHandle {
        self.create(spec).await.expect("the agent can be").handle
    }

    pub(crate) async fn create(&self, spec: AgentSpec) -> Result<CreatedAgent, Fault> {
        self.pool.create(spec, Initiator::Admin).await
    }

    pub(crate) async fn expect_create_refused(&self, spec: AgentSpec) -> Fault {
        self.create(spec).await.err().expect("the create is refused")
    }

    pub(crate) async fn change_permissions(
        &self,
        agent: &AgentHandle,
        change: &PermissionChange,
    ) -> Result<(), Fault> {
        self.pool.change_permissions(agent, change, Initiator::Admin).await
    }

    pub(crate) async fn finish(&self, agent: &AgentHandle) {
        self.pool.mark_agent_finished(agent, Initiator::Admin).await.expect("it can be kept");
    }

    /// The agent, awake.
    pub(crate) async fn find(&self, name: &str) -> AgentHandle {
        self.pool.find(&agent_id(name)).await.expect("it can be woken").expect("it is there")
    }

    pub(crate) async fn list(&self) -> Vec<AgentStatus> {
        self.pool.list().await.expect("the store can be read")
    }

    /// An agent as it is in a list.
    pub(crate) async fn listed_summary(&self, name: &str) -> AgentStatus {
        let found = self.list().await.into_iter().find(|agent| agent.id.as_str() == name);
        found.expect("it is listed")
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.iter().map(|agent| agent.id.to_string()).collect()
    }

    /// Which of the agents are live.
    pub(crate) async fn live_names(&self) -> Vec<String> {
        let live = |agent: &AgentStatus| agent.state == AgentLiveness::Live;
        self.list().await.iter().filter(|agent| live(agent)).map(|agent| agent.id.to_string()).collect()
    }

    pub(crate) async fn children(&self, agent: &AgentHandle) -> Vec<AgentStatus> {
        self.pool.children(agent).await.expect("the store can be read")
    }

    pub(crate) fn summary(&self, agent: &AgentHandle) -> AgentStatus {
        self.pool.status(agent)
    }

    pub(crate) async fn destroy(&self, agent: &AgentHandle) -> bool {
        self.destroy_ref(&agent.agent_ref(), ChildPolicy::Cascade).await
    }

    /// Ends an agent, by its name.
    pub(crate) async fn destroy_named(&self, name: &str, children: ChildPolicy) -> bool {
        let agent = self.pool.find_ref(&agent_id(name)).expect("it is there");
        self.destroy_ref(&agent, children).await
    }

    pub(crate) async fn destroy_ref(&self, agent: &AgentRef, children: ChildPolicy) -> bool {
        self.pool.destroy(agent, children, Initiator::Admin).await.expect("it can be kept")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tools.release_handles();
    }
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).expect("a path")
}

pub(crate) fn agent_id(name: &str) -> AgentId {
    AgentId::parse(name).expect("a name")
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

/// A send on its way, with a task of its own so that it needs nobody to poll it.
pub(crate) type SendTask = tokio::task::JoinHandle<Result<TurnEnd, Fault>>;

pub(crate) fn start_send(agent: &AgentHandle, request_id: i64, script: &str) -> SendTask {
    let (agent, message) = (agent.clone(), new_message(request_id, script));
    tokio::spawn(async move { agent.send(message).await })
}

/// A send that was answered with an end.
pub(crate) async fn expect_end(sending: SendTask) -> TurnEnd {
    sending.await.expect("a send does not panic").expect("the turn ended well")
}

/// A send that was answered with a fault.
pub(crate) async fn expect_fault(sending: SendTask) -> Fault {
    sending.await.expect("a send does not panic").expect_err("the turn failed")
}

/// What a control call gives. It may not let any time pass: it would have waited for a turn.
pub(crate) async fn without_waiting<T>(call: impl Future<Output = T>) -> T {
    let before = tokio::time::Instant::now();
    let answer = call.await;
    assert_eq!(tokio::time::Instant::now(), before, "the call waited");
    answer
}

/// Lets every task go on until all of them wait for something.
pub(crate) async fn run_until_idle() {
    // The paused clock moves only when no task can run, so a nap ends when everything has settled.
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

/// Tasks of this runtime that have not ended.
pub(crate) fn alive_task_count() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Tasks that a pool has for itself, until it is stopped.
pub(crate) const POOL_TASKS: usize = 1;

pub(crate) fn is_busy(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Busy { .. })
}
