//! Tool calls of a turn: parsed when the model emits them, authorized when they start, run concurrently. Dropping a
//! call cancels it.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent::journal::{ApprovalAnswer, ApprovalRequest, ApprovalState};
use agent::outside::{
    BoxFuture, CachedResults, CallSite, ChangeRecorder, ChangeWrite, KeyValueStore, KeyValues, Namespace,
    NewChanges, PlanKeeper, PreparedCall, Store, ToolContext, ToolOutputSink, ToolSet,
};
use agent::permission::{CallText, Decision, Denial, Effect, Grantor, Question, Resource};
use agent::{
    AgentId, Concurrency, Fault, PrincipalId, RequestId, Schedule, TodoItem, TokenCount, ToolCall, ToolClass,
    ToolOutcome, ToolSpec, TurnEvent,
};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::panic_text;
use super::tool_output::OutputPublisher;
use crate::approvals::{NewApproval, wait_for_answer};
use crate::audit;
use crate::handle::Shared;
use crate::output_cache::AgentOutputs;
use crate::peers::AgentPeers;

pub(super) struct ToolCalls {
    shared: Arc<Shared>,
    /// The turn, which events name.
    turn: u64,
    request_id: RequestId,
    /// The tools when the model was called.
    tool_set: Arc<ToolSet>,
    /// Runnable calls of the current response, by index.
    prepared: Vec<Option<CallWithSpec>>,
    /// Approval requests of the current response from before a restart, by index.
    approvals: BTreeMap<usize, ApprovalState>,
    running: FuturesUnordered<BoxFuture<'static, (usize, CallStep)>>,
    /// Indexes of the running calls, also of those that wait for an approval.
    running_indexes: Vec<usize>,
    /// Bytes left for results of the current response.
    result_bytes_left: usize,
    /// Tokens left for results of the current response; `None` before the first result.
    result_tokens_left: Option<TokenCount>,
}

/// Byte limit for all results of one response, in multiples of the limit for one.
const LONGEST_RESULTS_MAX: usize = 8;

/// Token limit for all results of one response, in multiples of the limit for one.
const SHARES_MAX: TokenCount = 2;

/// No result is truncated to less.
const SHARE_TOKENS_MIN: TokenCount = 64;

struct CallWithSpec {
    spec: Arc<ToolSpec>,
    call: Box<dyn PreparedCall>,
    /// The call as the model wrote it.
    source: Arc<ToolCall>,
}

/// What a running call arrived at.
enum CallStep {
    Finished(ToolOutcome),
    /// Its approval request was answered.
    Answered(ApprovalAnswer),
}

/// An event of the running calls.
pub(super) enum CallEvent {
    /// The call at this index finished.
    Finished(usize, ToolOutcome),
    /// The approval request of a call was answered.
    Answered(ApprovalAnswer),
}

/// A call that runs once its record is committed.
pub(super) struct BegunCall {
    pub(super) call_id: String,
    pub(super) tool: String,
    pub(super) class: ToolClass,
}

/// Outcome of starting a call.
pub(super) enum StartedCall {
    Running(BegunCall),
    /// Running, and waiting for other agents.
    WaitingForAgents(BegunCall),
    /// Waiting for an approval; the request, unless it is committed already.
    AwaitingApproval(Option<Box<ApprovalRequest>>),
    /// Finished without running.
    Finished(ToolOutcome),
    /// Not started: no budget left.
    BudgetExhausted(Resource),
}

impl ToolCalls {
    /// `approvals` are the approval requests of the response that a resumed turn continues with.
    pub(super) fn new(
        shared: Arc<Shared>,
        turn: u64,
        request_id: RequestId,
        approvals: BTreeMap<usize, ApprovalState>,
    ) -> Self {
        let tool_set = shared.tool_set();
        let mut calls = Self {
            shared,
            turn,
            request_id,
            tool_set: Arc::default(),
            prepared: Vec::new(),
            approvals: BTreeMap::new(),
            running: FuturesUnordered::new(),
            running_indexes: Vec::new(),
            result_bytes_left: 0,
            result_tokens_left: None,
        };
        calls.next_round(tool_set);
        calls.approvals = approvals;
        calls
    }

    /// Resets for the next response, whose calls may use these tools.
    pub(super) fn next_round(&mut self, tool_set: Arc<ToolSet>) {
        self.tool_set = tool_set;
        self.prepared.clear();
        self.approvals.clear();
        self.result_bytes_left = self.shared.limits.tool_result_bytes_max.saturating_mul(LONGEST_RESULTS_MAX);
        self.result_tokens_left = None;
    }

