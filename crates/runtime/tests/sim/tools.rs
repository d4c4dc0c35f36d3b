//! Tools that do as they are told and write down what they saw: what ran, beside what, and whether it was allowed at
//! that very moment. Those that reach other agents are in [`agents`].

mod agents;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{BoxFuture, CallSite, PreparedCall, Tool, ToolContext, Toolbox};
use agent::permission::{Effect, FilePath, Verdict, judge};
use agent::{AgentId, Concurrency, ToolClass, ToolOutcome, ToolSpec};
use runtime::{AgentHandle, PoolHandle};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::model::panic_quietly;

/// How long every tool here may run.
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long those may run that wait for other agents: for ever, so that a circle would show.
pub(crate) const AGENT_TOOL_TIMEOUT: Duration = Duration::from_secs(1_000_000);

/// What an argument is that no tool takes.
pub(crate) const MALFORMED_ARGUMENTS: &str = "!";

/// The tools, and what they saw.
pub(crate) struct TestTools {
    tools: Vec<Arc<dyn Tool>>,
    state: Arc<ToolState>,
}

struct ToolState {
    observations: Mutex<ToolObservations>,
    /// How many calls have begun.
    started_count: watch::Sender<usize>,
    /// To look at rights with. Forgotten before the pool is to go.
    pool: Mutex<Option<PoolHandle>>,
}

/// What the tools saw.
#[derive(Default)]
pub(crate) struct ToolObservations {
    /// Everything that began, with the agent that called.
    pub(crate) calls: Vec<RecordedCall>,
    /// Calls that run now.
    pub(crate) live: usize,
    /// The most that ever ran at once.
    pub(crate) live_max: usize,
    /// What ran though it was not allowed.
    pub(crate) violations: Vec<String>,
    paused: VecDeque<Arc<Notify>>,
}

