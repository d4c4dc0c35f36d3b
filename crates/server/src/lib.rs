//! The doors: HTTP on loopback, with its limits, its checks and its token. What a call means is left to `rpc`.

pub mod http;
mod listen;

pub use listen::{BindFault, Host, Listener, bind};
