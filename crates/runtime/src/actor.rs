//! One task owns one live agent: it takes commands at any time, and runs one turn at a time, first come first served.
//! What a turn does with the model is in [`perform`].

mod perform;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use agent::outside::Clock;
use agent::{Fault, FaultKind, Message, RequestId, TurnEnd, TurnOutcome};
use tokio::sync::{mpsc, oneshot};

use self::perform::Performance;
use crate::handle::{NewMessage, Shared};
use crate::turnstile::Place;

/// What an agent's task can be told.
pub(crate) enum Command {
    /// Work on a message.
    Send { message: NewMessage, reply: oneshot::Sender<Result<TurnEnd, Fault>>, place: Place },
    /// End a send of this name.
    Cancel { request_id: RequestId, reply: oneshot::Sender<bool> },
    /// End the agent.
    End { reply: oneshot::Sender<()> },
}

/// A send that waits or runs.
struct Open {
    message: NewMessage,
    reply: oneshot::Sender<Result<TurnEnd, Fault>>,
    _place: Place,
}

impl Open {
    /// A caller that went away does not want the answer; that is its right.
    fn answer(self, answer: Result<TurnEnd, Fault>) {
        let _ = self.reply.send(answer);
    }

    fn answer_cancelled(self) {
        let end = TurnEnd {
            outcome: TurnOutcome::Cancelled,
            content: String::new(),
            usage: None,
            rounds: 0,
            halted: false,
        };
        self.answer(Ok(end));
    }
}

/// The task's state.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Box<Command>>,
    waiting: VecDeque<Open>,
    clock: Arc<dyn Clock>,
    end_reply: Option<oneshot::Sender<()>>,
}

/// What a command means for the turn under way.
enum Interrupt {
    Nothing,
    Cancel,
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: mpsc::Receiver<Box<Command>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { shared, inbox, waiting: VecDeque::new(), clock, end_reply: None }
    }

    /// Runs until the agent is ended.
    pub(crate) async fn run(mut self) {
        loop {
            let flow = match self.waiting.pop_front() {
                Some(open) => self.serve(open).await,
                None => match self.inbox.recv().await {
                    Some(command) => self.take(*command, None).map_continue(|_| ()),
                    None => ControlFlow::Break(()),
                },
            };
            if flow.is_break() {
                break;
            }
        }
        self.dismiss();
    }

    /// Answers whoever still waits, then says that the task has ended.
    fn dismiss(mut self) {
        self.inbox.close();
        while let Ok(command) = self.inbox.try_recv() {
            let _ = self.take(*command, None);
        }
        for open in self.waiting.drain(..) {
            open.answer_cancelled();
        }
        tracing::debug!("agent ended");
        if let Some(reply) = self.end_reply {
            let _ = reply.send(());
        }
    }

    /// Takes a command; `running` is the send whose turn is under way.
    fn take(&mut self, command: Command, running: Option<&RequestId>) -> ControlFlow<(), Interrupt> {
        match command {
            Command::Send { message, reply, place } => {
                self.accept(Open { message, reply, _place: place }, running);
                ControlFlow::Continue(Interrupt::Nothing)
            }
            Command::Cancel { request_id, reply } => {
                let interrupt = self.cancel(&request_id, running);
                let _ = reply.send(interrupt.is_some());
                ControlFlow::Continue(interrupt.unwrap_or(Interrupt::Nothing))
            }
            Command::End { reply } => {
                self.end_reply = Some(reply);
                ControlFlow::Break(())
            }
        }
    }

    fn accept(&mut self, open: Open, running: Option<&RequestId>) {
        let name = &open.message.request_id;
        let taken =
            running == Some(name) || self.waiting.iter().any(|other| other.message.request_id == *name);
        if taken {
            let text = format!("request_id is already in use by an open send: {name}");
            open.answer(Err(Fault::new(FaultKind::Invalid, text)));
        } else {
            self.waiting.push_back(open);
        }
    }

    /// None when there is no send of that name.
    fn cancel(&mut self, name: &RequestId, running: Option<&RequestId>) -> Option<Interrupt> {
        if running == Some(name) {
            return Some(Interrupt::Cancel);
        }
        let place = self.waiting.iter().position(|open| open.message.request_id == *name)?;
        self.waiting.remove(place)?.answer_cancelled();
        Some(Interrupt::Nothing)
    }

    /// Runs one turn to its end, taking commands all the while.
    async fn serve(&mut self, open: Open) -> ControlFlow<()> {
        let running = open.message.request_id.clone();
        let (slot, flow) = self.claim_slot(&running).await;
        let Some(_slot) = slot else {
            open.answer_cancelled();
            return flow;
        };
        let message = Message::user(open.message.text.clone(), open.message.source.clone());
        let mut performance = Performance::begin(Arc::clone(&self.shared), Arc::clone(&self.clock), message);
        let mut flow = ControlFlow::Continue(());
        let shared = Arc::clone(&self.shared);
        let end = loop {
            let ended = tokio::select! {
                biased;
                () = shared.turnstile.abort.cancelled() => performance.cancel(),
                command = self.inbox.recv() => match command.map(|command| self.take(*command, Some(&running))) {
                    Some(ControlFlow::Continue(Interrupt::Nothing)) => None,
                    Some(ControlFlow::Continue(Interrupt::Cancel)) => performance.cancel(),
                    Some(ControlFlow::Break(())) | None => {
                        flow = ControlFlow::Break(());
                        performance.cancel()
                    }
                },
                ended = performance.step() => ended,
            };
            if let Some(end) = ended {
                break end;
            }
        };
        let answer = match &end.outcome {
            TurnOutcome::Failed(fault) => Err(fault.clone()),
            TurnOutcome::Completed | TurnOutcome::Cancelled => Ok(end),
        };
        open.answer(answer);
        flow
    }

    /// Waits for a free slot among the running turns; none when the send was cancelled or the agent ended meanwhile.
    async fn claim_slot(
        &mut self,
        running: &RequestId,
    ) -> (Option<tokio::sync::OwnedSemaphorePermit>, ControlFlow<()>) {
        let shared = Arc::clone(&self.shared);
        let slots = Arc::clone(&shared.turnstile.slots);
        let mut slot = std::pin::pin!(slots.acquire_owned());
        loop {
            tokio::select! {
                biased;
                () = shared.turnstile.abort.cancelled() => return (None, ControlFlow::Continue(())),
                slot = &mut slot => return (slot.ok(), ControlFlow::Continue(())),
                command = self.inbox.recv() => match command.map(|command| self.take(*command, Some(running))) {
                    Some(ControlFlow::Continue(Interrupt::Nothing)) => {}
                    Some(ControlFlow::Continue(Interrupt::Cancel)) => return (None, ControlFlow::Continue(())),
                    Some(ControlFlow::Break(())) | None => return (None, ControlFlow::Break(())),
                },
            }
        }
    }
}
