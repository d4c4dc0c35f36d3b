//! Runs agents: the pool that holds them, one task per live agent, their tree and its rights, limits on turns, and the
//! way to stop. What an agent decides is in `agent`; who may call is decided in `rpc`.

mod actor;
mod audit;
mod capability;
mod context;
mod event_bus;
mod handle;
mod lineage;
mod ledger;
mod limits;
mod peers;
mod pool;
mod published;
mod output_cache;
mod admission;
mod wait_graph;

pub use actor::{CompactionCondition, CompactionOutcome};
pub use capability::{CAPABILITY_PREFIX, Capability};
pub use context::{ContextOptions, DefaultPrompt, VolatileSuffix};
pub use event_bus::{Delta, DeltaKind, BusEvent, EventScope, Subscription};
pub use handle::{AgentHandle, AgentRef, TurnFuture, NewMessage};
pub use limits::Limits;
pub use pool::{
    AgentPermissions, AgentSpec, ListScope, Initiator, PermissionChange, ChildPolicy, CreatedAgent, FirstMessage, Fork, ResourceUsage, Import,
    MayGrantSpec, NameSpec, Outside, PoolHandle, PoolOptions, PermissionSpec,
};
pub use published::{AgentContext, AgentLiveness, MessagePage, AgentStatus, AgentTokens};
