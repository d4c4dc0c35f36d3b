//! Test tools with scripted behaviour that record their calls: which calls ran, how many at once, and whether each one
//! was permitted when it started. The tools that target other agents are in [`agents`].

mod agents;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::journal::Serial;
use agent::outside::{
    BoxFuture, CallSite, PreparedCall, Timestamp, Tool, ToolContext, ToolOutputStream, ToolSet, Toolbox,
};
use agent::permission::{DirectoryIdentity, Effect, FilePath, FilePermit, Verdict, judge};
use agent::{AgentId, Concurrency, Fault, TodoItem, TodoStatus, ToolClass, ToolOutcome, ToolSpec};
use runtime::{AgentHandle, PoolHandle};
use testkit::panic_quietly;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Timeout of the tools.
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the tools that wait for other agents: very long, so that a deadlock would show.
pub(crate) const AGENT_TOOL_TIMEOUT: Duration = Duration::from_secs(1_000_000);

/// Arguments that every tool rejects.
pub(crate) const MALFORMED_ARGUMENTS: &str = "!";

/// The test tools and their observations.
pub(crate) struct TestTools {
    current: Mutex<Arc<ToolSet>>,
    state: Arc<ToolState>,
}

struct ToolState {
    observations: Mutex<ToolObservations>,
    /// Number of started calls.
    started_count: watch::Sender<usize>,
    /// The pool for permission checks. Dropped before the pool itself.
    pool: Mutex<Option<PoolHandle>>,
}

/// Observations of the tools.
#[derive(Default)]
pub(crate) struct ToolObservations {
    /// Every started call, with the calling agent.
    pub(crate) calls: Vec<RecordedCall>,
    /// Running calls.
    pub(crate) live: usize,
    /// Maximum number of running calls.
    pub(crate) live_max: usize,
    /// Agents that were destroyed, and how many of their calls ran then.
    pub(crate) ended: Vec<(Serial, usize)>,
    /// Calls that ran without permission.
    pub(crate) violations: Vec<String>,
    paused: VecDeque<Arc<Notify>>,
}

/// One started call.
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
    Prints,
    Read,
    Write,
    Remember,
    Recall,
    Plan,
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
    ("prints", ToolKind::Prints, Concurrency::Ordered, ToolClass::Once),
    ("read", ToolKind::Read, Concurrency::Parallel, ToolClass::Pure),
    ("write", ToolKind::Write, Concurrency::Ordered, ToolClass::Once),
    ("pure_write", ToolKind::Write, Concurrency::Ordered, ToolClass::Pure),
    ("remember", ToolKind::Remember, Concurrency::Parallel, ToolClass::Keyed),
    ("recall", ToolKind::Recall, Concurrency::Parallel, ToolClass::Pure),
    ("todo", ToolKind::Plan, Concurrency::Parallel, ToolClass::Keyed),
    ("doze", ToolKind::Slow, Concurrency::Waiting, ToolClass::Pure),
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
        let state = Arc::new(ToolState {
            observations: Mutex::default(),
            started_count: watch::Sender::new(0),
            pool: Mutex::default(),
        });
        let tool =
            |(name, kind, concurrency, class): &(&str, ToolKind, Concurrency, ToolClass)| -> Arc<dyn Tool> {
                Arc::new(TestTool {
                    spec: spec(name, *concurrency, *class),
                    kind: *kind,
                    state: Arc::clone(&state),
                })
            };
        let tools = ToolSet::new(TOOLS.iter().map(tool).collect());
        Self { current: Mutex::new(Arc::new(tools)), state }
    }

    /// Adds a tool that behaves like `note`.
    pub(crate) fn add_note(&self, name: &str) {
        self.add_note_with_alias(name, name);
    }

    /// Adds a tool like `note` that has another name too.
    pub(crate) fn add_note_with_alias(&self, name: &str, alias: &str) {
        let spec = spec(name, Concurrency::Parallel, ToolClass::Pure);
        self.add_note_with_spec(ToolSpec { aliases: vec![Arc::from(alias)], ..ToolSpec::clone(&spec) });
    }

    /// Adds a tool like `note` that models see only if a list of tools names it.
    pub(crate) fn add_note_not_offered(&self, name: &str) {
        let spec = spec(name, Concurrency::Parallel, ToolClass::Pure);
        self.add_note_with_spec(ToolSpec { is_offered_by_default: false, ..ToolSpec::clone(&spec) });
    }

    fn add_note_with_spec(&self, spec: ToolSpec) {
        let spec = Arc::new(spec);
        let tool = TestTool { spec, kind: ToolKind::Note, state: Arc::clone(&self.state) };
        let mut tools = self.snapshot().all().to_vec();
        tools.push(Arc::new(tool));
        self.publish(tools);
    }

    /// Removes a tool.
    pub(crate) fn remove(&self, name: &str) {
        let mut tools = self.snapshot().all().to_vec();
        tools.retain(|tool| &*tool.spec().name != name);
        self.publish(tools);
    }

    fn publish(&self, tools: Vec<Arc<dyn Tool>>) {
        *self.current() = Arc::new(ToolSet::new(tools));
    }

    fn current(&self) -> MutexGuard<'_, Arc<ToolSet>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, ToolObservations> {
        self.state.observations()
    }

    /// Enables the check of every started call against the permissions of its agent.
    pub(crate) fn enable_permission_checks(&self, pool: &PoolHandle) {
        *self.state.pool() = Some(pool.clone());
    }

    /// Drops all agent and pool handles.
    pub(crate) fn release_handles(&self) {
        let pool = self.state.pool().take();
        let agents: Vec<_> =
            self.observations().calls.iter_mut().filter_map(|call| call.agent.take()).collect();
        drop((pool, agents));
    }

    /// Returns after this number of calls has started.
    pub(crate) async fn wait_started(&self, times: usize) {
        let mut started = self.state.started_count.subscribe();
        started.wait_for(|count| *count >= times).await.expect("the tools exist");
    }

    /// Every started call as text, in order.
    pub(crate) fn call_lines(&self) -> Vec<String> {
        self.observations().calls.iter().map(|call| call.line.clone()).collect()
    }

    /// Releases every waiting call.
    pub(crate) fn release_all(&self) {
        while self.release_one() {}
    }

    /// Releases the call that has waited longest; false if none waits.
    pub(crate) fn release_one(&self) -> bool {
        let mut observations = self.observations();
        while let Some(waiter) = observations.paused.pop_front() {
            // A waiter without another owner was dropped while it waited.
            if Arc::strong_count(&waiter) > 1 {
                waiter.notify_one();
                return true;
            }
        }
        false
    }
}

