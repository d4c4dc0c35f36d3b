//! Carries a turn's actions out: the only caller of [`Provider`](agent::outside::Provider). It keeps what the turn
//! keeps, and a panic on the model's side fails this turn alone.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agent::outside::{Clock, ModelEvent, ModelRequest, ModelStream};
use agent::{Fault, FaultKind, Message, ToolCall, Turn, TurnAction, TurnEnd, TurnEvent, TurnOutcome};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::handle::Shared;

/// A turn on stage.
pub(super) struct Performance {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    turn: Turn,
    /// The answer under way; none only between a model's end and the next question.
    stream: Option<ModelStream>,
    /// When the model was asked, or last said something. A step is dropped whenever a command comes in; a timer in it
    /// would start anew each time.
    heard_at: Instant,
}

impl Performance {
    pub(super) fn begin(shared: Arc<Shared>, clock: Arc<dyn Clock>, message: Message) -> Self {
        let (turn, actions) = Turn::start(message, shared.limits.tool_iterations_max);
        let mut performance = Self { shared, clock, turn, stream: None, heard_at: Instant::now() };
        // A fresh turn keeps its message and asks; it cannot end on its first actions.
        let ended = performance.carry_out(actions);
        debug_assert!(ended.is_none());
        performance
    }

    /// Ends the turn now: the model's stream is dropped with it.
    pub(super) fn cancel(&mut self) -> Option<TurnEnd> {
        self.hang_up();
        self.feed(TurnEvent::Cancel)
    }

    /// Waits for the model's next word and does what follows from it. Safe to drop and call again.
    pub(super) async fn step(&mut self) -> Option<TurnEnd> {
        // A model that never pauses must not keep the thread from whoever wants to cancel it. Comes first, where
        // dropping the step loses nothing.
        tokio::task::consume_budget().await;
        let event = self.next_event().await;
        self.heard_at = Instant::now();
        if matches!(event, TurnEvent::ModelDone | TurnEvent::ModelFailed(_)) {
            self.hang_up();
        }
        self.feed(event)
    }

    /// Drops the stream. A panic on its way out is the model's; it must not take the agent's task with it.
    fn hang_up(&mut self) {
        let stream = self.stream.take();
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(stream))) {
            tracing::warn!(
                panic = panic_text(panic.as_ref()),
                "the model's stream panicked when it was dropped"
            );
        }
    }

    async fn next_event(&mut self) -> TurnEvent {
        let idle = self.shared.limits.model_idle;
        let patience = idle.saturating_sub(self.heard_at.elapsed());
        let Some(stream) = &mut self.stream else { return TurnEvent::ModelFailed(silent()) };
        let next = AssertUnwindSafe(stream.next()).catch_unwind();
        match tokio::time::timeout(patience, next).await {
            Ok(Ok(Some(Ok(event)))) => match event {
                ModelEvent::Text(text) => TurnEvent::Text(text),
                ModelEvent::ToolCall(call) => TurnEvent::ToolCall(call),
                ModelEvent::Usage(usage) => TurnEvent::Usage(usage),
                ModelEvent::Done => TurnEvent::ModelDone,
            },
            Ok(Ok(Some(Err(fault)))) => TurnEvent::ModelFailed(fault),
            Ok(Ok(None)) => TurnEvent::ModelFailed(silent()),
            Ok(Err(panic)) => TurnEvent::ModelFailed(panicked(panic.as_ref())),
            Err(_) => TurnEvent::ModelFailed(Fault::new(
                FaultKind::Model,
                format!("API request timed out: the model was silent for {} s", idle.as_secs_f64()),
            )),
        }
    }

    fn feed(&mut self, event: TurnEvent) -> Option<TurnEnd> {
        if let TurnEvent::Usage(usage) = event {
            self.shared.published.write().used.add(usage);
        }
        let actions = self.turn.on(event);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: Vec<TurnAction>) -> Option<TurnEnd> {
        for action in actions {
            match action {
                TurnAction::Keep(message) => self.keep(message),
                TurnAction::AskModel => self.ask(),
                TurnAction::RunTools(calls) => {
                    let results = calls.iter().map(refuse).collect();
                    return self.feed(TurnEvent::ToolsDone(results));
                }
                TurnAction::End(end) => {
                    self.finish(&end);
                    return Some(end);
                }
            }
        }
        None
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
        let request = {
            let state = self.shared.published.read();
            ModelRequest { system: state.window.system().cloned(), messages: state.window.shown() }
        };
        tracing::debug!(messages = request.messages.len(), "asking the model");
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| self.shared.provider.ask(request)));
        self.stream = Some(asked.unwrap_or_else(|panic| {
            let fault = panicked(panic.as_ref());
            futures_util::stream::once(std::future::ready(Err(fault))).boxed()
        }));
        self.heard_at = Instant::now();
    }

    fn finish(&self, end: &TurnEnd) {
        let now = self.clock.now();
        let mut state = self.shared.published.write();
        state.halted = end.halted;
        state.last_rounds = end.rounds;
        state.last_action_at = Some(now);
        drop(state);
        match &end.outcome {
            TurnOutcome::Failed(fault) => {
                tracing::warn!(cause = fault.cause.as_deref().unwrap_or_default(), "turn failed: {fault}");
            }
            TurnOutcome::Completed => {
                tracing::debug!(rounds = end.rounds, halted = end.halted, "turn completed");
            }
            TurnOutcome::Cancelled => tracing::debug!(rounds = end.rounds, "turn cancelled"),
        }
    }
}

/// No tool is there to be called yet: the model is told so and can answer without.
fn refuse(call: &ToolCall) -> Message {
    Message::tool(call.id.clone(), format!("Unknown tool: {}", call.name))
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
