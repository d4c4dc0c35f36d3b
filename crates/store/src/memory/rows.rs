//! Tables of the in-memory store. A batch is applied as a whole or undone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use agent::journal::{AgentRecord, AgentState, DAEMON, Record, Serial, StoredLedger, StoredPermissions};
use agent::outside::{
    Append, ChangeWrite, EntryRange, IndexRow, JournalBounds, JournalEntry, KeyRange, Namespace, StoreFault,
    StoredAgent, StoredTurn, StoredValue, Timestamp, TurnChanges, ValueChange, ValueWrite,
};
use agent::{AgentId, RequestId, TurnEnd};

use super::file_changes::{AgentChanges, FileChanges};
use super::values::{NamespaceValues, Values};

use crate::batch::{check_integer_range, is_daemon_record, later_parent, refusal, requires_live_agent};
use crate::digest::{self, Digest};

/// The journal, agents and turns of an in-memory store.
#[derive(Default)]
pub(super) struct Rows {
    entries: Vec<Arc<JournalEntry>>,
    /// For each agent, the indexes of its entries in `entries`, in ascending order.
    entry_indexes: BTreeMap<Serial, Vec<usize>>,
    agents: BTreeMap<Serial, AgentRow>,
    /// Live agents only.
    serial_by_id: HashMap<AgentId, Serial>,
    children: BTreeMap<Serial, BTreeSet<Serial>>,
    turns: BTreeMap<Serial, HashMap<RequestId, TurnRow>>,
    values: Values,
    file_changes: FileChanges,
    /// Changes of the current batch, undone if it is refused.
    undo_log: Vec<UndoStep>,
}

#[derive(Clone)]
struct AgentRow {
    record: Arc<AgentRecord>,
    state: AgentState,
    ledger: StoredLedger,
    is_destroyed: bool,
}

#[derive(Clone)]
struct TurnRow {
    turn: u64,
    content_digest: Digest,
    end: Option<(TurnEnd, Timestamp)>,
}

enum UndoStep {
    Agent(Serial, Option<Box<AgentRow>>),
    Turn(Serial, RequestId, Option<TurnRow>),
    Turns(Serial, HashMap<RequestId, TurnRow>),
    Values(Serial, NamespaceValues),
    FileChanges(Serial, AgentChanges),
}

impl Rows {
    pub(super) fn commit(&mut self, appends: Vec<Append>) -> Result<Vec<Arc<JournalEntry>>, StoreFault> {
        check_integer_range(&appends)?;
        let before = self.entries.len();
        self.undo_log.clear();
        for append in appends {
            if let Err(fault) = self.apply_append(append) {
                self.roll_back(before);
                return Err(fault);
            }
        }
        Ok(self.entries[before..].to_vec())
    }

    fn apply_append(&mut self, append: Append) -> Result<(), StoreFault> {
        let (agent, at) = (append.agent, append.at);
        let is_new = matches!(append.records.first(), Some(Record::Created(_)));
        if agent != DAEMON && append.state.is_some() && !is_new && !self.is_live(agent) {
            return Err(refusal::no_agent());
        }
        if agent == DAEMON {
            if let Some(record) = append.records.iter().find(|record| !is_daemon_record(record)) {
                return Err(refusal::invalid_for_daemon(record.kind()));
            }
            if append.state.is_some() {
                return Err(refusal::invalid_for_daemon("state"));
            }
        }
        for record in append.records {
            self.apply_record(agent, at, &record)?;
            self.push_entry(agent, append.agent_id.clone(), at, record);
        }
        if let Some(state) = append.state {
            self.update_agent(agent, |row| row.state = state);
        }
        for (serial, ledger) in append.ledgers {
            self.update_agent(serial, |row| {
                if ledger.version > row.ledger.version {
                    row.ledger = ledger;
                }
            });
        }
        Ok(())
    }

