//! HTTP server on loopback: limits, request validation, authentication and event streams. The crate `rpc` interprets
//! and executes the calls.

pub mod http;
mod listen;

pub use listen::{BindFault, Host, Listener, bind};
