//! Actor task of a live agent: handles commands at any time and runs one turn at a time, in FIFO order.
//! [`turn_driver`] executes a turn, [`pending_turn`] is a request until its response, [`queue`] accepts and cancels
//! requests, [`idempotency`] answers requests whose request id the store already has.

mod compact;
mod compaction_run;
mod idempotency;
mod model_stream;
mod pending_turn;
mod queue;
mod turn_driver;
mod undo;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use agent::journal::Record;
use agent::outside::StoreFault;
use agent::{Fault, FaultKind, MessageSource, PrincipalId, RequestId, TurnOutcome};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::compact::CompactionRequest;
pub use self::compact::{CompactionCondition, CompactionOutcome};
pub(crate) use self::pending_turn::PendingTurn;
use self::pending_turn::{Acceptance, CommitWaiter, Reply, commit_result, turn_result};
use self::turn_driver::{TurnDriver, TurnExit};
pub(crate) use self::undo::UndoRequest;
pub use self::undo::UndoneTurn;
use crate::admission::{AdmissionPermit, busy};
use crate::handle::{NewMessage, Shared};

/// A command to an actor.
pub(crate) enum Command {
    /// Queues a message.
    Send { message: NewMessage, reply: Reply, permit: AdmissionPermit, commit_waiter: Option<CommitWaiter> },
    /// Cancels the request with this id.
    Cancel { request_id: RequestId, reply: oneshot::Sender<bool> },
    /// Adds an instruction to the running turn.
    Steer { text: String, source: MessageSource, reply: oneshot::Sender<Option<RequestId>> },
    /// Compacts the context.
    Compact(CompactionRequest),
    /// Truncates the context to its first messages.
    Rollback { messages: usize, initiator: PrincipalId, reply: oneshot::Sender<Result<usize, Fault>> },
    /// Undoes the file changes of a turn.
    Undo(UndoRequest),
}

/// State of an actor task.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Box<Command>>,
    queue: VecDeque<Job>,
    /// Whether a requested compaction is running.
    is_compacting: bool,
    /// Requests cancelled while queued, until the cancellation is committed; a duplicate is answered after that.
    cancelling: Vec<(RequestId, CancellationToken)>,
    /// Why the agent has to reload from the store.
    reload_cause: Option<Fault>,
    /// Dropped last: signals the end of the task, also after a panic.
    _ended: DropGuard,
}

/// An entry of the actor's queue.
enum Job {
    Send(Box<PendingTurn>),
    Compact(CompactionRequest),
}

impl Job {
    fn as_turn_mut(&mut self) -> Option<&mut PendingTurn> {
        match self {
            Job::Send(pending) => Some(pending),
            Job::Compact(_) => None,
        }
    }
}

type CancelReply = oneshot::Sender<bool>;

/// What a command means for the running turn.
enum CommandEffect {
    Nothing,
    Cancel(CancelReply),
    Steer { text: String, source: MessageSource, reply: oneshot::Sender<Option<RequestId>> },
}

