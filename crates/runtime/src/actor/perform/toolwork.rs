//! The tool calls of a turn: read when the model makes them, judged when they begin, and run beside each other.
//! Dropping a run ends it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent::outside::{Doing, Leave, Prepared, Results, Scene, Tool};
use agent::permission::{Effect, Permit, Resource, Verdict, judge};
use agent::{AgentId, Manner, Pace, TokenCount, ToolCall, ToolClass, ToolOutcome, ToolSpec, TurnEvent};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::panic_text;
use crate::audit;
use crate::handle::Shared;
use crate::peers::PeersOf;
use crate::spool::ResultsOf;

pub(super) struct ToolWork {
    shared: Arc<Shared>,
    /// The calls of the answer under way that can run, by their place in it.
    offered: Vec<Option<Offered>>,
    running: FuturesUnordered<Doing<'static, (usize, ToolOutcome)>>,
    /// The places of what runs.
    places: Vec<usize>,
    /// The bytes that results of the answer under way may still have.
    room: usize,
    /// The tokens, of what the model can take, that they may still have; none before the first of them.
    token_room: Option<TokenCount>,
}

/// Results of one answer together may be as long as so many of the longest.
const LONGEST_RESULTS_MAX: usize = 8;

/// And so many times the share of one in what the model can take.
const SHARES_MAX: TokenCount = 2;

/// No result is cut to less.
const SHARE_TOKENS_MIN: TokenCount = 64;

struct Offered {
    spec: Arc<ToolSpec>,
    call: Box<dyn Prepared>,
}

/// What came of the attempt to begin a call.
pub(super) enum Begun {
    Runs(ToolClass),
    /// It runs, and waits for other agents.
    WaitsForOthers(ToolClass),
    /// It is over before it began.
    Over(ToolOutcome),
    /// There is no budget for it.
    Spent(Resource),
}

