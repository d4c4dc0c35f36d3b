//! Tools that do as they are told and write down what they saw: what ran, beside what, and whether it was allowed at
//! that very moment. Those that reach other agents are in [`agents`].

mod agents;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{Doing, Leave, Prepared, Scene, Tool, Toolbox};
use agent::permission::{Effect, FilePath, Verdict, judge};
use agent::{AgentId, Pace, ToolClass, ToolOutcome, ToolSpec};
use runtime::{AgentHandle, PoolHandle};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::model::panic_quietly;

/// How long every tool here may run.
pub(crate) const TOOL_TIME: Duration = Duration::from_secs(60);

/// How long those may run that wait for other agents: for ever, so that a circle would show.
pub(crate) const TALK_TIME: Duration = Duration::from_secs(1_000_000);

/// What an argument is that no tool takes.
pub(crate) const MALFORMED: &str = "!";

/// The tools, and what they saw.
pub(crate) struct TestTools {
    all: Vec<Arc<dyn Tool>>,
    stage: Arc<Stage>,
}

struct Stage {
    seen: Mutex<ToolsSeen>,
    /// How many calls have begun.
    begun: watch::Sender<usize>,
    /// To look at rights with. Forgotten before the pool is to go.
    pool: Mutex<Option<PoolHandle>>,
}

/// What the tools saw.
#[derive(Default)]
pub(crate) struct ToolsSeen {
    /// Everything that began, with the agent that called.
    pub(crate) ran: Vec<Ran>,
    /// Calls that run now.
    pub(crate) live: usize,
    /// The most that ever ran at once.
    pub(crate) live_max: usize,
    /// What ran though it was not allowed.
    pub(crate) violations: Vec<String>,
    waiting: VecDeque<Arc<Notify>>,
}

/// One call that began.
pub(crate) struct Ran {
    pub(crate) agent: Option<AgentHandle>,
    pub(crate) line: String,
    pub(crate) at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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
    Agents(agents::Verb),
}

const KINDS: &[(&str, Kind, Pace, ToolClass)] = &[
    ("note", Kind::Note, Pace::Parallel, ToolClass::Pure),
    ("slow", Kind::Slow, Pace::Parallel, ToolClass::Pure),
    ("step", Kind::Step, Pace::Ordered, ToolClass::Pure),
    ("keyed", Kind::Slow, Pace::Parallel, ToolClass::Keyed),
    ("once", Kind::Slow, Pace::Parallel, ToolClass::Once),
    ("once_step", Kind::Step, Pace::Ordered, ToolClass::Once),
    ("broken", Kind::Broken, Pace::Ordered, ToolClass::Pure),
    ("panics", Kind::Panics, Pace::Parallel, ToolClass::Pure),
    ("panics_at_prepare", Kind::PanicsAtPrepare, Pace::Parallel, ToolClass::Pure),
    ("panics_at_effects", Kind::PanicsAtEffects, Pace::Parallel, ToolClass::Pure),
    ("panics_at_drop", Kind::PanicsAtDrop, Pace::Parallel, ToolClass::Pure),
    ("long", Kind::Long, Pace::Parallel, ToolClass::Pure),
    ("read", Kind::Read, Pace::Parallel, ToolClass::Pure),
    ("write", Kind::Write, Pace::Ordered, ToolClass::Pure),
    ("agent_create", Kind::Agents(agents::Verb::Create), Pace::Waiting, ToolClass::Once),
    ("agent_send", Kind::Agents(agents::Verb::Send), Pace::Waiting, ToolClass::Once),
    ("agent_status", Kind::Agents(agents::Verb::Status), Pace::Parallel, ToolClass::Pure),
    ("agent_cancel", Kind::Agents(agents::Verb::Cancel), Pace::Parallel, ToolClass::Once),
    ("agent_destroy", Kind::Agents(agents::Verb::Destroy), Pace::Parallel, ToolClass::Once),
    ("agent_list", Kind::Agents(agents::Verb::List), Pace::Parallel, ToolClass::Pure),
];

impl TestTools {
    pub(crate) fn new() -> Self {
        let stage =
            Arc::new(Stage { seen: Mutex::default(), begun: watch::Sender::new(0), pool: Mutex::default() });
        let tool = |(name, kind, pace, class): &(&str, Kind, Pace, ToolClass)| -> Arc<dyn Tool> {
            Arc::new(TestTool { spec: spec(name, *pace, *class), kind: *kind, stage: Arc::clone(&stage) })
        };
        Self { all: KINDS.iter().map(tool).collect(), stage }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, ToolsSeen> {
        self.stage.seen()
    }

    /// Has every call that begins checked against the rights of its agent.
    pub(crate) fn watch(&self, pool: &PoolHandle) {
        *self.stage.pool() = Some(pool.clone());
    }

    /// Lets go of all agents and their pool.
    pub(crate) fn forget(&self) {
        let pool = self.stage.pool().take();
        let agents: Vec<_> = self.seen().ran.iter_mut().filter_map(|ran| ran.agent.take()).collect();
        drop((pool, agents));
    }

    /// Returns when so many calls have begun.
    pub(crate) async fn begun(&self, times: usize) {
        let mut begun = self.stage.begun.subscribe();
        begun.wait_for(|count| *count >= times).await.expect("the tools are there");
    }

    /// What began, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().ran.iter().map(|ran| ran.line.clone()).collect()
    }

