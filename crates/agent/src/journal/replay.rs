//! Reads an agent's records again: which messages are in its context, and how far each open turn had come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{AcceptedTurn, CompactionRecord, Record};
use crate::{Message, Role, ToolCall, ToolClass, ToolOutcome, TurnOutcome, compaction};

/// What an agent's records add up to.
#[derive(Debug, Default)]
pub struct Replay {
    messages: Vec<Arc<Message>>,
    open_turns: VecDeque<OpenTurn>,
    /// Turns that were interrupted last, each with the messages there were then: they may be opened again.
    interrupted: Vec<(OpenTurn, usize)>,
}

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// What was taken.
    pub accepted: AcceptedTurn,
    /// How far it had come.
    pub stage: TurnStage,
    /// How often it was opened again.
    pub attempts: u32,
}

/// How far a turn had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnStage {
    /// It had not begun.
    Waiting,
    /// It had begun.
    Running(TurnProgress),
}

/// What a turn had done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnProgress {
    /// Answers of the model that are in the context.
    pub responses: u64,
    /// What it had said.
    pub content: String,
    /// The calls of its last answer, while their results are not in the context.
    pub calls: Vec<ToolCall>,
    /// Those that were about to run, by their place.
    pub started_calls: BTreeMap<usize, ToolClass>,
    /// Those that were done.
    pub finished_calls: BTreeMap<usize, ToolOutcome>,
    /// Words that were added and are not in the context.
    pub steers: VecDeque<Message>,
}

/// Interrupted turns that are remembered, so that one of them can be opened again.
const INTERRUPTED_MAX: usize = 64;

impl Replay {
    /// Reads all records of an agent.
    #[must_use]
    pub fn from_records(records: impl IntoIterator<Item = Record>) -> Self {
        let mut replay = Self::default();
        records.into_iter().for_each(|record| replay.apply(record));
        replay
    }

    /// The messages of the context and the turns that are open, in the order they were taken; but the one that runs comes
    /// first, because its question is in the context.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Arc<Message>>, VecDeque<OpenTurn>) {
        self.open_turns.make_contiguous().sort_by_key(|open| open.stage == TurnStage::Waiting);
        (self.messages, self.open_turns)
    }

    /// An interrupted turn, as it would be if it were opened again; the messages that stay then. None when it had begun and
    /// others came behind it: the model would answer those again instead, and asked anew it would do again what it did.
    #[must_use]
    pub fn reopenable_turn(&self, turn: u64) -> Option<(OpenTurn, usize)> {
        let (open, end) = self.interrupted.iter().find(|(open, _)| open.accepted.turn == turn)?;
        let messages = self.messages.len();
        match open.stage {
            TurnStage::Running(_) if *end == messages => {
                Some((open.clone(), length_without_notice(&self.messages)))
            }
            TurnStage::Running(_) => None,
            TurnStage::Waiting => Some((open.clone(), messages)),
        }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::TurnAccepted(accepted) => {
                let open = OpenTurn { accepted: *accepted, stage: TurnStage::Waiting, attempts: 0 };
                self.open_turns.push_back(open);
            }
            Record::TurnBegun { turn } => self.begin_turn(turn),
            Record::MessageAdded(message) => self.add_message(*message),
            Record::Steered { turn, message } => {
                if let Some(progress) = self.progress(turn) {
                    progress.steers.push_back(*message);
                }
            }
            Record::CallBegun { turn, index: place, class, .. } => {
                if let Some(progress) = self.progress(turn) {
                    progress.started_calls.insert(place, class);
                }
            }
            Record::CallDone { turn, index: place, outcome } => {
                if let Some(progress) = self.progress(turn) {
                    progress.finished_calls.insert(place, outcome);
                }
            }
            Record::TurnEnded { turn, end, .. } => {
                self.end_turn(turn, matches!(end.outcome, TurnOutcome::Interrupted(_)));
            }
            Record::TurnReopened { turn, messages, .. } => self.reopen_turn(turn, messages),
            Record::RolledBack { messages, .. } => {
                self.messages.truncate(messages);
                // What they had begun is no longer there.
                self.interrupted.clear();
            }
            Record::Compacted(folded) => self.compact(&folded),
            Record::Created(_)
            | Record::PermissionsChanged { .. }
            | Record::Renamed { .. }
            | Record::Finished { .. }
            | Record::Destroyed { .. }
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => {}
        }
    }

    fn begin_turn(&mut self, turn: u64) {
        let Some(open) = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn) else { return };
        self.messages.push(Arc::new(open.accepted.message.clone()));
        open.stage = TurnStage::Running(TurnProgress::default());
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
                }
            }
        }
        self.messages.push(Arc::new(message));
    }

    fn end_turn(&mut self, turn: u64, was_interrupted: bool) {
        let Some(place) = self.open_turns.iter().position(|open| open.accepted.turn == turn) else { return };
        let Some(mut open) = self.open_turns.remove(place) else { return };
        if was_interrupted {
            if let TurnStage::Running(progress) = &mut open.stage {
                // Whatever was missing got its result when the turn was interrupted.
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
        let place = self.interrupted.iter().position(|(open, _)| open.accepted.turn == turn);
        if let Some(place) = place {
            // Nobody waited for it in line: it goes first.
            self.open_turns.push_front(self.interrupted.remove(place).0);
        }
        if let Some(open) = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn) {
            open.attempts += 1;
        }
    }

    fn compact(&mut self, folded: &CompactionRecord) {
        let before = self.messages.len();
        self.messages = folded.apply(&self.messages);
        let after = self.messages.len();
        // A turn that was interrupted last can still go on, if what it ended with is there.
        let keeps_end = folded.retains_last(before);
        self.interrupted.retain_mut(|(open, end)| {
            let is_last = *end == before;
            *end = if is_last { after } else { *end };
            open.stage == TurnStage::Waiting || (is_last && keeps_end)
        });
        if let Some(progress) = folded.turn.and_then(|turn| self.progress(turn)) {
            progress.content.push_str(&compaction::notice(folded.reclaimed()));
        }
    }

    fn progress(&mut self, turn: u64) -> Option<&mut TurnProgress> {
        let open = self.open_turns.iter_mut().find(|open| open.accepted.turn == turn)?;
        match &mut open.stage {
            TurnStage::Running(progress) => Some(progress),
            TurnStage::Waiting => None,
        }
    }

    /// One turn runs at a time.
    fn running_progress(&mut self) -> Option<&mut TurnProgress> {
        self.open_turns.iter_mut().find_map(|open| match &mut open.stage {
            TurnStage::Running(progress) => Some(progress),
            TurnStage::Waiting => None,
        })
    }
}

/// An interrupted turn leaves an empty answer at the end, so that the context does not end on a question. It is taken
/// back when the turn goes on.
fn length_without_notice(messages: &[Arc<Message>]) -> usize {
    let is_notice = |message: &&Arc<Message>| {
        message.role == Role::Assistant && message.ending == Some(crate::Ending::Interrupted)
    };
    messages.len() - usize::from(messages.last().filter(is_notice).is_some())
}