    fn apply_record(&mut self, agent: Serial, at: Timestamp, record: &Record) -> Result<(), StoreFault> {
        if agent != DAEMON && requires_live_agent(record) && !self.is_live(agent) {
            return Err(refusal::no_agent());
        }
        match record {
            Record::Created(record) => self.create(agent, record)?,
            Record::PermissionsChanged { permissions, .. } => {
                self.update_agent(agent, |row| {
                    Arc::make_mut(&mut row.record).permissions = StoredPermissions::clone(permissions);
                });
            }
            Record::Renamed { id, .. } => {
                if self.serial_by_id.get(id).is_some_and(|holder| *holder != agent) {
                    return Err(StoreFault::DuplicateAgentId);
                }
                self.update_agent(agent, |row| Arc::make_mut(&mut row.record).id = id.clone());
            }
            Record::Destroyed { .. } => self.destroy(agent),
            Record::TurnAccepted(accepted) => {
                if self.turn_row(agent, &accepted.request_id).is_some() {
                    return Err(StoreFault::DuplicateRequestId);
                }
                let content = digest::digest_content(&accepted.message);
                let row = TurnRow { turn: accepted.turn, content_digest: content, end: None };
                self.set_turn(agent, &accepted.request_id, Some(row));
            }
            Record::TurnEnded { request_id, end, .. } => {
                let open = self.turn_row(agent, request_id).filter(|row| row.end.is_none());
                let mut row = open.cloned().ok_or_else(refusal::no_open_turn)?;
                row.end = Some((TurnEnd::clone(end), at));
                self.set_turn(agent, request_id, Some(row));
            }
            Record::TurnReopened { request_id, .. } => {
                let mut row = self.turn_row(agent, request_id).cloned().ok_or_else(refusal::no_turn)?;
                row.end = None;
                self.set_turn(agent, request_id, Some(row));
            }
            Record::TurnUndone { turn, .. } => {
                if let Some(before) = self.file_changes.mark_undone(agent, *turn) {
                    self.undo_log.push(UndoStep::FileChanges(agent, before));
                }
            }
            Record::Finished { .. }
            | Record::TurnBegun { .. }
            | Record::MessageAdded(_)
            | Record::Steered { .. }
            | Record::CallBegun { .. }
            | Record::CallDone { .. }
            | Record::ApprovalRequested(_)
            | Record::ApprovalAnswered(_)
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => {}
        }
        Ok(())
    }

    fn create(&mut self, agent: Serial, record: &AgentRecord) -> Result<(), StoreFault> {
        if self.entry_indexes.contains_key(&agent) || self.agents.contains_key(&agent) {
            return Err(refusal::serial_reused(agent));
        }
        if let Some(parent) = later_parent(agent, record) {
            return Err(refusal::later_parent(parent));
        }
        if let Some(parent) = record.parent.filter(|parent| !self.agents.contains_key(parent)) {
            return Err(refusal::no_parent(parent));
        }
        if self.serial_by_id.contains_key(&record.id) {
            return Err(StoreFault::DuplicateAgentId);
        }
        let row = AgentRow {
            record: Arc::new(record.clone()),
            state: AgentState::default(),
            ledger: StoredLedger::default(),
            is_destroyed: false,
        };
        self.set_agent(agent, Some(row));
        Ok(())
    }

    /// Destroys an agent, and removes it and its destroyed ancestors as far as they have no children.
    fn destroy(&mut self, agent: Serial) {
        if let Some(turns) = self.turns.remove(&agent) {
            self.undo_log.push(UndoStep::Turns(agent, turns));
        }
        if let Some(changes) = self.file_changes.take(agent) {
            self.undo_log.push(UndoStep::FileChanges(agent, changes));
        }
        self.update_agent(agent, |row| row.is_destroyed = true);
        let mut next = Some(agent);
        while let Some(serial) = next {
            let has_children = self.children.get(&serial).is_some_and(|children| !children.is_empty());
            let Some(row) = self.agents.get(&serial).filter(|row| row.is_destroyed && !has_children) else {
                return;
            };
            next = row.record.parent;
            self.set_agent(serial, None);
            if let Some(values) = self.values.take(Namespace::Tree(serial)) {
                self.undo_log.push(UndoStep::Values(serial, values));
            }
        }
    }