/// One call that began.
pub(crate) struct RecordedCall {
    pub(crate) agent: Option<AgentHandle>,
    pub(crate) line: String,
    pub(crate) started_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolKind {
    Note,
    Slow,
    Step,
    Broken,
    Panics,
    PanicsAtPrepare,
    PanicsAtEffects,
    PanicsAtDrop,
    Long,
    Read,
    Write,
    Agents(agents::AgentOperation),
}

const TOOLS: &[(&str, ToolKind, Concurrency, ToolClass)] = &[
    ("note", ToolKind::Note, Concurrency::Parallel, ToolClass::Pure),
    ("slow", ToolKind::Slow, Concurrency::Parallel, ToolClass::Pure),
    ("step", ToolKind::Step, Concurrency::Ordered, ToolClass::Pure),
    ("keyed", ToolKind::Slow, Concurrency::Parallel, ToolClass::Keyed),
    ("once", ToolKind::Slow, Concurrency::Parallel, ToolClass::Once),
    ("once_step", ToolKind::Step, Concurrency::Ordered, ToolClass::Once),
    ("broken", ToolKind::Broken, Concurrency::Ordered, ToolClass::Pure),
    ("panics", ToolKind::Panics, Concurrency::Parallel, ToolClass::Pure),
    ("panics_at_prepare", ToolKind::PanicsAtPrepare, Concurrency::Parallel, ToolClass::Pure),
    ("panics_at_effects", ToolKind::PanicsAtEffects, Concurrency::Parallel, ToolClass::Pure),
    ("panics_at_drop", ToolKind::PanicsAtDrop, Concurrency::Parallel, ToolClass::Pure),
    ("long", ToolKind::Long, Concurrency::Parallel, ToolClass::Pure),
    ("read", ToolKind::Read, Concurrency::Parallel, ToolClass::Pure),
    ("write", ToolKind::Write, Concurrency::Ordered, ToolClass::Pure),
    ("agent_create", ToolKind::Agents(agents::AgentOperation::Create), Concurrency::Waiting, ToolClass::Once),
    ("agent_send", ToolKind::Agents(agents::AgentOperation::Send), Concurrency::Waiting, ToolClass::Once),
    (
        "agent_status",
        ToolKind::Agents(agents::AgentOperation::Status),
        Concurrency::Parallel,
        ToolClass::Pure,
    ),
    (
        "agent_cancel",
        ToolKind::Agents(agents::AgentOperation::Cancel),
        Concurrency::Parallel,
        ToolClass::Once,
    ),
    (
        "agent_destroy",
        ToolKind::Agents(agents::AgentOperation::Destroy),
        Concurrency::Parallel,
        ToolClass::Once,
    ),
    ("agent_list", ToolKind::Agents(agents::AgentOperation::List), Concurrency::Parallel, ToolClass::Pure),
];

impl TestTools {
    pub(crate) fn new() -> Self {
        let stage = Arc::new(ToolState {
            observations: Mutex::default(),
            started_count: watch::Sender::new(0),
            pool: Mutex::default(),
        });
        let tool = |(name, kind, pace, class): &(&str, ToolKind, Concurrency, ToolClass)| -> Arc<dyn Tool> {
            Arc::new(TestTool { spec: spec(name, *pace, *class), kind: *kind, state: Arc::clone(&stage) })
        };
        Self { tools: TOOLS.iter().map(tool).collect(), state: stage }
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, ToolObservations> {
        self.state.observations()
    }

    /// Has every call that begins checked against the rights of its agent.
    pub(crate) fn enable_permission_checks(&self, pool: &PoolHandle) {
        *self.state.pool() = Some(pool.clone());
    }

    /// Lets go of all agents and their pool.
    pub(crate) fn release_handles(&self) {
        let pool = self.state.pool().take();
        let agents: Vec<_> =
            self.observations().calls.iter_mut().filter_map(|ran| ran.agent.take()).collect();
        drop((pool, agents));
    }

    /// Returns when so many calls have begun.
    pub(crate) async fn wait_started(&self, times: usize) {
        let mut begun = self.state.started_count.subscribe();
        begun.wait_for(|count| *count >= times).await.expect("the tools are there");
    }

    /// What began, in order.
    pub(crate) fn call_lines(&self) -> Vec<String> {
        self.observations().calls.iter().map(|ran| ran.line.clone()).collect()
    }

    /// Lets every call go on that waits for it.
    pub(crate) fn release_all(&self) {
        while self.release_one() {}
    }

    /// Lets the call go on that has waited longest. False when none waits.
    pub(crate) fn release_one(&self) -> bool {
        let mut seen = self.observations();
        while let Some(gate) = seen.paused.pop_front() {
            // One that is held by nobody else was dropped while it waited.
            if Arc::strong_count(&gate) > 1 {
                gate.notify_one();
                return true;
            }
        }
        false
    }
}

impl Toolbox for TestTools {
    fn all(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| &*tool.spec().name == name)
    }
}

impl ToolState {
    fn observations(&self) -> MutexGuard<'_, ToolObservations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Option<PoolHandle>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_released(&self) {
        let gate = Arc::new(Notify::new());
        self.observations().paused.push_back(Arc::clone(&gate));
        gate.notified().await;
    }
}

struct TestTool {
    spec: Arc<ToolSpec>,
    kind: ToolKind,
    state: Arc<ToolState>,
}

fn spec(name: &str, pace: Concurrency, class: ToolClass) -> Arc<ToolSpec> {
    let time = if pace == Concurrency::Waiting { AGENT_TOOL_TIMEOUT } else { TOOL_TIMEOUT };
    Arc::new(ToolSpec {
        name: Arc::from(name),
        model_name: Arc::from(name),
        aliases: &[],
        description: Arc::from("does as it is told"),
        input_schema: Arc::from("{}"),
        concurrency: pace,
        class,
        time_ms_max: u64::try_from(time.as_millis()).expect("not that long"),
        tokens: 3,
    })
}

impl Tool for TestTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, arguments: &str, scene: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        if arguments == MALFORMED_ARGUMENTS {
            return Err(format!("{}: malformed arguments", self.spec.name));
        }
        let path = || FilePath::resolve(arguments, scene.cwd).map_err(|fault| fault.to_string());
        let effects = match self.kind {
            ToolKind::PanicsAtPrepare => panic_quietly("the tool panicked at its arguments"),
            ToolKind::Read => vec![Effect::Read(path()?)],
            ToolKind::Write => vec![Effect::Write(path()?)],
            ToolKind::Agents(verb) => agents::effects(verb, arguments, scene)?,
            _ => Vec::new(),
        };
        Ok(Box::new(TestCall {
            name: Arc::clone(&self.spec.name),
            kind: self.kind,
            arguments: arguments.to_owned(),
            agent: scene.agent.clone(),
            effects,
            state: Arc::clone(&self.state),
        }))
    }
}

