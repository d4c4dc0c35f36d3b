//! The world of a pool under test: the scripted model, tools that do as they are told, a disk with a few folders, a
//! clock that stands, entropy that counts.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::outside::{Clock, Entropy, Models, Moment, Provider, Workspace};
use agent::permission::FilePath;
use agent::{AgentId, Fault, FaultKind, RequestId, Source, TurnEnd};
use runtime::{
    AgentHandle, AgentSpec, AgentSummary, By, Change, Children, Created, FirstMessage, Limits, Name,
    NewMessage, Outside, PoolHandle, PoolOptions, RightsSpec,
};

use crate::model::ScriptedModel;
use crate::tools::TestTools;

pub(crate) const NOW: Moment = Moment(1_700_000_000_000_000);

/// It is always the same moment.
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Moment {
        NOW
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

/// One model, by the one name it has.
struct OneModel {
    model: Arc<ScriptedModel>,
}

impl Models for OneModel {
    fn usual(&self) -> Arc<dyn Provider> {
        Arc::<ScriptedModel>::clone(&self.model)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        if name == "scripted/one" {
            Ok(self.usual())
        } else {
            Err(Fault::new(FaultKind::Invalid, format!("no such model: {name}")))
        }
    }
}

/// The folders there are.
pub(crate) const FOLDERS: &[&str] = &["/", "/work", "/work/a", "/work/a/deep", "/work/b", "/elsewhere"];

/// A disk with nothing but folders.
pub(crate) struct Disk;

impl Workspace for Disk {
    fn folder(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let found = self.place(path, base)?;
        if FOLDERS.contains(&found.as_str()) { Ok(found) } else { Err(format!("no such folder: {path}")) }
    }

    fn place(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        FilePath::resolve(path, base).map_err(|fault| fault.to_string())
    }
}

/// A pool, its model and its tools.
pub(crate) struct World {
    pub(crate) pool: PoolHandle,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) tools: Arc<TestTools>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::under(Arc::new(FixedClock), limits)
    }

    pub(crate) fn under(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self::from(clock, Arc::new(CountingEntropy::default()), limits)
    }

    pub(crate) fn from(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>, limits: Limits) -> Self {
        let model = Arc::new(ScriptedModel::new());
        let tools = Arc::new(TestTools::new());
        let outside = Outside {
            models: Arc::new(OneModel { model: Arc::clone(&model) }),
            tools: Arc::<TestTools>::clone(&tools),
            workspace: Arc::new(Disk),
            clock,
            entropy,
        };
        let options = PoolOptions {
            limits,
            system_prompt_default: Some("the pool's prompt".to_owned()),
            cwd: path("/work"),
            ..PoolOptions::default()
        };
        Self { pool: PoolHandle::new(options, outside), model, tools }
    }

    /// An agent of the default preset.
    pub(crate) fn agent(&self, name: &str) -> AgentHandle {
        self.make(named(name))
    }

    /// An agent that may create others.
    pub(crate) fn trusted(&self, name: &str) -> AgentHandle {
        self.make(preset(named(name), "trusted"))
    }

    /// A child of the default preset.
    pub(crate) fn child(&self, name: &str, parent: &AgentHandle) -> AgentHandle {
        self.make(below(named(name), parent))
    }

    pub(crate) fn make(&self, spec: AgentSpec) -> AgentHandle {
        self.create(spec).expect("the agent can be").handle
    }

    pub(crate) fn create(&self, spec: AgentSpec) -> Result<Created, Fault> {
        self.pool.create(spec, By::Admin)
    }

    pub(crate) fn refusal(&self, spec: AgentSpec) -> Fault {
        self.create(spec).err().expect("the create is refused")
    }

    pub(crate) fn change(&self, agent: &AgentHandle, change: &Change) -> Result<(), Fault> {
        self.pool.change_rights(agent, change, By::Admin)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.pool.list().iter().map(|agent| agent.id.to_string()).collect()
    }

    pub(crate) fn summary(&self, agent: &AgentHandle) -> AgentSummary {
        self.pool.summary(agent)
    }

    pub(crate) async fn destroy(&self, agent: &AgentHandle) -> bool {
        self.pool.destroy(agent.id(), Children::Go).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tools.forget();
    }
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).expect("a path")
}

pub(crate) fn id(name: &str) -> AgentId {
    AgentId::parse(name).expect("a name")
}

pub(crate) fn named(name: &str) -> AgentSpec {
    AgentSpec { name: Name::Given(id(name)), ..AgentSpec::default() }
}

pub(crate) fn preset(spec: AgentSpec, preset: &str) -> AgentSpec {
    AgentSpec { rights: RightsSpec { preset: Some(preset.to_owned()), ..spec.rights.clone() }, ..spec }
}

pub(crate) fn below(spec: AgentSpec, parent: &AgentHandle) -> AgentSpec {
    AgentSpec { parent: Some(parent.id().clone()), ..spec }
}

pub(crate) fn first(spec: AgentSpec, script: &str) -> AgentSpec {
    AgentSpec { initial: Some(FirstMessage { text: script.to_owned(), source: Source::default() }), ..spec }
}

pub(crate) fn number(number: i64) -> RequestId {
    RequestId::Number(number)
}

pub(crate) fn message(request_id: i64, script: &str) -> NewMessage {
    NewMessage {
        text: script.to_owned(),
        request_id: RequestId::Number(request_id),
        source: Source::default(),
    }
}

/// A send on its way, with a task of its own so that it needs nobody to poll it.
pub(crate) type Sending = tokio::task::JoinHandle<Result<TurnEnd, Fault>>;

pub(crate) fn start(agent: &AgentHandle, request_id: i64, script: &str) -> Sending {
    let (agent, message) = (agent.clone(), message(request_id, script));
    tokio::spawn(async move { agent.send(message).await })
}

/// A send that was answered with an end.
pub(crate) async fn end_of(sending: Sending) -> TurnEnd {
    sending.await.expect("a send does not panic").expect("the turn ended well")
}

/// A send that was answered with a fault.
pub(crate) async fn fault_of(sending: Sending) -> Fault {
    sending.await.expect("a send does not panic").expect_err("the turn failed")
}

/// What a control call gives. It may not let any time pass: it would have waited for a turn.
pub(crate) async fn at_once<T>(call: impl Future<Output = T>) -> T {
    let before = tokio::time::Instant::now();
    let answer = call.await;
    assert_eq!(tokio::time::Instant::now(), before, "the call waited");
    answer
}

/// Lets every task go on until all of them wait for something.
pub(crate) async fn settle() {
    // The paused clock moves only when no task can run, so a nap ends when everything has settled.
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
}

/// Tasks of this runtime that have not ended.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

pub(crate) fn is_busy(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Busy { .. })
}
