//! What an agent decides: its name, its messages and their size, and how a turn goes from a message to an answer.
//! Pure: no clock, no randomness, no I/O, no async. What it needs of the world is asked for in [`outside`].

mod fault;
mod id;
mod message;
pub mod outside;
mod tokens;
mod turn;
mod window;

pub use fault::{Fault, FaultKind};
pub use id::{AgentId, AgentIdFault, RequestId};
pub use message::{Ending, Message, Role, Source, ToolCall};
pub use tokens::{TokenCount, Usage, Used};
pub use turn::{Turn, TurnAction, TurnEnd, TurnEvent, TurnOutcome};
pub use window::{Window, WindowSize};