    fn push_entry(&mut self, agent: Serial, agent_id: Option<AgentId>, at: Timestamp, record: Record) {
        let indexes = self.entry_indexes.entry(agent).or_default();
        indexes.push(self.entries.len());
        let (sequence, agent_sequence) = (self.entries.len() as u64 + 1, indexes.len() as u64);
        let entry = JournalEntry { sequence, agent, agent_id, agent_sequence, at, record };
        self.entries.push(Arc::new(entry));
    }

    fn is_live(&self, agent: Serial) -> bool {
        self.agents.get(&agent).is_some_and(|row| !row.is_destroyed)
    }

    fn turn_row(&self, agent: Serial, request_id: &RequestId) -> Option<&TurnRow> {
        self.turns.get(&agent)?.get(request_id)
    }

    /// Changes an agent's row, if there is one.
    fn update_agent(&mut self, agent: Serial, change: impl FnOnce(&mut AgentRow)) {
        if let Some(mut row) = self.agents.get(&agent).cloned() {
            change(&mut row);
            self.set_agent(agent, Some(row));
        }
    }

    fn set_agent(&mut self, agent: Serial, row: Option<AgentRow>) {
        let old = self.put_agent(agent, row);
        self.undo_log.push(UndoStep::Agent(agent, old.map(Box::new)));
    }

    /// Replaces an agent's row. The only code that changes agents, ids and children, so that they stay consistent.
    fn put_agent(&mut self, agent: Serial, row: Option<AgentRow>) -> Option<AgentRow> {
        let old = self.agents.remove(&agent);
        if let Some(old) = &old {
            if !old.is_destroyed {
                self.serial_by_id.remove(&old.record.id);
            }
            if let Some(children) = old.record.parent.and_then(|parent| self.children.get_mut(&parent)) {
                children.remove(&agent);
            }
        }
        if let Some(row) = row {
            if !row.is_destroyed {
                self.serial_by_id.insert(row.record.id.clone(), agent);
            }
            if let Some(parent) = row.record.parent {
                self.children.entry(parent).or_default().insert(agent);
            }
            self.agents.insert(agent, row);
        }
        old
    }

    fn set_turn(&mut self, agent: Serial, request_id: &RequestId, row: Option<TurnRow>) {
        let old = self.put_turn(agent, request_id, row);
        self.undo_log.push(UndoStep::Turn(agent, request_id.clone(), old));
    }

    fn put_turn(&mut self, agent: Serial, request_id: &RequestId, row: Option<TurnRow>) -> Option<TurnRow> {
        let turns = self.turns.entry(agent).or_default();
        match row {
            Some(row) => turns.insert(request_id.clone(), row),
            None => turns.remove(request_id),
        }
    }

    fn roll_back(&mut self, entries: usize) {
        for entry in self.entries.drain(entries..) {
            if let Some(indexes) = self.entry_indexes.get_mut(&entry.agent) {
                indexes.pop();
                if indexes.is_empty() {
                    self.entry_indexes.remove(&entry.agent);
                }
            }
        }
        while let Some(undo) = self.undo_log.pop() {
            match undo {
                UndoStep::Agent(agent, row) => drop(self.put_agent(agent, row.map(|row| *row))),
                UndoStep::Turn(agent, request_id, row) => drop(self.put_turn(agent, &request_id, row)),
                UndoStep::Turns(agent, turns) => drop(self.turns.insert(agent, turns)),
                UndoStep::Values(root, values) => self.values.restore(Namespace::Tree(root), values),
                UndoStep::FileChanges(agent, changes) => self.file_changes.restore(agent, changes),
            }
        }
    }
}

/// The key-value store.
impl Rows {
    pub(super) fn write_value(&mut self, write: ValueWrite) -> Result<bool, StoreFault> {
        let is_store = matches!(write.change, ValueChange::Store { .. });
        match write.namespace {
            Namespace::Tree(root) if is_store && !self.agents.contains_key(&root) => Err(refusal::no_agent()),
            _ => self.values.write(write),
        }
    }

    pub(super) fn value(&self, namespace: Namespace, key: &str, at: Timestamp) -> Option<StoredValue> {
        self.values.get(namespace, key, at)
    }

