//! Sends that the store knows already: answered from it, opened again, or ended without having begun. And the way back
//! to an earlier message.

use std::ops::ControlFlow;
use std::sync::Arc;

use agent::journal::{Record, Replay, TurnStage};
use agent::outside::{StoreFault, StoredTurn};
use agent::{Fault, FaultKind, TurnEnd, TurnOutcome, content_digest_input};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::pending_turn::{Acceptance, PendingTurn, commit_result, content_mismatch, turn_result};
use super::turn_driver::TurnDriver;
use super::{Actor, CancelReply, Job};
use crate::admission::busy;
use crate::handle::Shared;

/// Ends a send that has not begun. Whoever asked is told when that is kept.
pub(super) async fn cancel_unstarted(shared: Arc<Shared>, mut open: PendingTurn, reply: Option<CancelReply>) {
    // Nobody asked for its end, and nobody waits for it: it goes on when the daemon is started again.
    if reply.is_none() && open.is_unattended() && open.is_known_to_store() {
        return;
    }
    let accepted = match &mut open.acceptance {
        Acceptance::Enqueued(says) => {
            commit_result(says).await.unwrap_or(Err(StoreFault::NotFound)).map(|()| true)
        }
        Acceptance::Committed => Ok(true),
        Acceptance::NotEnqueued | Acceptance::Reopened(_) => Ok(false),
    };
    if accepted == Err(StoreFault::DuplicateRequestId) {
        // It was over before it came: there is nothing to end.
        drop(reply);
        let answer = stored_outcome(&shared, &open).await.and_then(|known| match known {
            StoredOutcome::Ended(_, end) => turn_result(end),
            StoredOutcome::Open => Err(being_resumed(&open)),
        });
        return open.respond(&answer);
    }
    if let Err(fault @ (StoreFault::Full(_) | StoreFault::Failed(_) | StoreFault::Corrupt(_))) = accepted {
        // Whether there was one of that name before is not known: it cannot be said that this is its end.
        drop(reply);
        return open.respond(&Err(fault.into()));
    }
    // Nobody has kept it, or nobody will miss it.
    let is_unknown = accepted != Ok(true) || shared.end_requested.is_cancelled();
    let kept = match is_unknown {
        true => Ok(()),
        false => {
            match shared.append(vec![open.ended_record(TurnEnd::cancelled_before_start())], |_| {}).await {
                Err(StoreFault::NotFound) => Ok(()),
                kept => kept,
            }
        }
    };
    if let Some(reply) = reply {
        let _ = reply.send(kept.is_ok());
    }
    match kept {
        Ok(()) => open.respond_cancelled(),
        Err(fault) => {
            shared.needs_reload.cancel();
            open.respond(&Err(fault.into()));
        }
    }
}

/// What the store knows of a send.
enum StoredOutcome {
    /// It is over: its turn, and how it ended.
    Ended(u64, TurnEnd),
    /// It is open, although nobody here works on it: its end could not be kept.
    Open,
}

/// What the store knows of a send of that name.
async fn stored_outcome(shared: &Shared, open: &PendingTurn) -> Result<StoredOutcome, Fault> {
    let name = &open.message.request_id;
    for earlier in &open.earlier_cancellations {
        earlier.cancelled().await;
    }
    match shared.store.turn(shared.node.serial, name.clone()).await? {
        Some(stored) if stored.content_digest != content_digest(open) => Err(content_mismatch(name)),
        Some(StoredTurn { turn, end: Some(end), .. }) => Ok(StoredOutcome::Ended(turn, end)),
        Some(StoredTurn { end: None, .. }) => Ok(StoredOutcome::Open),
        None if shared.is_destroyed().await? => {
            Ok(StoredOutcome::Ended(open.turn, TurnEnd::cancelled_before_start()))
        }
        // It was forgotten just now: the next try will tell.
        None => Err(being_resumed(open)),
    }
}

fn being_resumed(open: &PendingTurn) -> Fault {
    Fault::new(busy(), format!("busy: the send {} is being settled", open.message.request_id))
}

