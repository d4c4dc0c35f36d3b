//! One task owns one live agent: it takes commands at any time, and runs one turn at a time, first come first served.
//! What a turn does with the model is in [`perform`], what a send is in [`open`], how sends wait in [`line`], and how
//! those that the store knows are met again in [`repeats`].

mod compact;
mod compaction_run;
mod idempotency;
mod pending_turn;
mod queue;
mod turn_driver;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use agent::journal::{Record, RestartPolicy};
use agent::outside::StoreFault;
use agent::{Fault, FaultKind, MessageSource, RequestId, TurnOutcome};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::compact::CompactionRequest;
pub use self::compact::{CompactionCondition, CompactionOutcome};
pub(crate) use self::pending_turn::PendingTurn;
use self::pending_turn::{Acceptance, CommitWaiter, Reply, commit_result, turn_result};
use self::turn_driver::{TurnDriver, TurnExit};
use crate::admission::{AdmissionPermit, busy};
use crate::handle::{NewMessage, Shared};

/// What an agent's task can be told.
pub(crate) enum Command {
    /// Work on a message.
    Send { message: NewMessage, reply: Reply, permit: AdmissionPermit, commit_waiter: Option<CommitWaiter> },
    /// End a send of this name.
    Cancel { request_id: RequestId, reply: oneshot::Sender<bool> },
    /// Add a word to the turn under way.
    Steer { text: String, source: MessageSource, reply: oneshot::Sender<Option<RequestId>> },
    /// Make the context shorter.
    Compact(CompactionRequest),
    /// Keep only the first messages.
    Rollback { messages: usize, initiator: String, reply: oneshot::Sender<Result<usize, Fault>> },
}

/// The task's state.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Box<Command>>,
    queue: VecDeque<Job>,
    /// Whether a compaction is under way.
    is_compacting: bool,
    /// Sends that were cancelled while they waited, until that is kept: a repeated one is answered after it.
    cancelling: Vec<(RequestId, CancellationToken)>,
    /// Why the agent cannot go on; it is woken again from what was kept.
    reload_cause: Option<Fault>,
    /// The last to go: tells whoever waits for the task's end, also when it ends by a panic.
    _ended: DropGuard,
}

/// What waits for its turn.
enum Job {
    Send(Box<PendingTurn>),
    Compact(CompactionRequest),
}

impl Job {
    fn as_turn_mut(&mut self) -> Option<&mut PendingTurn> {
        match self {
            Job::Send(open) => Some(open),
            Job::Compact(_) => None,
        }
    }
}

type CancelReply = oneshot::Sender<bool>;

/// How often a turn is begun, each time cut off by a stop of the daemon, before it is given up.
const TURN_ATTEMPTS_MAX: u32 = 3;

/// What a command means for the turn under way.
enum Interrupt {
    Nothing,
    Cancel(CancelReply),
    Steer { text: String, source: MessageSource, reply: oneshot::Sender<Option<RequestId>> },
}

