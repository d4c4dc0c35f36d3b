//! The records of an agent's journal and the state derived from them. The store encodes and persists them; [`replay`]
//! rebuilds an agent from them.

mod content_size;
mod replay;
#[cfg(test)]
mod tests;

pub use replay::{ApprovalState, OpenTurn, OpenTurnState, Replay, TurnProgress};

pub use crate::compaction::CompactionRecord;
use crate::outside::Timestamp;
use crate::permission::{
    Budget, DirectoryIdentity, FilePath, Grantor, HostPattern, Level, Resource, RuleEntry,
};
use crate::{
    AgentId, Halt, Message, NanoDollars, PrincipalId, RequestId, TodoItem, TokenCalibration, ToolClass,
    ToolOutcome, TurnEnd, UsageTotals,
};

/// The permanent number of an agent: never reused, ascending with creation. Zero is the daemon itself.
pub type Serial = u64;

/// The daemon's own serial.
pub const DAEMON: Serial = 0;

/// One journal record. An agent's records in order are its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The agent was created.
    Created(Box<AgentRecord>),
    /// Its permissions were changed.
    PermissionsChanged {
        /// The initiator.
        by: PrincipalId,
        /// The new permissions.
        permissions: Box<StoredPermissions>,
    },
    /// It was renamed; later records carry the new id.
    Renamed {
        /// The initiator.
        by: PrincipalId,
        /// The new id.
        id: AgentId,
    },
    /// It was marked as finished.
    Finished {
        /// The initiator.
        by: PrincipalId,
    },
    /// It was destroyed.
    Destroyed {
        /// The initiator.
        by: PrincipalId,
    },
    /// A message was accepted and its turn enqueued.
    TurnAccepted(Box<AcceptedTurn>),
    /// The turn began: its message was added to the context.
    TurnBegun {
        /// The turn.
        turn: u64,
    },
    /// A message was added to the context.
    MessageAdded(Box<Message>),
    /// An instruction was added to the running turn; it joins the context before the next model call.
    Steered {
        /// The turn.
        turn: u64,
        /// The instruction.
        message: Box<Message>,
    },
    /// A tool call is about to run. After a crash between this and [`Record::CallDone`] its outcome is unknown.
    CallBegun {
        /// The turn.
        turn: u64,
        /// The call's index in the response.
        index: usize,
        /// The call's id.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// Whether the call may be repeated after a crash.
        class: ToolClass,
    },
    /// A tool call finished while other calls of the same response still run.
    CallDone {
        /// The turn.
        turn: u64,
        /// The call's index in the response.
        index: usize,
        /// Its outcome.
        outcome: ToolOutcome,
    },
    /// A tool call waits for an approval.
    ApprovalRequested(Box<ApprovalRequest>),
    /// An approval request was answered.
    ApprovalAnswered(Box<ApprovalAnswer>),
    /// The file changes of a turn were undone.
    TurnUndone {
        /// The turn.
        turn: u64,
        /// Who undid them.
        by: PrincipalId,
        /// The restored paths.
        paths: Vec<FilePath>,
    },
    /// The turn ended; only an interrupted turn can be reopened.
    TurnEnded {
        /// The turn.
        turn: u64,
        /// The request id of the turn.
        request_id: RequestId,
        /// How it ended.
        end: Box<TurnEnd>,
    },
    /// An interrupted turn was resumed.
    TurnReopened {
        /// The turn.
        turn: u64,
        /// The request id of the turn.
        request_id: RequestId,
        /// Number of messages that remain in the context: those that the interruption appended are removed.
        messages: usize,
    },
    /// The context was truncated to its first `messages` messages.
    RolledBack {
        /// The initiator.
        by: PrincipalId,
        /// Number of messages that remain.
        messages: usize,
    },
    /// The context was compacted; the removed messages stay in the journal.
    Compacted(Box<CompactionRecord>),
    /// A request was denied.
    Denied {
        /// The caller.
        principal: PrincipalId,
        /// The requested action.
        action: String,
        /// The rule that forbids it.
        rule: String,
        /// The error message that the caller received.
        text: String,
    },
    /// The daemon started to serve.
    DaemonStarted {
        /// Its version.
        version: String,
    },
    /// The daemon shut down cleanly.
    DaemonStopped,
}

impl Record {
    /// The record's kind, for event filters and stores.
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
            Record::ApprovalRequested(_) => "approval_requested",
            Record::ApprovalAnswered(_) => "approval_answered",
            Record::TurnUndone { .. } => "turn_undone",
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

/// A tool call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// Its id: random, unique among all requests.
    pub id: String,
    /// The turn.
    pub turn: u64,
    /// The call's index in the response.
    pub index: usize,
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The effects that need an approval, as text.
    pub effects: Vec<String>,
    /// Why they need one.
    pub reason: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When the default answer applies.
    pub expires_at: Timestamp,
}