    /// Parses the arguments of a call and returns its schedule.
    pub(super) fn prepare(&mut self, call: &ToolCall) -> Schedule {
        let (prepared, schedule) = match self.prepare_call(call) {
            Ok(prepared) => {
                let schedule = match prepared.spec.concurrency {
                    Concurrency::Parallel | Concurrency::Waiting => Schedule::Parallel,
                    Concurrency::Ordered => Schedule::Ordered,
                };
                (Some(prepared), schedule)
            }
            Err(why) => (None, Schedule::Unusable(self.shared.known_secrets.redact(&why).into_owned())),
        };
        self.prepared.push(prepared);
        schedule
    }

    fn prepare_call(&self, call: &ToolCall) -> Result<CallWithSpec, String> {
        let Some(pool) = self.shared.pool.upgrade() else { return Err("Server shutting down".to_owned()) };
        let tool = self
            .tool_set
            .find(&call.name)
            .ok_or_else(|| format!("Unknown tool: {}", call.name.chars().take(64).collect::<String>()))?;
        let node = &self.shared.node;
        let relation_to = |id: &AgentId| pool.directory.relation(node.serial, id);
        let preset_inheritance = |name: Option<&str>| {
            let name = name.unwrap_or(&pool.options.preset_default);
            pool.options.presets.find(name).map(|preset| preset.inheritance.clone()).unwrap_or_default()
        };
        let site = CallSite {
            agent: &self.shared.id,
            serial: node.serial,
            cwd: &node.cwd,
            relation_to: &relation_to,
            preset_inheritance: &preset_inheritance,
        };
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| tool.prepare(&call.arguments, &site)));
        let prepared = prepared.unwrap_or_else(|_| Err("Internal error: the tool panicked".to_owned()))?;
        Ok(CallWithSpec { spec: Arc::clone(tool.spec()), call: prepared, source: Arc::new(call.clone()) })
    }

    /// Starts a call, if permissions and budget allow it now. An approval from before a restart counts.
    pub(super) fn start(&mut self, index: usize, call: &ToolCall) -> StartedCall {
        match self.approvals.remove(&index) {
            Some(ApprovalState { answer: Some(answer), .. }) => self.continue_answered(&answer),
            Some(ApprovalState { request, answer: None }) => self.start_as(index, call, None, Some(request)),
            None => self.start_as(index, call, None, None),
        }
    }

    /// Continues a call whose approval request was answered.
    pub(super) fn continue_answered(&mut self, answer: &ApprovalAnswer) -> StartedCall {
        let source =
            self.prepared.get(answer.index).and_then(Option::as_ref).map(|call| Arc::clone(&call.source));
        match source {
            Some(call) if answer.is_allowed => self.start_as(answer.index, &call, Some(answer.grantor), None),
            Some(_) => StartedCall::Finished(not_approved(answer)),
            None => StartedCall::Finished(ToolOutcome::Failed("Unknown tool".to_owned())),
        }
    }

    fn start_as(
        &mut self,
        index: usize,
        call: &ToolCall,
        approved_by: Option<Grantor>,
        committed: Option<ApprovalRequest>,
    ) -> StartedCall {
        let Some(CallWithSpec { spec, call: prepared, source }) =
            self.prepared.get_mut(index).and_then(Option::take)
        else {
            return StartedCall::Finished(ToolOutcome::Failed(format!("Unknown tool: {}", call.name)));
        };
        let mut effects: Vec<_> = Effect::of_tool(&spec).collect();
        match std::panic::catch_unwind(AssertUnwindSafe(|| prepared.effects())) {
            Ok(more) => effects.extend(more),
            Err(panic) => return StartedCall::Finished(tool_panicked(&spec.name, panic.as_ref())),
        }
        // A crash repeats a pure call, so a write would happen twice.
        if spec.class == ToolClass::Pure && effects.iter().any(Effect::is_write) {
            tracing::error!(tool = %spec.name, "call refused: the tool is declared pure, but it writes");
            let text = "Internal error: the tool is declared pure, but it writes";
            return StartedCall::Finished(ToolOutcome::Failed(text.to_owned()));
        }
        let authorization = CallAuthorization { tool: Arc::clone(&spec.name), source, effects, approved_by };
        match self.shared.authorize_call(&authorization) {
            Decision::Allowed(_) => {}
            Decision::Denied(denial) => {
                return StartedCall::Finished(self.shared.denied_outcome(&authorization.tool, &denial));
            }
            Decision::Ask(question) => {
                let source = authorization.source;
                self.prepared[index] = Some(CallWithSpec { spec, call: prepared, source });
                return self.ask(index, question, committed);
            }
        }
        if !self.shared.node.try_consume(Resource::ToolCalls, 1) {
            return StartedCall::BudgetExhausted(Resource::ToolCalls);
        }
        tracing::debug!(tool = %spec.name, "running tool");
        let output =
            OutputPublisher::new(Arc::clone(&self.shared), self.request_id.clone(), self.turn, &call.id);
        self.running.push(run_call(index, &spec, prepared, authorization, Arc::new(output)));
        self.running_indexes.push(index);
        let begun = BegunCall { call_id: call.id.clone(), tool: call.name.clone(), class: spec.class };
        if spec.concurrency == Concurrency::Waiting {
            StartedCall::WaitingForAgents(begun)
        } else {
            StartedCall::Running(begun)
        }
    }

    /// Lets a call wait for an approval. The request is open once its record is committed.
    fn ask(&mut self, index: usize, question: Question, committed: Option<ApprovalRequest>) -> StartedCall {
        let Some(Some(CallWithSpec { spec, source, .. })) = self.prepared.get(index) else {
            return StartedCall::Finished(ToolOutcome::Failed("Unknown tool".to_owned()));
        };
        let new = NewApproval { turn: self.turn, index, call: source, tool: &spec.name, question: &question };
        let (request, record) = match committed {
            Some(request) => (request, None),
            None => match self.shared.new_approval(&new) {
                Ok(request) => (request.clone(), Some(Box::new(request))),
                Err(fault) => return StartedCall::Finished(ToolOutcome::Failed(fault.to_string())),
            },
        };
        tracing::info!(tool = %spec.name, approval = request.id, "waiting for approval: {}", request.reason);
        let shared = Arc::clone(&self.shared);
        self.running.push(Box::pin(async move {
            (index, CallStep::Answered(wait_for_answer(shared, request, question).await))
        }));
        self.running_indexes.push(index);
        StartedCall::AwaitingApproval(record)
    }

    /// Waits for the next event of a running call. Pends forever while none is running.
    pub(super) async fn next_event(&mut self) -> CallEvent {
        let Some((index, step)) = self.running.next().await else { return std::future::pending().await };
        self.running_indexes.retain(|running| *running != index);
        let outcome = match step {
            CallStep::Answered(answer) => return CallEvent::Answered(answer),
            CallStep::Finished(outcome) => outcome,
        };
        tracing::debug!(outcome = outcome.name(), "tool finished");
        let outcome = self.fit_to_share(truncate_outcome(outcome, self.result_bytes_left));
        self.result_bytes_left = self.result_bytes_left.saturating_sub(outcome.text().len());
        CallEvent::Finished(index, outcome)
    }

    /// Truncates a result in its middle if it exceeds its share of the window; caches the full text for the model to
    /// read.
    fn fit_to_share(&mut self, outcome: ToolOutcome) -> ToolOutcome {
        let share = self.shared.result_tokens_max();
        if share == 0 {
            return outcome;
        }
        let tokens_left = self.result_tokens_left.unwrap_or(share * SHARES_MAX);
        let tokens_max = share.min(tokens_left).max(SHARE_TOKENS_MIN);
        let outcome = match outcome {
            ToolOutcome::Done(text) => ToolOutcome::Done(self.shared.truncate_result(text, tokens_max)),
            ToolOutcome::Failed(text) => ToolOutcome::Failed(self.shared.truncate_result(text, tokens_max)),
            ToolOutcome::Denied(text) => ToolOutcome::Denied(text),
        };
        let tokens = self.shared.provider.count(outcome.text());
        self.result_tokens_left = Some(tokens_left.saturating_sub(tokens));
        outcome
    }

    /// Cancels all running calls.
    pub(super) fn stop(&mut self) {
        self.running_indexes.clear();
        self.running.clear();
    }

    /// Cancels all running calls on an exhausted budget and returns a failure event for each.
    pub(super) fn stop_for_budget(&mut self, resource: Resource) -> Vec<TurnEvent> {
        let text = format!("Stopped: the budget of {resource} is used up");
        let failed = |index| TurnEvent::ToolDone(index, ToolOutcome::Failed(text.clone()));
        let events = self.running_indexes.drain(..).map(failed).collect();
        self.stop();
        events
    }
}

