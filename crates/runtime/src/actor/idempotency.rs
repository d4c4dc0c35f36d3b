//! Idempotency of requests: a duplicate of a stored request is answered from the store or reopens its interrupted
//! turn. Also cancels requests that have not started, and rolls the context back.

use std::ops::ControlFlow;
use std::sync::Arc;

use agent::journal::{AgentState, OpenTurnState, Record, Replay};
use agent::outside::{StoreFault, StoredTurn};
use agent::{Fault, FaultKind, PrincipalId, TurnEnd, TurnOutcome, content_digest_input};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::pending_turn::{Acceptance, PendingTurn, commit_result, content_mismatch, turn_result};
use super::turn_driver::TurnDriver;
use super::{Actor, CancelReply, Job};
use crate::admission::busy;
use crate::handle::Shared;

/// Cancels a request that has not started; replies after the cancellation is committed.
pub(super) async fn cancel_unstarted(
    shared: Arc<Shared>,
    mut pending: PendingTurn,
    reply: Option<CancelReply>,
) {
    // A shutdown, not a cancel, and no caller waits: the request resumes after the restart.
    if reply.is_none() && pending.is_unattended() && pending.is_known_to_store() {
        return;
    }
    let accepted = match &mut pending.acceptance {
        Acceptance::Enqueued(status) => {
            commit_result(status).await.unwrap_or(Err(StoreFault::NotFound)).map(|()| true)
        }
        Acceptance::Committed => Ok(true),
        Acceptance::NotEnqueued | Acceptance::Reopened(_) => Ok(false),
    };
    if accepted == Err(StoreFault::DuplicateRequestId) {
        // A stored request has this id: there is nothing to cancel.
        drop(reply);
        let result = stored_outcome(&shared, &pending).await.and_then(|outcome| match outcome {
            StoredOutcome::Ended(_, end) => turn_result(end),
            StoredOutcome::Open => Err(being_resumed(&pending)),
        });
        return pending.respond(&result);
    }
    if let Err(
        fault @ (StoreFault::Full(_) | StoreFault::Failed(_) | StoreFault::Closed | StoreFault::Corrupt(_)),
    ) = accepted
    {
        // It is unknown whether a stored request has this id, so the cancellation cannot be confirmed.
        drop(reply);
        return pending.respond(&Err(fault.into()));
    }
    // The request is not in the store, or its agent is being destroyed.
    let needs_no_record = accepted != Ok(true) || shared.end_requested.is_cancelled();
    let committed = match needs_no_record {
        true => Ok(()),
        false => {
            match shared.append(vec![pending.ended_record(TurnEnd::cancelled_before_start())], |_| {}).await {
                Err(StoreFault::NotFound) => Ok(()),
                committed => committed,
            }
        }
    };
    if let Some(reply) = reply {
        let _ = reply.send(committed.is_ok());
    }
    match committed {
        Ok(()) => pending.respond_cancelled(),
        Err(fault) => {
            shared.needs_reload.cancel();
            pending.respond(&Err(fault.into()));
        }
    }
}

/// Stored outcome of a request.
enum StoredOutcome {
    /// Ended: turn number and end.
    Ended(u64, TurnEnd),
    /// Open in the store but not in this actor: its end was not committed.
    Open,
}

/// Looks up the stored outcome of a request by its id.
async fn stored_outcome(shared: &Shared, pending: &PendingTurn) -> Result<StoredOutcome, Fault> {
    let request_id = &pending.message.request_id;
    for earlier in &pending.earlier_cancellations {
        earlier.cancelled().await;
    }
    match shared.store.turn(shared.node.serial, request_id.clone()).await? {
        Some(stored) if stored.content_digest != content_digest(pending) => Err(content_mismatch(request_id)),
        Some(StoredTurn { turn, end: Some(end), .. }) => Ok(StoredOutcome::Ended(turn, end)),
        Some(StoredTurn { end: None, .. }) => Ok(StoredOutcome::Open),
        None if shared.is_destroyed().await? => {
            Ok(StoredOutcome::Ended(pending.turn, TurnEnd::cancelled_before_start()))
        }
        // Pruned in the meantime: a retry will be accepted as new.
        None => Err(being_resumed(pending)),
    }
}

fn being_resumed(pending: &PendingTurn) -> Fault {
    Fault::new(busy(), format!("busy: request {} is being resumed; retry", pending.message.request_id))
}