/// The answer to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The id of the request.
    pub id: String,
    /// The turn.
    pub turn: u64,
    /// The call's index in the response.
    pub index: usize,
    /// Whether the call may run.
    pub is_allowed: bool,
    /// Who answered; `auto` is the default answer after the time limit.
    pub by: PrincipalId,
    /// The authority behind an approval.
    pub grantor: Grantor,
    /// The rule that was added with it, if any.
    pub rule: Option<RuleEntry>,
    /// A note for the model.
    pub note: Option<String>,
}

/// The creation record of an agent, from which it is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    /// Its id.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<Serial>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The initiator of its creation.
    pub by: PrincipalId,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// Its working directory.
    pub cwd: FilePath,
    /// The requested model; none means the default model.
    pub model: Option<String>,
    /// The digest of its capability token.
    pub capability_digest: [u8; 32],
    /// The policy for turns that a crash interrupted.
    pub on_restart: RestartPolicy,
    /// Its granted permissions.
    pub permissions: StoredPermissions,
    /// A description of the agent or file it was copied from.
    pub origin: Option<String>,
}

/// The policy for a turn that a crash interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// Resume the turn.
    #[default]
    Resume,
    /// Mark the turn as interrupted.
    Mark,
}

impl RestartPolicy {
    /// All policies.
    pub const ALL: [RestartPolicy; 2] = [RestartPolicy::Resume, RestartPolicy::Mark];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RestartPolicy::Resume => "resume",
            RestartPolicy::Mark => "mark",
        }
    }
}

/// The permissions of an agent as stored. Paths and names were resolved when they were granted and are not resolved
/// again, because their targets may have been replaced since. Presets are the exception: their current definition
/// applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPermissions {
    /// Its preset.
    pub preset: String,
    /// The level of its preset.
    pub level: Level,
    /// Its limits.
    pub budget: Budget,
    /// The request for the set of allowed actions (`may`).
    pub may: StoredGrantRequest,
    /// The request for the set that it may pass on (`may_grant`), if it differs: the base preset and the changes to it.
    pub may_grant: Option<(Option<String>, StoredGrantRequest)>,
    /// Its approval rules, beside those of the preset.
    pub rules: Vec<RuleEntry>,
}

/// A stored request for changes to a preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredGrantRequest {
    /// The only enabled tools.
    pub tools: Option<Vec<String>>,
    /// Disabled tools.
    pub disable_tools: Vec<String>,
    /// Writable directories.
    pub write_paths: Option<Vec<FilePath>>,
    /// Commands that may be run; `*` stands for all.
    pub commands: Option<Vec<String>>,
    /// Hosts that may be connected to.
    pub hosts: Option<Vec<HostPattern>>,
    /// Hosts that may not be connected to.
    pub denied_hosts: Vec<HostPattern>,
    /// Presets that children may have.
    pub may_create: Option<Vec<String>>,
}

/// An accepted message, enqueued as a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedTurn {
    /// The turn's number among the agent's turns, from 1.
    pub turn: u64,
    /// The request id: unique among the agent's turns.
    pub request_id: RequestId,
    /// The message.
    pub message: Message,
}

/// An agent's state, derived from its records. Only the agent itself writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentState {
    /// Number of messages in the context.
    pub messages: u64,
    /// Number of turns accepted so far.
    pub turns: u64,
    /// The token usage reported by its models.
    pub usage_totals: UsageTotals,
    /// The calibration of token estimates for its model.
    pub calibration: TokenCalibration,
    /// Why the last turn was halted early.
    pub halted: Option<Halt>,
    /// Number of model calls in the last turn.
    pub last_rounds: u64,
    /// The time of its last activity.
    pub last_action_at: Option<Timestamp>,
    /// Whether it was marked as finished, by itself or by an admin.
    pub should_shutdown: bool,
    /// Whether an admin marked it as finished.
    pub is_finished: bool,
    /// The identities of its granted directories, recorded with the grant or at the first use.
    pub identities: Vec<DirectoryIdentity>,
    /// Its plan: the arguments of its last successful call of the plan tool.
    pub todo: Vec<TodoItem>,
}

/// The budget ledger of an agent. Its descendants write it too, so the highest version wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLedger {
    /// The version, incremented with every change.
    pub version: u64,
    /// One account for each of [`Resource::CONSUMED`], in that order.
    pub accounts: [StoredAccount; Resource::CONSUMED.len()],
    /// The cost of the agent and all its descendants.
    pub cost: NanoDollars,
}

/// One account of a ledger. The granted limit is in the agent's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredAccount {
    /// The effective limit; a closed account has none.
    pub limit: Option<u64>,
    /// Amount consumed.
    pub used: u64,
    /// Amount reserved for children.
    pub reserved: u64,
    /// Amount consumed while the account had no limit, debited from an ancestor.
    pub paid_elsewhere: u64,
    /// Amount that the budget source has reserved for this account.
    pub share: u64,
    /// The ancestor that provides the share.
    pub budget_source: Option<Serial>,
    /// Amount consumed by the agent and all its descendants.
    pub total: u64,
}
