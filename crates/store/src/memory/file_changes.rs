//! Table of the recorded file changes of the in-memory store.

use std::collections::BTreeMap;

use agent::journal::Serial;
use agent::outside::{ChangeWrite, FileChange, NewChanges, TurnChanges, UNDO_AGENT_BYTES_MAX};

/// Changes by turn, for each agent.
#[derive(Default)]
pub(super) struct FileChanges(BTreeMap<Serial, AgentChanges>);

/// The changes of one agent by turn.
pub(super) type AgentChanges = BTreeMap<u64, TurnChanges>;

impl FileChanges {
    /// Records changes of a turn.
    pub(super) fn record(&mut self, write: ChangeWrite) {
        let turns = self.0.entry(write.agent).or_default();
        let turn = turns.entry(write.turn).or_insert_with(|| TurnChanges::new(write.turn));
        turn.is_undone = false;
        if turn.not_undoable.is_some() {
            return;
        }
        match write.changes {
            NewChanges::NotUndoable(why) => turn.not_undoable = Some(why),
            NewChanges::Recorded(changes) => {
                changes.into_iter().for_each(|change| merge(&mut turn.changes, change));
                turn.not_undoable = TurnChanges::excess(turn.changes.len(), bytes(turn));
            }
        }
        if turn.not_undoable.is_some() {
            turn.changes.clear();
        }
        drop_oldest(turns, write.turn);
    }

    pub(super) fn of_turn(&self, agent: Serial, turn: Option<u64>) -> Option<TurnChanges> {
        let turns = self.0.get(&agent)?;
        match turn {
            Some(turn) => turns.get(&turn).cloned(),
            None => turns.values().next_back().cloned(),
        }
    }

    /// Marks a turn as undone, and deletes its changes. Returns those of the agent before.
    pub(super) fn mark_undone(&mut self, agent: Serial, turn: u64) -> Option<AgentChanges> {
        let turns = self.0.get_mut(&agent)?;
        let before = turns.clone();
        if let Some(turn) = turns.get_mut(&turn) {
            turn.is_undone = true;
            turn.changes.clear();
        }
        Some(before)
    }

    /// Removes the changes of an agent.
    pub(super) fn take(&mut self, agent: Serial) -> Option<AgentChanges> {
        self.0.remove(&agent)
    }

    /// Restores the changes of an agent.
    pub(super) fn restore(&mut self, agent: Serial, changes: AgentChanges) {
        self.0.insert(agent, changes);
    }
}

fn bytes(turn: &TurnChanges) -> usize {
    turn.changes.iter().map(FileChange::bytes).sum()
}

/// Adds the change of a path, or merges it with the earlier one.
fn merge(changes: &mut Vec<FileChange>, change: FileChange) {
    match changes.binary_search_by(|earlier| earlier.path.as_str().cmp(change.path.as_str())) {
        Ok(index) => {
            changes[index].last_before = change.last_before;
            changes[index].after = change.after;
        }
        Err(index) => changes.insert(index, change),
    }
}

/// Drops the changes of the oldest turns until those of the agent are within its limit.
fn drop_oldest(turns: &mut AgentChanges, current: u64) {
    while turns.values().map(bytes).sum::<usize>() > UNDO_AGENT_BYTES_MAX {
        let is_oldest = |turn: &&mut TurnChanges| turn.turn != current && !turn.changes.is_empty();
        let Some(oldest) = turns.values_mut().find(is_oldest) else { return };
        oldest.changes.clear();
        oldest.not_undoable = Some(TurnChanges::dropped());
    }
}
