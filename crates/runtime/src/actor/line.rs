//! The sends that wait: how they get into line, meet others of their name there, and leave it before their turn.

use std::sync::Arc;

use agent::{Fault, RequestId};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::open::{Acceptance, Keeping, Open, Reply, other_content};
use super::repeats::cancelled;
use super::{Actor, CancelReply, Interrupt, Job};
use crate::handle::NewMessage;
use crate::turnstile::Place;

impl Actor {
    /// A send whose name is open already is that send, if it says the same. If it says something else it is refused, once
    /// it is sure whose the name is: one that the store has not heard of may itself be the one that is wrong.
    pub(super) fn accept(
        &mut self,
        message: NewMessage,
        reply: Reply,
        place: Place,
        kept: Option<Keeping>,
        running: Option<&mut Open>,
    ) {
        let must_wait = running.is_some() || self.is_compacting || !self.waiting.is_empty();
        let open = running.into_iter().chain(self.waiting.iter_mut().filter_map(Job::send));
        let (mut same, mut is_taken) = (None, false);
        for namesake in open.filter(|open| open.message.request_id == message.request_id) {
            if namesake.message.says_the_same(&message) {
                same.get_or_insert(namesake);
            } else {
                is_taken |= namesake.has_its_name();
            }
        }
        if is_taken {
            drop(place);
            let _ = reply.send(Err(other_content(&message.request_id)));
            return;
        }
        if let Some(same) = same {
            same.replies.push(reply);
            same.keepings.extend(kept);
            return;
        }
        let mut open = Open::new(message, place, self.shared.next_turn()).answered_to(reply);
        open.keepings.extend(kept);
        let earlier = self.leaving.iter().filter(|(name, _)| *name == open.message.request_id);
        open.earlier = earlier.map(|(_, is_over)| is_over.clone()).collect();
        if must_wait {
            self.put_in_line(&mut open);
        }
        self.waiting.push_back(Job::Send(Box::new(open)));
    }

    /// A send that has to wait is kept now: it may be acknowledged before its turn comes.
    pub(super) fn put_in_line(&self, open: &mut Open) {
        let turn = open.turn;
        let keeping = self.shared.append(vec![open.accepted()], |state| state.turns = state.turns.max(turn));
        let (said, says) = watch::channel(None);
        let keepings = std::mem::take(&mut open.keepings);
        self.spawn(async move {
            let result = keeping.await;
            for keeping in keepings {
                let _ = keeping.send(result.clone().map_err(Fault::from));
            }
            let _ = said.send(Some(result));
        });
        open.acceptance = Acceptance::InLine(says);
    }

    /// It is sure now whose the name is: those who use it for something else need not wait to hear that.
    pub(super) fn refuse_namesakes_of(&mut self, owner: &Open) {
        let is_wrong = |open: &Open| {
            open.message.request_id == owner.message.request_id && !open.message.says_the_same(&owner.message)
        };
        for wrong in self.take_out(is_wrong) {
            wrong.answer(&Err(other_content(&owner.message.request_id)));
        }
    }

    /// Ends all sends of this name. Whoever asked is told when that is kept.
    pub(super) fn cancel(
        &mut self,
        name: &RequestId,
        reply: CancelReply,
        running: Option<&Open>,
    ) -> Interrupt {
        if running.is_some_and(|open| open.message.request_id == *name) {
            return Interrupt::Cancel(reply);
        }
        let namesakes = self.take_out(|open| open.message.request_id == *name);
        if namesakes.is_empty() {
            let _ = reply.send(false);
            return Interrupt::Nothing;
        }
        let is_over = CancellationToken::new();
        self.leaving.retain(|(_, is_over)| !is_over.is_cancelled());
        self.leaving.push((name.clone(), is_over.clone()));
        let (shared, is_over) = (Arc::clone(&self.shared), is_over.drop_guard());
        self.spawn(async move {
            // Where several use the name, one of them has it at most.
            let mut is_ended = false;
            for open in namesakes {
                let (told, ended) = oneshot::channel();
                cancelled(Arc::clone(&shared), open, Some(told)).await;
                is_ended |= ended.await.unwrap_or(false);
            }
            let _ = reply.send(is_ended);
            drop(is_over);
        });
        Interrupt::Nothing
    }

    /// Takes these sends out of the line.
    fn take_out(&mut self, is_it: impl Fn(&Open) -> bool) -> Vec<Open> {
        if !self.waiting.iter_mut().filter_map(Job::send).any(|open| is_it(open)) {
            return Vec::new();
        }
        let mut out = Vec::new();
        for job in std::mem::take(&mut self.waiting) {
            match job {
                Job::Send(open) if is_it(&open) => out.push(*open),
                job => self.waiting.push_back(job),
            }
        }
        out
    }
}
