//! What an agent shows the world: its task writes it, everybody may read it, and no read waits for a turn.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use agent::journal::{AgentState, RestartPolicy};
use agent::outside::Timestamp;
use agent::permission::{FilePath, Level};
use agent::{
    AgentId, Halt, Message, NanoDollars, TokenCalibration, TokenCount, UsageTotals, Window, WindowSize,
};

/// The published state of one agent. Locked for a few instructions at a time, never across an await.
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
    pub(crate) used: UsageTotals,
    /// How the model counts.
    pub(crate) calibration: TokenCalibration,
    /// What was added to the last question.
    pub(crate) volatile_suffix_tokens: TokenCount,
    pub(crate) should_shutdown: bool,
}

impl Published {
    /// What an agent shows that was in this state.
    pub(crate) fn new(window: Window, kept: &AgentState) -> Self {
        let state = PublishedState {
            window,
            halted: kept.halted,
            is_working: false,
            last_rounds: kept.last_rounds,
            last_action_at: kept.last_action_at,
            used: kept.usage_totals,
            calibration: kept.calibration,
            volatile_suffix_tokens: 0,
            should_shutdown: kept.should_shutdown,
        };
        Self { state: RwLock::new(state) }
    }

    /// A writer that panicked has changed a field or not: each is whole by itself, so reading on is safe.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, PublishedState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, PublishedState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One agent in a list.
#[derive(Debug, Clone)]
pub struct AgentStatus {
    /// Its name.
    pub id: AgentId,
    /// When it was created.
    pub created_at: Timestamp,
    /// Messages in its context.
    pub message_count: usize,
    /// Whether it was told that it is finished.
    pub should_shutdown: bool,
    /// Why its last turn stopped before its end.
    pub halted: Option<Halt>,
    /// Whether a turn is running.
    pub is_working: bool,
    /// Turns that are running or waiting.
    pub open_turns: usize,
    /// The model that answers it.
    pub model: Option<Arc<str>>,
    /// When it last did something.
    pub last_action_at: Option<Timestamp>,
    /// The agent it was created by.
    pub parent: Option<AgentId>,
    /// Its children that exist.
    pub child_count: usize,
    /// How far it is from the top of its tree.
    pub depth: u32,
    /// Its preset.
    pub preset: Arc<str>,
    /// How much it is trusted.
    pub level: Level,
    /// Its working directory.
    pub cwd: FilePath,
    /// Where it may write now.
    pub write_folders: Vec<FilePath>,
    /// Whether it is live.
    pub state: AgentLiveness,
    /// What becomes of a turn that a crash cuts off.
    pub on_restart: RestartPolicy,
    /// Where it came from, if it was not made from nothing.
    pub origin: Option<String>,
}

/// Whether an agent is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLiveness {
    /// A task has it.
    Live,
    /// It is in the store alone; the next call wakes it.
    Asleep,
}

impl AgentLiveness {
    /// The word clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AgentLiveness::Live => "live",
            AgentLiveness::Asleep => "asleep",
        }
    }
}

/// An agent's context in numbers.
#[derive(Debug, Clone)]
pub struct AgentContext {
    /// Messages in the context.
    pub message_count: usize,
    /// Whether there is a system prompt.
    pub has_system_prompt: bool,
    /// Why the last turn stopped before its end.
    pub halted: Option<Halt>,
    /// How often the last turn asked the model.
    pub last_rounds: u64,
    /// How often a turn may ask the model.
    pub rounds_max: u64,
}

/// An agent's tokens.
#[derive(Debug, Clone)]
pub struct AgentTokens {
    /// The size of the context.
    pub size: WindowSize,
    /// What its models reported.
    pub used: UsageTotals,
    /// What it and all below it have cost, as far as prices are known; none when its model has no price and nothing was
    /// paid for.
    pub tree_cost: Option<NanoDollars>,
    /// What it has cost itself; none as above.
    pub cost: Option<NanoDollars>,
}

/// The most text of one page.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Some of an agent's messages.
#[derive(Debug, Clone)]
pub struct MessagePage {
    /// Messages in the context.
    pub total: usize,
    /// The ones asked for.
    pub messages: Vec<Arc<Message>>,
}

impl PublishedState {
    pub(crate) fn page(&self, offset: usize, limit: usize) -> MessagePage {
        let all = self.window.messages();
        let mut bytes = 0;
        let fits = |message: &&Arc<Message>| {
            // The first always does: a page that is never empty gets to the end.
            let fits = bytes == 0 || bytes + message.text.len() <= PAGE_BYTES_MAX;
            bytes += message.text.len().max(1);
            fits
        };
        let messages = all.iter().skip(offset).take(limit).take_while(fits).cloned().collect();
        MessagePage { total: all.len(), messages }
    }
}
