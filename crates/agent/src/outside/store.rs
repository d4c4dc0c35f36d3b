//! Where agents are kept. What is given to a store is in line at once, and kept when its future says so: everything
//! before it in the line is kept then, or was refused.

use std::sync::Arc;

use super::{BoxFuture, Timestamp};
use crate::journal::{AgentRecord, AgentState, Record, Serial, StoredLedger};
use crate::{AgentId, Fault, FaultKind, RequestId, TurnEnd};

/// Things of one agent that are kept together with whatever else is in the same call, or not at all.
#[derive(Debug, Clone)]
pub struct Append {
    /// Whose they are.
    pub agent: Serial,
    /// The agent's name; none for the daemon.
    pub agent_id: Option<AgentId>,
    /// When they happened.
    pub at: Timestamp,
    /// What happened, in order.
    pub records: Vec<Record>,
    /// The agent's state after them, if it is another one.
    pub state: Option<AgentState>,
    /// Ledgers that changed, the agent's own or an ancestor's.
    pub ledgers: Vec<(Serial, StoredLedger)>,
}

/// A record that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its place in the whole journal, from 1, without a hole.
    pub sequence: u64,
    /// Whose it is.
    pub agent: Serial,
    /// What that agent was called then; none for the daemon.
    pub agent_id: Option<AgentId>,
    /// Its place in that agent's own records, from 1, without a hole.
    pub agent_sequence: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What.
    pub record: Record,
}

/// One agent in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRow {
    /// Its serial.
    pub serial: Serial,
    /// Its name.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<Serial>,
    /// The digest of its capability token.
    pub capability_digest: [u8; 32],
    /// Whether it was destroyed; it is kept because somebody below it lives on.
    pub is_destroyed: bool,
    /// Whether an admin said that it is finished.
    pub is_finished: bool,
}

/// One agent as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAgent {
    /// Its serial.
    pub serial: Serial,
    /// What it is made from, with its name and rights of now.
    pub record: AgentRecord,
    /// Its state.
    pub state: AgentState,
    /// Its ledger.
    pub ledger: StoredLedger,
    /// Whether it was destroyed.
    pub is_destroyed: bool,
}

/// One turn as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTurn {
    /// Which.
    pub turn: u64,
    /// The SHA-256 of the message's text.
    pub content_digest: [u8; 32],
    /// How it ended; none while it is open.
    pub end: Option<TurnEnd>,
}

/// Which entries to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRange {
    /// Only this agent's; all when there is none.
    pub agent: Option<Serial>,
    /// Only those behind this sequence.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
}

/// Where the journal begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalBounds {
    /// The lowest sequence there is; one more than `last` when there is none.
    pub first: u64,
    /// The highest sequence there is; zero when there never was one.
    pub last: u64,
}

/// Why something was not kept, or not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// A turn of that name exists already. Nothing of the call was kept.
    #[error("a turn of that name exists")]
    DuplicateRequestId,
    /// An agent of that name exists already. Nothing of the call was kept.
    #[error("an agent of that name exists")]
    DuplicateAgentId,
    /// There is no such agent. Nothing of the call was kept.
    #[error("there is no such agent")]
    NotFound,
    /// There is no room now. Nothing of the call was kept; the same call may pass later.
    #[error("there is no room: {0}")]
    Full(String),
    /// The store failed, and will not take anything more: nobody knows what the disk has kept of the last call.
    #[error("the store has failed: {0}")]
    Failed(String),
    /// What was read makes no sense.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// When to try again if there is no room.
const FULL_RETRY_AFTER_MS: u64 = 1000;

impl From<StoreFault> for Fault {
    fn from(fault: StoreFault) -> Self {
        let (kind, public) = match &fault {
            StoreFault::DuplicateRequestId => {
                (FaultKind::Invalid, "request_id was used before with other content")
            }
            StoreFault::DuplicateAgentId => (FaultKind::Invalid, "Agent already exists"),
            StoreFault::NotFound => (FaultKind::NotFound, "Agent not found"),
            StoreFault::Full(_) => (
                FaultKind::Full { retry_after_ms: FULL_RETRY_AFTER_MS },
                "storage full: nothing was kept; make room on the disk of the daemon's home and try again",
            ),
            StoreFault::Failed(_) => (
                FaultKind::Internal,
                "Internal error: the store has failed and the daemon has to be restarted",
            ),
            StoreFault::Corrupt(_) => {
                (FaultKind::Internal, "Internal error: the store is damaged; run nexus3 check")
            }
        };
        Fault::new(kind, public).caused_by(fault)
    }
}

/// Hears of what is kept.
pub trait CommitListener: Send + Sync {
    /// These were kept just now, in the order of their sequences; every entry is told once. Must not wait.
    fn committed(&self, entries: &[Arc<JournalEntry>]);

    /// The store will not take anything more.
    fn store_failed(&self, why: &str);
}

/// Keeps agents.
pub trait Store: Send + Sync {
    /// Keeps all of this or nothing. In line when it returns; kept when the future ends well.
    ///
    /// `Created` makes an agent, `RightsChanged`, `Renamed` and `Destroyed` change what it is made from; a destroyed
    /// agent is forgotten when nobody below it is left. `TurnAccepted` opens a turn, `TurnEnded` closes it,
    /// `TurnReopened` opens it again, or finds it open still.
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>>;

    /// All agents, by rising serial.
    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>>;

    /// The highest serial ever given.
    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>>;

    /// Agents in full; those that are not there are left out.
    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>>;

    /// Everything of one agent from this number on, in order.
    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>>;

    /// The agents that have open turns, by rising serial.
    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>>;

    /// A turn by the name of its send.
    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>>;

    /// Entries by rising sequence.
    fn read(&self, span: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>>;

    /// Where the journal begins and ends.
    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>>;

    /// Forgets the names of sends that ended before this moment; says how many. Their records stay.
    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>>;

    /// Tells this watcher from now on. There is one; a second takes its place.
    fn set_listener(&self, watcher: Arc<dyn CommitListener>);

    /// Returns when everything in line is kept and nothing more is taken.
    fn close(&self) -> BoxFuture<'_, ()>;
}