    pub(super) fn keys(&self, range: &KeyRange) -> Vec<String> {
        self.values.keys(range)
    }
}

/// The recorded file changes.
impl Rows {
    pub(super) fn record_changes(&mut self, write: ChangeWrite) -> Result<(), StoreFault> {
        if !self.is_live(write.agent) {
            return Err(refusal::no_agent());
        }
        self.file_changes.record(write);
        Ok(())
    }

    pub(super) fn turn_changes(&self, agent: Serial, turn: Option<u64>) -> Option<TurnChanges> {
        self.file_changes.of_turn(agent, turn)
    }
}

/// Queries.
impl Rows {
    pub(super) fn index(&self) -> Vec<IndexRow> {
        let row = |(serial, row): (&Serial, &AgentRow)| IndexRow {
            serial: *serial,
            id: row.record.id.clone(),
            parent: row.record.parent,
            capability_digest: row.record.capability_digest,
            is_destroyed: row.is_destroyed,
            is_finished: row.state.is_finished,
        };
        self.agents.iter().map(row).collect()
    }

    pub(super) fn last_serial(&self) -> Serial {
        self.entry_indexes.keys().next_back().copied().unwrap_or(DAEMON)
    }

    pub(super) fn agents(&self, serials: &[Serial]) -> Vec<StoredAgent> {
        let stored = |serial: &Serial| {
            let AgentRow { record, state, ledger, is_destroyed } = self.agents.get(serial)?.clone();
            let record = AgentRecord::clone(&record);
            Some(StoredAgent { serial: *serial, record, state, ledger, is_destroyed })
        };
        serials.iter().filter_map(stored).collect()
    }

    pub(super) fn history(&self, agent: Serial) -> Vec<Record> {
        let indexes = self.entry_indexes.get(&agent).map_or(&[][..], Vec::as_slice);
        indexes.iter().map(|index| self.entries[*index].record.clone()).collect()
    }

    pub(super) fn agents_with_open_turns(&self) -> Vec<Serial> {
        let has_open = |turns: &HashMap<_, TurnRow>| turns.values().any(|row| row.end.is_none());
        self.turns.iter().filter(|(_, turns)| has_open(turns)).map(|(serial, _)| *serial).collect()
    }

    pub(super) fn turn(&self, agent: Serial, request_id: &RequestId) -> Option<StoredTurn> {
        let TurnRow { turn, content_digest, end } = self.turn_row(agent, request_id)?.clone();
        Some(StoredTurn { turn, content_digest, end: end.map(|(end, _)| end) })
    }

    pub(super) fn read(&self, range: EntryRange) -> Vec<Arc<JournalEntry>> {
        let Some(agent) = range.agent else {
            let first = usize::try_from(range.after).unwrap_or(usize::MAX).min(self.entries.len());
            return page(self.entries[first..].iter(), range);
        };
        let indexes = self.entry_indexes.get(&agent).map_or(&[][..], Vec::as_slice);
        let first = indexes.partition_point(|index| self.entries[*index].sequence <= range.after);
        page(indexes[first..].iter().map(|index| &self.entries[*index]), range)
    }

    pub(super) fn bounds(&self) -> JournalBounds {
        JournalBounds { first: 1, last: self.entries.len() as u64 }
    }

    pub(super) fn prune_turns(&mut self, before: Timestamp) -> u64 {
        let mut pruned = 0;
        for turns in self.turns.values_mut() {
            let count = turns.len();
            turns.retain(|_, row| row.end.as_ref().is_none_or(|(_, at)| *at >= before));
            pruned += (count - turns.len()) as u64;
        }
        pruned
    }
}

/// Takes entries up to the range's limits, but at least one unless the limit is zero.
fn page<'a>(
    entries: impl Iterator<Item = &'a Arc<JournalEntry>>,
    range: EntryRange,
) -> Vec<Arc<JournalEntry>> {
    let mut bytes: usize = 0;
    let fits = |entry: &&Arc<JournalEntry>| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(entry.record.content_bytes());
        is_first || bytes <= range.bytes_max
    };
    entries.take(range.limit).take_while(fits).cloned().collect()
}
