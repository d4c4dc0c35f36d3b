//! The sends that wait: how they get into line, meet others of their name there, and leave it before their turn.

use std::sync::Arc;

use agent::{Fault, RequestId};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::idempotency::cancel_unstarted;
use super::pending_turn::{Acceptance, CommitWaiter, PendingTurn, Reply, content_mismatch};
use super::{Actor, CancelReply, Interrupt, Job};
use crate::admission::AdmissionPermit;
use crate::handle::NewMessage;

impl Actor {
    /// A send whose name is open already is that send, if it says the same. If it says something else it is refused, once
    /// it is sure whose the name is: one that the store has not heard of may itself be the one that is wrong.
    pub(super) fn accept(
        &mut self,
        message: NewMessage,
        reply: Reply,
        place: AdmissionPermit,
        kept: Option<CommitWaiter>,
        running: Option<&mut PendingTurn>,
    ) {
        let must_wait = running.is_some() || self.is_compacting || !self.queue.is_empty();
        let open = running.into_iter().chain(self.queue.iter_mut().filter_map(Job::as_turn_mut));
        let (mut same, mut is_taken) = (None, false);
        for namesake in open.filter(|open| open.message.request_id == message.request_id) {
            if namesake.message.has_same_content(&message) {
                same.get_or_insert(namesake);
            } else {
                is_taken |= namesake.owns_request_id();
            }
        }
        if is_taken {
            drop(place);
            let _ = reply.send(Err(content_mismatch(&message.request_id)));
            return;
        }
        if let Some(same) = same {
            same.replies.push(reply);
            same.commit_waiters.extend(kept);
            return;
        }
        let mut open = PendingTurn::new(message, place, self.shared.next_turn()).with_reply(reply);
        open.commit_waiters.extend(kept);
        let earlier = self.cancelling.iter().filter(|(name, _)| *name == open.message.request_id);
        open.earlier_cancellations = earlier.map(|(_, is_over)| is_over.clone()).collect();
        if must_wait {
            self.enqueue(&mut open);
        }
        self.queue.push_back(Job::Send(Box::new(open)));
    }

    /// A send that has to wait is kept now: it may be acknowledged before its turn comes.
    pub(super) fn enqueue(&self, open: &mut PendingTurn) {
        let turn = open.turn;
        let keeping =
            self.shared.append(vec![open.accepted_record()], |state| state.turns = state.turns.max(turn));
        let (said, says) = watch::channel(None);
        let keepings = std::mem::take(&mut open.commit_waiters);
        self.spawn(async move {
            let result = keeping.await;
            for keeping in keepings {
                let _ = keeping.send(result.clone().map_err(Fault::from));
            }
            let _ = said.send(Some(result));
        });
        open.acceptance = Acceptance::Enqueued(says);
    }

    /// It is sure now whose the name is: those who use it for something else need not wait to hear that.
    pub(super) fn refuse_conflicting(&mut self, owner: &PendingTurn) {
        let is_wrong = |open: &PendingTurn| {
            open.message.request_id == owner.message.request_id
                && !open.message.has_same_content(&owner.message)
        };
        for wrong in self.remove_queued(is_wrong) {
            wrong.respond(&Err(content_mismatch(&owner.message.request_id)));
        }
    }

    /// Ends all sends of this name. Whoever asked is told when that is kept.
    pub(super) fn cancel(
        &mut self,
        name: &RequestId,
        reply: CancelReply,
        running: Option<&PendingTurn>,
    ) -> Interrupt {
        if running.is_some_and(|open| open.message.request_id == *name) {
            return Interrupt::Cancel(reply);
        }
        let namesakes = self.remove_queued(|open| open.message.request_id == *name);
        if namesakes.is_empty() {
            let _ = reply.send(false);
            return Interrupt::Nothing;
        }
        let is_over = CancellationToken::new();
        self.cancelling.retain(|(_, is_over)| !is_over.is_cancelled());
        self.cancelling.push((name.clone(), is_over.clone()));
        let (shared, is_over) = (Arc::clone(&self.shared), is_over.drop_guard());
        self.spawn(async move {
            // Where several use the name, one of them has it at most.
            let mut is_ended = false;
            for open in namesakes {
                let (told, ended) = oneshot::channel();
                cancel_unstarted(Arc::clone(&shared), open, Some(told)).await;
                is_ended |= ended.await.unwrap_or(false);
            }
            let _ = reply.send(is_ended);
            drop(is_over);
        });
        Interrupt::Nothing
    }

    /// Takes these sends out of the line.
    fn remove_queued(&mut self, is_it: impl Fn(&PendingTurn) -> bool) -> Vec<PendingTurn> {
        if !self.queue.iter_mut().filter_map(Job::as_turn_mut).any(|open| is_it(open)) {
            return Vec::new();
        }
        let mut out = Vec::new();
        for job in std::mem::take(&mut self.queue) {
            match job {
                Job::Send(open) if is_it(&open) => out.push(*open),
                job => self.queue.push_back(job),
            }
        }
        out
    }
}
