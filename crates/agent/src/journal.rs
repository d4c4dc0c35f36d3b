//! What is kept of an agent: the records of its journal, and the state that follows from them. How they are written
//! down is left to whoever keeps them; what they mean when they are read again is in [`replay`].

mod replay;
#[cfg(test)]
mod tests;

pub use replay::{OpenTurn, Replay, TurnProgress, TurnStage};

pub use crate::compaction::CompactionRecord;
use crate::outside::Timestamp;
use crate::permission::{Budget, FilePath, Level, Resource};
use crate::{
    AgentId, Halt, Message, NanoDollars, RequestId, TokenCalibration, ToolClass, ToolOutcome, TurnEnd,
    UsageTotals,
};

/// Tells agents apart for ever: never given twice, rising with age. Zero is the daemon itself.
pub type Serial = u64;

/// The daemon's own serial.
pub const DAEMON: Serial = 0;

/// One thing that happened. An agent's records in their order are its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The agent was made.
    Created(Box<AgentRecord>),
    /// It was given other rights.
    PermissionsChanged {
        /// Who did it.
        by: String,
        /// What it has now.
        permissions: Box<StoredPermissions>,
    },
    /// It got another name; later records bear it.
    Renamed {
        /// Who did it.
        by: String,
        /// The new name.
        id: AgentId,
    },
    /// It was told that it is finished.
    Finished {
        /// Who said so.
        by: String,
    },
    /// It is gone.
    Destroyed {
        /// Who did it.
        by: String,
    },
    /// A message was taken; its turn will come.
    TurnAccepted(Box<AcceptedTurn>),
    /// The turn began: its message is in the context.
    TurnBegun {
        /// Which turn.
        turn: u64,
    },
    /// A message came into the context.
    MessageAdded(Box<Message>),
    /// Somebody added a word to the turn; it comes into the context before the model is asked again.
    Steered {
        /// Which turn.
        turn: u64,
        /// The word.
        message: Box<Message>,
    },
    /// A tool call is about to run. What happens after this and before [`Record::CallDone`] nobody knows after a crash.
    CallBegun {
        /// Which turn.
        turn: u64,
        /// The call's place in the answer.
        index: usize,
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// What a crash means for it.
        class: ToolClass,
    },
    /// A tool call is done, while others of the same answer still run.
    CallDone {
        /// Which turn.
        turn: u64,
        /// The call's place in the answer.
        index: usize,
        /// What came of it.
        outcome: ToolOutcome,
    },
    /// The turn is over, for good unless it was interrupted.
    TurnEnded {
        /// Which turn.
        turn: u64,
        /// The name of the send.
        request_id: RequestId,
        /// How.
        end: Box<TurnEnd>,
    },
    /// An interrupted turn goes on.
    TurnReopened {
        /// Which turn.
        turn: u64,
        /// The name of the send.
        request_id: RequestId,
        /// Messages that stay in the context: what the interruption had put behind them is taken back.
        messages: usize,
    },
    /// Messages from this one on are no longer in the context.
    RolledBack {
        /// Who did it.
        by: String,
        /// Messages that stay.
        messages: usize,
    },
    /// The context was made shorter; what it held before stays in the journal.
    Compacted(Box<CompactionRecord>),
    /// Something was not allowed.
    Denied {
        /// Who wanted it.
        principal: String,
        /// What.
        action: String,
        /// The rule that forbids it.
        rule: String,
        /// What the caller was told.
        text: String,
    },
    /// The daemon began to serve.
    DaemonStarted {
        /// Its version.
        version: String,
    },
    /// The daemon stopped in order.
    DaemonStopped,
}

impl Record {
    /// The kind in one word, for filters and for whoever keeps records.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Record::Created(_) => "agent_created",
            Record::PermissionsChanged { .. } => "permissions_changed",
            Record::Renamed { .. } => "agent_renamed",
            Record::Finished { .. } => "agent_finished",
            Record::Destroyed { .. } => "agent_destroyed",
            Record::TurnAccepted(_) => "turn_accepted",
            Record::TurnBegun { .. } => "turn_begun",
            Record::MessageAdded(_) => "message",
            Record::Steered { .. } => "steered",
            Record::CallBegun { .. } => "tool_begun",
            Record::CallDone { .. } => "tool_done",
            Record::TurnEnded { .. } => "turn_ended",
            Record::TurnReopened { .. } => "turn_reopened",
            Record::RolledBack { .. } => "rolled_back",
            Record::Compacted(_) => "context_compacted",
            Record::Denied { .. } => "denied",
            Record::DaemonStarted { .. } => "daemon_started",
            Record::DaemonStopped => "daemon_stopped",
        }
    }
}

