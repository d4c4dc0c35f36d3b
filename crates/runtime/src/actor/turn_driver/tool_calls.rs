//! The tool calls of a turn: read when the model makes them, judged when they begin, and run beside each other.
//! Dropping a run ends it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent::outside::{BoxFuture, CachedResults, CallSite, PreparedCall, Tool, ToolContext};
use agent::permission::{Effect, Permit, Resource, Verdict, judge};
use agent::{
    AgentId, Concurrency, Schedule, TokenCount, ToolCall, ToolClass, ToolOutcome, ToolSpec, TurnEvent,
};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::panic_text;
use crate::audit;
use crate::handle::Shared;
use crate::output_cache::AgentOutputs;
use crate::peers::AgentPeers;

pub(super) struct ToolCalls {
    shared: Arc<Shared>,
    /// The calls of the answer under way that can run, by their place in it.
    prepared: Vec<Option<CallWithSpec>>,
    running: FuturesUnordered<BoxFuture<'static, (usize, ToolOutcome)>>,
    /// The places of what runs.
    running_indexes: Vec<usize>,
    /// The bytes that results of the answer under way may still have.
    result_bytes_left: usize,
    /// The tokens, of what the model can take, that they may still have; none before the first of them.
    result_tokens_left: Option<TokenCount>,
}

/// Results of one answer together may be as long as so many of the longest.
const LONGEST_RESULTS_MAX: usize = 8;

/// And so many times the share of one in what the model can take.
const SHARES_MAX: TokenCount = 2;

/// No result is cut to less.
const SHARE_TOKENS_MIN: TokenCount = 64;

struct CallWithSpec {
    spec: Arc<ToolSpec>,
    call: Box<dyn PreparedCall>,
}

/// What came of the attempt to begin a call.
pub(super) enum StartedCall {
    Running(ToolClass),
    /// It runs, and waits for other agents.
    WaitingForAgents(ToolClass),
    /// It is over before it began.
    Finished(ToolOutcome),
    /// There is no budget for it.
    BudgetExhausted(Resource),
}

