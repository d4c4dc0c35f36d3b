//! Request queue of an actor: accepts requests, joins duplicates by request id, and cancels before the turn starts.

use std::sync::Arc;

use agent::{Fault, RequestId};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::idempotency::cancel_unstarted;
use super::pending_turn::{Acceptance, CommitWaiter, PendingTurn, Reply, content_mismatch};
use super::{Actor, CancelReply, CommandEffect, Job};
use crate::admission::AdmissionPermit;
use crate::handle::NewMessage;

impl Actor {
    /// Accepts a request. One with a pending request id and equal content joins the pending turn. One with other
    /// content is rejected once the pending one owns the id in the store: until then, the pending one may itself be
    /// the conflicting one. One whose turn is being marked as interrupted queues behind it, and then reopens it.
    pub(super) fn accept(
        &mut self,
        message: NewMessage,
        reply: Reply,
        permit: AdmissionPermit,
        commit_waiter: Option<CommitWaiter>,
        running: Option<&mut PendingTurn>,
    ) {
        let must_wait = running.is_some() || self.is_compacting || !self.queue.is_empty();
        let pending = running.into_iter().chain(self.queue.iter_mut().filter_map(Job::as_turn_mut));
        let on_restart = self.shared.on_restart;
        let (mut existing, mut has_conflict) = (None, false);
        for other in pending.filter(|pending| pending.message.request_id == message.request_id) {
            if !other.message.has_same_content(&message) {
                has_conflict |= other.owns_request_id();
            } else if other.resume_refusal(on_restart).is_none() {
                existing.get_or_insert(other);
            }
        }
        if has_conflict {
            drop(permit);
            let _ = reply.send(Err(content_mismatch(&message.request_id)));
            return;
        }
        if let Some(existing) = existing {
            existing.replies.push(reply);
            existing.commit_waiters.extend(commit_waiter);
            return;
        }
        let mut pending = PendingTurn::new(message, permit, self.shared.next_turn()).with_reply(reply);
        pending.commit_waiters.extend(commit_waiter);
        let earlier =
            self.cancelling.iter().filter(|(request_id, _)| *request_id == pending.message.request_id);
        pending.earlier_cancellations = earlier.map(|(_, finished)| finished.clone()).collect();
        if must_wait {
            self.append_acceptance(&mut pending);
        }
        self.queue.push_back(Job::Send(Box::new(pending)));
    }

    /// Appends a queued request to the journal now, so that it can be acknowledged before its turn starts.
    pub(super) fn append_acceptance(&self, pending: &mut PendingTurn) {
        let turn = pending.turn;
        let commit =
            self.shared.append(vec![pending.accepted_record()], |state| state.turns = state.turns.max(turn));
        let (sender, receiver) = watch::channel(None);
        let commit_waiters = std::mem::take(&mut pending.commit_waiters);
        self.spawn(async move {
            let result = commit.await;
            for waiter in commit_waiters {
                let _ = waiter.send(result.clone().map_err(Fault::from));
            }
            let _ = sender.send(Some(result));
        });
        pending.acceptance = Acceptance::Enqueued(receiver);
    }

    /// Rejects queued requests with the same id and other content, now that the owner of the id is committed.
    pub(super) fn reject_conflicting(&mut self, owner: &PendingTurn) {
        let conflicts = |pending: &PendingTurn| {
            pending.message.request_id == owner.message.request_id
                && !pending.message.has_same_content(&owner.message)
        };
        for conflicting in self.remove_queued(conflicts) {
            conflicting.respond(&Err(content_mismatch(&owner.message.request_id)));
        }
    }

    /// Cancels all requests with this id; replies after the cancellation is committed.
    pub(super) fn cancel(
        &mut self,
        request_id: &RequestId,
        reply: CancelReply,
        running: Option<&PendingTurn>,
    ) -> CommandEffect {
        let on_restart = self.shared.on_restart;
        let is_running = |pending: &PendingTurn| {
            pending.message.request_id == *request_id && pending.resume_refusal(on_restart).is_none()
        };
        if running.is_some_and(is_running) {
            return CommandEffect::Cancel(reply);
        }
        let removed = self.remove_queued(|pending| pending.message.request_id == *request_id);
        if removed.is_empty() {
            let _ = reply.send(false);
            return CommandEffect::Nothing;
        }
        let finished = CancellationToken::new();
        self.cancelling.retain(|(_, finished)| !finished.is_cancelled());
        self.cancelling.push((request_id.clone(), finished.clone()));
        let (shared, finished) = (Arc::clone(&self.shared), finished.drop_guard());
        self.spawn(async move {
            // Of several requests with this id, at most one owns it.
            let mut is_ended = false;
            for pending in removed {
                let (ended_sender, ended) = oneshot::channel();
                cancel_unstarted(Arc::clone(&shared), pending, Some(ended_sender)).await;
                is_ended |= ended.await.unwrap_or(false);
            }
            let _ = reply.send(is_ended);
            drop(finished);
        });
        CommandEffect::Nothing
    }

    /// Removes matching requests from the queue.
    fn remove_queued(&mut self, matches: impl Fn(&PendingTurn) -> bool) -> Vec<PendingTurn> {
        if !self.queue.iter_mut().filter_map(Job::as_turn_mut).any(|pending| matches(pending)) {
            return Vec::new();
        }
        let mut removed = Vec::new();
        for job in std::mem::take(&mut self.queue) {
            match job {
                Job::Send(pending) if matches(&pending) => removed.push(*pending),
                job => self.queue.push_back(job),
            }
        }
        removed
    }
}
