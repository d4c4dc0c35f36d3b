//! Carries a turn's actions out: the only caller of [`Provider`](agent::outside::Provider) and of tools, which are run
//! by [`toolwork`]. How the model is asked is in [`asking`]. What the turn keeps is staged by [`keeping`] and kept before
//! anything follows from it; what it uses is paid for; and a panic on the model's side fails this turn alone.

mod commit;
mod model_call;
mod tool_calls;
mod wall_time;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::journal::{Record, TurnStage};
use agent::outside::{ModelStream, StoreFault};
use agent::permission::Resource;
use agent::{
    Fault, FaultKind, Message, MessageSource, RequestId, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits,
    TurnOutcome,
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::Instant;

use self::commit::StagedBatch;
use self::model_call::ModelCall;
use self::tool_calls::{StartedCall, ToolCalls};
use self::wall_time::WallTime;
use super::compaction_run::SummaryCall;
use super::pending_turn::PendingTurn;
use crate::handle::Shared;

/// A turn on stage.
pub(super) struct TurnDriver {
    shared: Arc<Shared>,
    turn_number: u64,
    request_id: RequestId,
    turn: Turn,
    /// What is to be done next, in order.
    pending_actions: VecDeque<TurnAction>,
    staged: StagedBatch,
    /// How the turn ends, once that is in line.
    pending_end: Option<TurnEnd>,
    awaited: Awaited,
    tools: ToolCalls,
    wall: WallTime,
    /// One of the slots for running turns; given back while the turn waits for other agents.
    slot: Option<OwnedSemaphorePermit>,
    /// Whether somebody has ended it.
    is_aborted: bool,
    /// What there was not enough of to begin.
    exhausted: Option<Resource>,
    model_call: ModelCall,
    /// When the model was asked, or last said something. A step is dropped whenever a command comes in; a timer in it
    /// would start anew each time.
    last_event_at: Instant,
}

/// How a performance is over.
pub(super) enum TurnExit {
    /// The turn has ended, and that is kept.
    Ended(TurnEnd),
    /// The daemon stops, and nobody waits for the answer: the turn goes on when it is started again.
    Suspended,
    /// The store has a turn of that name already; nothing was done.
    Duplicate,
    /// What the turn did could not be kept.
    NeedsReload(Fault),
}

type SlotAcquisition = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the turn waits for, when nothing is on its way to the store.
enum Awaited {
    /// The answer under way.
    Model(ModelStream),
    /// A summary of the older messages, before the model is asked.
    Summary(Box<SummaryCall>),
    /// The calls that run.
    Tools,
    /// A slot, to ask the model again.
    Slot(SlotAcquisition),
    /// Nothing: the turn has ended, or is just about to go on.
    Nothing,
}

impl TurnDriver {
    /// Begins a turn, or goes on with one that was begun before. Nothing happens until it is advanced.
    pub(super) fn begin(shared: Arc<Shared>, open: &PendingTurn, slot: Option<OwnedSemaphorePermit>) -> Self {
        let limits = TurnLimits {
            rounds_max: shared.limits.tool_iterations_max,
            calls_running_max: shared.limits.tools_running_max,
        };
        let mut tools = ToolCalls::new(Arc::clone(&shared));
        let mut staged = StagedBatch::default();
        let mut spent = None;
        let (turn, actions) = match &open.stage {
            TurnStage::Waiting => {
                spent = (!shared.node.try_consume(Resource::Turns, 1)).then_some(Resource::Turns);
                let (turn, mut actions) = Turn::start(open.message.to_message(), limits);
                staged.stage_begin(open, &shared);
                // The message is in the journal with the send that brought it.
                if let Some(TurnAction::Append(message)) = (!actions.is_empty()).then(|| actions.remove(0)) {
                    staged.stage_without_record(message, &shared);
                }
                (turn, actions)
            }
            TurnStage::Running(progress) => {
                staged.stage_reopen(open, &shared);
                let manners = progress.calls.iter().map(|call| tools.prepare(call)).collect();
                Turn::resume(progress.clone(), manners, limits)
            }
        };
        shared.published.write().is_working = true;
        Self {
            turn_number: open.turn,
            request_id: open.message.request_id.clone(),
            turn,
            pending_actions: actions.into(),
            staged,
            pending_end: None,
            awaited: Awaited::Nothing,
            tools,
            wall: WallTime::start(),
            shared,
            slot,
            is_aborted: false,
            exhausted: spent,
            model_call: ModelCall::default(),
            last_event_at: Instant::now(),
        }
    }

    /// Ends the turn now: the model's stream and the tools are dropped with it.
    pub(super) fn cancel(&mut self) -> Option<TurnExit> {
        self.abort(TurnEvent::Cancel);
        self.advance()
    }

    /// Cancels a turn that has not gone on yet; the next advance does it.
    pub(super) fn cancel_on_advance(&mut self) {
        self.abort(TurnEvent::Cancel);
    }

    /// Ends a turn that is not to go on; the next advance does it.
    pub(super) fn interrupt_on_advance(&mut self, why: String) {
        self.abort(TurnEvent::Interrupt(why));
    }

    /// Once is enough: what a second would say is not to be kept.
    fn abort(&mut self, event: TurnEvent) {
        if std::mem::replace(&mut self.is_aborted, true) {
            return;
        }
        self.drop_stream();
        self.tools.stop();
        let actions = self.turn.handle(event);
        // What was still to be begun is not; what was still to be kept is, and so is an end that had come before.
        self.pending_actions.retain(|action| matches!(action, TurnAction::Append(_) | TurnAction::End(_)));
        self.pending_actions.extend(actions);
    }

    /// Ends the turn of an agent that is gone: there is nobody to keep anything for.
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

    /// Leaves the turn to whoever starts the daemon again.
    pub(super) fn suspend(&mut self) -> TurnExit {
        self.drop_stream();
        self.tools.stop();
        TurnExit::Suspended
    }

    /// Whether the turn is about to end: nothing can change how.
    pub(super) fn is_ending(&self) -> bool {
        self.is_aborted || self.pending_end.is_some()
    }

    /// Whether the store knows of the turn.
    pub(super) fn is_turn_committed(&self) -> bool {
        self.staged.is_turn_committed()
    }

    /// Adds a word, and gives it to be kept; none when the turn has enough of them.
    pub(super) fn steer(&mut self, text: String, source: MessageSource) -> Option<Message> {
        if !self.turn.accepts_steers() || !self.is_turn_committed() {
            return None;
        }
        let message = Message::user(text, source);
        // A word is only put aside; nothing follows from it yet.
        self.pending_actions.extend(self.turn.handle(TurnEvent::Steer(message.clone())));
        Some(message)
    }

    /// Waits for what comes next and does what follows from it. Safe to drop and call again.
    pub(super) async fn step(&mut self) -> Option<TurnExit> {
        // A model that never pauses must not keep the thread from whoever wants to cancel it. Comes first, where
        // dropping the step loses nothing.
        tokio::task::consume_budget().await;
        if self.staged.is_enqueued() {
            let kept = self.staged.committed().await;
            return self.on_commit(kept);
        }
        let left = self.wall.remaining(&self.shared.node);
        let event = match left {
            None => self.next_event().await,
            Some(left) => match tokio::time::timeout(left, self.next_event()).await {
                Ok(event) => event,
                Err(_) if self.wall.remaining(&self.shared.node) == Some(Duration::ZERO) => {
                    return self.on_wall_time_exhausted();
                }
                // More was granted meanwhile.
                Err(_) => return None,
            },
        };
        self.wall.debit(&self.shared.node);
        self.last_event_at = Instant::now();
        match event {
            Some(event) => self.apply(event),
            // The slot has come, or the context was made shorter: what was used up meanwhile counts.
            None => self.pending_actions.push_front(TurnAction::CallModel),
        }
        self.advance()
    }

    /// What was in line is kept, or it is not.
    fn on_commit(&mut self, kept: Result<(), StoreFault>) -> Option<TurnExit> {
        match kept {
            Ok(()) => {
                self.staged.publish(&self.shared);
                match self.pending_end.take() {
                    Some(end) => {
                        self.publish_end(&end);
                        Some(TurnExit::Ended(end))
                    }
                    None => self.advance(),
                }
            }
            Err(fault) => {
                self.drop_stream();
                self.tools.stop();
                self.shared.published.write().is_working = false;
                self.shared.reset_message_count();
                Some(match fault {
                    StoreFault::DuplicateRequestId if !self.is_turn_committed() => {
                        if self.exhausted.is_none() {
                            self.shared.node.reverse_consumption(Resource::Turns, 1);
                        }
                        TurnExit::Duplicate
                    }
                    // Somebody has destroyed the agent: there is nobody to keep anything for.
                    StoreFault::NotFound => TurnExit::Ended(self.abandon()),
                    fault => TurnExit::NeedsReload(fault.into()),
                })
            }
        }
    }

    /// Does what is to be done, up to where something has to be kept first or waited for.
    pub(super) fn advance(&mut self) -> Option<TurnExit> {
        while !self.staged.is_enqueued() {
            let Some(action) = self.pending_actions.pop_front() else { break };
            match action {
                TurnAction::Append(message) => self.staged.stage(message, &self.shared),
                TurnAction::RunTool(place, call) => self.start_tool(place, &call),
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
        None
    }

    fn stage_end(&mut self, end: TurnEnd) {
        self.wall.debit(&self.shared.node);
        self.tools.stop();
        self.staged.stage_end(self.turn_number, &self.request_id, &end);
        self.pending_end = Some(end);
    }

    /// What runs is ended, and then the turn.
    fn on_wall_time_exhausted(&mut self) -> Option<TurnExit> {
        self.wall.debit(&self.shared.node);
        self.drop_stream();
        self.apply(TurnEvent::BudgetExhausted(Resource::WallMs));
        for event in self.tools.stop_for_budget(Resource::WallMs) {
            self.apply(event);
        }
        self.advance()
    }

    /// Drops the stream. A panic on its way out is the model's; it must not take the agent's task with it.
    fn drop_stream(&mut self) {
        let awaited = std::mem::replace(&mut self.awaited, Awaited::Nothing);
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(awaited))) {
            tracing::warn!(
                panic = panic_text(panic.as_ref()),
                "the model's stream panicked when it was dropped"
            );
        }
    }

    /// None when the model is to be asked now.
    async fn next_event(&mut self) -> Option<TurnEvent> {
        match &mut self.awaited {
            Awaited::Model(_) => self.next_model_event().await,
            Awaited::Summary(folding) => {
                let step = folding.next().await;
                self.on_summary_step(step)
            }
            Awaited::Tools => {
                let (place, outcome) = self.tools.next_outcome().await;
                Some(TurnEvent::ToolDone(place, outcome))
            }
            Awaited::Slot(claim) => {
                // The slots are never closed; if they were, the turn would go on without one.
                self.slot = claim.await.ok();
                None
            }
            Awaited::Nothing => Some(TurnEvent::ModelFailed(stream_ended())),
        }
    }

    fn apply(&mut self, event: TurnEvent) {
        let done = match &event {
            TurnEvent::ToolDone(place, outcome) => Some((*place, outcome.clone())),
            _ => None,
        };
        let actions = self.turn.handle(event);
        // With the last of them all results come into the context: until then each is kept by itself.
        if let Some((place, outcome)) = done
            && !actions.iter().any(|action| matches!(action, TurnAction::Append(_)))
        {
            self.staged.stage_record(Record::CallDone { turn: self.turn_number, index: place, outcome });
        }
        self.pending_actions.extend(actions);
    }

    fn start_tool(&mut self, place: usize, call: &agent::ToolCall) {
        self.awaited = Awaited::Tools;
        match self.tools.start(place, call) {
            StartedCall::Running(class) => self.stage_call_begun(place, call, class),
            // Whoever it waits for may need the slot.
            StartedCall::WaitingForAgents(class) => {
                self.slot = None;
                self.stage_call_begun(place, call, class);
            }
            StartedCall::Finished(outcome) => self.apply(TurnEvent::ToolDone(place, outcome)),
            StartedCall::BudgetExhausted(resource) => {
                self.apply(TurnEvent::BudgetExhausted(resource));
                let outcome = agent::ToolOutcome::Failed(agent::budget_exhausted_result(resource));
                self.apply(TurnEvent::ToolDone(place, outcome));
            }
        }
    }

    /// A call does not run before it is kept that it may.
    fn stage_call_begun(&mut self, place: usize, call: &agent::ToolCall, class: agent::ToolClass) {
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        self.staged.stage_record(Record::CallBegun {
            turn: self.turn_number,
            index: place,
            call_id,
            tool,
            class,
        });
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

fn stream_ended() -> Fault {
    let text = "Streaming response was interrupted before completion: the stream ended. \
                Partial output may have been displayed; retry the request.";
    Fault::new(FaultKind::Model, text)
}

fn turn_panicked(panic: &(dyn Any + Send)) -> Fault {
    Fault::new(FaultKind::Internal, "Internal error: the turn panicked").caused_by(panic_text(panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