impl ToolCalls {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mut work = Self {
            shared,
            prepared: Vec::new(),
            running: FuturesUnordered::new(),
            running_indexes: Vec::new(),
            result_bytes_left: 0,
            result_tokens_left: None,
        };
        work.next_round();
        work
    }

    /// Forgets the calls of the last answer.
    pub(super) fn next_round(&mut self) {
        self.prepared.clear();
        self.result_bytes_left = self.shared.limits.tool_result_bytes_max.saturating_mul(LONGEST_RESULTS_MAX);
        self.result_tokens_left = None;
    }

    /// Reads a call's arguments and says how it can run.
    pub(super) fn prepare(&mut self, call: &ToolCall) -> Schedule {
        let (offered, manner) = match self.prepare_call(call) {
            Ok(offered) => {
                let manner = match offered.spec.concurrency {
                    Concurrency::Parallel | Concurrency::Waiting => Schedule::Parallel,
                    Concurrency::Ordered => Schedule::Ordered,
                };
                (Some(offered), manner)
            }
            Err(why) => (None, Schedule::Unusable(why)),
        };
        self.prepared.push(offered);
        manner
    }

    fn prepare_call(&self, call: &ToolCall) -> Result<CallWithSpec, String> {
        let Some(pool) = self.shared.pool.upgrade() else { return Err("Server shutting down".to_owned()) };
        let tool: &Arc<dyn Tool> = pool
            .outside
            .tools
            .find(&call.name)
            .ok_or_else(|| format!("Unknown tool: {}", call.name.chars().take(64).collect::<String>()))?;
        let own = &self.shared.node;
        let kinship = |id: &AgentId| pool.directory.relation(own.serial, id);
        let preset_lineage = |name: Option<&str>| {
            let name = name.unwrap_or(&pool.options.preset_default);
            pool.options.presets.find(name).map(|preset| preset.inheritance.clone()).unwrap_or_default()
        };
        let scene = CallSite {
            agent: &self.shared.id,
            cwd: &own.cwd,
            relation_to: &kinship,
            preset_inheritance: &preset_lineage,
        };
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| tool.prepare(&call.arguments, &scene)));
        let call = prepared.unwrap_or_else(|_| Err("Internal error: the tool panicked".to_owned()))?;
        Ok(CallWithSpec { spec: Arc::clone(tool.spec()), call })
    }

    /// Begins a call, if the agent may make it now.
    pub(super) fn start(&mut self, place: usize, call: &ToolCall) -> StartedCall {
        let Some(CallWithSpec { spec, call: prepared }) = self.prepared.get_mut(place).and_then(Option::take)
        else {
            return StartedCall::Finished(ToolOutcome::Failed(format!("Unknown tool: {}", call.name)));
        };
        let mut effects = vec![Effect::Use(Arc::clone(&spec.name))];
        match std::panic::catch_unwind(AssertUnwindSafe(|| prepared.effects())) {
            Ok(more) => effects.extend(more),
            Err(panic) => return StartedCall::Finished(tool_panicked(&spec.name, panic.as_ref())),
        }
        if let Err(denied) = self.shared.authorize_tool(&spec.name, &effects) {
            return StartedCall::Finished(denied);
        }
        if !self.shared.node.try_consume(Resource::ToolCalls, 1) {
            return StartedCall::BudgetExhausted(Resource::ToolCalls);
        }
        tracing::debug!(tool = %spec.name, "running a tool");
        self.running.push(run_call(place, &spec, prepared, effects, Arc::clone(&self.shared)));
        self.running_indexes.push(place);
        if spec.concurrency == Concurrency::Waiting {
            StartedCall::WaitingForAgents(spec.class)
        } else {
            StartedCall::Running(spec.class)
        }
    }

    /// The next call that is done. Never returns while none runs.
    pub(super) async fn next_outcome(&mut self) -> (usize, ToolOutcome) {
        match self.running.next().await {
            Some((place, outcome)) => {
                self.running_indexes.retain(|running| *running != place);
                tracing::debug!(outcome = outcome.name(), "a tool is done");
                let outcome = self.fit_to_share(truncate_outcome(outcome, self.result_bytes_left));
                self.result_bytes_left = self.result_bytes_left.saturating_sub(outcome.text().len());
                (place, outcome)
            }
            None => std::future::pending().await,
        }
    }

    /// A result that is longer than its share of what the model can take is cut in its middle; the whole is put aside for
    /// the model to read on.
    fn fit_to_share(&mut self, outcome: ToolOutcome) -> ToolOutcome {
        let share = self.shared.result_tokens_max();
        if share == 0 {
            return outcome;
        }
        let room = self.result_tokens_left.unwrap_or(share * SHARES_MAX);
        let tokens_max = share.min(room).max(SHARE_TOKENS_MIN);
        let outcome = match outcome {
            ToolOutcome::Done(text) => ToolOutcome::Done(self.shared.truncate_result(text, tokens_max)),
            ToolOutcome::Failed(text) => ToolOutcome::Failed(self.shared.truncate_result(text, tokens_max)),
            ToolOutcome::Denied(text) => ToolOutcome::Denied(text),
        };
        let tokens = self.shared.provider.count(outcome.text());
        self.result_tokens_left = Some(room.saturating_sub(tokens));
        outcome
    }

    /// Ends what runs.
    pub(super) fn stop(&mut self) {
        self.running_indexes.clear();
        self.running.clear();
    }

    /// Ends what runs for want of a budget, and says so for each.
    pub(super) fn stop_for_budget(&mut self, resource: Resource) -> Vec<TurnEvent> {
        let text = format!("Stopped: the budget of {resource} is used up");
        let given_up = |place| TurnEvent::ToolDone(place, ToolOutcome::Failed(text.clone()));
        let events = self.running_indexes.drain(..).map(given_up).collect();
        self.stop();
        events
    }
}