impl Actor {
    /// `waiting` are sends that were taken before, in their order.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: mpsc::Receiver<Box<Command>>,
        waiting: VecDeque<PendingTurn>,
    ) -> Self {
        let ended = shared.ended.clone().drop_guard();
        let waiting = waiting.into_iter().map(|open| Job::Send(Box::new(open))).collect();
        Self {
            shared,
            inbox,
            queue: waiting,
            is_compacting: false,
            cancelling: Vec::new(),
            reload_cause: None,
            _ended: ended,
        }
    }

    /// Runs until the agent is ended, goes to sleep, or falls.
    pub(crate) async fn run(mut self) {
        loop {
            let flow = match self.queue.pop_front() {
                // Boxed: most agents rest most of the time, and a resting task should be small.
                Some(Job::Send(open)) => Box::pin(self.run_turn(*open)).await,
                Some(Job::Compact(compaction)) => Box::pin(self.compact(compaction)).await,
                None => self.wait_idle().await,
            };
            if flow.is_break() {
                break;
            }
        }
        self.answer_remaining().await;
    }

    /// Waits for a command; after a while, tries to go to sleep.
    async fn wait_idle(&mut self) -> ControlFlow<()> {
        let idle = self.shared.limits.idle_before_sleep;
        let tired = async {
            if idle.is_zero() { std::future::pending().await } else { tokio::time::sleep(idle).await }
        };
        let command = tokio::select! {
            biased;
            () = self.shared.end_requested.cancelled() => return ControlFlow::Break(()),
            () = self.shared.needs_reload.cancelled() => {
                let fault = StoreFault::Full("the end of a send could not be kept".to_owned());
                return self.reload(fault.into()).await;
            }
            command = self.inbox.recv() => command,
            () = tired => return self.go_to_sleep(),
        };
        match command.map(|command| *command) {
            Some(Command::Rollback { messages, initiator: by, reply }) => {
                Box::pin(self.roll_back(messages, by, reply)).await
            }
            Some(command) => {
                self.handle_command(command, None);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn go_to_sleep(&mut self) -> ControlFlow<()> {
        let pool = self.shared.pool.upgrade();
        let sleeps = pool.is_none_or(|pool| pool.directory.put_to_sleep(self.shared.node.serial));
        if sleeps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Answers whoever still waits. A sender may have its place in the inbox without having put its command there yet;
    /// only receiving to the end waits for it.
    async fn answer_remaining(&mut self) {
        self.inbox.close();
        while let Some(command) = self.inbox.recv().await {
            match *command {
                Command::Send { message, reply, permit: place, commit_waiter: kept } => {
                    let mut open = PendingTurn::new(message, place, 0).with_reply(reply);
                    open.commit_waiters.extend(kept);
                    self.queue.push_back(Job::Send(Box::new(open)));
                }
                // Whoever waits hears that nobody answers.
                Command::Cancel { .. } | Command::Steer { .. } => {}
                Command::Rollback { .. } | Command::Compact(_) => {}
            }
        }
        for job in self.queue.drain(..) {
            match (job, &self.reload_cause) {
                (Job::Send(open), Some(fault)) => open.respond(&Err(fault.clone())),
                (Job::Send(open), None) => open.respond_cancelled(),
                (Job::Compact(_), _) => {}
            }
        }
        tracing::debug!("agent ended");
    }

    /// The agent cannot keep what it does. It ends, and the next call wakes it from what was kept.
    async fn reload(&mut self, fault: Fault) -> ControlFlow<()> {
        tracing::warn!(
            cause = fault.cause.as_deref().unwrap_or_default(),
            "the agent could not keep its work: {fault}"
        );
        // What is in line is kept or refused before anybody can wake it, with the state that is true without the rest.
        self.shared.reset_message_count();
        let _ = self.shared.append(Vec::new(), |_| {}).await;
        if let Some(pool) = self.shared.pool.upgrade() {
            pool.directory.remove_live(&self.shared);
            if let FaultKind::Full { retry_after_ms } = fault.kind {
                pool.resume_later(self.shared.node.serial, Duration::from_millis(retry_after_ms));
            }
        }
        self.reload_cause = Some(fault);
        ControlFlow::Break(())
    }

    /// Takes a command; `running` is the send whose turn is under way.
    fn handle_command(&mut self, command: Command, running: Option<&mut PendingTurn>) -> Interrupt {
        match command {
            Command::Send { message, reply, permit: place, commit_waiter: kept } => {
                self.accept(message, reply, place, kept, running);
                Interrupt::Nothing
            }
            Command::Cancel { request_id, reply } => self.cancel(&request_id, reply, running.as_deref()),
            Command::Steer { text, source, reply } => Interrupt::Steer { text, source, reply },
            Command::Compact(compaction) => {
                self.queue.push_back(Job::Compact(compaction));
                Interrupt::Nothing
            }
            Command::Rollback { reply, .. } => {
                let text = "busy: a turn is open; cancel it or wait for its end";
                let _ = reply.send(Err(Fault::new(busy(), text)));
                Interrupt::Nothing
            }
        }
    }

    /// Small work beside the agent's own; a stop of the pool waits for it.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.shared.pool.upgrade() {
            Some(pool) => drop(pool.tasks.spawn(work)),
            None => drop(tokio::spawn(work)),
        }
    }

    /// Runs one turn to its end, taking commands all the while.
    async fn run_turn(&mut self, mut open: PendingTurn) -> ControlFlow<()> {
        if let Some(why) = self.resume_refusal(&open) {
            return self.interrupt(open, why).await;
        }
        if self.shared.admission.abort.is_cancelled() {
            return self.end_unstarted(open, None).await;
        }
        let slot = match Arc::clone(&self.shared.admission.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                if matches!(open.acceptance, Acceptance::NotEnqueued) {
                    self.enqueue(&mut open);
                }
                match self.acquire_slot(Some(&mut open)).await {
                    Ok(slot) => slot,
                    Err(reply) => return self.end_unstarted(open, reply).await,
                }
            }
        };
        if let Acceptance::Enqueued(says) = &mut open.acceptance {
            match commit_result(says).await {
                Some(Ok(())) => open.mark_committed(),
                Some(Err(StoreFault::DuplicateRequestId)) => return self.answer_duplicate(open).await,
                Some(Err(StoreFault::NotFound)) => {
                    open.respond_cancelled();
                    return ControlFlow::Continue(());
                }
                Some(Err(fault)) => {
                    open.respond(&Err(fault.into()));
                    return ControlFlow::Continue(());
                }
                None => {
                    open.respond(&Err(self.shared.unavailable()));
                    return ControlFlow::Continue(());
                }
            }
        }
        let performance = TurnDriver::begin(Arc::clone(&self.shared), &open, Some(slot));
        self.drive_turn(open, performance, Vec::new()).await
    }

    /// A turn that was open when the daemon stopped goes on, or is marked, as the agent was told; and one that was begun
    /// again and again may be what stops the daemon.
    fn resume_refusal(&self, open: &PendingTurn) -> Option<String> {
        if !open.was_recovered {
            return None;
        }
        if open.attempts + 1 >= TURN_ATTEMPTS_MAX {
            return Some(format!("the daemon stopped {TURN_ATTEMPTS_MAX} times while the turn ran"));
        }
        let marks = self.shared.on_restart == RestartPolicy::Mark;
        marks.then(|| "the daemon stopped before the turn had ended".to_owned())
    }

    /// Plays a turn to its end; `cancels` hear whether it was cancelled.
    async fn drive_turn(
        &mut self,
        mut open: PendingTurn,
        mut performance: TurnDriver,
        mut cancels: Vec<CancelReply>,
    ) -> ControlFlow<()> {
        let shared = Arc::clone(&self.shared);
        let mut is_begun = false;
        let mut finale = performance.advance();
        let finale = loop {
            if let Some(finale) = finale {
                break finale;
            }
            finale = tokio::select! {
                biased;
                () = shared.end_requested.cancelled() => Some(TurnExit::Ended(performance.abandon())),
                () = shared.admission.abort.cancelled(), if !performance.is_ending() => {
                    if open.is_unattended() && performance.is_turn_committed() {
                        Some(performance.suspend())
                    } else {
                        performance.cancel()
                    }
                }
                command = self.inbox.recv() => match command.map(|command| self.handle_command(*command, Some(&mut open))) {
                    Some(Interrupt::Nothing) => None,
                    Some(Interrupt::Cancel(reply)) => {
                        cancels.push(reply);
                        performance.cancel()
                    }
                    Some(Interrupt::Steer { text, source, reply }) => {
                        self.steer(&mut performance, &open, (text, source), reply);
                        None
                    }
                    None => Some(TurnExit::Ended(performance.abandon())),
                },
                finale = performance.step() => finale,
            };
            if performance.is_turn_committed() {
                open.notify_committed(&Ok(()));
                if !std::mem::replace(&mut is_begun, true) {
                    open.mark_committed();
                    self.refuse_conflicting(&open);
                }
            }
        };
        // The slot is free before the answer is out, like the place.
        drop(performance);
        let is_cancelled = matches!(&finale, TurnExit::Ended(end) if end.outcome == TurnOutcome::Cancelled);
        if !matches!(finale, TurnExit::Duplicate) {
            for reply in cancels.drain(..) {
                let _ = reply.send(is_cancelled);
            }
        }
        match finale {
            TurnExit::Ended(end) => {
                open.respond(&turn_result(end));
                if shared.end_requested.is_cancelled() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }
            TurnExit::Suspended => ControlFlow::Continue(()),
            TurnExit::Duplicate => self.answer_cancelled_duplicate(open, cancels).await,
            TurnExit::NeedsReload(fault) => {
                open.respond(&Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    /// Adds a word; it is acknowledged when it is kept.
    fn steer(
        &self,
        performance: &mut TurnDriver,
        open: &PendingTurn,
        (text, source): (String, MessageSource),
        reply: oneshot::Sender<Option<RequestId>>,
    ) {
        let Some(message) = performance.steer(text, source) else {
            let _ = reply.send(None);
            return;
        };
        let record = Record::Steered { turn: open.turn, message: Box::new(message) };
        let keeping = self.shared.append(vec![record], |_| {});
        let name = open.message.request_id.clone();
        self.spawn(async move {
            let kept = keeping.await.is_ok();
            let _ = reply.send(kept.then_some(name));
        });
    }

    /// Waits for a free slot among the running turns.
    ///
    /// # Errors
    /// When the send was cancelled or the agent ended meanwhile: whom to tell.
    async fn acquire_slot(
        &mut self,
        mut open: Option<&mut PendingTurn>,
    ) -> Result<OwnedSemaphorePermit, Option<CancelReply>> {
        let shared = Arc::clone(&self.shared);
        let slots = Arc::clone(&shared.admission.slots);
        let mut slot = std::pin::pin!(slots.acquire_owned());
        loop {
            tokio::select! {
                biased;
                () = shared.end_requested.cancelled() => return Err(None),
                () = shared.admission.abort.cancelled() => return Err(None),
                slot = &mut slot => return slot.map_err(|_| None),
                command = self.inbox.recv() => match command.map(|command| self.handle_command(*command, open.as_deref_mut())) {
                    // A turn that has not begun has no word to add to.
                    Some(Interrupt::Nothing | Interrupt::Steer { .. }) => {}
                    Some(Interrupt::Cancel(reply)) => return Err(Some(reply)),
                    None => return Err(None),
                },
            }
        }
    }
}
