//! Finds a nexus3 daemon and calls it, typed by method. Reads token files, but never the environment: what
//! `NEXUS3_API_KEY` or `NEXUS3_PORT` hold is handed in by the binary.

mod calls;
mod client;
mod connection;
mod detection;
mod endpoint;
mod fault;
#[cfg(test)]
mod scripted_server;
mod stream;
mod token;

pub use client::{AgentClient, CALL_TIMEOUT, CallTarget, Client, RESPONSE_BYTES_MAX};
pub use detection::{
    DETECT_TIMEOUT, Detection, WAIT_POLL_INTERVAL, WAIT_TIMEOUT, detect_server, wait_for_server,
};
pub use endpoint::Endpoint;
pub use fault::ClientFault;
pub use stream::{EventStream, EventSubscription, SendStep, SendStream};
pub use token::{Token, TokenFault, TokenSource, discover_token};