impl ToolWork {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mut work = Self {
            shared,
            offered: Vec::new(),
            running: FuturesUnordered::new(),
            places: Vec::new(),
            room: 0,
            token_room: None,
        };
        work.next_round();
        work
    }

    /// Forgets the calls of the last answer.
    pub(super) fn next_round(&mut self) {
        self.offered.clear();
        self.room = self.shared.limits.tool_result_bytes_max.saturating_mul(LONGEST_RESULTS_MAX);
        self.token_room = None;
    }

    /// Reads a call's arguments and says how it can run.
    pub(super) fn offer(&mut self, call: &ToolCall) -> Manner {
        let (offered, manner) = match self.prepare(call) {
            Ok(offered) => {
                let manner = match offered.spec.pace {
                    Pace::Parallel | Pace::Waiting => Manner::Parallel,
                    Pace::Ordered => Manner::Ordered,
                };
                (Some(offered), manner)
            }
            Err(why) => (None, Manner::Unusable(why)),
        };
        self.offered.push(offered);
        manner
    }

    fn prepare(&self, call: &ToolCall) -> Result<Offered, String> {
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
        let scene = Scene {
            agent: &self.shared.id,
            cwd: &own.cwd,
            relation_to: &kinship,
            preset_inheritance: &preset_lineage,
        };
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| tool.prepare(&call.arguments, &scene)));
        let call = prepared.unwrap_or_else(|_| Err("Internal error: the tool panicked".to_owned()))?;
        Ok(Offered { spec: Arc::clone(tool.spec()), call })
    }

    /// Begins a call, if the agent may make it now.
    pub(super) fn begin(&mut self, place: usize, call: &ToolCall) -> Begun {
        let Some(Offered { spec, call: prepared }) = self.offered.get_mut(place).and_then(Option::take)
        else {
            return Begun::Over(ToolOutcome::Failed(format!("Unknown tool: {}", call.name)));
        };
        let mut effects = vec![Effect::Use(Arc::clone(&spec.name))];
        match std::panic::catch_unwind(AssertUnwindSafe(|| prepared.effects())) {
            Ok(more) => effects.extend(more),
            Err(panic) => return Begun::Over(panicked(&spec.name, panic.as_ref())),
        }
        if let Err(denied) = self.shared.authorize_tool(&spec.name, &effects) {
            return Begun::Over(denied);
        }
        if !self.shared.node.try_consume(Resource::ToolCalls, 1) {
            return Begun::Spent(Resource::ToolCalls);
        }
        tracing::debug!(tool = %spec.name, "running a tool");
        self.running.push(run(place, &spec, prepared, effects, Arc::clone(&self.shared)));
        self.places.push(place);
        if spec.pace == Pace::Waiting { Begun::WaitsForOthers(spec.class) } else { Begun::Runs(spec.class) }
    }

    /// The next call that is done. Never returns while none runs.
    pub(super) async fn next(&mut self) -> (usize, ToolOutcome) {
        match self.running.next().await {
            Some((place, outcome)) => {
                self.places.retain(|running| *running != place);
                tracing::debug!(outcome = outcome.word(), "a tool is done");
                let outcome = self.shared_out(bounded(outcome, self.room));
                self.room = self.room.saturating_sub(outcome.text().len());
                (place, outcome)
            }
            None => std::future::pending().await,
        }
    }

    /// A result that is longer than its share of what the model can take is cut in its middle; the whole is put aside for
    /// the model to read on.
    fn shared_out(&mut self, outcome: ToolOutcome) -> ToolOutcome {
        let share = self.shared.result_share();
        if share == 0 {
            return outcome;
        }
        let room = self.token_room.unwrap_or(share * SHARES_MAX);
        let tokens_max = share.min(room).max(SHARE_TOKENS_MIN);
        let outcome = match outcome {
            ToolOutcome::Done(text) => ToolOutcome::Done(self.shared.cut_result(text, tokens_max)),
            ToolOutcome::Failed(text) => ToolOutcome::Failed(self.shared.cut_result(text, tokens_max)),
            ToolOutcome::Denied(text) => ToolOutcome::Denied(text),
        };
        let tokens = self.shared.provider.count(outcome.text());
        self.token_room = Some(room.saturating_sub(tokens));
        outcome
    }

    /// Ends what runs.
    pub(super) fn stop(&mut self) {
        self.places.clear();
        self.running.clear();
    }

    /// Ends what runs for want of a budget, and says so for each.
    pub(super) fn give_up(&mut self, resource: Resource) -> Vec<TurnEvent> {
        let text = format!("Stopped: the budget of {resource} is used up");
        let given_up = |place| TurnEvent::ToolDone(place, ToolOutcome::Failed(text.clone()));
        let events = self.places.drain(..).map(given_up).collect();
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

fn run(
    place: usize,
    spec: &ToolSpec,
    call: Box<dyn Prepared>,
    effects: Vec<Effect>,
    shared: Arc<Shared>,
) -> Doing<'static, (usize, ToolOutcome)> {
    let (time_ms_max, bytes_max) = (spec.time_ms_max, shared.limits.tool_result_bytes_max);
    let (name, tool) = (Arc::clone(&spec.name), Arc::clone(&spec.name));
    let work = async move {
        // Asked again: others may have had their turn since the call was let in, and taken a right away.
        let permit = match shared.authorize_tool(&tool, &effects) {
            Ok(permit) => permit,
            Err(denied) => return denied,
        };
        let peers = Arc::new(PeersOf::new(&shared));
        // Called within, so that a panic in it is the tool's too.
        let results: Arc<dyn Results> = match shared.pool.upgrade() {
            Some(pool) => Arc::new(ResultsOf { spool: Arc::clone(&pool.spool), agent: shared.node.serial }),
            None => return ToolOutcome::Failed("Server shutting down".to_owned()),
        };
        let outcome = call.run(Leave { permit, peers, results }).await;
        if let ToolOutcome::Denied(text) = &outcome {
            audit::record_denied_tool(&shared, &tool, "tool", text);
        }
        outcome
    };
    Box::pin(async move {
        let running = AssertUnwindSafe(Work { doing: Some(Box::pin(work)) }).catch_unwind();
        let outcome = match tokio::time::timeout(Duration::from_millis(time_ms_max), running).await {
            Ok(Ok(outcome)) => bounded(outcome, bytes_max),
            Ok(Err(panic)) => panicked(&name, panic.as_ref()),
            Err(_) => ToolOutcome::Failed(format!("Timeout after {} seconds", time_ms_max.div_ceil(1000))),
        };
        (place, outcome)
    })
}

/// A tool at work. A panic when it is dropped is the tool's: it must neither keep its neighbours from being dropped nor
/// take the agent's task with it.
struct Work {
    doing: Option<Doing<'static, ToolOutcome>>,
}

impl Future for Work {
    type Output = ToolOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ToolOutcome> {
        match &mut self.doing {
            Some(doing) => doing.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let doing = self.doing.take();
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(doing))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "a tool panicked when it was dropped");
        }
    }
}

fn panicked(name: &str, panic: &(dyn Any + Send)) -> ToolOutcome {
    tracing::error!(tool = name, panic = panic_text(panic), "a tool panicked");
    ToolOutcome::Failed("Internal error: the tool panicked".to_owned())
}

/// A result that a model can be shown.
fn bounded(outcome: ToolOutcome, bytes_max: usize) -> ToolOutcome {
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
