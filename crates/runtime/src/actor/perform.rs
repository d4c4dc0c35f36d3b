//! Carries a turn's actions out: the only caller of [`Provider`](agent::outside::Provider) and of tools, which are run
//! by [`toolwork`]. How the model is asked is in [`asking`]. What the turn keeps is staged by [`keeping`] and kept before
//! anything follows from it; what it uses is paid for; and a panic on the model's side fails this turn alone.

mod asking;
mod commit;
mod toolwork;
mod walltime;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::journal::{Record, Stage};
use agent::outside::{ModelStream, StoreFault};
use agent::permission::Resource;
use agent::{
    Fault, FaultKind, Message, RequestId, Source, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits,
    TurnOutcome,
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::Instant;

use self::asking::Asking;
use self::commit::StagedBatch;
use self::toolwork::{Begun, ToolWork};
use self::walltime::WallTime;
use super::folding::Folding;
use super::pending_turn::PendingTurn;
use crate::handle::Shared;

/// A turn on stage.
pub(super) struct Performance {
    shared: Arc<Shared>,
    number: u64,
    request_id: RequestId,
    turn: Turn,
    /// What is to be done next, in order.
    todo: VecDeque<TurnAction>,
    staged: StagedBatch,
    /// How the turn ends, once that is in line.
    ending: Option<TurnEnd>,
    awaited: Awaited,
    tools: ToolWork,
    wall: WallTime,
    /// One of the slots for running turns; given back while the turn waits for other agents.
    slot: Option<OwnedSemaphorePermit>,
    /// Whether somebody has ended it.
    is_broken_off: bool,
    /// What there was not enough of to begin.
    spent: Option<Resource>,
    asking: Asking,
    /// When the model was asked, or last said something. A step is dropped whenever a command comes in; a timer in it
    /// would start anew each time.
    heard_at: Instant,
}

/// How a performance is over.
pub(super) enum Finale {
    /// The turn has ended, and that is kept.
    Ended(TurnEnd),
    /// The daemon stops, and nobody waits for the answer: the turn goes on when it is started again.
    Left,
    /// The store has a turn of that name already; nothing was done.
    Duplicate,
    /// What the turn did could not be kept.
    Fell(Fault),
}

type SlotAcquisition = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the turn waits for, when nothing is on its way to the store.
enum Awaited {
    /// The answer under way.
    Model(ModelStream),
    /// A summary of the older messages, before the model is asked.
    Summary(Box<Folding>),
    /// The calls that run.
    Tools,
    /// A slot, to ask the model again.
    Slot(SlotAcquisition),
    /// Nothing: the turn has ended, or is just about to go on.
    Nothing,
}

impl Performance {
    /// Begins a turn, or goes on with one that was begun before. Nothing happens until it is advanced.
    pub(super) fn begin(shared: Arc<Shared>, open: &PendingTurn, slot: Option<OwnedSemaphorePermit>) -> Self {
        let limits = TurnLimits {
            rounds_max: shared.limits.tool_iterations_max,
            calls_running_max: shared.limits.tools_running_max,
        };
        let mut tools = ToolWork::new(Arc::clone(&shared));
        let mut staged = StagedBatch::default();
        let mut spent = None;
        let (turn, actions) = match &open.stage {
            Stage::Waiting => {
                spent = (!shared.node.try_consume(Resource::Turns, 1)).then_some(Resource::Turns);
                let (turn, mut actions) = Turn::start(open.message.message(), limits);
                staged.stage_begin(open, &shared);
                // The message is in the journal with the send that brought it.
                if let Some(TurnAction::Keep(message)) = (!actions.is_empty()).then(|| actions.remove(0)) {
                    staged.stage_without_record(message, &shared);
                }
                (turn, actions)
            }
            Stage::Running(progress) => {
                staged.stage_reopen(open, &shared);
                let manners = progress.calls.iter().map(|call| tools.offer(call)).collect();
                Turn::resume(progress.clone(), manners, limits)
            }
        };
        shared.published.write().is_working = true;
        Self {
            number: open.turn,
            request_id: open.message.request_id.clone(),
            turn,
            todo: actions.into(),
            staged,
            ending: None,
            awaited: Awaited::Nothing,
            tools,
            wall: WallTime::start(),
            shared,
            slot,
            is_broken_off: false,
            spent,
            asking: Asking::default(),
            heard_at: Instant::now(),
        }
    }

    /// Ends the turn now: the model's stream and the tools are dropped with it.
    pub(super) fn cancel(&mut self) -> Option<Finale> {
        self.break_off(TurnEvent::Cancel);
        self.advance()
    }

    /// Cancels a turn that has not gone on yet; the next advance does it.
    pub(super) fn give_up(&mut self) {
        self.break_off(TurnEvent::Cancel);
    }

    /// Ends a turn that is not to go on; the next advance does it.
    pub(super) fn interrupt(&mut self, why: String) {
        self.break_off(TurnEvent::Interrupt(why));
    }

    /// Once is enough: what a second would say is not to be kept.
    fn break_off(&mut self, event: TurnEvent) {
        if std::mem::replace(&mut self.is_broken_off, true) {
            return;
        }
        self.hang_up();
        self.tools.stop();
        let actions = self.turn.on(event);
        // What was still to be begun is not; what was still to be kept is, and so is an end that had come before.
        self.todo.retain(|action| matches!(action, TurnAction::Keep(_) | TurnAction::End(_)));
        self.todo.extend(actions);
    }

    /// Ends the turn of an agent that is gone: there is nobody to keep anything for.
    pub(super) fn abandon(&mut self) -> TurnEnd {
        if let Some(end) = self.ending.take() {
            return end;
        }
        self.break_off(TurnEvent::Cancel);
        let end = self.todo.drain(..).find_map(|action| match action {
            TurnAction::End(end) => Some(end),
            TurnAction::Keep(_) | TurnAction::AskModel | TurnAction::RunTool(..) => None,
        });
        self.shared.published.write().is_working = false;
        self.wall.debit(&self.shared.node);
        if let Some(pool) = self.shared.pool.upgrade() {
            drop(pool.persist_ancestor_ledgers(&self.shared.node));
        }
        end.unwrap_or_else(TurnEnd::unbegun)
    }

    /// Leaves the turn to whoever starts the daemon again.
    pub(super) fn leave(&mut self) -> Finale {
        self.hang_up();
        self.tools.stop();
        Finale::Left
    }

    /// Whether the turn is about to end: nothing can change how.
    pub(super) fn is_ending(&self) -> bool {
        self.is_broken_off || self.ending.is_some()
    }

    /// Whether the store knows of the turn.
    pub(super) fn is_turn_committed(&self) -> bool {
        self.staged.is_turn_committed()
    }

    /// Adds a word, and gives it to be kept; none when the turn has enough of them.
    pub(super) fn steer(&mut self, text: String, source: Source) -> Option<Message> {
        if !self.turn.takes_steers() || !self.is_turn_committed() {
            return None;
        }
        let message = Message::user(text, source);
        // A word is only put aside; nothing follows from it yet.
        self.todo.extend(self.turn.on(TurnEvent::Steer(message.clone())));
        Some(message)
    }

    /// Waits for what comes next and does what follows from it. Safe to drop and call again.
    pub(super) async fn step(&mut self) -> Option<Finale> {
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
                    return self.out_of_time();
                }
                // More was granted meanwhile.
                Err(_) => return None,
            },
        };
        self.wall.debit(&self.shared.node);
        self.heard_at = Instant::now();
        match event {
            Some(event) => self.feed(event),
            // The slot has come, or the context was made shorter: what was used up meanwhile counts.
            None => self.todo.push_front(TurnAction::AskModel),
        }
        self.advance()
    }

    /// What was in line is kept, or it is not.
    fn on_commit(&mut self, kept: Result<(), StoreFault>) -> Option<Finale> {
        match kept {
            Ok(()) => {
                self.staged.publish(&self.shared);
                match self.ending.take() {
                    Some(end) => {
                        self.finish(&end);
                        Some(Finale::Ended(end))
                    }
                    None => self.advance(),
                }
            }
            Err(fault) => {
                self.hang_up();
                self.tools.stop();
                self.shared.published.write().is_working = false;
                self.shared.reset_message_count();
                Some(match fault {
                    StoreFault::DuplicateRequestId if !self.is_turn_committed() => {
                        if self.spent.is_none() {
                            self.shared.node.reverse_consumption(Resource::Turns, 1);
                        }
                        Finale::Duplicate
                    }
                    // Somebody has destroyed the agent: there is nobody to keep anything for.
                    StoreFault::NotFound => Finale::Ended(self.abandon()),
                    fault => Finale::Fell(fault.into()),
                })
            }
        }
    }

    /// Does what is to be done, up to where something has to be kept first or waited for.
    pub(super) fn advance(&mut self) -> Option<Finale> {
        while !self.staged.is_enqueued() {
            let Some(action) = self.todo.pop_front() else { break };
            match action {
                TurnAction::Keep(message) => self.staged.stage(message, &self.shared),
                TurnAction::RunTool(place, call) => self.begin_tool(place, &call),
                TurnAction::AskModel if self.staged.is_empty() => self.begin_asking(),
                TurnAction::AskModel => {
                    self.todo.push_front(TurnAction::AskModel);
                    break;
                }
                TurnAction::End(end) => {
                    self.end(end);
                    break;
                }
            }
        }
        if !self.staged.is_enqueued() && !self.staged.is_empty() {
            self.staged.enqueue(&self.shared);
        }
        None
    }

    fn end(&mut self, end: TurnEnd) {
        self.wall.debit(&self.shared.node);
        self.tools.stop();
        self.staged.stage_end(self.number, &self.request_id, &end);
        self.ending = Some(end);
    }

    /// What runs is ended, and then the turn.
    fn out_of_time(&mut self) -> Option<Finale> {
        self.wall.debit(&self.shared.node);
        self.hang_up();
        self.feed(TurnEvent::BudgetSpent(Resource::WallMs));
        for event in self.tools.give_up(Resource::WallMs) {
            self.feed(event);
        }
        self.advance()
    }

    /// Drops the stream. A panic on its way out is the model's; it must not take the agent's task with it.
    fn hang_up(&mut self) {
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
            Awaited::Model(_) => self.next_word().await,
            Awaited::Summary(folding) => {
                let step = folding.next().await;
                self.summed(step)
            }
            Awaited::Tools => {
                let (place, outcome) = self.tools.next().await;
                Some(TurnEvent::ToolDone(place, outcome))
            }
            Awaited::Slot(claim) => {
                // The slots are never closed; if they were, the turn would go on without one.
                self.slot = claim.await.ok();
                None
            }
            Awaited::Nothing => Some(TurnEvent::ModelFailed(silent())),
        }
    }

    fn feed(&mut self, event: TurnEvent) {
        let done = match &event {
            TurnEvent::ToolDone(place, outcome) => Some((*place, outcome.clone())),
            _ => None,
        };
        let actions = self.turn.on(event);
        // With the last of them all results come into the context: until then each is kept by itself.
        if let Some((place, outcome)) = done
            && !actions.iter().any(|action| matches!(action, TurnAction::Keep(_)))
        {
            self.staged.stage_record(Record::CallDone { turn: self.number, place, outcome });
        }
        self.todo.extend(actions);
    }

    fn begin_tool(&mut self, place: usize, call: &agent::ToolCall) {
        self.awaited = Awaited::Tools;
        match self.tools.begin(place, call) {
            Begun::Runs(class) => self.begun(place, call, class),
            // Whoever it waits for may need the slot.
            Begun::WaitsForOthers(class) => {
                self.slot = None;
                self.begun(place, call, class);
            }
            Begun::Over(outcome) => self.feed(TurnEvent::ToolDone(place, outcome)),
            Begun::Spent(resource) => {
                self.feed(TurnEvent::BudgetSpent(resource));
                let outcome = agent::ToolOutcome::Failed(agent::spent_result(resource));
                self.feed(TurnEvent::ToolDone(place, outcome));
            }
        }
    }

    /// A call does not run before it is kept that it may.
    fn begun(&mut self, place: usize, call: &agent::ToolCall, class: agent::ToolClass) {
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        self.staged.stage_record(Record::CallBegun { turn: self.number, place, call_id, tool, class });
    }

    fn finish(&mut self, end: &TurnEnd) {
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

fn silent() -> Fault {
    let text = "Streaming response was interrupted before completion: the stream ended. \
                Partial output may have been displayed; retry the request.";
    Fault::new(FaultKind::Model, text)
}

fn panicked(panic: &(dyn Any + Send)) -> Fault {
    Fault::new(FaultKind::Internal, "Internal error: the turn panicked").caused_by(panic_text(panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
