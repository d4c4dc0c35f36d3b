//! What a turn has to keep: staged while it goes on, put in line together, and shown to others when it is kept.

use agent::journal::Record;
use agent::outside::{Doing, Moment, StoreFault};
use agent::{Counted, Message, RequestId, TurnEnd, Window};

use super::super::folding::Fold;
use super::super::open::{Acceptance, Open};
use crate::handle::Shared;

/// What waits to be kept, and what is on its way.
#[derive(Default)]
pub(super) struct Staged {
    records: Vec<Record>,
    messages: Vec<Counted>,
    /// The context, if it was made shorter.
    folded: Option<Window>,
    /// Messages that stay in the context before those are added, if some do not.
    cut: Option<usize>,
    turns: u64,
    end: Option<(Option<agent::Halt>, u64)>,
    in_line: Option<InLine>,
    is_begun: bool,
}

struct InLine {
    keeping: Doing<'static, Result<(), StoreFault>>,
    /// When it was put in line: what others see is what is kept.
    at: Moment,
    messages: Vec<Counted>,
    folded: Option<Window>,
    cut: Option<usize>,
}

impl Staged {
    /// A turn begins: with its send, if nobody has kept that.
    pub(super) fn begin(&mut self, open: &Open, shared: &Shared) {
        match open.acceptance {
            Acceptance::Unknown | Acceptance::InLine(_) => {
                self.records.push(open.accepted());
                self.turns = open.turn;
            }
            Acceptance::Kept => self.is_begun = true,
            Acceptance::Reopened(_) => self.reopen(open, shared),
        }
        self.records.push(Record::TurnBegun { turn: open.turn });
    }

    /// A turn goes on.
    pub(super) fn reopen(&mut self, open: &Open, shared: &Shared) {
        let messages = match open.acceptance {
            Acceptance::Reopened(messages) => messages,
            Acceptance::Unknown | Acceptance::InLine(_) | Acceptance::Kept => {
                shared.published.read().window.messages().len()
            }
        };
        let request_id = open.message.request_id.clone();
        self.records.push(Record::TurnReopened { turn: open.turn, request_id, messages });
        self.cut = Some(messages);
        self.is_begun = true;
    }

    pub(super) fn keep(&mut self, message: Message, shared: &Shared) {
        self.records.push(Record::MessageKept(Box::new(message.clone())));
        self.show(message, shared);
    }

    /// The context is made shorter. Nothing else is staged then: a fold comes between what a turn does.
    pub(super) fn fold(&mut self, fold: Fold) {
        self.records.push(Record::Folded(Box::new(fold.record)));
        self.folded = Some(fold.window);
    }

    /// A message that is in the journal by itself.
    pub(super) fn show(&mut self, message: Message, shared: &Shared) {
        tracing::info!(target: "nexus3::context", role = message.role.as_str(), text = %message.text);
        for call in &message.tool_calls {
            tracing::info!(target: "nexus3::context", role = "tool call", text = %format_args!("{}({})", call.name, call.arguments));
        }
        // Counted here, where nobody waits for a lock.
        self.messages.push(Counted::new(message, &|text| shared.provider.count(text)));
    }

    pub(super) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    pub(super) fn end(&mut self, turn: u64, request_id: &RequestId, end: &TurnEnd) {
        self.end = Some((end.halted, end.rounds));
        let (request_id, end) = (request_id.clone(), Box::new(end.clone()));
        self.records.push(Record::TurnEnded { turn, request_id, end });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.in_line.is_some()
    }

    /// Whether the store knows of the turn.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Puts everything that waits in line.
    pub(super) fn put_in_line(&mut self, shared: &Shared) {
        let (records, messages) = (std::mem::take(&mut self.records), std::mem::take(&mut self.messages));
        let (cut, end, folded) = (self.cut.take(), self.end.take(), self.folded.take());
        let now = shared.clock.now();
        // What is shown is what is kept: counted from there, a call that was refused leaves no trace.
        let (used, gauge, there) = {
            let state = shared.published.read();
            (state.used, state.gauge, folded.as_ref().unwrap_or(&state.window).messages().len())
        };
        let keeping = shared.append(records, |state| {
            state.messages = (cut.unwrap_or(there) + messages.len()) as u64;
            state.turns = state.turns.max(self.turns);
            state.used = used;
            state.gauge = gauge;
            state.last_action_at = Some(now);
            if let Some((halted, rounds)) = end {
                state.halted = halted;
                state.last_rounds = rounds;
            }
        });
        self.in_line = Some(InLine { keeping, at: now, messages, folded, cut });
    }

    /// Returns when what is in line is kept, or is not. Safe to drop and call again.
    pub(super) async fn kept(&mut self) -> Result<(), StoreFault> {
        match &mut self.in_line {
            Some(in_line) => (&mut in_line.keeping).await,
            None => Ok(()),
        }
    }

    /// What was in line is kept: now others may see it.
    pub(super) fn publish(&mut self, shared: &Shared) {
        let Some(InLine { at, messages, folded, cut, .. }) = self.in_line.take() else { return };
        self.is_begun = true;
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
