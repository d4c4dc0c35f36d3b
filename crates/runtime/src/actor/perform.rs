//! Carries a turn's actions out: the only caller of [`Provider`](agent::outside::Provider) and of tools, which are run
//! by [`toolwork`]. It keeps what the turn keeps, pays for what the turn uses, and a panic on the model's side fails this
//! turn alone.

mod toolwork;
mod walltime;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{Clock, ModelEvent, ModelRequest, ModelStream};
use agent::permission::Resource;
use agent::{
    Fault, FaultKind, Message, Source, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits, TurnOutcome,
};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::Instant;

use self::toolwork::{Begun, ToolWork};
use self::walltime::WallTime;
use crate::handle::Shared;

/// A turn on stage.
pub(super) struct Performance {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    turn: Turn,
    awaited: Awaited,
    tools: ToolWork,
    wall: WallTime,
    /// One of the slots for running turns; given back while the turn waits for other agents.
    slot: Option<OwnedSemaphorePermit>,
    /// When the model was asked, or last said something. A step is dropped whenever a command comes in; a timer in it
    /// would start anew each time.
    heard_at: Instant,
}

type Claim = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the turn waits for.
enum Awaited {
    /// The answer under way.
    Model(ModelStream),
    /// The calls that run.
    Tools,
    /// A slot, to ask the model again.
    Slot(Claim),
    /// Nothing: the turn has ended, or is just about to go on.
    Nothing,
}

impl Performance {
    /// Begins a turn. A turn for which there is no budget ends at once.
    pub(super) fn begin(
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        message: Message,
        slot: OwnedSemaphorePermit,
    ) -> (Self, Option<TurnEnd>) {
        let limits = TurnLimits {
            rounds_max: shared.limits.tool_iterations_max,
            calls_running_max: shared.limits.tools_running_max,
        };
        let paid = shared.kin.take(Resource::Turns, 1);
        let (turn, actions) = Turn::start(message, limits);
        shared.published.write().is_working = true;
        let mut performance = Self {
            tools: ToolWork::new(Arc::clone(&shared)),
            wall: WallTime::start(),
            shared,
            clock,
            turn,
            awaited: Awaited::Nothing,
            slot: Some(slot),
            heard_at: Instant::now(),
        };
        let spent = (!paid).then_some(Resource::Turns);
        let ended = performance.carry_out(actions, spent);
        (performance, ended)
    }

    /// Ends the turn now: the model's stream and the tools are dropped with it.
    pub(super) fn cancel(&mut self) -> Option<TurnEnd> {
        self.hang_up();
        self.tools.stop();
        self.feed(TurnEvent::Cancel)
    }

    /// Adds a word; false when the turn has enough of them.
    pub(super) fn steer(&mut self, text: String, source: Source) -> bool {
        let takes = self.turn.takes_steers();
        if takes {
            // A word is only put aside; nothing follows from it yet.
            let ended = self.feed(TurnEvent::Steer(Message::user(text, source)));
            debug_assert!(ended.is_none());
        }
        takes
    }

    /// Waits for what comes next and does what follows from it. Safe to drop and call again.
    pub(super) async fn step(&mut self) -> Option<TurnEnd> {
        // A model that never pauses must not keep the thread from whoever wants to cancel it. Comes first, where
        // dropping the step loses nothing.
        tokio::task::consume_budget().await;
        let left = self.wall.left(&self.shared.kin);
        let event = match left {
            None => self.next_event().await,
            Some(left) => match tokio::time::timeout(left, self.next_event()).await {
                Ok(event) => event,
                Err(_) if self.wall.left(&self.shared.kin) == Some(Duration::ZERO) => {
                    return self.out_of_time();
                }
                // More was granted meanwhile.
                Err(_) => return None,
            },
        };
        self.wall.pay(&self.shared.kin);
        self.heard_at = Instant::now();
        match event {
            Some(event) => self.feed(event),
            None => self.ask_or_stop(),
        }
    }

