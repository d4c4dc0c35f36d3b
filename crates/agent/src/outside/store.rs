//! The store interface. [`Store::append`] enqueues synchronously and its future resolves after commit; by then every
//! earlier append is committed or was rejected.

use std::sync::Arc;

use super::{BoxFuture, ENTRIES_MAX, FileChangeStore, KeyValueStore, Timestamp};
use crate::journal::{AgentRecord, AgentState, Record, Serial, StoredLedger};
use crate::{AgentId, Fault, FaultKind, RequestId, TurnEnd};

/// Records, state and ledgers of one agent, committed atomically with the other appends of the same call.
#[derive(Debug, Clone)]
pub struct Append {
    /// The serial of the agent.
    pub agent: Serial,
    /// The agent's id; none for the daemon.
    pub agent_id: Option<AgentId>,
    /// When the records were created.
    pub at: Timestamp,
    /// The records, in order.
    pub records: Vec<Record>,
    /// The agent's state after them, if it changed.
    pub state: Option<AgentState>,
    /// Changed ledgers of the agent or its ancestors.
    pub ledgers: Vec<(Serial, StoredLedger)>,
}

/// A committed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its sequence number in the whole journal, from 1, without gaps.
    pub sequence: u64,
    /// The serial of the agent.
    pub agent: Serial,
    /// The agent's id at that time; none for the daemon.
    pub agent_id: Option<AgentId>,
    /// Its sequence number among the agent's own records, from 1, without gaps.
    pub agent_sequence: u64,
    /// When the record was created.
    pub at: Timestamp,
    /// The record.
    pub record: Record,
}

/// One agent in the index of all agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRow {
    /// Its serial.
    pub serial: Serial,
    /// Its id.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<Serial>,
    /// The digest of its capability token.
    pub capability_digest: [u8; 32],
    /// Whether it was destroyed; the row remains while it has live descendants.
    pub is_destroyed: bool,
    /// Whether an admin marked it as finished.
    pub is_finished: bool,
}

/// One agent as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAgent {
    /// Its serial.
    pub serial: Serial,
    /// The record it is restored from, with its current id and permissions.
    pub record: AgentRecord,
    /// Its state.
    pub state: AgentState,
    /// Its ledger.
    pub ledger: StoredLedger,
    /// Whether it was destroyed.
    pub is_destroyed: bool,
}

/// One turn as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTurn {
    /// The number of the turn.
    pub turn: u64,
    /// The SHA-256 of the message's content.
    pub content_digest: [u8; 32],
    /// Its end; none while the turn is open.
    pub end: Option<TurnEnd>,
}

/// A range of journal entries to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRange {
    /// Restricts the range to one agent; none reads all agents.
    pub agent: Option<Serial>,
    /// The exclusive lower bound of the sequence.
    pub after: u64,
    /// The maximum number of entries.
    pub limit: usize,
    /// The approximate maximum size of all entries. The first entry is returned whatever its size.
    pub bytes_max: usize,
}

/// The lowest and highest sequence of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalBounds {
    /// The lowest stored sequence; `last + 1` if the journal is empty.
    pub first: u64,
    /// The highest sequence; zero if there never was an entry.
    pub last: u64,
}

/// Why a store operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The agent already has a turn with that request id. Nothing of the call was committed.
    #[error("a turn with that request id exists")]
    DuplicateRequestId,
    /// An agent with that id exists already. Nothing of the call was committed.
    #[error("an agent with that name exists")]
    DuplicateAgentId,
    /// There is no such agent. Nothing of the call was committed.
    #[error("agent not found")]
    NotFound,
    /// The namespace has the maximum number of entries. Nothing of the call was committed.
    #[error("the namespace has {ENTRIES_MAX} entries, which is the limit")]
    NamespaceFull,
    /// The disk is full. Nothing of the call was committed; a retry may succeed.
    #[error("disk full: {0}")]
    Full(String),
    /// The store failed and accepts no more appends: it is unknown how much of the last batch is on disk.
    #[error("the store has failed: {0}")]
    Failed(String),
    /// The store is closed, because the daemon shuts down.
    #[error("the store is closed")]
    Closed,
    /// Stored data cannot be decoded.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// The suggested retry delay while the disk is full.
const FULL_RETRY_AFTER_MS: u64 = 1000;

/// The suggested retry delay while the daemon shuts down.
const CLOSED_RETRY_AFTER_MS: u64 = 250;

impl From<StoreFault> for Fault {
    fn from(fault: StoreFault) -> Self {
        let (kind, public) = match &fault {
            StoreFault::DuplicateRequestId => {
                (FaultKind::Invalid, "request_id was used before with other content")
            }
            StoreFault::DuplicateAgentId => (FaultKind::Invalid, "Agent already exists"),
            StoreFault::NotFound => (FaultKind::NotFound, "Agent not found"),
            StoreFault::NamespaceFull => {
                let text = format!("{fault}: delete some, or store several values under one key");
                return Fault::new(FaultKind::Invalid, text);
            }
            StoreFault::Full(_) => (
                FaultKind::Full { retry_after_ms: FULL_RETRY_AFTER_MS },
                "storage full: nothing was saved; free space on the disk of the daemon's home and try again",
            ),
            StoreFault::Failed(_) => {
                (FaultKind::Internal, "Internal error: the store has failed; restart the daemon")
            }
            StoreFault::Closed => {
                (FaultKind::Busy { retry_after_ms: CLOSED_RETRY_AFTER_MS }, "Server shutting down")
            }
            StoreFault::Corrupt(_) => {
                (FaultKind::Internal, "Internal error: the store is damaged; run nexus3 check")
            }
        };
        Fault::new(kind, public).caused_by(fault)
    }
}

/// A listener for committed entries.
pub trait CommitListener: Send + Sync {
    /// Called after each commit, with the entries in the order of their sequences; each entry exactly once. Must not
    /// block.
    fn committed(&self, entries: &[Arc<JournalEntry>]);

    /// Called when the store fails and accepts no more appends.
    fn store_failed(&self, why: &str);
}

/// Durable storage of agents, their journals, their key-value entries and the files that they replaced.
pub trait Store: KeyValueStore + FileChangeStore {
    /// Appends all or nothing. Enqueued when this function returns; committed when the future resolves to `Ok`.
    ///
    /// `Created` inserts an agent; `PermissionsChanged`, `Renamed` and `Destroyed` update its record. A destroyed agent
    /// is deleted once it has no descendants, and with a root the entries of its tree. `TurnAccepted` opens a turn,
    /// `TurnEnded` closes it, `TurnReopened` opens it again, or leaves it open. `TurnUndone` deletes its file
    /// changes.
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>>;

    /// All agents, by ascending serial.
    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>>;

    /// The highest serial ever assigned.
    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>>;

    /// The stored agents with these serials; missing ones are omitted.
    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>>;

    /// All records of one agent, in order.
    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>>;

    /// The agents that have open turns, by ascending serial.
    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>>;

    /// Looks up a turn by its request id.
    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>>;

    /// Reads entries by ascending sequence.
    fn read(&self, range: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>>;

    /// The bounds of the journal.
    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>>;

    /// Deletes the request ids of turns that ended before `before`; returns their number. Their records stay.
    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>>;

    /// Sets the commit listener. There is only one: a second call replaces it.
    fn set_listener(&self, listener: Arc<dyn CommitListener>);

    /// Stops accepting appends and resolves when all enqueued ones are committed.
    fn close(&self) -> BoxFuture<'_, ()>;
}
