//! Method to call to answer: the only translator between the words on the wire and the words agents think in, and
//! the judge of who may call what.

mod caller;
mod dispatcher;
mod in_process;
mod routing;
mod events;
mod fault;
mod images;
mod local_time;
mod methods;
mod snapshot;
mod streams;

pub use caller::Caller;
pub use dispatcher::{CallResponse, ResponseKind, Dispatcher, DispatcherOptions, Target, TargetError};
pub use in_process::InProcessApi;
pub use runtime::CAPABILITY_PREFIX;
pub use streams::{EventBytes, StreamError, CallReply};
