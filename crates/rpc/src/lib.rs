//! Method to call to answer: the only translator between the words on the wire and the words agents think in, and
//! the judge of who may call what.

mod caller;
mod desk;
mod direct;
mod dispatch;
mod events;
mod fault;
mod images;
mod local_time;
mod methods;
mod session;
mod streams;

pub use caller::Caller;
pub use desk::{Answer, AnswerKind, Desk, DeskOptions, Entrance, NoEntrance};
pub use direct::DirectApi;
pub use runtime::CAPABILITY_PREFIX;
pub use streams::{EventStream, NoStream, Reply};