impl Toolbox for TestTools {
    fn snapshot(&self) -> Arc<ToolSet> {
        Arc::clone(&self.current())
    }

    fn agent_ended(&self, agent: Serial) {
        let mut observations = self.observations();
        let live = observations.live;
        observations.ended.push((agent, live));
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
        let waiter = Arc::new(Notify::new());
        self.observations().paused.push_back(Arc::clone(&waiter));
        waiter.notified().await;
    }
}

struct TestTool {
    spec: Arc<ToolSpec>,
    kind: ToolKind,
    state: Arc<ToolState>,
}

fn spec(name: &str, concurrency: Concurrency, class: ToolClass) -> Arc<ToolSpec> {
    let timeout = if concurrency == Concurrency::Waiting { AGENT_TOOL_TIMEOUT } else { TOOL_TIMEOUT };
    Arc::new(ToolSpec {
        name: Arc::from(name),
        model_name: Arc::from(name),
        aliases: Vec::new(),
        description: Arc::from("runs its script"),
        input_schema: Arc::from("{}"),
        is_offered_by_default: true,
        program: None,
        concurrency,
        class,
        time_ms_max: u64::try_from(timeout.as_millis()).expect("a short duration"),
        tokens: 3,
        brief: None,
    })
}

impl Tool for TestTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, arguments: &str, site: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        if arguments == MALFORMED_ARGUMENTS {
            return Err(format!("{}: malformed arguments", self.spec.name));
        }
        let path = || FilePath::resolve(arguments, site.cwd).map_err(|fault| fault.to_string());
        let effects = match self.kind {
            ToolKind::PanicsAtPrepare => panic_quietly("the tool panicked in prepare"),
            ToolKind::Read => vec![Effect::Read(path()?)],
            ToolKind::Remember => vec![Effect::WriteValues],
            ToolKind::Recall => vec![Effect::ReadValues],
            ToolKind::Write => vec![Effect::Write(path()?)],
            ToolKind::Agents(operation) => agents::effects(operation, arguments, site)?,
            _ => Vec::new(),
        };
        Ok(Box::new(TestCall {
            name: Arc::clone(&self.spec.name),
            kind: self.kind,
            arguments: arguments.to_owned(),
            agent: site.agent.clone(),
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
            panic_quietly("the tool panicked in effects");
        }
        self.effects.clone()
    }

    fn run(self: Box<Self>, context: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let _live = RunningCall::start(&self).await;
            self.execute(context).await
        })
    }
}

fn failed(fault: &Fault) -> ToolOutcome {
    ToolOutcome::Failed(fault.to_string())
}

