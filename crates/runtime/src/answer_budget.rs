//! Byte limits of running answers: of one model response, and of all running turns together. A response that exceeds
//! one of them ends its turn, so that endless responses cannot exhaust the memory of the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::outside::ModelEvent;
use agent::{Fault, FaultKind};

use crate::limits::Limits;

/// Bytes of each turn that are not debited: other turns cannot make a turn with a short answer fail.
const FREE_BYTES: usize = 64 << 10;

/// Byte budget that all running turns share.
#[derive(Debug)]
pub(crate) struct AnswerBudget {
    answer_bytes_max: usize,
    total_bytes_max: usize,
    reserved: AtomicUsize,
}

/// Bytes that one turn holds of its model responses. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct AnswerReservation {
    budget: Arc<AnswerBudget>,
    /// Bytes of earlier responses.
    earlier: usize,
    /// Bytes of the current response that have arrived.
    received: usize,
    /// Bytes of the current response that the provider holds, such as an incomplete tool call.
    buffered: usize,
    /// Bytes debited from the budget.
    reserved: usize,
}

impl AnswerBudget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            answer_bytes_max: limits.answer_bytes_max,
            total_bytes_max: limits.running_answers_bytes_max,
            reserved: AtomicUsize::new(0),
        }
    }

    /// Starts the account of a turn.
    pub(crate) fn open(self: &Arc<Self>) -> AnswerReservation {
        AnswerReservation { budget: Arc::clone(self), earlier: 0, received: 0, buffered: 0, reserved: 0 }
    }

    fn try_reserve(&self, bytes: usize) -> bool {
        let add = |reserved: usize| reserved.checked_add(bytes).filter(|sum| *sum <= self.total_bytes_max);
        self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }
}

impl AnswerReservation {
    /// Begins the next response of the turn.
    pub(crate) fn begin_response(&mut self) {
        self.earlier += std::mem::take(&mut self.received);
        self.buffered = 0;
    }

    /// Adds an event of the response.
    ///
    /// # Errors
    /// When the response, or those of all running turns, are too long.
    pub(crate) fn receive(&mut self, event: &ModelEvent) -> Result<(), Fault> {
        match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => self.received += text.len(),
            ModelEvent::ReasoningBlock(block) => {
                self.received += block.len();
                self.buffered = 0;
            }
            ModelEvent::ToolCall(call) => {
                self.received += call.id.len() + call.name.len() + call.arguments.len();
                self.buffered = 0;
            }
            ModelEvent::Buffered(bytes) => self.buffered = *bytes,
            _ => return Ok(()),
        }
        let AnswerBudget { answer_bytes_max, total_bytes_max, .. } = *self.budget;
        if self.received + self.buffered > answer_bytes_max {
            let text = format!(
                "The response was stopped: it is longer than {answer_bytes_max} bytes; ask for a part of it, \
                 or raise limits.answer_bytes_max"
            );
            return Err(Fault::new(FaultKind::Model, text));
        }
        if !self.resize() {
            let text = format!(
                "The response was stopped: the responses of all running turns exceed {total_bytes_max} bytes; \
                 send again when fewer long responses run, or raise limits.running_answers_bytes_max"
            );
            return Err(Fault::new(FaultKind::Model, text));
        }
        Ok(())
    }

    /// Adjusts the debit to the bytes held; returns whether the budget allows it.
    fn resize(&mut self) -> bool {
        let needed = (self.earlier + self.received + self.buffered).saturating_sub(FREE_BYTES);
        if needed > self.reserved && !self.budget.try_reserve(needed - self.reserved) {
            return false;
        }
        if needed < self.reserved {
            self.budget.reserved.fetch_sub(self.reserved - needed, Ordering::AcqRel);
        }
        self.reserved = needed;
        true
    }
}

impl Drop for AnswerReservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.reserved, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use agent::ToolCall;

    use super::*;

    fn budget(answer: usize, total: usize) -> Arc<AnswerBudget> {
        let limits =
            Limits { answer_bytes_max: answer, running_answers_bytes_max: total, ..Limits::default() };
        Arc::new(AnswerBudget::new(&limits))
    }

    fn text(bytes: usize) -> ModelEvent {
        ModelEvent::Text("x".repeat(bytes))
    }

    fn call(bytes: usize) -> ModelEvent {
        let arguments = "x".repeat(bytes);
        ModelEvent::ToolCall(ToolCall { id: String::new(), name: String::new(), arguments })
    }

    #[test]
    fn every_part_of_a_response_counts_towards_its_limit() {
        let budget = budget(100, 1 << 30);
        for events in [
            vec![text(60), text(41)],
            vec![ModelEvent::Reasoning("x".repeat(60)), call(41)],
            vec![text(60), ModelEvent::Buffered(41)],
            vec![ModelEvent::ReasoningBlock("x".repeat(101))],
        ] {
            let mut answer = budget.open();
            let (last, first) = events.split_last().expect("an event");
            first.iter().for_each(|event| answer.receive(event).expect("within the limit"));
            let fault = answer.receive(last).expect_err("beyond it");
            assert!(fault.public.contains("longer than 100 bytes"), "{fault}");
        }
        let mut answer = budget.open();
        for _ in 0..3 {
            answer.begin_response();
            answer.receive(&ModelEvent::Buffered(90)).expect("an incomplete call");
            answer.receive(&call(90)).expect("the same call, now complete");
        }
    }

    #[test]
    fn long_answers_share_the_budget_and_release_it() {
        let budget = budget(1 << 30, 1_000);
        let (mut long, mut other) = (budget.open(), budget.open());
        long.receive(&text(FREE_BYTES + 600)).expect("within the budget");
        other.receive(&text(FREE_BYTES)).expect("a short answer is always allowed");
        other.receive(&text(400)).expect("the rest of the budget");
        let fault = other.receive(&text(1)).expect_err("beyond it");
        assert!(fault.public.contains("all running turns exceed 1000 bytes"), "{fault}");
        drop(long);
        other.begin_response();
        other.receive(&text(599)).expect("the budget of the other answer is free");
        drop(other);
        assert_eq!(budget.reserved.load(Ordering::Acquire), 0);
    }
}