/// A call and who approved it, for the decision whether it runs.
struct CallAuthorization {
    tool: Arc<str>,
    source: Arc<ToolCall>,
    effects: Vec<Effect>,
    approved_by: Option<Grantor>,
}

/// The outcome of a call that was not approved.
fn not_approved(answer: &ApprovalAnswer) -> ToolOutcome {
    let note = answer.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    ToolOutcome::Denied(match answer.by {
        PrincipalId::Auto => format!("Permission denied: the call was not approved{note}"),
        _ => format!("Permission denied: the call was denied when asked for{note}"),
    })
}

impl Shared {
    fn authorize_call(&self, authorization: &CallAuthorization) -> Decision {
        let CallAuthorization { tool, source, effects, approved_by } = authorization;
        let call = CallText { tool, arguments: &source.arguments };
        self.review_call(effects, call, *approved_by)
    }

    /// Records a denial and returns it as the tool's outcome.
    fn denied_outcome(&self, tool: &str, denial: &Denial) -> ToolOutcome {
        let text = self.known_secrets.redact(&denial.text);
        audit::record_denied_tool(self, tool, denial.dimension.name(), &text);
        ToolOutcome::Denied(format!("Permission denied: {text}"))
    }

    /// Removes known secrets from an outcome: before it is truncated, cached, recorded or sent to the model.
    fn redact_outcome(&self, outcome: ToolOutcome) -> ToolOutcome {
        outcome.map_text(|text| match self.known_secrets.redact(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => clean,
        })
    }
}