/// Everything an agent is made from again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    /// Its name.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<Serial>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub by: String,
    /// Its prompt.
    pub system_prompt: Option<String>,
    /// Its working directory.
    pub cwd: FilePath,
    /// The model it asked for; none is the usual one.
    pub model: Option<String>,
    /// The digest of its capability token.
    pub capability_digest: [u8; 32],
    /// What becomes of a turn that a crash cut off.
    pub on_restart: RestartPolicy,
    /// What it was given.
    pub permissions: StoredPermissions,
    /// The agent or the file it came from, in words.
    pub origin: Option<String>,
}

/// What becomes of a turn that a crash cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// It goes on.
    #[default]
    Resume,
    /// It is marked as interrupted.
    Mark,
}

impl RestartPolicy {
    /// Both of them.
    pub const ALL: [RestartPolicy; 2] = [RestartPolicy::Resume, RestartPolicy::Mark];

    /// The name clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RestartPolicy::Resume => "resume",
            RestartPolicy::Mark => "mark",
        }
    }
}

/// What an agent was given, with paths and names as they were found then: they are not looked up again, because what
/// they lead to may have been exchanged meanwhile. Presets are the exception: they mean what they mean now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPermissions {
    /// Its preset.
    pub preset: String,
    /// The level that its preset had.
    pub level: Level,
    /// Its limits.
    pub budget: Budget,
    /// The first set.
    pub may: StoredGrantRequest,
    /// The second set, when it differs: the preset it begins from, and what was asked of it.
    pub may_grant: Option<(Option<String>, StoredGrantRequest)>,
}

/// What was asked for beside a preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredGrantRequest {
    /// Tools that are taken away.
    pub disable_tools: Vec<String>,
    /// Where to write.
    pub write_paths: Option<Vec<FilePath>>,
    /// Presets of children.
    pub may_create: Option<Vec<String>>,
}

/// A message that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedTurn {
    /// The turn, counted over the agent's life from 1.
    pub turn: u64,
    /// The name of the send: at most one turn of an agent has it.
    pub request_id: RequestId,
    /// The message.
    pub message: Message,
}

/// An agent's state, as its records have made it. Only the agent itself writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentState {
    /// Messages in the context.
    pub messages: u64,
    /// Turns taken so far.
    pub turns: u64,
    /// What its models reported.
    pub usage_totals: UsageTotals,
    /// How its model counts.
    pub calibration: TokenCalibration,
    /// Why the last turn stopped before its end.
    pub halted: Option<Halt>,
    /// How often the last turn asked the model.
    pub last_rounds: u64,
    /// When it last did something.
    pub last_action_at: Option<Timestamp>,
    /// Whether it was told that it is finished.
    pub should_shutdown: bool,
    /// Whether an admin said so.
    pub is_finished: bool,
}

/// What an agent has used up and set aside. Whoever is below it writes it too, so the highest version counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLedger {
    /// Rises with every change.
    pub version: u64,
    /// One for each of [`Resource::CONSUMED`], in that order.
    pub accounts: [StoredAccount; Resource::CONSUMED.len()],
    /// What the agent and all below it have cost.
    pub cost: NanoDollars,
}

/// One account of a ledger. The limit is in the agent's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredAccount {
    /// The limit that counts; a settled account has none.
    pub limit: Option<u64>,
    /// What is used up.
    pub used: u64,
    /// What is set aside for children.
    pub reserved: u64,
    /// What was used before there was a limit.
    pub paid_elsewhere: u64,
    /// What an ancestor has set aside for it.
    pub share: u64,
    /// That ancestor.
    pub budget_source: Option<Serial>,
    /// What the agent and all below it have used.
    pub total: u64,
}
