//! Finds a nexus3 daemon and calls it, typed by method. Reads token files, but never the environment: what
//! `NEXUS3_API_KEY` or `NEXUS3_PORT` hold is handed in by the binary.

mod calls;
#[cfg(test)]
mod canned;
mod client;
mod detection;
mod endpoint;
mod fault;
mod connection;
mod stream;
mod token;

pub use client::{RESPONSE_BYTES_MAX, AgentClient, CALL_TIMEOUT, Client, CallTarget};
pub use detection::{
    DETECT_TIMEOUT, Detection, WAIT_POLL_INTERVAL, WAIT_TIMEOUT, detect_server, wait_for_server,
};
pub use endpoint::Endpoint;
pub use fault::ClientFault;
pub use stream::{EventStream, SendStep, SendStream, EventSubscription};
pub use token::{Token, TokenFault, TokenSource, discover_token};