    /// Lets every call go on that waits for it.
    pub(crate) fn release_all(&self) {
        while self.release_one() {}
    }

    /// Lets the call go on that has waited longest. False when none waits.
    pub(crate) fn release_one(&self) -> bool {
        let mut seen = self.seen();
        while let Some(gate) = seen.waiting.pop_front() {
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
        &self.all
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.all.iter().find(|tool| &*tool.spec().name == name)
    }
}

impl Stage {
    fn seen(&self) -> MutexGuard<'_, ToolsSeen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Option<PoolHandle>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn released(&self) {
        let gate = Arc::new(Notify::new());
        self.seen().waiting.push_back(Arc::clone(&gate));
        gate.notified().await;
    }
}

struct TestTool {
    spec: Arc<ToolSpec>,
    kind: Kind,
    stage: Arc<Stage>,
}

fn spec(name: &str, pace: Pace, class: ToolClass) -> Arc<ToolSpec> {
    let time = if pace == Pace::Waiting { TALK_TIME } else { TOOL_TIME };
    Arc::new(ToolSpec {
        name: Arc::from(name),
        model_name: Arc::from(name),
        aliases: &[],
        description: Arc::from("does as it is told"),
        input_schema: Arc::from("{}"),
        pace,
        class,
        time_ms_max: u64::try_from(time.as_millis()).expect("not that long"),
        tokens: 3,
    })
}

impl Tool for TestTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, arguments: &str, scene: &Scene<'_>) -> Result<Box<dyn Prepared>, String> {
        if arguments == MALFORMED {
            return Err(format!("{}: malformed arguments", self.spec.name));
        }
        let path = || FilePath::resolve(arguments, scene.cwd).map_err(|fault| fault.to_string());
        let effects = match self.kind {
            Kind::PanicsAtPrepare => panic_quietly("the tool panicked at its arguments"),
            Kind::Read => vec![Effect::Read(path()?)],
            Kind::Write => vec![Effect::Write(path()?)],
            Kind::Agents(verb) => agents::effects(verb, arguments, scene)?,
            _ => Vec::new(),
        };
        Ok(Box::new(TestCall {
            name: Arc::clone(&self.spec.name),
            kind: self.kind,
            arguments: arguments.to_owned(),
            agent: scene.agent.clone(),
            effects,
            stage: Arc::clone(&self.stage),
        }))
    }
}

struct TestCall {
    name: Arc<str>,
    kind: Kind,
    arguments: String,
    agent: AgentId,
    effects: Vec<Effect>,
    stage: Arc<Stage>,
}

impl Prepared for TestCall {
    fn effects(&self) -> Vec<Effect> {
        if self.kind == Kind::PanicsAtEffects {
            panic_quietly("the tool panicked when asked what it does");
        }
        self.effects.clone()
    }

    fn run(self: Box<Self>, leave: Leave) -> Doing<'static, ToolOutcome> {
        Box::pin(async move {
            let _live = Live::begin(&self).await;
            self.work(leave).await
        })
    }
}

impl TestCall {
    async fn work(&self, leave: Leave) -> ToolOutcome {
        match self.kind {
            Kind::Note => ToolOutcome::Done(format!("noted {}", self.arguments)),
            Kind::Slow | Kind::Step | Kind::PanicsAtDrop => {
                self.take_time().await;
                ToolOutcome::Done(format!("took {}", self.arguments))
            }
            Kind::Long => ToolOutcome::Done("x".repeat(self.arguments.parse().expect("a number"))),
            Kind::Read | Kind::Write => {
                let file = leave.permit.files.first().expect("leave names the folder");
                ToolOutcome::Done(format!("{} beneath {}", file.relative, file.root))
            }
            Kind::Panics => panic_quietly("the tool panicked"),
            Kind::Broken | Kind::PanicsAtPrepare | Kind::PanicsAtEffects => {
                ToolOutcome::Failed("broken".to_owned())
            }
            Kind::Agents(verb) => agents::work(verb, &self.arguments, &leave).await,
        }
    }

    /// `release` waits for that, a number is so many milliseconds.
    async fn take_time(&self) {
        match self.arguments.parse() {
            Ok(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Err(_) => self.stage.released().await,
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
struct Live {
    stage: Arc<Stage>,
    panics: bool,
}

impl Live {
    async fn begin(call: &TestCall) -> Self {
        let stage = Arc::clone(&call.stage);
        let pool = stage.pool().clone();
        let (mut agent, mut violation) = (None, None);
        if let Some(pool) = pool {
            let caller = pool.find(&call.agent).await.expect("whoever calls is awake");
            let caller = caller.expect("whoever calls is there");
            violation = call.permission_violation(&pool, &caller).await;
            agent = Some(caller);
        }
        let mut seen = stage.seen();
        seen.violations.extend(violation);
        let line = format!("{} {} {}", call.agent, call.name, call.arguments);
        seen.ran.push(Ran { agent, line: line.trim_end().to_owned(), at: Instant::now() });
        seen.live += 1;
        seen.live_max = seen.live_max.max(seen.live);
        stage.begun.send_replace(seen.ran.len());
        drop(seen);
        Self { stage, panics: call.kind == Kind::PanicsAtDrop }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stage.seen().live -= 1;
        // A second panic on the way out of a first would end the whole test program.
        if self.panics && !std::thread::panicking() {
            panic_quietly("the tool panicked when dropped");
        }
    }
}