fn run_call(
    index: usize,
    spec: &ToolSpec,
    call: Box<dyn PreparedCall>,
    authorization: CallAuthorization,
    output: Arc<OutputPublisher>,
) -> BoxFuture<'static, (usize, CallStep)> {
    let shared = Arc::clone(&output.shared);
    let (time_ms_max, bytes_max) = (spec.time_ms_max, shared.limits.tool_result_bytes_max);
    let (name, tool) = (Arc::clone(&spec.name), Arc::clone(&spec.name));
    let work = async move {
        // Authorized again: a permission may have been revoked since the call was started.
        let permit = match shared.authorize_call(&authorization) {
            Decision::Allowed(permit) => permit,
            Decision::Denied(denial) => return shared.denied_outcome(&tool, &denial),
            Decision::Ask(question) => return shared.denied_outcome(&tool, &question.into_denial()),
        };
        let peers = Arc::new(AgentPeers::new(&shared));
        let results: Arc<dyn CachedResults> = match shared.pool.upgrade() {
            Some(pool) => {
                Arc::new(AgentOutputs { cache: Arc::clone(&pool.output_cache), agent: shared.node.serial })
            }
            None => return ToolOutcome::Failed("Server shutting down".to_owned()),
        };
        // Called inside the guarded future, so that a panic counts as the tool's.
        let store: Arc<dyn KeyValueStore> = Arc::<dyn Store>::clone(&shared.store);
        let context = ToolContext {
            agent: shared.node.serial,
            permit,
            peers,
            results,
            output: Arc::clone(&output) as Arc<dyn ToolOutputSink>,
            values: KeyValues::new(store, Namespace::Tree(shared.node.root())),
            plan: Arc::new(AgentPlan(Arc::clone(&shared))),
            changes: Arc::new(AgentChanges { shared: Arc::clone(&shared), turn: output.turn }),
        };
        let outcome = shared.redact_outcome(output.publish_during(call.run(context)).await);
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
        (index, CallStep::Finished(outcome))
    })
}

/// The plan of the calling agent.
struct AgentPlan(Arc<Shared>);

impl PlanKeeper for AgentPlan {
    fn replace(&self, items: Vec<TodoItem>) -> Result<(), String> {
        self.0.published.write().staged_todo = Some(items);
        Ok(())
    }
}

/// Records the file changes of a call of the calling agent.
struct AgentChanges {
    shared: Arc<Shared>,
    turn: u64,
}

impl ChangeRecorder for AgentChanges {
    fn record(&self, changes: NewChanges) -> Result<(), String> {
        let write = ChangeWrite { agent: self.shared.node.serial, turn: self.turn, changes };
        let committed = tokio::runtime::Handle::current().block_on(self.shared.store.record_changes(write));
        committed.map_err(|fault| Fault::from(fault).to_string())
    }
}

/// Future of a running tool. A panic on drop must neither prevent other calls from being dropped nor take down the
/// actor.
struct ToolFuture {
    future: Option<BoxFuture<'static, ToolOutcome>>,
}

impl Future for ToolFuture {
    type Output = ToolOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ToolOutcome> {
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for ToolFuture {
    fn drop(&mut self) {
        let future = self.future.take();
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(future))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "tool panicked on drop");
        }
    }
}

fn tool_panicked(name: &str, panic: &(dyn Any + Send)) -> ToolOutcome {
    tracing::error!(tool = name, panic = panic_text(panic), "tool panicked");
    ToolOutcome::Failed("Internal error: the tool panicked".to_owned())
}

/// How a model gets the rest of a truncated result.
const READ_ON: &str = "call the tool for a smaller part";

/// Truncates an outcome to `bytes_max`.
fn truncate_outcome(outcome: ToolOutcome, bytes_max: usize) -> ToolOutcome {
    let truncate = |mut text: String| {
        let bytes = text.len();
        if bytes > bytes_max {
            text.truncate(text.floor_char_boundary(bytes_max));
            let shown = text.len();
            text.push_str(&format!("\n[truncated: {shown} of {bytes} bytes shown; {READ_ON}]"));
            // Results stay in memory until all calls of the response are done; frees the truncated part now.
            text.shrink_to_fit();
        }
        text
    };
    outcome.map_text(truncate)
}
