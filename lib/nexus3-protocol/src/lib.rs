//! Every word on the nexus3 wire: JSON-RPC 2.0, the method list, events and their streams, length frames, and the names
//! of token files. No sockets, files, clock or async: bytes in, values out, and back.

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
pub use methods::{Method, MethodSpec};

/// The OpenRPC document of the method list, as checked in; `rpc.discover` answers with it.
pub const OPENRPC: &str = include_str!("../openrpc.json");
