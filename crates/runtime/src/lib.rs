//! Agent runtime: the pool, one actor task per live agent, the agent tree with its permissions and budgets, turn
//! admission, the event bus, and shutdown. The `agent` crate decides what an agent does next; `rpc` decides which
//! caller may reach it.

mod actor;
mod admission;
mod answer_budget;
mod approvals;
mod audit;
mod capability;
mod context;
mod event_bus;
mod file_access;
mod handle;
mod ledger;
mod limits;
mod lineage;
mod output_cache;
mod peers;
mod pool;
mod published;
mod wait_graph;

pub use actor::{CompactionCondition, CompactionOutcome, UndoneTurn};
pub use approvals::DefaultAnswer;
pub use capability::{CAPABILITY_PREFIX, Capability};
pub use context::{ContextOptions, DefaultPrompt, VolatileSuffix};
pub use event_bus::{BusEvent, Delta, DeltaKind, EventScope, Subscription};
pub use handle::{AgentHandle, AgentRef, NewMessage, TurnFuture};
pub use limits::Limits;
pub use pool::{
    AgentPage, AgentPermissions, AgentSpec, ChildPolicy, CreatedAgent, DamagedAgent, FirstMessage, Fork,
    Import, Initiator, ListScope, MayGrantSpec, NameSpec, Outside, PermissionChange, PermissionSpec,
    PoolHandle, PoolOptions, ResourceUsage,
};
pub use published::{AgentContext, AgentLiveness, AgentStatus, AgentTokens, MessagePage};
