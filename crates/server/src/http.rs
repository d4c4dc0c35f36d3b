//! The HTTP door. A connection passes a strict [`gate`] before hyper sees it; a request passes the checks in
//! [`service`] before its body is read; then the desk answers, at once or as an event stream ([`events`]).

mod accept;
mod activity;
mod auth;
mod body;
mod events;
mod head;
mod head_validator;
mod limits;
mod refusal;
mod service;

pub use accept::{HttpDoor, HttpOptions};
pub use limits::HttpLimits;
