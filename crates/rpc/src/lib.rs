//! JSON-RPC dispatch: the only crate that maps protocol types to the runtime's types and back, and that authorizes
//! callers.

mod authorization;
mod caller;
mod dispatcher;
mod events;
mod fault;
mod images;
mod in_process;
mod local_time;
mod methods;
mod operation;
mod routing;
mod snapshot;
mod streams;

pub use caller::Caller;
pub use dispatcher::{CallResponse, Dispatcher, DispatcherOptions, ResponseKind, Target, TargetError};
pub use in_process::InProcessApi;
pub use runtime::CAPABILITY_PREFIX;
pub use streams::{CallReply, EventBytes, StreamError};
