//! Published state of an agent: written by its actor, readable by any task, and never blocked by a running turn.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use agent::journal::{AgentState, RestartPolicy};
use agent::outside::Timestamp;
use agent::permission::{FilePath, Level};
use agent::{
    AgentId, Halt, Message, NanoDollars, TODO_TOOL, TodoItem, TokenCalibration, TokenCount, UsageTotals,
    Window, WindowSize,
};

/// Published state of one agent. Locked for a few instructions at a time, never across an await.
#[derive(Debug)]
pub(crate) struct Published {
    state: RwLock<PublishedState>,
}

#[derive(Debug)]
pub(crate) struct PublishedState {
    pub(crate) window: Window,
    pub(crate) halted: Option<Halt>,
    /// Whether a turn is running.
    pub(crate) is_working: bool,
    pub(crate) last_rounds: u64,
    pub(crate) last_action_at: Option<Timestamp>,
    pub(crate) usage_totals: UsageTotals,
    /// Ratio of the model's token count to the local one.
    pub(crate) calibration: TokenCalibration,
    /// Token count of the last request's volatile suffix.
    pub(crate) volatile_suffix_tokens: TokenCount,
    pub(crate) should_shutdown: bool,
    /// The agent's plan.
    pub(crate) todo: Vec<TodoItem>,
    /// A plan that replaces it with the commit of the next batch.
    pub(crate) staged_todo: Option<Vec<TodoItem>>,
}

impl PublishedState {
    /// Whether a message from this index on shows a call that replaced the plan.
    pub(crate) fn shows_plan_after(&self, messages: usize) -> bool {
        let shown = self.window.messages().get(messages..).unwrap_or_default();
        shown.iter().flat_map(|message| &message.tool_calls).any(|call| call.name == TODO_TOOL)
    }

    /// The plan when the context is cut to its first messages: none if a removed call replaced it.
    pub(crate) fn plan_at(&self, messages: usize) -> Vec<TodoItem> {
        if self.shows_plan_after(messages) { Vec::new() } else { self.todo.clone() }
    }
}

impl Published {
    /// Creates the published state from the stored one.
    pub(crate) fn new(window: Window, stored: &AgentState) -> Self {
        let state = PublishedState {
            window,
            halted: stored.halted,
            is_working: false,
            last_rounds: stored.last_rounds,
            last_action_at: stored.last_action_at,
            usage_totals: stored.usage_totals,
            calibration: stored.calibration,
            volatile_suffix_tokens: 0,
            should_shutdown: stored.should_shutdown,
            todo: stored.todo.clone(),
            staged_todo: None,
        };
        Self { state: RwLock::new(state) }
    }

    /// Ignores poisoning: a writer that panicked left each field either old or new, and fields are independent.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, PublishedState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, PublishedState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Status of one agent, as listed.
#[derive(Debug, Clone)]
pub struct AgentStatus {
    /// Agent id.
    pub id: AgentId,
    /// Creation time.
    pub created_at: Timestamp,
    /// Number of messages in the context.
    pub message_count: usize,
    /// Whether the agent is marked as finished.
    pub should_shutdown: bool,
    /// Why the last turn halted early.
    pub halted: Option<Halt>,
    /// Whether a turn is running.
    pub is_working: bool,
    /// Open turns, running or queued.
    pub open_turns: usize,
    /// Model in use.
    pub model: Option<Arc<str>>,
    /// Time of the last committed action.
    pub last_action_at: Option<Timestamp>,
    /// Parent agent.
    pub parent: Option<AgentId>,
    /// Number of existing children.
    pub child_count: usize,
    /// Depth in the tree; zero for a root.
    pub depth: u32,
    /// Permission preset.
    pub preset: Arc<str>,
    /// Trust level.
    pub level: Level,
    /// Working directory.
    pub cwd: FilePath,
    /// Directories it may write to.
    pub write_directories: Vec<FilePath>,
    /// Live or asleep.
    pub state: AgentLiveness,
    /// What happens to an open turn after a restart.
    pub on_restart: RestartPolicy,
    /// Origin, if it was forked or imported.
    pub origin: Option<String>,
}

/// Whether an agent is live or asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLiveness {
    /// In memory, with a running task.
    Live,
    /// Only in the store; the next call wakes it.
    Asleep,
}

impl AgentLiveness {
    /// Returns the name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AgentLiveness::Live => "live",
            AgentLiveness::Asleep => "asleep",
        }
    }
}

/// Figures of an agent's context.
#[derive(Debug, Clone)]
pub struct AgentContext {
    /// Number of messages in the context.
    pub message_count: usize,
    /// Whether there is a system prompt.
    pub has_system_prompt: bool,
    /// Why the last turn halted early.
    pub halted: Option<Halt>,
    /// Model calls of the last turn.
    pub last_rounds: u64,
    /// Maximum model calls per turn.
    pub rounds_max: u64,
    /// The agent's plan.
    pub todo: Vec<TodoItem>,
}

/// Token usage and cost of an agent.
#[derive(Debug, Clone)]
pub struct AgentTokens {
    /// Size of the context.
    pub size: WindowSize,
    /// Usage reported by its models.
    pub usage_totals: UsageTotals,
    /// Cost of the agent and its descendants; `None` when its model has no price and nothing was charged.
    pub tree_cost: Option<NanoDollars>,
    /// Cost of the agent alone; `None` as above.
    pub cost: Option<NanoDollars>,
}

/// Maximum text bytes per page.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A page of an agent's messages.
#[derive(Debug, Clone)]
pub struct MessagePage {
    /// Number of messages in the context.
    pub total: usize,
    /// Messages of the page.
    pub messages: Vec<Arc<Message>>,
}

impl PublishedState {
    pub(crate) fn page(&self, offset: usize, limit: usize) -> MessagePage {
        let all = self.window.messages();
        let mut bytes = 0;
        let fits = |message: &&Arc<Message>| {
            // The first message always fits: an empty page would stop a client's pagination.
            let fits = bytes == 0 || bytes + message.text.len() <= PAGE_BYTES_MAX;
            bytes += message.text.len().max(1);
            fits
        };
        let messages = all.iter().skip(offset).take(limit).take_while(fits).cloned().collect();
        MessagePage { total: all.len(), messages }
    }
}
