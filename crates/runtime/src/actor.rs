//! One task owns one live agent: it takes commands at any time, and runs one turn at a time, first come first served.
//! What a turn does with the model is in [`perform`].

mod perform;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use agent::outside::Clock;
use agent::{Fault, FaultKind, Message, RequestId, Source, TurnEnd, TurnOutcome};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::DropGuard;

use self::perform::Performance;
use crate::handle::{NewMessage, Shared};
use crate::turnstile::Place;

/// What an agent's task can be told.
pub(crate) enum Command {
    /// Work on a message.
    Send { message: NewMessage, reply: oneshot::Sender<Result<TurnEnd, Fault>>, place: Place },
    /// End a send of this name.
    Cancel { request_id: RequestId, reply: oneshot::Sender<bool> },
    /// Add a word to the turn under way.
    Steer { text: String, source: Source, reply: oneshot::Sender<Option<RequestId>> },
}

/// A send that waits or runs.
struct Open {
    message: NewMessage,
    reply: oneshot::Sender<Result<TurnEnd, Fault>>,
    place: Place,
}

impl Open {
    /// The place is free before the answer is out: whoever gets it may send again at once. A caller that went away
    /// does not want the answer; that is its right.
    fn answer(self, answer: Result<TurnEnd, Fault>) {
        drop(self.place);
        let _ = self.reply.send(answer);
    }

    fn answer_cancelled(self) {
        self.answer(Ok(TurnEnd::unbegun()));
    }
}

/// The task's state.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Box<Command>>,
    waiting: VecDeque<Open>,
    clock: Arc<dyn Clock>,
    /// The last to go: tells whoever waits for the task's end, also when it ends by a panic.
    _ended: DropGuard,
}

/// What a command means for the turn under way.
enum Interrupt {
    Nothing,
    Cancel,
    Steer { text: String, source: Source, reply: oneshot::Sender<Option<RequestId>> },
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: mpsc::Receiver<Box<Command>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ended = shared.ended.clone().drop_guard();
        Self { shared, inbox, waiting: VecDeque::new(), clock, _ended: ended }
    }

    /// Runs until the agent is ended, or nobody knows of it any more.
    pub(crate) async fn run(mut self) {
        loop {
            let flow = match self.waiting.pop_front() {
                // Boxed: most agents rest most of the time, and a resting task should be small.
                Some(open) => Box::pin(self.serve(open)).await,
                None => self.rest().await,
            };
            if flow.is_break() {
                break;
            }
        }
        self.dismiss().await;
    }

    /// Waits for a command.
    async fn rest(&mut self) -> ControlFlow<()> {
        tokio::select! {
            biased;
            () = self.shared.ending.cancelled() => ControlFlow::Break(()),
            command = self.inbox.recv() => match command {
                Some(command) => {
                    self.take(*command, None);
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            },
        }
    }

    /// Answers whoever still waits. A sender may have its place in the inbox without having put its command there yet;
    /// only receiving to the end waits for it.
    async fn dismiss(&mut self) {
        self.inbox.close();
        while let Some(command) = self.inbox.recv().await {
            self.take(*command, None);
        }
        for open in self.waiting.drain(..) {
            open.answer_cancelled();
        }
        tracing::debug!("agent ended");
    }

    /// Takes a command; `running` is the send whose turn is under way.
    fn take(&mut self, command: Command, running: Option<&RequestId>) -> Interrupt {
        match command {
            Command::Send { message, reply, place } => {
                self.accept(Open { message, reply, place }, running);
                Interrupt::Nothing
            }
            Command::Cancel { request_id, reply } => {
                let interrupt = self.cancel(&request_id, running);
                let _ = reply.send(interrupt.is_some());
                interrupt.unwrap_or(Interrupt::Nothing)
            }
            Command::Steer { text, source, reply } => Interrupt::Steer { text, source, reply },
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
        let Some(slot) = slot else {
            open.answer_cancelled();
            return flow;
        };
        let message = Message::user(open.message.text.clone(), open.message.source.clone());
        let (shared, clock) = (Arc::clone(&self.shared), Arc::clone(&self.clock));
        let (mut performance, mut ended) = Performance::begin(Arc::clone(&shared), clock, message, slot);
        let mut flow = ControlFlow::Continue(());
        let end = loop {
            if let Some(end) = ended {
                break end;
            }
            ended = tokio::select! {
                biased;
                () = shared.ending.cancelled() => {
                    flow = ControlFlow::Break(());
                    performance.cancel()
                }
                () = shared.turnstile.abort.cancelled() => performance.cancel(),
                command = self.inbox.recv() => match command.map(|command| self.take(*command, Some(&running))) {
                    Some(Interrupt::Nothing) => None,
                    Some(Interrupt::Cancel) => performance.cancel(),
                    Some(Interrupt::Steer { text, source, reply }) => {
                        let taken = performance.steer(text, source);
                        let _ = reply.send(taken.then(|| running.clone()));
                        None
                    }
                    None => {
                        flow = ControlFlow::Break(());
                        performance.cancel()
                    }
                },
                ended = performance.step() => ended,
            };
        };
        // The slot is free before the answer is out, like the place.
        drop(performance);
        let answer = match &end.outcome {
            TurnOutcome::Failed(fault) => Err(fault.clone()),
            TurnOutcome::Completed | TurnOutcome::Cancelled => Ok(end),
        };
        open.answer(answer);
        flow
    }

    /// Waits for a free slot among the running turns; none when the send was cancelled or the agent ended meanwhile.
    async fn claim_slot(&mut self, running: &RequestId) -> (Option<OwnedSemaphorePermit>, ControlFlow<()>) {
        let shared = Arc::clone(&self.shared);
        let slots = Arc::clone(&shared.turnstile.slots);
        let mut slot = std::pin::pin!(slots.acquire_owned());
        loop {
            tokio::select! {
                biased;
                () = shared.ending.cancelled() => return (None, ControlFlow::Break(())),
                () = shared.turnstile.abort.cancelled() => return (None, ControlFlow::Continue(())),
                slot = &mut slot => return (slot.ok(), ControlFlow::Continue(())),
                command = self.inbox.recv() => match command.map(|command| self.take(*command, Some(running))) {
                    // A turn that has not begun has no word to add to.
                    Some(Interrupt::Nothing | Interrupt::Steer { .. }) => {}
                    Some(Interrupt::Cancel) => return (None, ControlFlow::Continue(())),
                    None => return (None, ControlFlow::Break(())),
                },
            }
        }
    }
}
