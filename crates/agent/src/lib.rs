//! What an agent decides: its name, its messages and their size, what it may do, and how a turn goes from a message to
//! an answer.
//! Pure: no clock, no randomness, no I/O, no async. What it needs of the world is asked for in [`outside`].

mod cut;
mod date;
mod fault;
pub mod compaction;
mod id;
mod image;
pub mod journal;
mod message;
pub mod outside;
pub mod permission;
pub mod prompt;
mod redact;
mod tokens;
mod tool;
mod turn;
mod window;

pub use cut::{cut_middle, left_out};
pub use date::minute;
pub use fault::{Fault, FaultKind};
pub use id::{AgentId, AgentIdFault, RequestId};
pub use image::{Image, NoImage};
pub use message::{Ending, Message, Role, Source, ToolCall, content_digest_input};
pub use redact::redact;
pub use tokens::{Counted, Counting, Gauge, NanoDollars, Prices, TokenCount, Usage, Used, estimate};
pub use tool::{Concurrency, ToolClass, ToolOutcome, ToolSpec};
pub use turn::{
    Halt, Schedule, STEERS_MAX, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits, TurnOutcome, budget_exhausted_result,
};
pub use window::{Frame, Lineage, Window, WindowSize};
