//! Rebuilds an agent from its records: the messages in its context and the progress of each open turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{AcceptedTurn, ApprovalAnswer, ApprovalRequest, CompactionRecord, Record};
use crate::{Message, Role, ToolCall, ToolClass, ToolOutcome, TurnOutcome, compaction};

/// The state that an agent's records replay to.
#[derive(Debug, Default)]
pub struct Replay {
    messages: Vec<Arc<Message>>,
    open_turns: VecDeque<OpenTurn>,
    /// The most recently interrupted turns, each with the context length at that time: they may be reopened.
    interrupted: Vec<(OpenTurn, usize)>,
}

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// The accepted message.
    pub accepted: AcceptedTurn,
    /// The state it had reached.
    pub state: OpenTurnState,
    /// How often it was reopened.
    pub attempts: u32,
}

/// The state of an open turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenTurnState {
    /// Still queued.
    Waiting,
    /// Begun, with its progress.
    Running(TurnProgress),
}

/// The progress of a running turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnProgress {
    /// Number of model responses in the context.
    pub responses: u64,
    /// The text produced so far, with notices.
    pub content: String,
    /// The tool calls of the last response, while their results are not in the context.
    pub calls: Vec<ToolCall>,
    /// Calls that were about to run, by index.
    pub started_calls: BTreeMap<usize, ToolClass>,
    /// Calls that finished, by index.
    pub finished_calls: BTreeMap<usize, ToolOutcome>,
    /// Approval requests, by the index of the call.
    pub approvals: BTreeMap<usize, ApprovalState>,
    /// Added instructions that are not in the context yet.
    pub steers: VecDeque<Message>,
}

/// An approval request of a running turn, and its answer if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalState {
    /// The request.
    pub request: ApprovalRequest,
    /// The answer.
    pub answer: Option<ApprovalAnswer>,
}

/// Limit of interrupted turns that are retained for reopening.
const INTERRUPTED_MAX: usize = 64;

impl Replay {
    /// Replays all records of an agent.
    #[must_use]
    pub fn from_records(records: impl IntoIterator<Item = Record>) -> Self {
        let mut replay = Self::default();
        records.into_iter().for_each(|record| replay.apply(record));
        replay
    }

