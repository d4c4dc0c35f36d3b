//! Staged writes of a turn: records and messages are staged, enqueued as one batch, and published to readers after
//! commit.

use agent::journal::Record;
use agent::outside::{BoxFuture, StoreFault, Timestamp};
use agent::{CountedMessage, Message, RequestId, TodoItem, TurnEnd, Window};

use super::super::compaction_run::CompactedWindow;
use super::super::pending_turn::{Acceptance, PendingTurn};
use crate::handle::Shared;

/// Records and messages to commit, and the batch in flight.
#[derive(Default)]
pub(super) struct StagedBatch {
    records: Vec<Record>,
    messages: Vec<CountedMessage>,
    /// The compacted context, if any.
    compacted: Option<Window>,
    /// Length to truncate the context to before appending, if any.
    truncate_to: Option<usize>,
    turns: u64,
    end: Option<(Option<agent::Halt>, u64)>,
    enqueued: Option<EnqueuedBatch>,
    is_turn_committed: bool,
}

struct EnqueuedBatch {
    commit: BoxFuture<'static, Result<(), StoreFault>>,
    /// Time of enqueueing: readers see the same time as the store has.
    at: Timestamp,
    messages: Vec<CountedMessage>,
    compacted: Option<Window>,
    truncate_to: Option<usize>,
    /// The new plan, if a call replaced it.
    todo: Option<Vec<TodoItem>>,
}

impl StagedBatch {
    /// Stages the start of a turn with its message, and the acceptance of its request if that is not committed.
    pub(super) fn stage_begin(&mut self, pending: &PendingTurn, shared: &Shared) {
        match pending.acceptance {
            Acceptance::NotEnqueued | Acceptance::Enqueued(_) => {
                self.records.push(pending.accepted_record());
                self.turns = pending.turn;
            }
            Acceptance::Committed => self.is_turn_committed = true,
            Acceptance::Reopened(_) => self.stage_reopen(pending, shared),
        }
        self.records.push(Record::TurnBegun { turn: pending.turn });
        // The acceptance record contains the message.
        self.stage_without_record(pending.message.to_message(), shared);
    }

    /// Stages the resumption of a turn.
    pub(super) fn stage_reopen(&mut self, pending: &PendingTurn, shared: &Shared) {
        let messages = match pending.acceptance {
            Acceptance::Reopened(messages) => messages,
            Acceptance::NotEnqueued | Acceptance::Enqueued(_) | Acceptance::Committed => {
                shared.published.read().window.messages().len()
            }
        };
        let request_id = pending.message.request_id.clone();
        self.records.push(Record::TurnReopened { turn: pending.turn, request_id, messages });
        self.truncate_to = Some(messages);
        self.is_turn_committed = true;
    }

    pub(super) fn stage(&mut self, message: Message, shared: &Shared) {
        self.records.push(Record::MessageAdded(Box::new(message.clone())));
        self.stage_without_record(message, shared);
    }

    /// Stages a compaction. Nothing else is staged at that time: it happens between two steps of a turn.
    pub(super) fn stage_compaction(&mut self, compacted: CompactedWindow) {
        self.records.push(Record::Compacted(Box::new(compacted.record)));
        self.compacted = Some(compacted.window);
    }

    /// Stages a message that another record contains.
    fn stage_without_record(&mut self, message: Message, shared: &Shared) {
        tracing::info!(target: "nexus3::context", role = message.role.as_str(), text = %message.text);
        for call in &message.tool_calls {
            tracing::info!(target: "nexus3::context", role = "tool call", text = %format_args!("{}({})", call.name, call.arguments));
        }
        // Counted here, outside the lock.
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

    /// Whether the turn is committed.
    pub(super) fn is_turn_committed(&self) -> bool {
        self.is_turn_committed
    }

    /// Enqueues the staged batch at the store.
    pub(super) fn enqueue(&mut self, shared: &Shared) {
        let (records, messages) = (std::mem::take(&mut self.records), std::mem::take(&mut self.messages));
        let (truncate_to, end, compacted) = (self.truncate_to.take(), self.end.take(), self.compacted.take());
        let now = shared.clock.now();
        // Derived from the published (committed) state, so that a rejected batch leaves no trace.
        let (usage_totals, calibration, todo, message_count) = {
            let mut state = shared.published.write();
            (
                state.usage_totals,
                state.calibration,
                state.staged_todo.take(),
                compacted.as_ref().unwrap_or(&state.window).messages().len(),
            )
        };
        let commit = shared.append(records, |state| {
            state.messages = (truncate_to.unwrap_or(message_count) + messages.len()) as u64;
            state.turns = state.turns.max(self.turns);
            state.usage_totals = usage_totals;
            state.calibration = calibration;
            if let Some(todo) = &todo {
                state.todo.clone_from(todo);
            }
            state.last_action_at = Some(now);
            if let Some((halted, rounds)) = end {
                state.halted = halted;
                state.last_rounds = rounds;
            }
        });
        self.enqueued = Some(EnqueuedBatch { commit, at: now, messages, compacted, truncate_to, todo });
    }

    /// Waits for the commit result of the batch in flight. Cancel safe.
    pub(super) async fn committed(&mut self) -> Result<(), StoreFault> {
        match &mut self.enqueued {
            Some(batch) => (&mut batch.commit).await,
            None => Ok(()),
        }
    }

    /// Publishes the committed batch to readers.
    pub(super) fn publish(&mut self, shared: &Shared) {
        let Some(EnqueuedBatch { at, messages, compacted, truncate_to, todo, .. }) = self.enqueued.take()
        else {
            return;
        };
        self.is_turn_committed = true;
        let mut state = shared.published.write();
        if let Some(compacted) = compacted {
            state.window = compacted;
        }
        if let Some(truncate_to) = truncate_to {
            state.window.truncate(truncate_to);
        }
        messages.into_iter().for_each(|message| state.window.push(message));
        if let Some(todo) = todo {
            state.todo = todo;
        }
        state.last_action_at = Some(at);
    }
}