impl TestCall {
    async fn execute(&self, context: ToolContext) -> ToolOutcome {
        match self.kind {
            ToolKind::Note => ToolOutcome::Done(format!("noted {}", self.arguments)),
            ToolKind::Slow | ToolKind::Step | ToolKind::PanicsAtDrop => {
                self.pause().await;
                ToolOutcome::Done(format!("took {}", self.arguments))
            }
            ToolKind::Long => ToolOutcome::Done("x".repeat(self.arguments.parse().expect("a number"))),
            ToolKind::Prints => {
                let (start, end) = self.arguments.split_at(self.arguments.len() / 2);
                context.output.push(ToolOutputStream::Stdout, start.as_bytes());
                tokio::time::sleep(Duration::from_secs(1)).await;
                context.output.push(ToolOutputStream::Stdout, end.as_bytes());
                context.output.push(ToolOutputStream::Stderr, b"warning");
                self.state.wait_released().await;
                ToolOutcome::Done("printed".to_owned())
            }
            ToolKind::Remember => {
                let value = format!("{:?}", self.arguments);
                let stored = context.values.store("k".to_owned(), value, None, Timestamp(0)).await;
                stored.map_or_else(|fault| failed(&fault), |()| ToolOutcome::Done("stored".to_owned()))
            }
            ToolKind::Recall => match context.values.recall("k".to_owned(), Timestamp(0)).await {
                Ok(value) => ToolOutcome::Done(value.map_or("nothing".to_owned(), |value| value.json)),
                Err(fault) => failed(&fault),
            },
            ToolKind::Plan => {
                let item = |text: &str| TodoItem { text: text.to_owned(), status: TodoStatus::Pending };
                let items = self.arguments.split_whitespace().map(item).collect();
                context.plan.replace(items).expect("the caller is an agent");
                ToolOutcome::Done("planned".to_owned())
            }
            ToolKind::Read => describe_file(context.permit.readable[0].file()),
            ToolKind::Write => describe_file(context.permit.writable[0].file()),
            ToolKind::Panics => panic_quietly("the tool panicked"),
            ToolKind::Broken | ToolKind::PanicsAtPrepare | ToolKind::PanicsAtEffects => {
                ToolOutcome::Failed("broken".to_owned())
            }
            ToolKind::Agents(operation) => agents::execute(operation, &self.arguments, &context).await,
        }
    }

    /// Waits: for a release with `release`, or for a number of milliseconds.
    async fn pause(&self) {
        match self.arguments.parse() {
            Ok(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Err(_) => self.state.wait_released().await,
        }
    }

    /// Which effect of this call is not permitted now, by the agent's grant or an ancestor's ceiling.
    async fn permission_violation(&self, pool: &PoolHandle, agent: &AgentHandle) -> Option<String> {
        let mut effects = vec![Effect::Use(Arc::clone(&self.name))];
        effects.extend(self.effects.iter().cloned());
        let permissions = pool.permissions(agent);
        let mut grants = vec![permissions.may];
        for id in &permissions.ancestors {
            // A later agent may have the name of a destroyed ancestor.
            let ancestor =
                pool.find(id).await.ok().flatten().filter(|candidate| agent.is_descendant_of(candidate));
            grants.extend(ancestor.map(|candidate| pool.permissions(&candidate).may_grant));
        }
        let grants = grants.into_iter();
        grants.map(|grant| judge(&effects, &grant)).find_map(|verdict| match verdict {
            Verdict::Allowed(_) => None,
            Verdict::Denied(denial) => Some(format!("'{}' ran {}: {}", self.agent, self.name, denial.text)),
        })
    }
}

fn describe_file(file: &FilePermit) -> ToolOutcome {
    let identity = |identity: &DirectoryIdentity| format!(", {} is {}", identity.path, identity.inode);
    let identities: String = file.identities.iter().map(identity).collect();
    ToolOutcome::Done(format!("{} beneath {}{identities}", file.path.relative, file.path.root))
}

/// A running call; it counts as live until it is dropped.
struct RunningCall {
    state: Arc<ToolState>,
    panics: bool,
}

impl RunningCall {
    async fn start(call: &TestCall) -> Self {
        let state = Arc::clone(&call.state);
        let pool = state.pool().clone();
        let (mut agent, mut violation) = (None, None);
        if let Some(pool) = pool {
            let caller = pool.find(&call.agent).await.expect("the caller is awake");
            let caller = caller.expect("the caller exists");
            violation = call.permission_violation(&pool, &caller).await;
            agent = Some(caller);
        }
        let mut observations = state.observations();
        observations.violations.extend(violation);
        let line = format!("{} {} {}", call.agent, call.name, call.arguments);
        observations.calls.push(RecordedCall {
            agent,
            line: line.trim_end().to_owned(),
            started_at: Instant::now(),
        });
        observations.live += 1;
        observations.live_max = observations.live_max.max(observations.live);
        state.started_count.send_replace(observations.calls.len());
        drop(observations);
        Self { state, panics: call.kind == ToolKind::PanicsAtDrop }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.state.observations().live -= 1;
        // A panic during another panic would abort the test program.
        if self.panics && !std::thread::panicking() {
            panic_quietly("the tool panicked when dropped");
        }
    }
}