impl Shared {
    /// Leave for these effects now, or what the model is told instead.
    fn authorize_tool(&self, tool: &str, effects: &[Effect]) -> Result<Permit, ToolOutcome> {
        match judge(effects, &self.node.may()) {
            Verdict::Allowed(permit) => Ok(permit),
            Verdict::Denied(denial) => {
                audit::record_denied_tool(self, tool, denial.dimension.name(), &denial.text);
                Err(ToolOutcome::Denied(format!("Permission denied: {}", denial.text)))
            }
        }
    }
}

fn run_call(
    place: usize,
    spec: &ToolSpec,
    call: Box<dyn PreparedCall>,
    effects: Vec<Effect>,
    shared: Arc<Shared>,
) -> BoxFuture<'static, (usize, ToolOutcome)> {
    let (time_ms_max, bytes_max) = (spec.time_ms_max, shared.limits.tool_result_bytes_max);
    let (name, tool) = (Arc::clone(&spec.name), Arc::clone(&spec.name));
    let work = async move {
        // Asked again: others may have had their turn since the call was let in, and taken a right away.
        let permit = match shared.authorize_tool(&tool, &effects) {
            Ok(permit) => permit,
            Err(denied) => return denied,
        };
        let peers = Arc::new(AgentPeers::new(&shared));
        // Called within, so that a panic in it is the tool's too.
        let results: Arc<dyn CachedResults> = match shared.pool.upgrade() {
            Some(pool) => {
                Arc::new(AgentOutputs { cache: Arc::clone(&pool.output_cache), agent: shared.node.serial })
            }
            None => return ToolOutcome::Failed("Server shutting down".to_owned()),
        };
        let outcome = call.run(ToolContext { permit, peers, results }).await;
        if let ToolOutcome::Denied(text) = &outcome {
            audit::record_denied_tool(&shared, &tool, "tool", text);
        }
        outcome
    };
    Box::pin(async move {
        let running = AssertUnwindSafe(ToolFuture { future: Some(Box::pin(work)) }).catch_unwind();
        let outcome = match tokio::time::timeout(Duration::from_millis(time_ms_max), running).await {
            Ok(Ok(outcome)) => truncate_outcome(outcome, bytes_max),
            Ok(Err(panic)) => tool_panicked(&name, panic.as_ref()),
            Err(_) => ToolOutcome::Failed(format!("Timeout after {} seconds", time_ms_max.div_ceil(1000))),
        };
        (place, outcome)
    })
}

/// A tool at work. A panic when it is dropped is the tool's: it must neither keep its neighbours from being dropped nor
/// take the agent's task with it.
struct ToolFuture {
    future: Option<BoxFuture<'static, ToolOutcome>>,
}

impl Future for ToolFuture {
    type Output = ToolOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ToolOutcome> {
        match &mut self.future {
            Some(doing) => doing.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for ToolFuture {
    fn drop(&mut self) {
        let doing = self.future.take();
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(doing))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "a tool panicked when it was dropped");
        }
    }
}

fn tool_panicked(name: &str, panic: &(dyn Any + Send)) -> ToolOutcome {
    tracing::error!(tool = name, panic = panic_text(panic), "a tool panicked");
    ToolOutcome::Failed("Internal error: the tool panicked".to_owned())
}

/// A result that a model can be shown.
fn truncate_outcome(outcome: ToolOutcome, bytes_max: usize) -> ToolOutcome {
    let cut = |mut text: String| {
        let bytes = text.len();
        if bytes > bytes_max {
            text.truncate(text.floor_char_boundary(bytes_max));
            text.push_str(&format!("\n[truncated: {} of {bytes} bytes shown]", text.len()));
            // Results wait until the whole answer's calls are done: what was cut off must not wait with them.
            text.shrink_to_fit();
        }
        text
    };
    match outcome {
        ToolOutcome::Done(text) => ToolOutcome::Done(cut(text)),
        ToolOutcome::Failed(text) => ToolOutcome::Failed(cut(text)),
        ToolOutcome::Denied(text) => ToolOutcome::Denied(cut(text)),
    }
}