impl Actor {
    pub(super) async fn end_unstarted(
        &mut self,
        pending: PendingTurn,
        reply: Option<CancelReply>,
    ) -> ControlFlow<()> {
        let is_abandoned = reply.is_none() && pending.is_unattended();
        if matches!(pending.state, OpenTurnState::Running(_))
            && !is_abandoned
            && !self.shared.end_requested.is_cancelled()
        {
            // The turn started before a daemon stop: its unanswered tool calls in the context have to be closed.
            let mut driver = TurnDriver::begin(Arc::clone(&self.shared), &pending, None);
            driver.cancel();
            return self.drive_turn(pending, driver, reply.into_iter().collect()).await;
        }
        cancel_unstarted(Arc::clone(&self.shared), pending, reply).await;
        let is_ending = self.shared.end_requested.is_cancelled() || self.inbox.is_closed();
        if is_ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Ends a turn as interrupted. The same request can reopen it.
    pub(super) async fn interrupt(&mut self, pending: PendingTurn, why: String) -> ControlFlow<()> {
        if matches!(pending.state, OpenTurnState::Running(_)) {
            let mut driver = TurnDriver::begin(Arc::clone(&self.shared), &pending, None);
            driver.interrupt(why);
            return self.drive_turn(pending, driver, Vec::new()).await;
        }
        let end = TurnEnd::without_content(TurnOutcome::Interrupted(why));
        match self.shared.append(vec![pending.ended_record(end.clone())], |_| {}).await {
            Ok(()) => {
                pending.respond(&turn_result(end));
                ControlFlow::Continue(())
            }
            Err(fault) => {
                let fault = Fault::from(fault);
                pending.respond(&Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    /// Answers a request whose id the store already has.
    pub(super) async fn answer_duplicate(&mut self, pending: PendingTurn) -> ControlFlow<()> {
        let result = match stored_outcome(&self.shared, &pending).await {
            Err(fault) => Err(fault),
            Ok(StoredOutcome::Ended(turn, end)) => match end.outcome {
                TurnOutcome::Interrupted(_) => return self.reopen(pending, turn, end).await,
                TurnOutcome::Completed | TurnOutcome::Cancelled | TurnOutcome::Failed(_) => turn_result(end),
            },
            Ok(StoredOutcome::Open) => {
                // The reloaded agent resumes it.
                let fault = being_resumed(&pending);
                pending.respond(&Err(fault.clone()));
                return self.reload(fault).await;
            }
        };
        pending.respond(&result);
        ControlFlow::Continue(())
    }

    /// Answers a duplicate that was cancelled before it was known to be one: cancels the reopened turn and other
    /// queued requests with the id.
    pub(super) async fn answer_cancelled_duplicate(
        &mut self,
        pending: PendingTurn,
        cancels: Vec<CancelReply>,
    ) -> ControlFlow<()> {
        let request_id = pending.message.request_id.clone();
        self.answer_duplicate(pending).await?;
        for reply in cancels {
            self.cancel(&request_id, reply, None);
        }
        ControlFlow::Continue(())
    }

    /// Reopens an interrupted turn where it stopped.
    async fn reopen(&mut self, mut pending: PendingTurn, turn: u64, end: TurnEnd) -> ControlFlow<()> {
        let history = match self.shared.store.history(self.shared.node.serial).await {
            Ok(history) => history,
            Err(fault) => {
                pending.respond(&Err(fault.into()));
                return ControlFlow::Continue(());
            }
        };
        let replay = Replay::from_records(history);
        let Some((interrupted, messages)) = replay.reopenable_turn(turn) else {
            // Its messages were rolled back or compacted since, or later turns followed.
            pending.respond(&turn_result(end));
            return ControlFlow::Continue(());
        };
        pending.turn = turn;
        pending.state = interrupted.state;
        pending.acceptance = Acceptance::Reopened(messages);
        self.queue.push_front(Job::Send(Box::new(pending)));
        ControlFlow::Continue(())
    }

    pub(super) async fn roll_back(
        &mut self,
        messages: usize,
        by: PrincipalId,
        reply: oneshot::Sender<Result<usize, Fault>>,
    ) -> ControlFlow<()> {
        let total = match self.check_rollback(messages) {
            Ok(total) => total,
            Err(fault) => {
                let _ = reply.send(Err(fault));
                return ControlFlow::Continue(());
            }
        };
        let record = Record::RolledBack { by, messages };
        let todo = self.shared.published.read().plan_at(messages);
        let change = |state: &mut AgentState| {
            state.messages = messages as u64;
            state.todo.clone_from(&todo);
        };
        match self.shared.append(vec![record], change).await {
            Ok(()) => {
                let mut state = self.shared.published.write();
                state.window.truncate(messages);
                state.todo = todo;
                drop(state);
                let _ = reply.send(Ok(total - messages));
                ControlFlow::Continue(())
            }
            Err(fault) => {
                let fault = Fault::from(fault);
                let _ = reply.send(Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    fn check_rollback(&self, messages: usize) -> Result<usize, Fault> {
        let state = self.shared.published.read();
        let total = state.window.messages().len();
        let invalid = |text: String| Err(Fault::new(FaultKind::Invalid, text));
        if messages > total {
            return invalid(format!(
                "messages must be at most {total}, the number there are, got: {messages}"
            ));
        }
        if !state.window.can_split_at(messages) {
            return invalid(format!("messages {messages} would cut a tool call from its result"));
        }
        Ok(total)
    }
}

fn content_digest(pending: &PendingTurn) -> [u8; 32] {
    Sha256::digest(content_digest_input(&pending.message.text, &pending.message.images)).into()
}