    /// The messages of the context, and the open turns in the order of acceptance, except that the running turn comes
    /// first, because its message is already in the context.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Arc<Message>>, VecDeque<OpenTurn>) {
        self.open_turns.make_contiguous().sort_by_key(|open| open.state == OpenTurnState::Waiting);
        (self.messages, self.open_turns)
    }

    /// An interrupted turn as it would be reopened, and the context length to truncate to. None if the turn had begun
    /// and later turns followed: the model would respond to those instead, and a fresh run would repeat its side
    /// effects.
    #[must_use]
    pub fn reopenable_turn(&self, turn: u64) -> Option<(OpenTurn, usize)> {
        let (open, end) = self.interrupted.iter().find(|(open, _)| open.accepted.turn == turn)?;
        let messages = self.messages.len();
        match open.state {
            OpenTurnState::Running(_) if *end == messages => {
                Some((open.clone(), length_without_notice(&self.messages)))
            }
            OpenTurnState::Running(_) => None,
            OpenTurnState::Waiting => Some((open.clone(), messages)),
        }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::TurnAccepted(accepted) => {
                let open = OpenTurn { accepted: *accepted, state: OpenTurnState::Waiting, attempts: 0 };
                self.open_turns.push_back(open);
            }
            Record::TurnBegun { turn } => self.begin_turn(turn),
            Record::MessageAdded(message) => self.add_message(*message),
            Record::Steered { turn, message } => {
                if let Some(progress) = self.progress(turn) {
                    progress.steers.push_back(*message);
                }
            }
            Record::CallBegun { turn, index, class, .. } => {
                if let Some(progress) = self.progress(turn) {
                    progress.started_calls.insert(index, class);
                }
            }
            Record::CallDone { turn, index, outcome } => {
                if let Some(progress) = self.progress(turn) {
                    progress.finished_calls.insert(index, outcome);
                }
            }
            Record::ApprovalRequested(request) => {
                if let Some(progress) = self.progress(request.turn) {
                    progress
                        .approvals
                        .insert(request.index, ApprovalState { request: *request, answer: None });
                }
            }
            Record::ApprovalAnswered(answer) => {
                let progress = self.progress(answer.turn);
                let state = progress.and_then(|progress| progress.approvals.get_mut(&answer.index));
                if let Some(state) = state.filter(|state| state.request.id == answer.id) {
                    state.answer = Some(*answer);
                }
            }
            Record::TurnEnded { turn, end, .. } => {
                self.end_turn(turn, matches!(end.outcome, TurnOutcome::Interrupted(_)));
            }
            Record::TurnReopened { turn, messages, .. } => self.reopen_turn(turn, messages),
            Record::RolledBack { messages, .. } => {
                self.messages.truncate(messages);
                // The truncated messages may include those of interrupted turns.
                self.interrupted.clear();
            }
            Record::Compacted(compaction_record) => self.compact(&compaction_record),
            Record::Created(_)
            | Record::PermissionsChanged { .. }
            | Record::Renamed { .. }
            | Record::Finished { .. }
            | Record::TurnUndone { .. }
            | Record::Destroyed { .. }
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => {}
        }
    }

    fn begin_turn(&mut self, turn: u64) {
        let Some(open) = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn) else { return };
        self.messages.push(Arc::new(open.accepted.message.clone()));
        open.state = OpenTurnState::Running(TurnProgress::default());
    }

    fn add_message(&mut self, message: Message) {
        if let Some(progress) = self.running_progress() {
            match message.role {
                Role::User => drop(progress.steers.pop_front()),
                Role::Tool => progress.calls.clear(),
                Role::Assistant => {
                    progress.responses += 1;
                    progress.content.push_str(&message.text);
                    progress.calls.clone_from(&message.tool_calls);
                    progress.started_calls.clear();
                    progress.finished_calls.clear();
                    progress.approvals.clear();
                }
            }
        }
        self.messages.push(Arc::new(message));
    }

    fn end_turn(&mut self, turn: u64, was_interrupted: bool) {
        let Some(index) = self.open_turns.iter().position(|open| open.accepted.turn == turn) else { return };
        let Some(mut open) = self.open_turns.remove(index) else { return };
        if was_interrupted {
            if let OpenTurnState::Running(progress) = &mut open.state {
                // The interruption appended a result for every unfinished call.
                progress.calls.clear();
                progress.responses = progress.responses.saturating_sub(1);
            }
            if self.interrupted.len() >= INTERRUPTED_MAX {
                self.interrupted.remove(0);
            }
            self.interrupted.push((open, self.messages.len()));
        }
    }

    fn reopen_turn(&mut self, turn: u64, messages: usize) {
        self.messages.truncate(messages);
        let index = self.interrupted.iter().position(|(open, _)| open.accepted.turn == turn);
        if let Some(index) = index {
            // A reopened turn runs before the queued ones.
            self.open_turns.push_front(self.interrupted.remove(index).0);
        }
        if let Some(open) = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn) {
            open.attempts += 1;
        }
    }

    fn compact(&mut self, compaction_record: &CompactionRecord) {
        let before = self.messages.len();
        self.messages = compaction_record.apply(&self.messages);
        let after = self.messages.len();
        // The most recently interrupted turn stays reopenable if the compaction retains its last message.
        let retains_end = compaction_record.retains_last(before);
        self.interrupted.retain_mut(|(open, end)| {
            let is_last = *end == before;
            *end = if is_last { after } else { *end };
            open.state == OpenTurnState::Waiting || (is_last && retains_end)
        });
        if let Some(progress) = compaction_record.turn.and_then(|turn| self.progress(turn)) {
            progress.content.push_str(&compaction::notice(compaction_record.reclaimed()));
        }
    }

    fn progress(&mut self, turn: u64) -> Option<&mut TurnProgress> {
        let open = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn)?;
        match &mut open.state {
            OpenTurnState::Running(progress) => Some(progress),
            OpenTurnState::Waiting => None,
        }
    }

    /// The progress of the running turn; at most one turn runs at a time.
    fn running_progress(&mut self) -> Option<&mut TurnProgress> {
        self.open_turns.iter_mut().find_map(|open| match &mut open.state {
            OpenTurnState::Running(progress) => Some(progress),
            OpenTurnState::Waiting => None,
        })
    }
}

/// The context length without the notice of an interruption. An interrupted turn appends an empty assistant message, so
/// that the context does not end with a user message; resuming the turn removes it.
fn length_without_notice(messages: &[Arc<Message>]) -> usize {
    let is_notice = |message: &&Arc<Message>| {
        message.role == Role::Assistant && message.ending == Some(crate::Ending::Interrupted)
    };
    messages.len() - usize::from(messages.last().filter(is_notice).is_some())
}
