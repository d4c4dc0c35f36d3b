//! The agent's decision logic: identifiers, messages and token counts, permissions, and the state machine of a turn.
//! Pure: no clock, no randomness, no I/O, no async. The traits of [`outside`] provide those.

pub mod compaction;
mod date;
mod fault;
mod id;
mod image;
pub mod journal;
mod known_secrets;
mod message;
pub mod outside;
pub mod permission;
mod principal;
pub mod prompt;
mod redact;
mod todo;
mod tokens;
mod tool;
mod truncate;
mod turn;
mod window;

pub use date::format_minute;
pub use fault::{Fault, FaultKind};
pub use id::{AgentId, AgentIdFault, RequestId};
pub use image::{Image, ImageFault};
pub use known_secrets::{KnownSecrets, SECRET_BYTES_MIN};
pub use message::{Ending, Message, MessageSource, Role, ToolCall, content_digest_input};
pub use principal::PrincipalId;
pub use redact::redact;
pub use todo::{TODO_CHARS_MAX, TODO_ITEMS_MAX, TODO_TOOL, TodoItem, TodoStatus, render_todo};
pub use tokens::{
    CountedMessage, Counting, NanoDollars, Prices, TokenCalibration, TokenCount, Usage, UsageTotals,
    estimate_tokens,
};
pub use tool::{Concurrency, ToolClass, ToolOutcome, ToolSpec};
pub use truncate::{omission_note, truncate_middle};
pub use turn::{
    Halt, STEERS_MAX, Schedule, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits, TurnOutcome,
    budget_exhausted_result,
};
pub use window::{FixedOverhead, HistoryVersion, Window, WindowSize};
