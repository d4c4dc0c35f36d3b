//! The nexus3 wire protocol: JSON-RPC 2.0, the method list, events and their streams, length-prefixed frames, and the
//! names of token files. Sans-I/O: it converts between bytes and values, without sockets, files, clock or async.

mod api;
pub mod discovery;
mod door;
pub mod envelope;
pub mod events;
pub mod frame;
pub mod json;
pub mod methods;
#[cfg(feature = "schema")]
pub mod schema;
pub mod sse;

pub use api::{AgentApi, AgentScope};
pub use door::Door;
pub use envelope::{
    EnvelopeRules, ErrorCode, Id, Incoming, Params, RejectedRequest, Request, Response, RpcError,
};
pub use methods::{Access, Method, MethodSpec};

/// The OpenRPC document of the method list, as checked in; `rpc.discover` returns it.
pub const OPENRPC: &str = include_str!("../openrpc.json");
