//! Models: what a user names with `--model`, and the clients that speak to them.

mod none;
pub mod openai;
mod sse;

pub use none::NoModel;
