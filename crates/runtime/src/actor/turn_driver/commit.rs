//! What a turn has to keep: staged while it goes on, put in line together, and shown to others when it is kept.

use agent::journal::Record;
use agent::outside::{BoxFuture, StoreFault, Timestamp};
use agent::{CountedMessage, Message, RequestId, TurnEnd, Window};

use super::super::compaction_run::CompactedWindow;
use super::super::pending_turn::{Acceptance, PendingTurn};
use crate::handle::Shared;

/// What waits to be kept, and what is on its way.
#[derive(Default)]
pub(super) struct StagedBatch {
    records: Vec<Record>,
    messages: Vec<CountedMessage>,
    /// The context, if it was made shorter.
    compacted: Option<Window>,
    /// Messages that stay in the context before those are added, if some do not.
    truncate_to: Option<usize>,
    turns: u64,
    end: Option<(Option<agent::Halt>, u64)>,
    enqueued: Option<EnqueuedBatch>,
    is_turn_committed: bool,
}

struct EnqueuedBatch {
    commit: BoxFuture<'static, Result<(), StoreFault>>,
    /// When it was put in line: what others see is what is kept.
    at: Timestamp,
    messages: Vec<CountedMessage>,
    compacted: Option<Window>,
    truncate_to: Option<usize>,
}

impl StagedBatch {
    /// A turn begins: with its send, if nobody has kept that.
    pub(super) fn stage_begin(&mut self, open: &PendingTurn, shared: &Shared) {
        match open.acceptance {
            Acceptance::NotEnqueued | Acceptance::Enqueued(_) => {
                self.records.push(open.accepted_record());
                self.turns = open.turn;
            }
            Acceptance::Committed => self.is_turn_committed = true,
            Acceptance::Reopened(_) => self.stage_reopen(open, shared),
        }
        self.records.push(Record::TurnBegun { turn: open.turn });
    }

    /// A turn goes on.
    pub(super) fn stage_reopen(&mut self, open: &PendingTurn, shared: &Shared) {
        let messages = match open.acceptance {
            Acceptance::Reopened(messages) => messages,
            Acceptance::NotEnqueued | Acceptance::Enqueued(_) | Acceptance::Committed => {
                shared.published.read().window.messages().len()
            }
        };
        let request_id = open.message.request_id.clone();
        self.records.push(Record::TurnReopened { turn: open.turn, request_id, messages });
        self.truncate_to = Some(messages);
        self.is_turn_committed = true;
    }

    pub(super) fn stage(&mut self, message: Message, shared: &Shared) {
        self.records.push(Record::MessageAdded(Box::new(message.clone())));
        self.stage_without_record(message, shared);
    }

    /// The context is made shorter. Nothing else is staged then: a fold comes between what a turn does.
    pub(super) fn stage_compaction(&mut self, fold: CompactedWindow) {
        self.records.push(Record::Compacted(Box::new(fold.record)));
        self.compacted = Some(fold.window);
    }

    /// A message that is in the journal by itself.
    pub(super) fn stage_without_record(&mut self, message: Message, shared: &Shared) {
        tracing::info!(target: "nexus3::context", role = message.role.as_str(), text = %message.text);
        for call in &message.tool_calls {
            tracing::info!(target: "nexus3::context", role = "tool call", text = %format_args!("{}({})", call.name, call.arguments));
        }
        // Counted here, where nobody waits for a lock.
        self.messages.push(CountedMessage::new(message, &|text| shared.provider.count(text)));
    }

    pub(super) fn stage_record(&mut self, record: Record) {
        self.records.push(record);
    }

    pub(super) fn stage_end(&mut self, turn: u64, request_id: &RequestId, end: &TurnEnd) {
        self.end = Some((end.halted, end.rounds));
        let (request_id, end) = (request_id.clone(), Box::new(end.clone()));
        self.records.push(Record::TurnEnded { turn, request_id, end });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn is_enqueued(&self) -> bool {
        self.enqueued.is_some()
    }

    /// Whether the store knows of the turn.
    pub(super) fn is_turn_committed(&self) -> bool {
        self.is_turn_committed
    }

    /// Puts everything that waits in line.
    pub(super) fn enqueue(&mut self, shared: &Shared) {
        let (records, messages) = (std::mem::take(&mut self.records), std::mem::take(&mut self.messages));
        let (cut, end, folded) = (self.truncate_to.take(), self.end.take(), self.compacted.take());
        let now = shared.clock.now();
        // What is shown is what is kept: counted from there, a call that was refused leaves no trace.
        let (used, gauge, there) = {
            let state = shared.published.read();
            (state.used, state.calibration, folded.as_ref().unwrap_or(&state.window).messages().len())
        };
        let keeping = shared.append(records, |state| {
            state.messages = (cut.unwrap_or(there) + messages.len()) as u64;
            state.turns = state.turns.max(self.turns);
            state.usage_totals = used;
            state.calibration = gauge;
            state.last_action_at = Some(now);
            if let Some((halted, rounds)) = end {
                state.halted = halted;
                state.last_rounds = rounds;
            }
        });
        self.enqueued =
            Some(EnqueuedBatch { commit: keeping, at: now, messages, compacted: folded, truncate_to: cut });
    }

    /// Returns when what is in line is kept, or is not. Safe to drop and call again.
    pub(super) async fn committed(&mut self) -> Result<(), StoreFault> {
        match &mut self.enqueued {
            Some(in_line) => (&mut in_line.commit).await,
            None => Ok(()),
        }
    }

    /// What was in line is kept: now others may see it.
    pub(super) fn publish(&mut self, shared: &Shared) {
        let Some(EnqueuedBatch { at, messages, compacted: folded, truncate_to: cut, .. }) =
            self.enqueued.take()
        else {
            return;
        };
        self.is_turn_committed = true;
        let mut state = shared.published.write();
        if let Some(folded) = folded {
            state.window = folded;
        }
        if let Some(cut) = cut {
            state.window.truncate(cut);
        }
        messages.into_iter().for_each(|message| state.window.push(message));
        state.last_action_at = Some(at);
    }
}
