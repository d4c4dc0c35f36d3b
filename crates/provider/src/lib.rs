//! Models: what a user names with `--model`, and the clients that speak to them.

mod anthropic;
#[cfg_attr(not(test), expect(dead_code, reason = "the transport chooses between its two forms"))]
mod chat;
#[expect(dead_code, reason = "the transport asks through it")]
mod dialect;
#[cfg(test)]
mod fixtures;
mod none;
pub mod openai;
mod prefix;
mod reading;
mod responses;
mod sse;
mod writing;

pub use none::NoModel;