impl Actor {
    /// Creates an actor; `recovered` are requests accepted before, in order.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: mpsc::Receiver<Box<Command>>,
        recovered: VecDeque<PendingTurn>,
    ) -> Self {
        let ended = shared.ended.clone().drop_guard();
        let queue = recovered.into_iter().map(|pending| Job::Send(Box::new(pending))).collect();
        Self {
            shared,
            inbox,
            queue,
            is_compacting: false,
            cancelling: Vec::new(),
            reload_cause: None,
            _ended: ended,
        }
    }

    /// Runs until the agent ends, goes to sleep, or needs a reload.
    pub(crate) async fn run(mut self) {
        loop {
            let flow = match self.queue.pop_front() {
                // Boxed: most agents are idle most of the time, and an idle task should be small.
                Some(Job::Send(pending)) => Box::pin(self.run_turn(*pending)).await,
                Some(Job::Compact(compaction)) => Box::pin(self.compact(compaction)).await,
                None => self.wait_idle().await,
            };
            if flow.is_break() {
                break;
            }
        }
        self.answer_remaining().await;
        self.release_tools();
    }

    /// Releases what tools hold for the agent, if it was destroyed: a call that ran until now may have added to it.
    fn release_tools(&self) {
        let serial = self.shared.node.serial;
        if let Some(pool) = self.shared.pool.upgrade()
            && !pool.directory.exists(serial)
        {
            pool.outside.tools.agent_ended(serial);
        }
    }

    /// Waits for a command; after the idle timeout, tries to go to sleep.
    async fn wait_idle(&mut self) -> ControlFlow<()> {
        let idle = self.shared.limits.idle_before_sleep;
        let idle_timeout = async {
            if idle.is_zero() { std::future::pending().await } else { tokio::time::sleep(idle).await }
        };
        let command = tokio::select! {
            biased;
            () = self.shared.end_requested.cancelled() => return ControlFlow::Break(()),
            () = self.shared.needs_reload.cancelled() => {
                let fault = StoreFault::Full("the cancellation of a queued request was not committed".to_owned());
                return self.reload(fault.into()).await;
            }
            command = self.inbox.recv() => command,
            () = idle_timeout => return self.go_to_sleep(),
        };
        match command.map(|command| *command) {
            Some(Command::Rollback { messages, initiator, reply }) => {
                Box::pin(self.roll_back(messages, initiator, reply)).await
            }
            Some(Command::Undo(request)) => Box::pin(self.undo(request)).await,
            Some(command) => {
                self.handle_command(command, None);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn go_to_sleep(&mut self) -> ControlFlow<()> {
        let pool = self.shared.pool.upgrade();
        let is_asleep = pool.is_none_or(|pool| pool.directory.put_to_sleep(self.shared.node.serial));
        if is_asleep { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Answers all remaining requests. A sender may have reserved an inbox slot without having sent its command yet;
    /// receiving until the channel is closed waits for it.
    async fn answer_remaining(&mut self) {
        self.inbox.close();
        while let Some(command) = self.inbox.recv().await {
            match *command {
                Command::Send { message, reply, permit, commit_waiter } => {
                    let mut pending = PendingTurn::new(message, permit, 0).with_reply(reply);
                    pending.commit_waiters.extend(commit_waiter);
                    self.queue.push_back(Job::Send(Box::new(pending)));
                }
                // Dropping the reply reports that the agent is unavailable.
                Command::Cancel { .. } | Command::Steer { .. } => {}
                Command::Rollback { .. } | Command::Undo(_) | Command::Compact(_) => {}
            }
        }
        for job in self.queue.drain(..) {
            match (job, &self.reload_cause) {
                (Job::Send(pending), Some(fault)) => pending.respond(&Err(fault.clone())),
                (Job::Send(pending), None) => pending.respond_cancelled(),
                (Job::Compact(_), _) => {}
            }
        }
        tracing::debug!("agent ended");
    }

    /// Ends the actor after a failed commit; the next call wakes the agent from its committed state.
    async fn reload(&mut self, fault: Fault) -> ControlFlow<()> {
        tracing::warn!(
            cause = fault.cause.as_deref().unwrap_or_default(),
            "commit failed; agent reloads from the store: {fault}"
        );
        // Flushes the write queue before the agent can be woken, with a state that excludes the failed batch.
        self.shared.reset_enqueued_state();
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

    /// Handles a command; `running` is the request whose turn is running.
    fn handle_command(&mut self, command: Command, running: Option<&mut PendingTurn>) -> CommandEffect {
        match command {
            Command::Send { message, reply, permit, commit_waiter } => {
                self.accept(message, reply, permit, commit_waiter, running);
                CommandEffect::Nothing
            }
            Command::Cancel { request_id, reply } => self.cancel(&request_id, reply, running.as_deref()),
            Command::Steer { text, source, reply } => CommandEffect::Steer { text, source, reply },
            Command::Compact(compaction) => {
                self.queue.push_back(Job::Compact(compaction));
                CommandEffect::Nothing
            }
            Command::Rollback { reply, .. } => {
                let _ = reply.send(Err(turn_open()));
                CommandEffect::Nothing
            }
            Command::Undo(request) => {
                let _ = request.reply.send(Err(turn_open()));
                CommandEffect::Nothing
            }
        }
    }

    /// Spawns background work that a pool shutdown waits for.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.shared.pool.upgrade() {
            Some(pool) => drop(pool.tasks.spawn(work)),
            None => drop(tokio::spawn(work)),
        }
    }

    /// Runs one turn to its end while handling commands.
    async fn run_turn(&mut self, mut pending: PendingTurn) -> ControlFlow<()> {
        if let Some(why) = pending.resume_refusal(self.shared.on_restart) {
            return self.interrupt(pending, why).await;
        }
        if self.shared.admission.abort.is_cancelled() {
            return self.end_unstarted(pending, None).await;
        }
        let slot = match Arc::clone(&self.shared.admission.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                if matches!(pending.acceptance, Acceptance::NotEnqueued) {
                    self.append_acceptance(&mut pending);
                }
                match self.acquire_slot(Some(&mut pending)).await {
                    Ok(slot) => slot,
                    Err(reply) => return self.end_unstarted(pending, reply).await,
                }
            }
        };
        if let Acceptance::Enqueued(commit_status) = &mut pending.acceptance {
            match commit_result(commit_status).await {
                Some(Ok(())) => pending.mark_committed(),
                Some(Err(StoreFault::DuplicateRequestId)) => return self.answer_duplicate(pending).await,
                Some(Err(StoreFault::NotFound)) => {
                    pending.respond_cancelled();
                    return ControlFlow::Continue(());
                }
                Some(Err(fault)) => {
                    pending.respond(&Err(fault.into()));
                    return ControlFlow::Continue(());
                }
                None => {
                    pending.respond(&Err(self.shared.unavailable()));
                    return ControlFlow::Continue(());
                }
            }
        }
        let driver = TurnDriver::begin(Arc::clone(&self.shared), &pending, Some(slot));
        self.drive_turn(pending, driver, Vec::new()).await
    }

    /// Drives a turn to its end; reports to `cancels` whether it was cancelled.
    async fn drive_turn(
        &mut self,
        mut pending: PendingTurn,
        mut driver: TurnDriver,
        mut cancels: Vec<CancelReply>,
    ) -> ControlFlow<()> {
        let shared = Arc::clone(&self.shared);
        let mut is_acknowledged = false;
        driver.advance();
        let exit = loop {
            let flow = tokio::select! {
                biased;
                () = shared.end_requested.cancelled() => ControlFlow::Break(TurnExit::Ended(driver.abandon())),
                () = shared.admission.abort.cancelled(), if !driver.is_ending() => {
                    if pending.is_unattended() && driver.is_turn_committed() {
                        ControlFlow::Break(driver.suspend())
                    } else {
                        driver.cancel();
                        ControlFlow::Continue(())
                    }
                }
                command = self.inbox.recv() => match command.map(|command| self.handle_command(*command, Some(&mut pending))) {
                    Some(CommandEffect::Nothing) => ControlFlow::Continue(()),
                    Some(CommandEffect::Cancel(reply)) => {
                        cancels.push(reply);
                        driver.cancel();
                        ControlFlow::Continue(())
                    }
                    Some(CommandEffect::Steer { text, source, reply }) => {
                        self.steer(&mut driver, &pending, (text, source), reply);
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Break(TurnExit::Ended(driver.abandon())),
                },
                flow = driver.step() => flow,
            };
            if driver.is_turn_committed() {
                pending.notify_committed(&Ok(()));
                if !std::mem::replace(&mut is_acknowledged, true) {
                    pending.mark_committed();
                    self.reject_conflicting(&pending);
                }
            }
            if let ControlFlow::Break(exit) = flow {
                break exit;
            }
        };
        // Releases the slot before the response is sent, like the permit.
        drop(driver);
        self.finish_turn(pending, exit, cancels).await
    }

    /// Responds to the callers of the turn.
    async fn finish_turn(
        &mut self,
        pending: PendingTurn,
        exit: TurnExit,
        mut cancels: Vec<CancelReply>,
    ) -> ControlFlow<()> {
        let is_cancelled = matches!(&exit, TurnExit::Ended(end) if end.outcome == TurnOutcome::Cancelled);
        if !matches!(exit, TurnExit::Duplicate) {
            for reply in cancels.drain(..) {
                let _ = reply.send(is_cancelled);
            }
        }
        match exit {
            TurnExit::Ended(end) => {
                pending.respond(&turn_result(end));
                if self.shared.end_requested.is_cancelled() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }
            TurnExit::Suspended => ControlFlow::Continue(()),
            TurnExit::Duplicate => self.answer_cancelled_duplicate(pending, cancels).await,
            TurnExit::NeedsReload(fault) => {
                pending.respond(&Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    /// Adds an instruction to the turn; acknowledges it after commit.
    fn steer(
        &self,
        driver: &mut TurnDriver,
        pending: &PendingTurn,
        (text, source): (String, MessageSource),
        reply: oneshot::Sender<Option<RequestId>>,
    ) {
        let Some(message) = driver.steer(text, source) else {
            let _ = reply.send(None);
            return;
        };
        let record = Record::Steered { turn: pending.turn, message: Box::new(message) };
        let commit = self.shared.append(vec![record], |_| {});
        let request_id = pending.message.request_id.clone();
        self.spawn(async move {
            let is_committed = commit.await.is_ok();
            let _ = reply.send(is_committed.then_some(request_id));
        });
    }

    /// Waits for a slot among the running turns.
    ///
    /// # Errors
    /// When the request was cancelled (with the reply channel) or the agent ended meanwhile.
    async fn acquire_slot(
        &mut self,
        mut pending: Option<&mut PendingTurn>,
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
                command = self.inbox.recv() => match command.map(|command| self.handle_command(*command, pending.as_deref_mut())) {
                    // A turn that has not started accepts no instructions.
                    Some(CommandEffect::Nothing | CommandEffect::Steer { .. }) => {}
                    Some(CommandEffect::Cancel(reply)) => return Err(Some(reply)),
                    None => return Err(None),
                },
            }
        }
    }
}

/// The refusal of what needs an agent without open turns.
fn turn_open() -> Fault {
    Fault::new(busy(), "busy: a turn is open; cancel it or wait for its end")
}
