//! Turn driver: executes the actions of a turn, and debits its usage. [`model_call`] builds model requests, which
//! [`model_stream`](super::model_stream) sends, [`tool_calls`] runs tools and is the only caller of them, [`commit`]
//! persists each step before anything depends on it.

mod commit;
mod model_call;
mod tool_calls;
mod tool_output;
mod wall_time;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::journal::{ApprovalAnswer, OpenTurnState, Record};
use agent::outside::StoreFault;
use agent::permission::Resource;
use agent::{
    Fault, Message, MessageSource, RequestId, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits, TurnOutcome,
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::Instant;

use self::commit::StagedBatch;
use self::model_call::ModelCall;
use self::tool_calls::{BegunCall, CallEvent, StartedCall, ToolCalls};
use self::wall_time::WallTime;
use super::compaction_run::SummaryCall;
use super::model_stream::{GuardedStream, stream_ended};
use super::pending_turn::PendingTurn;
use crate::answer_budget::AnswerReservation;
use crate::handle::Shared;

/// A running turn.
pub(super) struct TurnDriver {
    shared: Arc<Shared>,
    turn_number: u64,
    request_id: RequestId,
    turn: Turn,
    /// Actions still to execute, in order.
    pending_actions: VecDeque<TurnAction>,
    staged: StagedBatch,
    /// End of the turn, once enqueued for commit.
    pending_end: Option<TurnEnd>,
    awaited: Awaited,
    tools: ToolCalls,
    wall: WallTime,
    /// Slot among the running turns; released while the turn waits for other agents.
    slot: Option<OwnedSemaphorePermit>,
    /// Whether the turn was cancelled or interrupted.
    is_aborted: bool,
    /// Resource whose budget did not allow the turn to start.
    exhausted: Option<Resource>,
    model_call: ModelCall,
    /// Memory of the model responses.
    answer: AnswerReservation,
    /// Time of the model call or of its last event. Not a timer inside `step`: a command drops the step, and the timer
    /// would restart each time.
    last_event_at: Instant,
}

/// Why a turn driver stopped.
pub(super) enum TurnExit {
    /// The turn ended, and its end is committed unless the agent was destroyed.
    Ended(TurnEnd),
    /// The daemon is stopping and no caller waits: the turn resumes after the restart.
    Suspended,
    /// The store already has a turn with this request id; nothing was executed.
    Duplicate,
    /// A commit failed; the agent has to reload from the store.
    NeedsReload(Fault),
}

type SlotAcquisition = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the turn waits for when no commit is in flight.
enum Awaited {
    /// The streaming model response.
    Model(GuardedStream),
    /// A summary of older messages, before the model call.
    Summary(Box<SummaryCall>),
    /// Running tool calls.
    Tools,
    /// A slot, before the next model call.
    Slot(SlotAcquisition),
    /// Nothing: the turn has ended or is about to continue.
    Nothing,
}

/// What the turn waited for.
enum DriverEvent {
    /// An input of the turn.
    Turn(TurnEvent),
    /// The model is to be called now: a slot was acquired, the context compacted, or the last request was too long.
    CallModel,
    /// The approval request of a tool call was answered.
    Answered(ApprovalAnswer),
    /// No input of the turn: the model is alive, or its output is for subscribers only.
    Nothing,
}

impl TurnDriver {
    /// Starts a turn or resumes a recovered one. Executes nothing until [`Self::advance`].
    pub(super) fn begin(
        shared: Arc<Shared>,
        pending: &PendingTurn,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let limits = TurnLimits {
            rounds_max: shared.limits.tool_iterations_max,
            calls_running_max: shared.limits.tools_running_max,
        };
        let request_id = pending.message.request_id.clone();
        let approvals = match &pending.state {
            OpenTurnState::Waiting => BTreeMap::new(),
            OpenTurnState::Running(progress) => progress.approvals.clone(),
        };
        let mut tools = ToolCalls::new(Arc::clone(&shared), pending.turn, request_id.clone(), approvals);
        let mut staged = StagedBatch::default();
        let mut exhausted = None;
        let (turn, actions) = match &pending.state {
            OpenTurnState::Waiting => {
                exhausted = (!shared.node.try_consume(Resource::Turns, 1)).then_some(Resource::Turns);
                staged.stage_begin(pending, &shared);
                Turn::start(limits)
            }
            OpenTurnState::Running(progress) => {
                staged.stage_reopen(pending, &shared);
                let schedules = progress.calls.iter().map(|call| tools.prepare(call)).collect();
                Turn::resume(progress.clone(), schedules, limits)
            }
        };
        shared.published.write().is_working = true;
        Self {
            turn_number: pending.turn,
            request_id,
            turn,
            pending_actions: actions.into(),
            staged,
            pending_end: None,
            awaited: Awaited::Nothing,
            tools,
            wall: WallTime::start(),
            answer: shared.admission.answers.open(),
            shared,
            slot,
            is_aborted: false,
            exhausted,
            model_call: ModelCall::default(),
            last_event_at: Instant::now(),
        }
    }

    /// Cancels the turn and drops its model stream and tool calls.
    pub(super) fn cancel(&mut self) {
        self.abort(TurnEvent::Cancel);
        self.advance();
    }

    /// Ends the turn as interrupted.
    pub(super) fn interrupt(&mut self, why: String) {
        self.abort(TurnEvent::Interrupt(why));
        self.advance();
    }

    /// Aborts the turn. Idempotent: a second event must not be recorded.
    fn abort(&mut self, event: TurnEvent) {
        if std::mem::replace(&mut self.is_aborted, true) {
            return;
        }
        self.drop_stream();
        self.tools.stop();
        let actions = self.turn.handle(event);
        // Drops actions not yet started; keeps messages to append and an end already reached.
        self.pending_actions.retain(|action| matches!(action, TurnAction::Append(_) | TurnAction::End(_)));
        self.pending_actions.extend(actions);
    }

    /// Ends the turn of a destroyed agent, without committing anything for it.
    pub(super) fn abandon(&mut self) -> TurnEnd {
        if let Some(end) = self.pending_end.take() {
            return end;
        }
        self.abort(TurnEvent::Cancel);
        let end = self.pending_actions.drain(..).find_map(|action| match action {
            TurnAction::End(end) => Some(end),
            TurnAction::Append(_) | TurnAction::CallModel | TurnAction::RunTool(..) => None,
        });
        self.shared.published.write().is_working = false;
        self.wall.debit(&self.shared.node);
        if let Some(pool) = self.shared.pool.upgrade() {
            drop(pool.persist_ancestor_ledgers(&self.shared.node));
        }
        end.unwrap_or_else(TurnEnd::cancelled_before_start)
    }

    /// Suspends the turn until the daemon restarts.
    pub(super) fn suspend(&mut self) -> TurnExit {
        self.drop_stream();
        self.tools.stop();
        TurnExit::Suspended
    }

    /// Whether the end of the turn is decided.
    pub(super) fn is_ending(&self) -> bool {
        self.is_aborted || self.pending_end.is_some()
    }

    /// Whether the turn is committed.
    pub(super) fn is_turn_committed(&self) -> bool {
        self.staged.is_turn_committed()
    }

    /// Adds an instruction and returns the message to commit; `None` when the turn accepts no more.
    pub(super) fn steer(&mut self, text: String, source: MessageSource) -> Option<Message> {
        if !self.turn.accepts_steers() || !self.is_turn_committed() {
            return None;
        }
        let message = Message::user(text, source);
        // The turn only buffers the instruction; no action follows yet.
        self.pending_actions.extend(self.turn.handle(TurnEvent::Steer(message.clone())));
        Some(message)
    }

    /// Waits for the next event and executes what follows; breaks at the end of the turn. Cancel safe.
    pub(super) async fn step(&mut self) -> ControlFlow<TurnExit> {
        // Yields to other tasks, so that a model that streams without pause can be cancelled. First, where dropping
        // the step loses nothing.
        tokio::task::consume_budget().await;
        if self.staged.is_enqueued() {
            let result = self.staged.committed().await;
            return self.on_commit(result);
        }
        let remaining = self.wall.remaining(&self.shared.node);
        let event = match remaining {
            None => self.next_event().await,
            Some(remaining) => match tokio::time::timeout(remaining, self.next_event()).await {
                Ok(event) => event,
                Err(_) if self.wall.remaining(&self.shared.node) == Some(Duration::ZERO) => {
                    self.on_wall_time_exhausted();
                    return ControlFlow::Continue(());
                }
                // The limit was raised meanwhile.
                Err(_) => return ControlFlow::Continue(()),
            },
        };
        self.wall.debit(&self.shared.node);
        self.last_event_at = Instant::now();
        match event {
            DriverEvent::Turn(event) => self.apply(event),
            // The action checks the budgets again.
            DriverEvent::CallModel => self.pending_actions.push_front(TurnAction::CallModel),
            DriverEvent::Answered(answer) => {
                let started = self.tools.continue_answered(&answer);
                self.on_started(answer.index, started);
            }
            DriverEvent::Nothing => {}
        }
        self.advance();
        ControlFlow::Continue(())
    }

    /// Handles the commit result of the enqueued batch.
    fn on_commit(&mut self, result: Result<(), StoreFault>) -> ControlFlow<TurnExit> {
        match result {
            Ok(()) => {
                self.staged.publish(&self.shared);
                match self.pending_end.take() {
                    Some(end) => {
                        self.publish_end(&end);
                        ControlFlow::Break(TurnExit::Ended(end))
                    }
                    None => {
                        self.advance();
                        ControlFlow::Continue(())
                    }
                }
            }
            Err(fault) => {
                self.drop_stream();
                self.tools.stop();
                self.shared.published.write().is_working = false;
                self.shared.reset_enqueued_state();
                ControlFlow::Break(match fault {
                    StoreFault::DuplicateRequestId if !self.is_turn_committed() => {
                        if self.exhausted.is_none() {
                            self.shared.node.reverse_consumption(Resource::Turns, 1);
                        }
                        TurnExit::Duplicate
                    }
                    // The agent was destroyed.
                    StoreFault::NotFound => TurnExit::Ended(self.abandon()),
                    fault => TurnExit::NeedsReload(fault.into()),
                })
            }
        }
    }

    /// Executes pending actions up to the first that needs a commit or has to wait.
    pub(super) fn advance(&mut self) {
        while !self.staged.is_enqueued() {
            let Some(action) = self.pending_actions.pop_front() else { break };
            match action {
                TurnAction::Append(message) => self.staged.stage(message, &self.shared),
                TurnAction::RunTool(index, call) => self.start_tool(index, &call),
                TurnAction::CallModel if self.staged.is_empty() => self.start_model_call(),
                TurnAction::CallModel => {
                    self.pending_actions.push_front(TurnAction::CallModel);
                    break;
                }
                TurnAction::End(end) => {
                    self.stage_end(end);
                    break;
                }
            }
        }
        if !self.staged.is_enqueued() && !self.staged.is_empty() {
            self.staged.enqueue(&self.shared);
        }
    }

    fn stage_end(&mut self, end: TurnEnd) {
        self.wall.debit(&self.shared.node);
        self.tools.stop();
        self.staged.stage_end(self.turn_number, &self.request_id, &end);
        self.pending_end = Some(end);
    }

    /// Stops running calls, then ends the turn.
    fn on_wall_time_exhausted(&mut self) {
        self.wall.debit(&self.shared.node);
        self.drop_stream();
        self.apply(TurnEvent::BudgetExhausted(Resource::WallMs));
        for event in self.tools.stop_for_budget(Resource::WallMs) {
            self.apply(event);
        }
        self.advance();
    }

    /// Drops the stream, which cancels the model request. Records the usage of a response that breaks off.
    fn drop_stream(&mut self) {
        if let Awaited::Model(stream) = &mut self.awaited
            && let Some(usage) = stream.take_unreported_usage()
        {
            self.shared.record_model_usage(usage, self.shared.provider.spec().prices);
            self.apply(TurnEvent::Usage(usage));
        }
        self.awaited = Awaited::Nothing;
    }

    async fn next_event(&mut self) -> DriverEvent {
        match &mut self.awaited {
            Awaited::Model(_) => self.next_model_event().await,
            Awaited::Summary(call) => {
                let step = call.next().await;
                self.on_summary_step(step)
            }
            Awaited::Tools => match self.tools.next_event().await {
                CallEvent::Finished(index, outcome) => DriverEvent::Turn(TurnEvent::ToolDone(index, outcome)),
                CallEvent::Answered(answer) => DriverEvent::Answered(answer),
            },
            Awaited::Slot(acquisition) => {
                // The semaphore is never closed; if it were, the turn would continue without a slot.
                self.slot = acquisition.await.ok();
                DriverEvent::CallModel
            }
            Awaited::Nothing => DriverEvent::Turn(TurnEvent::ModelFailed(stream_ended())),
        }
    }

    fn apply(&mut self, event: TurnEvent) {
        let done = match &event {
            TurnEvent::ToolDone(index, outcome) => Some((*index, outcome.clone())),
            _ => None,
        };
        let actions = self.turn.handle(event);
        // The last result appends all of them to the context; until then each is recorded on its own.
        if let Some((index, outcome)) = done
            && !actions.iter().any(|action| matches!(action, TurnAction::Append(_)))
        {
            self.staged.stage_record(Record::CallDone { turn: self.turn_number, index, outcome });
        }
        self.pending_actions.extend(actions);
    }

    fn start_tool(&mut self, index: usize, call: &agent::ToolCall) {
        self.awaited = Awaited::Tools;
        let started = self.tools.start(index, call);
        self.on_started(index, started);
    }

    fn on_started(&mut self, index: usize, started: StartedCall) {
        match started {
            StartedCall::Running(begun) => self.stage_call_begun(index, begun),
            // The agent it waits for may need the slot.
            StartedCall::WaitingForAgents(begun) => {
                self.slot = None;
                self.stage_call_begun(index, begun);
            }
            // An approval may take long, and other turns may need the slot.
            StartedCall::AwaitingApproval(request) => {
                self.slot = None;
                if let Some(request) = request {
                    self.staged.stage_record(Record::ApprovalRequested(request));
                }
            }
            StartedCall::Finished(outcome) => self.apply(TurnEvent::ToolDone(index, outcome)),
            StartedCall::BudgetExhausted(resource) => {
                self.apply(TurnEvent::BudgetExhausted(resource));
                let outcome = agent::ToolOutcome::Failed(agent::budget_exhausted_result(resource));
                self.apply(TurnEvent::ToolDone(index, outcome));
            }
        }
    }

    /// Records the start of a call; it runs only after that is committed.
    fn stage_call_begun(&mut self, index: usize, begun: BegunCall) {
        let BegunCall { call_id, tool, class } = begun;
        self.staged.stage_record(Record::CallBegun { turn: self.turn_number, index, call_id, tool, class });
    }

    fn publish_end(&mut self, end: &TurnEnd) {
        let mut state = self.shared.published.write();
        state.halted = end.halted;
        state.is_working = false;
        state.last_rounds = end.rounds;
        drop(state);
        match &end.outcome {
            TurnOutcome::Failed(fault) => {
                tracing::warn!(cause = fault.cause.as_deref().unwrap_or_default(), "turn failed: {fault}");
            }
            TurnOutcome::Completed => {
                tracing::debug!(rounds = end.rounds, halted = ?end.halted, "turn completed");
            }
            TurnOutcome::Cancelled => tracing::debug!(rounds = end.rounds, "turn cancelled"),
            TurnOutcome::Interrupted(why) => tracing::warn!("turn interrupted: {why}"),
        }
    }
}

/// The text of a panic, for the log.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