    /// What runs is ended, and then the turn.
    fn out_of_time(&mut self) -> Option<TurnEnd> {
        self.wall.pay(&self.shared.kin);
        self.hang_up();
        let mut events = VecDeque::from([TurnEvent::BudgetSpent(Resource::WallMs)]);
        events.extend(self.tools.give_up(Resource::WallMs));
        self.feed_all(events)
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

    /// None when the turn has its slot again.
    async fn next_event(&mut self) -> Option<TurnEvent> {
        match &mut self.awaited {
            Awaited::Model(_) => Some(self.next_word().await),
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

    async fn next_word(&mut self) -> TurnEvent {
        let idle = self.shared.limits.model_idle;
        let patience = idle.saturating_sub(self.heard_at.elapsed());
        let Awaited::Model(stream) = &mut self.awaited else { return TurnEvent::ModelFailed(silent()) };
        let next = AssertUnwindSafe(stream.next()).catch_unwind();
        let event = match tokio::time::timeout(patience, next).await {
            Ok(Ok(Some(Ok(event)))) => match event {
                ModelEvent::Text(text) => return TurnEvent::Text(text),
                ModelEvent::Usage(usage) => return TurnEvent::Usage(usage),
                ModelEvent::ToolCall(call) => {
                    let manner = self.tools.offer(&call);
                    return TurnEvent::ToolCall(call, manner);
                }
                ModelEvent::Done => TurnEvent::ModelDone,
            },
            Ok(Ok(Some(Err(fault)))) => TurnEvent::ModelFailed(fault),
            Ok(Ok(None)) => TurnEvent::ModelFailed(silent()),
            Ok(Err(panic)) => TurnEvent::ModelFailed(panicked(panic.as_ref())),
            Err(_) => TurnEvent::ModelFailed(Fault::new(
                FaultKind::Model,
                format!("API request timed out: the model was silent for {} s", idle.as_secs_f64()),
            )),
        };
        self.hang_up();
        event
    }

    fn feed(&mut self, event: TurnEvent) -> Option<TurnEnd> {
        self.feed_all(VecDeque::from([event]))
    }

    fn feed_all(&mut self, mut events: VecDeque<TurnEvent>) -> Option<TurnEnd> {
        while let Some(event) = events.pop_front() {
            if let TurnEvent::Usage(usage) = event {
                self.shared.published.write().used.add(usage);
                self.shared.kin.record(Resource::Tokens, usage.input.saturating_add(usage.output));
            }
            for action in self.turn.on(event) {
                match action {
                    TurnAction::Keep(message) => self.keep(message),
                    TurnAction::AskModel => events.extend(self.begin_asking(None)),
                    TurnAction::RunTool(place, call) => events.extend(self.begin_tool(place, &call)),
                    TurnAction::End(end) => {
                        self.finish(&end);
                        return Some(end);
                    }
                }
            }
        }
        None
    }

    /// The first actions of a turn; `spent` is what there was not enough of to begin.
    fn carry_out(&mut self, actions: Vec<TurnAction>, spent: Option<Resource>) -> Option<TurnEnd> {
        let mut events = VecDeque::new();
        for action in actions {
            match action {
                TurnAction::Keep(message) => self.keep(message),
                TurnAction::AskModel => events.extend(self.begin_asking(spent)),
                // A turn that has not asked yet has no calls and no end.
                TurnAction::RunTool(..) | TurnAction::End(_) => {}
            }
        }
        self.feed_all(events)
    }

    /// The slot has come: what was used up meanwhile counts.
    fn ask_or_stop(&mut self) -> Option<TurnEnd> {
        let events = self.begin_asking(None);
        self.feed_all(events.into_iter().collect())
    }

    /// Asks the model, or waits for a slot to do it, or says why not.
    fn begin_asking(&mut self, spent: Option<Resource>) -> Option<TurnEvent> {
        let used_up = |resource: &Resource| self.shared.kin.left(*resource) == Some(0);
        let spent = spent.or_else(|| [Resource::Tokens, Resource::WallMs].into_iter().find(used_up));
        if let Some(resource) = spent {
            return Some(TurnEvent::BudgetSpent(resource));
        }
        if self.slot.is_some() {
            self.ask();
        } else {
            let slots = Arc::clone(&self.shared.turnstile.slots);
            self.awaited = Awaited::Slot(Box::pin(slots.acquire_owned()));
        }
        None
    }

    fn begin_tool(&mut self, place: usize, call: &agent::ToolCall) -> Vec<TurnEvent> {
        self.awaited = Awaited::Tools;
        match self.tools.begin(place, call) {
            Begun::Runs => Vec::new(),
            // Whoever it waits for may need the slot.
            Begun::WaitsForOthers => {
                self.slot = None;
                Vec::new()
            }
            Begun::Over(outcome) => vec![TurnEvent::ToolDone(place, outcome)],
            Begun::Spent(resource) => vec![
                TurnEvent::BudgetSpent(resource),
                TurnEvent::ToolDone(place, agent::ToolOutcome::Failed(agent::spent_result(resource))),
            ],
        }
    }

    fn keep(&self, message: Message) {
        tracing::info!(target: "nexus3::context", role = message.role.as_str(), text = %message.text);
        for call in &message.tool_calls {
            tracing::info!(target: "nexus3::context", role = "tool call", text = %format_args!("{}({})", call.name, call.arguments));
        }
        let now = self.clock.now();
        let mut state = self.shared.published.write();
        state.window.push(message);
        state.last_action_at = Some(now);
    }

    fn ask(&mut self) {
        self.tools.next_round();
        let tools = self.shared.visible_tools();
        let request = {
            let state = self.shared.published.read();
            ModelRequest { system: state.window.system().cloned(), messages: state.window.shown(), tools }
        };
        tracing::debug!(messages = request.messages.len(), tools = request.tools.len(), "asking the model");
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| self.shared.provider.ask(request)));
        self.awaited = Awaited::Model(asked.unwrap_or_else(|panic| {
            let fault = panicked(panic.as_ref());
            futures_util::stream::once(std::future::ready(Err(fault))).boxed()
        }));
        self.heard_at = Instant::now();
    }

    fn finish(&mut self, end: &TurnEnd) {
        self.wall.pay(&self.shared.kin);
        self.tools.stop();
        let now = self.clock.now();
        let mut state = self.shared.published.write();
        state.halted = end.halted;
        state.is_working = false;
        state.last_rounds = end.rounds;
        state.last_action_at = Some(now);
        drop(state);
        match &end.outcome {
            TurnOutcome::Failed(fault) => {
                tracing::warn!(cause = fault.cause.as_deref().unwrap_or_default(), "turn failed: {fault}");
            }
            TurnOutcome::Completed => {
                tracing::debug!(rounds = end.rounds, halted = ?end.halted, "turn completed");
            }
            TurnOutcome::Cancelled => tracing::debug!(rounds = end.rounds, "turn cancelled"),
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
