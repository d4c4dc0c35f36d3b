//! The HTTP transport. The [`head_validator`] checks each request head before hyper sees it; [`service`] authenticates and
//! routes the request before it reads the body; then the dispatcher responds, as JSON or as a stream ([`events`]).

mod auth;
mod body;
mod events;
mod head;
mod head_validator;
mod limits;
mod refusal;
mod service;
mod stream_permits;
mod transport;

pub use limits::HttpLimits;
pub use transport::{HttpOptions, HttpTransport};