impl Actor {
    pub(super) async fn end_unstarted(
        &mut self,
        open: PendingTurn,
        reply: Option<CancelReply>,
    ) -> ControlFlow<()> {
        let is_left = reply.is_none() && open.is_unattended();
        if matches!(open.stage, TurnStage::Running(_))
            && !is_left
            && !self.shared.end_requested.is_cancelled()
        {
            // It had begun before the daemon stopped: what it left open in the context has to be closed.
            let mut performance = TurnDriver::begin(Arc::clone(&self.shared), &open, None);
            performance.cancel_on_advance();
            return self.drive_turn(open, performance, reply.into_iter().collect()).await;
        }
        cancel_unstarted(Arc::clone(&self.shared), open, reply).await;
        let is_over = self.shared.end_requested.is_cancelled() || self.inbox.is_closed();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Marks a turn as interrupted. It can be opened again by the same send.
    pub(super) async fn interrupt(&mut self, open: PendingTurn, why: String) -> ControlFlow<()> {
        if matches!(open.stage, TurnStage::Running(_)) {
            let mut performance = TurnDriver::begin(Arc::clone(&self.shared), &open, None);
            performance.interrupt_on_advance(why);
            return self.drive_turn(open, performance, Vec::new()).await;
        }
        let end = TurnEnd::without_content(TurnOutcome::Interrupted(why));
        match self.shared.append(vec![open.ended_record(end.clone())], |_| {}).await {
            Ok(()) => {
                open.respond(&turn_result(end));
                ControlFlow::Continue(())
            }
            Err(fault) => {
                let fault = Fault::from(fault);
                open.respond(&Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    /// The store has a turn of that name.
    pub(super) async fn answer_duplicate(&mut self, open: PendingTurn) -> ControlFlow<()> {
        let answer = match stored_outcome(&self.shared, &open).await {
            Err(fault) => Err(fault),
            Ok(StoredOutcome::Ended(turn, end)) => match end.outcome {
                TurnOutcome::Interrupted(_) => return self.reopen(open, turn, end).await,
                TurnOutcome::Completed | TurnOutcome::Cancelled | TurnOutcome::Failed(_) => turn_result(end),
            },
            Ok(StoredOutcome::Open) => {
                // Whoever is woken from the store takes it up.
                let fault = being_resumed(&open);
                open.respond(&Err(fault.clone()));
                return self.reload(fault).await;
            }
        };
        open.respond(&answer);
        ControlFlow::Continue(())
    }

    /// The same for one that somebody wanted to cancel before that was known: what is opened again is cancelled then, and so
    /// is whatever else waits under the name.
    pub(super) async fn answer_cancelled_duplicate(
        &mut self,
        open: PendingTurn,
        cancels: Vec<CancelReply>,
    ) -> ControlFlow<()> {
        let name = open.message.request_id.clone();
        self.answer_duplicate(open).await?;
        for reply in cancels {
            self.cancel(&name, reply, None);
        }
        ControlFlow::Continue(())
    }

    /// An interrupted turn goes on where it was.
    async fn reopen(&mut self, mut open: PendingTurn, turn: u64, end: TurnEnd) -> ControlFlow<()> {
        let history = match self.shared.store.history(self.shared.node.serial).await {
            Ok(history) => history,
            Err(fault) => {
                open.respond(&Err(fault.into()));
                return ControlFlow::Continue(());
            }
        };
        let replay = Replay::from_records(history);
        let Some((interrupted, messages)) = replay.reopenable_turn(turn) else {
            // Its messages were rolled back since.
            open.respond(&turn_result(end));
            return ControlFlow::Continue(());
        };
        open.turn = turn;
        open.stage = interrupted.stage;
        open.acceptance = Acceptance::Reopened(messages);
        self.queue.push_front(Job::Send(Box::new(open)));
        ControlFlow::Continue(())
    }

    pub(super) async fn roll_back(
        &mut self,
        messages: usize,
        by: String,
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
        let kept = self.shared.append(vec![record], |state| state.messages = messages as u64).await;
        match kept {
            Ok(()) => {
                self.shared.published.write().window.truncate(messages);
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

fn content_digest(open: &PendingTurn) -> [u8; 32] {
    Sha256::digest(content_digest_input(&open.message.text, &open.message.images)).into()
}
