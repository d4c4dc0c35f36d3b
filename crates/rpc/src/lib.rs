//! Method to call to answer: the only translator between the words on the wire and the words agents think in, and
//! the judge of who may call what.

mod caller;
mod dispatcher;
mod events;
mod fault;
mod images;
mod in_process;
mod local_time;
mod methods;
mod routing;
mod snapshot;
mod streams;

pub use caller::Caller;
pub use dispatcher::{CallResponse, Dispatcher, DispatcherOptions, ResponseKind, Target, TargetError};
pub use in_process::InProcessApi;
pub use runtime::CAPABILITY_PREFIX;
pub use streams::{CallReply, EventBytes, StreamError};
