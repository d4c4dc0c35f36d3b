//! Runs agents: the pool that holds them, one task per live agent, limits on turns, and the way to stop.
//! What an agent decides is in `agent`; who may call is decided in `rpc`.

mod actor;
mod handle;
mod limits;
mod pool;
mod published;
mod turnstile;

pub use handle::{AgentHandle, NewMessage};
pub use limits::Limits;
pub use pool::{AgentSpec, Outside, PoolHandle, PoolOptions};
pub use published::{AgentContext, AgentPage, AgentSummary, AgentTokens};