struct TestCall {
    name: Arc<str>,
    kind: ToolKind,
    arguments: String,
    agent: AgentId,
    effects: Vec<Effect>,
    state: Arc<ToolState>,
}

impl PreparedCall for TestCall {
    fn effects(&self) -> Vec<Effect> {
        if self.kind == ToolKind::PanicsAtEffects {
            panic_quietly("the tool panicked when asked what it does");
        }
        self.effects.clone()
    }

    fn run(self: Box<Self>, leave: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let _live = RunningCall::start(&self).await;
            self.execute(leave).await
        })
    }
}

impl TestCall {
    async fn execute(&self, leave: ToolContext) -> ToolOutcome {
        match self.kind {
            ToolKind::Note => ToolOutcome::Done(format!("noted {}", self.arguments)),
            ToolKind::Slow | ToolKind::Step | ToolKind::PanicsAtDrop => {
                self.pause().await;
                ToolOutcome::Done(format!("took {}", self.arguments))
            }
            ToolKind::Long => ToolOutcome::Done("x".repeat(self.arguments.parse().expect("a number"))),
            ToolKind::Read | ToolKind::Write => {
                let file = leave.permit.files.first().expect("leave names the folder");
                ToolOutcome::Done(format!("{} beneath {}", file.relative, file.root))
            }
            ToolKind::Panics => panic_quietly("the tool panicked"),
            ToolKind::Broken | ToolKind::PanicsAtPrepare | ToolKind::PanicsAtEffects => {
                ToolOutcome::Failed("broken".to_owned())
            }
            ToolKind::Agents(verb) => agents::execute(verb, &self.arguments, &leave).await,
        }
    }

    /// `release` waits for that, a number is so many milliseconds.
    async fn pause(&self) {
        match self.arguments.parse() {
            Ok(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Err(_) => self.state.wait_released().await,
        }
    }

    /// What of this call is not allowed now, to its agent or by an ancestor.
    async fn permission_violation(&self, pool: &PoolHandle, agent: &AgentHandle) -> Option<String> {
        let mut effects = vec![Effect::Use(Arc::clone(&self.name))];
        effects.extend(self.effects.iter().cloned());
        let permissions = pool.permissions(agent);
        let mut grants = vec![permissions.may];
        for id in &permissions.ancestors {
            // Another agent may have the name of an ancestor that is gone.
            let above = pool.find(id).await.ok().flatten().filter(|other| agent.is_descendant_of(other));
            grants.extend(above.map(|other| pool.permissions(&other).may_grant));
        }
        let grants = grants.into_iter();
        grants.map(|grant| judge(&effects, &grant)).find_map(|verdict| match verdict {
            Verdict::Allowed(_) => None,
            Verdict::Denied(denial) => Some(format!("'{}' ran {}: {}", self.agent, self.name, denial.text)),
        })
    }
}

/// A call that runs, until it is dropped.
struct RunningCall {
    state: Arc<ToolState>,
    panics: bool,
}

impl RunningCall {
    async fn start(call: &TestCall) -> Self {
        let stage = Arc::clone(&call.state);
        let pool = stage.pool().clone();
        let (mut agent, mut violation) = (None, None);
        if let Some(pool) = pool {
            let caller = pool.find(&call.agent).await.expect("whoever calls is awake");
            let caller = caller.expect("whoever calls is there");
            violation = call.permission_violation(&pool, &caller).await;
            agent = Some(caller);
        }
        let mut seen = stage.observations();
        seen.violations.extend(violation);
        let line = format!("{} {} {}", call.agent, call.name, call.arguments);
        seen.calls.push(RecordedCall { agent, line: line.trim_end().to_owned(), started_at: Instant::now() });
        seen.live += 1;
        seen.live_max = seen.live_max.max(seen.live);
        stage.started_count.send_replace(seen.calls.len());
        drop(seen);
        Self { state: stage, panics: call.kind == ToolKind::PanicsAtDrop }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.state.observations().live -= 1;
        // A second panic on the way out of a first would end the whole test program.
        if self.panics && !std::thread::panicking() {
            panic_quietly("the tool panicked when dropped");
        }
    }
}
