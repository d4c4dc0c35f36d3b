//! Client of the nexus3 daemon: detection, token discovery, typed calls and event streams. It reads token files, but
//! never the environment: the binary passes in the values of `NEXUS3_API_KEY` and `NEXUS3_PORT`.

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
