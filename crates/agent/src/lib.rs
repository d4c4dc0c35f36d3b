//! What an agent decides: its name, its messages and their size, what it may do, and how a turn goes from a message to
//! an answer.
//! Pure: no clock, no randomness, no I/O, no async. What it needs of the world is asked for in [`outside`].

mod fault;
mod id;
pub mod journal;
mod message;
pub mod outside;
pub mod permission;
mod tokens;
mod tool;
mod turn;
mod window;

pub use fault::{Fault, FaultKind};
pub use id::{AgentId, AgentIdFault, RequestId};
pub use message::{Ending, Image, Message, Role, Source, ToolCall};
pub use tokens::{NanoDollars, Prices, TokenCount, Usage, Used};
pub use tool::{Pace, ToolClass, ToolOutcome, ToolSpec};
pub use turn::{
    Halt, Manner, STEERS_MAX, Turn, TurnAction, TurnEnd, TurnEvent, TurnLimits, TurnOutcome, spent_result,
};
pub use window::{Window, WindowSize};
